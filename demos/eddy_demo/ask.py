"""Search the passages that fit a question best, each with its best sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from chroma_eddy import ALPHA, Highlight, Hit, Index
from eddy_demo.display_text import printable
from eddy_demo.errors import InvalidQuestion

_PAGE_LABEL = re.compile(r"[\w.-]{1,8}")
"""Label of a page; longer ones, and those of several words, say what they name, as "slide 3" does."""


@dataclass(frozen=True)
class FoundPassage:
    """A passage that a question found; offsets count characters of the document's text, ends are exclusive."""

    cosine: float
    document: str
    title: str  # "" without one
    origin: str  # the file, with `#id` for a row
    start: int
    end: int
    text: str
    sentence_start: int
    sentence_end: int
    sentence_cosine: float
    rerank_score: float | None = None  # by --rerank, from 0 to 1
    page: int | None = None  # of the passage, counted from 1; None for a document without pages
    last_page: int | None = None
    sentence_page: int | None = None  # on which the best sentence begins
    cited: str = ""  # pages of the best sentence, by their labels: "p. 2", "slide 3"


def ask(index: Index, question: str, k: int = 3, alpha: float = ALPHA, rerank: bool = False) -> list[FoundPassage]:
    """Return the k passages that fit a question best, by vectors, which `alpha` weighs, and by keywords, best first.

    With `rerank`, the library's model re-ranks the best of them.
    """
    check_question(question)
    passages = []
    for hit in index.query(question, k, alpha=alpha, sentences=True, rerank=rerank):
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
                rerank_score=hit.rerank_score,
                page=hit.page,
                last_page=hit.last_page,
                sentence_page=best.page,
                cited=pages_cited(best),
            )
        )
    return passages


def pages_cited(place: Hit | Highlight) -> str:
    """Return where a passage or sentence stands, as it is cited: `p. 2`, `pp. iv–v`, `slide 3`; "" without pages."""
    if place.page is None:
        return ""
    first, last = page_cited(place.page_label or str(place.page)), place.last_page_label or str(place.last_page)
    if place.page == place.last_page:
        return first
    return f"p{first}–{printable(last)}" if first.startswith("p. ") else f"{first} – {page_cited(last)}"


def page_cited(label: str) -> str:
    """Return a page as it is cited by its label or number: `p. iv`, `slide 3`."""
    return f"p. {label}" if _PAGE_LABEL.fullmatch(label) else printable(label)


def check_question(question: str) -> None:
    """Check a question."""
    if not question.strip():
        raise InvalidQuestion('the question is empty; ask one, as in: eddy-demo ask "What is a window?"')
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise InvalidQuestion(
            f"character {error.start} of the question is half of a surrogate pair: not valid Unicode; "
            "check the terminal's encoding"
        ) from None
