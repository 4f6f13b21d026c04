"""`IndexSettings`: what makes an index's vectors, stored as metadata of its main collection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eddy_embed.errors import FingerprintMismatch
from eddy_embed.integrations import FINGERPRINT, differences, digest, is_unfitted

if TYPE_CHECKING:
    from eddy_embed import Embedder  # imports torch

FORMAT = 2
_SIZES = ("passage_size", "late", "sentence_vectors")


@dataclass(frozen=True)
class IndexSettings:
    """What makes an index's vectors; opening the index with others is refused.

    Attributes:
        embedder: `Embedder.settings`, including the index's own post-processing.
        passage_size: Most tokens in a passage of several sentences.
        late: Whether passages are pooled from the pass over their document (True) or embedded one by one.
        sentence_vectors: Whether each sentence has a row of its own.
    """

    embedder: Mapping[str, Any]
    passage_size: int = 256
    late: bool = True
    sentence_vectors: bool = True

    @cached_property
    def fingerprint(self) -> str:
        """The embedder's fingerprint."""
        return digest(dict(self.embedder))

    @property
    def sizes(self) -> dict[str, Any]:
        """The options of `open_index` beside the embedder."""
        return {name: getattr(self, name) for name in _SIZES}

    @property
    def metadata(self) -> dict[str, Any]:
        """The settings as the main collection stores them."""
        settings = json.dumps(self.embedder, sort_keys=True)
        sizes = {f"eddy_{name}": value for name, value in self.sizes.items()}
        return {"eddy_format": FORMAT, FINGERPRINT: self.fingerprint, "eddy_settings": settings, **sizes}

    @classmethod
    def parse(cls, metadata: Mapping[str, Any]) -> IndexSettings | None:
        """The settings in a collection's metadata; None if they are no index's, or another version's."""
        if metadata.get("eddy_format") != FORMAT:
            return None
        try:
            sizes = {name: metadata[f"eddy_{name}"] for name in _SIZES}
            settings = cls(json.loads(metadata["eddy_settings"]), **sizes)
        except (KeyError, ValueError, TypeError):
            return None
        return settings if settings.fingerprint == metadata.get(FINGERPRINT) else None

    def comparable_settings(self, embedder: Embedder) -> dict[str, Any]:
        """The embedder's settings; an embedder whose post-processing is not fitted takes the index's own."""
        settings = json_settings(embedder)
        return {**settings, "post": self.embedder.get("post")} if is_unfitted(embedder) else settings

    def check(self, name: str, asked: IndexSettings, line: str) -> None:
        """Refuse `asked`, the settings of the caller's embedder and options, if they differ.

        `line` says how the embedders differ, for people.

        Raises:
            FingerprintMismatch: They differ; the message shows both, field by field, and what to do.
        """
        differing = differences(self._fields(), asked._fields())
        if not differing:
            return
        width = max(len(field) for field, _, _ in differing)
        lines = "\n".join(
            f"  {field:{width}}  {_shortened(stored)}, here {_shortened(given)}" for field, stored, given in differing
        )
        first = line if self.fingerprint != asked.fingerprint else "made with other sizes"
        raise FingerprintMismatch(
            f"Index {name!r} was {first}.\n{lines}\nTheir vectors cannot be compared. "
            "Open it with the embedder and the sizes that it was made with, or embed its documents again: "
            f"open_index(place, {name!r}).reindex(embedder)."
        )

    def _fields(self) -> dict[str, Any]:
        return {"fingerprint": self.fingerprint, **self.sizes, **self.embedder}


def json_settings(embedder: Embedder) -> dict[str, Any]:
    """The embedder's settings as JSON gives them back: with lists in place of tuples."""
    settings: dict[str, Any] = json.loads(json.dumps(embedder.settings))
    return settings


def _shortened(value: Any, most: int = 80) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]} …"
