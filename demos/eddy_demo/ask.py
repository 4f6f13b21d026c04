"""Search the passages nearest to a question, each with its best sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from eddy_demo.errors import InvalidQuestion

if TYPE_CHECKING:
    from chroma_eddy import Highlight, Index


@dataclass(frozen=True)
class FoundPassage:
    """A passage that a question found. All offsets count characters of the document's text, ends are exclusive.

    Attributes:
        cosine: Cosine of the question's vector with the passage's.
        document: Name of the document.
        title: Title of the document, "" without one.
        origin: The file it was read from, with `#id` for a row.
        start: Start of the passage.
        end: End of the passage.
        text: Text of the passage.
        sentence_start: Start of the best sentence.
        sentence_end: End of the best sentence.
        sentence_cosine: Cosine of the question's vector with the sentence's.
        page: Page where the passage begins, counted from 1; None for a document without pages.
        last_page: Page where it ends.
    """

    cosine: float
    document: str
    title: str
    origin: str
    start: int
    end: int
    text: str
    sentence_start: int
    sentence_end: int
    sentence_cosine: float
    page: int | None = None
    last_page: int | None = None


def ask(index: Index, question: str, k: int = 3) -> list[FoundPassage]:
    """Return the k passages nearest to a question, nearest first.

    Raises:
        InvalidQuestion: The question is blank, or not valid Unicode.
        StorageError: The database failed.
    """
    check_question(question)
    passages = []
    for hit in index.query(question, k, sentences=True):
        best = cast("Highlight", hit.best)
        passages.append(
            FoundPassage(
                cosine=hit.cosine,
                document=hit.metadata["name"],
                title=hit.metadata["title"],
                origin=hit.metadata["origin"],
                start=hit.start,
                end=hit.end,
                text=hit.text,
                sentence_start=best.start,
                sentence_end=best.end,
                sentence_cosine=best.cosine,
                page=hit.page,
                last_page=hit.last_page,
            )
        )
    return passages


def check_question(question: str) -> None:
    """Check a question.

    Raises:
        InvalidQuestion: It is blank, or not valid Unicode.
    """
    if not question.strip():
        raise InvalidQuestion('the question is empty; ask one, as in: eddy-demo ask "What is a window?"')
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise InvalidQuestion(
            f"character {error.start} of the question is half of a surrogate pair: not valid Unicode; "
            "check the terminal's encoding"
        ) from None
