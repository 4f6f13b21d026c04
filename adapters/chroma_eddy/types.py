"""What goes into an index: a document with its id, and what Chroma can hold beside it."""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eddy_embed.errors import InvalidParameter, InvalidText
from eddy_embed.inputs import check_kind

PREFIX = "eddy_"
"""Names that begin so are the index's own."""
RESERVED = ("start_index", "end_index", "page", "last_page", "heading_path")
"""Further names of what the index writes beside a row."""


@dataclass(frozen=True)
class Document:
    """A whole document.

    Attributes:
        id: What it is called between runs; a document of the same id replaces it.
        text: All of it; offsets count its characters.
        metadata: Stored with each of its passages, for filters: strings, numbers and truth values.
        page_starts: Of a document with pages, where each begins in the text: its passages then have `page` and
            `last_page`, counted from 1.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    page_starts: tuple[int, ...] = ()

    @property
    def text_digest(self) -> str:
        """Hash of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    @property
    def digest(self) -> str:
        """Hash of all that is stored: another one for another version of the document, and for another document."""
        told = [self.id, self.text_digest, sorted(self.metadata.items()), list(self.page_starts)]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]

    def pages(self, start: int, end: int) -> dict[str, int]:
        """First and last page of a span, as they are stored; nothing for a document without pages."""
        if not self.page_starts:
            return {}
        starts = self.page_starts
        return {"page": bisect_right(starts, start), "last_page": bisect_right(starts, max(start, end - 1))}


def check_document(given: Any, index: int) -> Document:
    """Refuse what cannot be stored or embedded.

    Raises:
        InvalidParameter: It is no document, or its id or metadata cannot be stored.
        InvalidText: Its text is blank or not valid Unicode.
    """
    check_kind(f"documents[{index}]", given, Document, "a chroma_eddy.Document(id=..., text=...)")
    document: Document = given
    check_kind(f"documents[{index}].id", document.id, str, "a string")
    check_kind(f"documents[{index}].text", document.text, str, "a string")
    check_kind(f"documents[{index}].metadata", document.metadata, Mapping, "a dictionary")
    if not document.id:
        raise InvalidParameter(
            f"documents[{index}] has no id; give one that stays the same between runs, such as its path"
        )
    name = f"document {document.id!r:.80}"
    if not document.text.strip():
        raise InvalidText(f"{name} has no text; leave it out")
    for what, text in (("id", document.id), ("text", document.text)):
        _check_unicode(f"the {what} of {name}", text)
    for key, value in document.metadata.items():
        _check_metadata(name, key, value)
    starts = document.page_starts
    if any(isinstance(at, bool) or not isinstance(at, int) for at in starts) or list(starts) != sorted(starts):
        raise InvalidParameter(f"{name}: page_starts={starts!r:.80} must be rising numbers of characters")
    return document


def _check_metadata(name: str, key: Any, value: Any) -> None:
    if not isinstance(key, str) or not key or key.startswith((PREFIX, "chroma:")) or key in RESERVED:
        raise InvalidParameter(
            f"{name}: metadata may not have the name {key!r:.60}: it must be a string, and {', '.join(RESERVED)} and "
            f"names that begin with {PREFIX} are the index's own"
        )
    _check_unicode(f"metadata {key!r:.60} of {name}", key)
    if isinstance(value, str):
        _check_unicode(f"metadata {key!r:.60} of {name}", value)
    elif not isinstance(value, bool | int | float) or not _is_storable_number(value):
        raise InvalidParameter(
            f"{name}: metadata {key!r:.60} is {value!r:.60}; Chroma holds strings, numbers of 64 bits and truth values"
        )


def _is_storable_number(value: float) -> bool:
    return math.isfinite(value) if isinstance(value, float) else -(2**63) <= value < 2**63


def _check_unicode(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidText(
            f"{what}: character {error.start} is half of a surrogate pair, {text[error.start]!r}; read it with its "
            "real encoding, or with errors='replace'"
        ) from None


@dataclass(frozen=True)
class Highlight:
    """A sentence of a passage found.

    Attributes:
        start: Its first character in the document's text.
        end: The character after its last.
        text: The sentence.
        cosine: Between the question's vector and the sentence's.
    """

    start: int
    end: int
    text: str
    cosine: float


@dataclass(frozen=True)
class Hit:
    """A passage, sentence or document found.

    Attributes:
        id: Of its row.
        document: Id of its document.
        text: What was found.
        start: Its first character in the document's text.
        end: The character after its last.
        cosine: Between the question's vector and its own.
        score: What the hits are ordered by: the cosine, or, with `hybrid`, the sum of reciprocal ranks.
        metadata: The document's, as they were given.
        headings: What a passage stands under, the widest first, as in "Tides > Spring tides"; "" without headings.
        page: Page where it begins, counted from 1; None for a document without pages.
        last_page: Page where it ends.
        sentences: Of a passage, in order, if they were asked for.
        row: Metadata of its row, as they are stored.
    """

    id: str
    document: str
    text: str
    start: int
    end: int
    cosine: float
    score: float
    metadata: Mapping[str, Any]
    headings: str = ""
    page: int | None = None
    last_page: int | None = None
    sentences: tuple[Highlight, ...] = ()
    row: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def best(self) -> Highlight | None:
        """The sentence nearest to the question; None where sentences were not asked for."""
        return max(self.sentences, key=lambda sentence: sentence.cosine, default=None)
