"""`IndexSettings`: what makes an index's vectors, stored as metadata of its main collection; names of collections."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from chroma_eddy.errors import ForeignCollection
from eddy_embed.encoding.validation import PASSAGE_SIZE
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations.documents import FINGERPRINT
from eddy_embed.utils.settings import differences, digest

if TYPE_CHECKING:
    from eddy_embed import Embedder  # imports torch

MAIN, DOCUMENTS = "", "-documents"
"""Suffixes of the names of an index's collections; the main one has the name of the index."""
NEXT, OLD = "-next", "-old"
"""Suffixes of the name of an index that is built to replace another, and of the one that was replaced."""
FORMAT = 4
"""Version of what is written; an index of another one is refused."""
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
    def parse(cls, name: str, metadata: Mapping[str, Any]) -> IndexSettings:
        """Parse the settings in the metadata of an index's main collection.

        Raises:
            ForeignCollection: The collection is no index's, or another version of this library wrote it.
        """
        if metadata.get("eddy_format", FORMAT) != FORMAT:
            raise ForeignCollection(
                f"index {name!r} was made by another version of Eddy: ingest its files again into a new folder"
            )
        try:
            sizes = {size: metadata[f"eddy_{size}"] for size in _SIZES}
            settings = cls(json.loads(metadata["eddy_settings"]), **sizes)
        except (KeyError, ValueError, TypeError):
            settings = None
        if settings is None or "eddy_format" not in metadata or settings.fingerprint != metadata.get(FINGERPRINT):
            by = "open_collection" if FINGERPRINT in metadata else "something else"
            raise ForeignCollection(
                f"collection {name!r} was made by {by}, not as an index: choose another name; it is left as it is"
            )
        return settings

    def check(self, name: str, requested: IndexSettings, line: str) -> None:
        """Refuse `requested`, the settings of the caller's embedder and options, if they differ.

        `line` says how the embedders differ, for people.

        Raises:
            FingerprintMismatch: They differ; the message shows both, field by field, and what to do.
        """
        differing = differences(self._fields(), requested._fields())
        if not differing:
            return
        width = max(len(field) for field, _, _ in differing)
        lines = "\n".join(
            f"  {field:{width}}  {_shortened(stored)}, here {_shortened(given)}" for field, stored, given in differing
        )
        first = line if self.fingerprint != requested.fingerprint else "made with other sizes"
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


def check_collection_name(name: Any) -> None:
    """Refuse a name that Chroma takes for no collection, as "p2", which is too short."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]", name):
        raise InvalidParameter(
            f"name={name!r:.80} is no collection's name: it must have 3 to 512 characters, of a-z, A-Z, 0-9 and . _ -, "
            "and begin and end with a letter or digit"
        )


def check_index_name(name: Any) -> None:
    """Refuse a name that no collection can have, or that ends like a collection of another index."""
    check_collection_name(name)
    for suffix in (DOCUMENTS, NEXT, OLD):
        if name.endswith(suffix):
            raise InvalidParameter(
                f"name={name!r:.80} ends with {suffix!r}, which is the name of a collection of another index"
            )
