"""What a query finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
