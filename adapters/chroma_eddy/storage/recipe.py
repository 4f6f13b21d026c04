"""What made an index's vectors, as its main collection's metadata say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eddy_embed.difference import differences
from eddy_embed.errors import FingerprintMismatch
from eddy_embed.fingerprint import digest

if TYPE_CHECKING:
    from eddy_embed import Embedder

FORMAT = 1
_METADATA_FIELDS = {
    "eddy_passage_size": "passage_size",
    "eddy_late": "late",
    "eddy_sentence_vectors": "sentence_vectors",
}


@dataclass(frozen=True)
class Recipe:
    """What made an index's vectors; anything else is refused.

    Attributes:
        settings: The embedder's, the index's own post-processing included.
        passage_size: Most tokens in a passage of several sentences.
        late: Whether passages are read out of the pass over their document, or embedded each by itself.
        sentence_vectors: Whether each sentence has a row of its own.
    """

    settings: Mapping[str, Any]
    passage_size: int = 256
    late: bool = True
    sentence_vectors: bool = True

    @property
    def fingerprint(self) -> str:
        """The embedder's."""
        return digest(dict(self.settings))

    @property
    def metadata(self) -> dict[str, Any]:
        """As the main collection has it."""
        settings = json.dumps(self.settings, sort_keys=True)
        own = {name: getattr(self, field) for name, field in _METADATA_FIELDS.items()}
        return {"eddy_format": FORMAT, "eddy_fingerprint": self.fingerprint, "eddy_settings": settings, **own}

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Recipe | None:
        """What metadata say; None where they are of no index, or of another version's."""
        if metadata.get("eddy_format") != FORMAT:
            return None
        try:
            own = {field: metadata[name] for name, field in _METADATA_FIELDS.items()}
            found = cls(json.loads(metadata["eddy_settings"]), **own)
        except (KeyError, ValueError, TypeError):
            return None
        return found if found.fingerprint == metadata.get("eddy_fingerprint") else None

    def settings_of(self, embedder: Embedder) -> dict[str, Any]:
        """What the embedder's settings are with the index's own post-processing, where it has yet to be fitted."""
        told = json_settings(embedder.settings)
        return {**told, "post": self.settings.get("post")} if is_unfitted(embedder) else told

    def check(self, name: str, asked: Recipe) -> None:
        """Refuse another recipe.

        Args:
            name: The index's.
            asked: What the caller's embedder and choices are.

        Raises:
            FingerprintMismatch: They differ; the message has both, field by field, and what to do.
        """
        found = differences(self._shown(), asked._shown())
        if not found:
            return
        wide = max(len(field) for field, _, _ in found)
        lines = "\n".join(
            f"  {field:{wide}}  {_shortened(there)}, here {_shortened(here)}" for field, there, here in found
        )
        raise FingerprintMismatch(
            f"Index {name!r} was made otherwise than is asked for now:\n{lines}\nTheir vectors cannot be compared. "
            "Open it with the embedder and the sizes that it was made with, or embed its documents again: "
            f"open_index(place, {name!r}).reindex(embedder)."
        )

    def _shown(self) -> dict[str, Any]:
        own = {field: getattr(self, field) for field in _METADATA_FIELDS.values()}
        return {"fingerprint": self.fingerprint, **own, **self.settings}


def is_unfitted(embedder: Embedder) -> bool:
    """Whether the method has post-processing that has learned nothing yet."""
    return embedder.method.post is not None and embedder.method.post.learns and embedder.post is None


def _shortened(value: Any, most: int = 80) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]} …"


def json_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they come back from JSON: tuples are lists there."""
    told: dict[str, Any] = json.loads(json.dumps(settings))
    return told
