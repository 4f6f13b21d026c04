"""A question to passages, each with its best sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from eddy_demo.errors import InvalidQuestion

if TYPE_CHECKING:
    from chroma_eddy import Highlight, Index


@dataclass(frozen=True)
class Answer:
    """A passage found.

    Attributes:
        cosine: Between the question's vector and the passage's.
        document: The document's name.
        title: Its title, "" without one.
        origin: The file that it was read from, with `#id` for a row.
        start: First character of the passage in the document's text.
        end: Character after its last one: `text[start:end]` is the passage.
        text: The passage.
        sentence_start: First character of the best sentence, in the document's text.
        sentence_end: Character after its last one.
        sentence_cosine: Between the question's vector and the sentence's.
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


def ask(index: Index, question: str, k: int = 3) -> list[Answer]:
    """The k passages nearest to a question, nearest first.

    Raises:
        InvalidQuestion: It is blank, or not valid Unicode.
        StorageError: The database failed.
    """
    check_question(question)
    answers = []
    for hit in index.query(question, k, sentences=True):
        best = cast("Highlight", hit.best)
        answers.append(
            Answer(
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
    return answers


def check_question(question: str) -> None:
    """Refuse a question that cannot be asked.

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
