"""A question to passages, each with its best sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddy_demo.errors import InvalidQuestion

if TYPE_CHECKING:
    from eddy_demo.library import Library
    from eddy_embed import Embedder


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


def ask(library: Library, embedder: Embedder, question: str, k: int = 3) -> list[Answer]:
    """The k passages nearest to a question, nearest first.

    Raises:
        InvalidQuestion: It is blank, or not valid Unicode.
        LibraryMismatch: The library was made with another embedder.
    """
    check_question(question)
    library.check_embedder(embedder)
    query = np.asarray(embedder.encode_query(question), np.float32)
    hits = library.search(query[None], k)[0]
    entries = library.entries(sorted({hit.document for hit in hits})) if hits else {}
    answers = []
    for hit in hits:
        ranges, vectors = library.sentences(hit)
        cosines = vectors @ query / np.linalg.norm(vectors, axis=1)
        best = int(np.argmax(cosines))
        entry = entries[hit.document]
        answers.append(
            Answer(
                cosine=hit.cosine,
                document=entry.name,
                title=entry.title,
                origin=entry.origin,
                start=hit.start,
                end=hit.end,
                text=hit.text,
                sentence_start=ranges[best][0],
                sentence_end=ranges[best][1],
                sentence_cosine=float(cosines[best]),
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
