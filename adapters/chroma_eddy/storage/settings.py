"""`IndexSettings`: what makes an index's vectors, stored as metadata of its main collection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from chroma_eddy.errors import ForeignCollection, OutdatedIndex
from eddy_embed.encoding.validation import PASSAGE_SIZE
from eddy_embed.errors import FingerprintMismatch
from eddy_embed.integrations.documents import FINGERPRINT
from eddy_embed.utils.settings import differences, digest

if TYPE_CHECKING:
    from eddy_embed import Embedder  # imports torch

FORMAT, EARLIER_FORMATS = 3, (2,)
"""Version of what is written, and those that `reindex` reads."""
_SIZES = ("passage_size", "late", "sentence_vectors")


@dataclass(frozen=True)
class IndexSettings:
    """What makes an index's vectors; opening the index with others is refused.

    Attributes:
        embedder: `Embedder.settings`, including its fitted post-processing, by its digest.
        passage_size: Most tokens in a passage of several sentences.
        late: Whether passages are pooled from the pass over their document (True) or embedded one by one.
        sentence_vectors: Whether the vectors of sentences are stored, if the method runs layers.
    """

    embedder: Mapping[str, Any]
    passage_size: int = PASSAGE_SIZE
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
    def parse(cls, name: str, metadata: Mapping[str, Any], *, outdated: bool = False) -> IndexSettings:
        """The settings in the metadata of an index's main collection, also of an `outdated` one.

        Raises:
            ForeignCollection: The collection is no index's.
            OutdatedIndex: An earlier version of this library wrote it, and `outdated` is False.
        """
        written = metadata.get("eddy_format")
        if written in EARLIER_FORMATS and not outdated:
            raise OutdatedIndex(
                f"index {name!r} was written by an earlier version of this library. Write it anew, which keeps texts "
                f"and metadata: chroma_eddy.reindex(place, {name!r}, embedder), or `eddy-demo library rebuild` for a "
                "library"
            )
        try:
            sizes = {size: metadata[f"eddy_{size}"] for size in _SIZES}
            settings = cls(json.loads(metadata["eddy_settings"]), **sizes)
        except (KeyError, ValueError, TypeError):
            settings = None
        known = written in (FORMAT, *EARLIER_FORMATS) and settings is not None
        if settings is None or not known or settings.fingerprint != metadata.get(FINGERPRINT):
            by = "open_collection" if FINGERPRINT in metadata else "something else"
            if metadata.get("eddy_format", FORMAT) != FORMAT:
                by = "another version of this library"
            raise ForeignCollection(
                f"collection {name!r} was made by {by}, not as an index: choose another name; it is left as it is"
            )
        return settings

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
            f"chroma_eddy.reindex(place, {name!r}, embedder)."
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
