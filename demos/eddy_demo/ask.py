"""Search the passages that fit a question best, and choose the sentences and table rows that answer it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chroma_eddy import ALPHA, Highlight, Hit, Index
from eddy_demo.display_text import printable
from eddy_demo.errors import DemoError
from eddy_embed.text.sentences.blocks import blocks

ANSWERS = 0.5
"""Least score of a passage that answers a question, for every model (docs/web.md)."""
CANDIDATES = 8
"""Number of passages whose sentences are candidates for an answer."""
MAX_QUOTES = 3
"""Maximum number of sentences that an answer quotes, and that a model writes from."""
COLONS = (":", "：")
"""Ends of an announcement, which says nothing itself."""
_PASSAGE, _BEFORE, _REPEATED, _FRAGMENT = 2.0, 0.3, 0.5, 1.0
"""What counts for a sentence beside its own score: its passage's, and that of the sentence before it, a label's whole;
against it, each one that is quoted from its passage already, and that it is a fragment.

Chosen on 50 questions about manuals; docs/web.md has what they and 50 others say."""
_WORD = re.compile(r"\w+")
_CLOSING = "\"'”’»)]*_ "
"""Quotes and marks behind a sentence's own end."""
_MIN_WORDS, _LEADING_WORDS = 4, 7
_ENDED = re.compile(r"[.!。！]\s")
_BULLET = re.compile(r"[-*+•] +")
_PARAGRAPH = re.compile(r"(?:.+\n?)+")
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
PIPE = re.compile(r"(?<!\\)\|")
_PAGE_LABEL = re.compile(r"[\w.-]{1,8}")
"""Label of a page; longer ones, and those of several words, say what they name, as "slide 3" does."""


@dataclass(frozen=True)
class Quote:
    """A sentence that can answer, or a whole row of a table; quotes of more weight come first."""

    hit: Hit
    place: Highlight
    weight: float
    text: str  # on one line; of a row, each cell after its head's
    head: tuple[str, ...] = ()  # cells of a table; empty for a sentence, and without a head
    row: tuple[str, ...] = ()


@dataclass(frozen=True)
class FoundPassage:
    """A passage that a question found; offsets count characters of the document's text, ends are exclusive."""

    score: float  # from 0 to 1; it answers from `ANSWERS` on
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
    headings: str = ""  # above the best sentence
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
        best = best_sentence(hit)
        passages.append(
            FoundPassage(
                score=hit.score,
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
                headings=section(hit, best),
                rerank_score=hit.rerank_score,
                page=hit.page,
                last_page=hit.last_page,
                sentence_page=best.page,
                cited=pages_cited(best),
            )
        )
    return passages


# --- Quotes -----------------------------------------------------------------------------------------------------------


def choose_quotes(hits: Sequence[Hit]) -> list[Quote]:
    """Return what answers among the sentences of the passages that do, best first."""
    candidates = [quote for hit in hits[:CANDIDATES] if hit.score >= ANSWERS for quote in quotable(hit)]
    quoted, of_passage = dict[str, Quote](), Counter[str]()
    while candidates and len(quoted) < MAX_QUOTES:
        best = max(candidates, key=lambda quote: quote.weight - _REPEATED * of_passage[quote.hit.id])
        quoted[best.text] = best
        of_passage[best.hit.id] += 1
        candidates = [quote for quote in candidates if quote.text not in quoted]
    return list(quoted.values())


def best_sentence(hit: Hit) -> Highlight:
    """Return the nearest sentence of a hit that can answer, or, where none can, of all."""
    places = [quote.place for quote in quotable(hit)] or hit.sentences
    return max(places, key=lambda sentence: sentence.fused)


def quotable(hit: Hit) -> Iterator[Quote]:
    """Yield the sentences of a hit that can answer: no heading, code, question or announcement; of a table, rows.

    What stands before a sentence counts for it, too: a heading or another label says what it is about.
    """
    kinds = [(hit.start + start, prose, level) for start, _, prose, level in blocks(hit.text)]
    # A passage may begin or end in the midst of code.
    coded = [part.span() for part in _PARAGRAPH.finditer(hit.text) if _FENCE.search(part[0])]
    carried = 0.0
    for sentence in hit.sentences:
        _, prose, level = max((kind for kind in kinds if kind[0] <= sentence.start), default=(0, True, 0))
        prose = prose and not any(start <= sentence.start - hit.start < end for start, end in coded)
        weight = _PASSAGE * hit.fused + sentence.fused + carried
        carried = max(sentence.fused, 0.0)
        if not (prose or level) and (cells := table_row(hit, sentence)):
            head, row = cells
            pairs = [f"{of}: {cell}" if of else cell for of, cell in zip(head or ("",) * len(row), row, strict=True)]
            yield Quote(hit, sentence, weight, "; ".join(pairs), head, row)
            carried = 0.0
        elif prose and not level and is_prose(sentence.text):
            leads = not is_fragment(sentence.text)
            text = _BULLET.sub("", " ".join(printable(sentence.text).split()), count=1)
            yield Quote(hit, sentence, weight - (0 if leads else _FRAGMENT), text)
            carried *= _BEFORE if leads else 1.0


def table_row(hit: Hit, sentence: Highlight) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the cells of a table's head, () if it is unknown, and of the row that a sentence is in.

    None for the head itself, and for a row that goes on in another passage.
    """
    start, lines = hit.start, hit.text.split("\n")
    above: list[tuple[str, ...]] = []
    for number, line in enumerate(lines):
        row = cells(line)
        if start <= sentence.start <= start + len(line):
            head = above[0] if above else begun_table(hit) if number == 0 else ()
            begins = not above and not head and (number > 0 or bool(cells("".join(lines[1:2]))))
            return None if not row or begins or is_rule(line) else (head if len(head) == len(row) else (), row)
        if not row or not is_rule(line):
            above = [*above, row] if row else []
        start += len(line) + 1
    return None


def begun_table(hit: Hit) -> tuple[str, ...]:
    """Return the head of the table within which a passage begins, () for one that begins elsewhere."""
    row, head = cells(hit.text.split("\n")[0]), cells(f"| {hit.headings.rsplit(' > ', 1)[-1]} |")
    return head if len(row) == len(head) > 1 else ()


def cells(line: str) -> tuple[str, ...]:
    """Return the cells of a line `| cell | cell |`; () for another one."""
    line = line.strip()
    if len(line) < 3 or line[0] != "|" or line[-1] != "|":
        return ()
    parts = PIPE.split(line[1:-1])
    return tuple(" ".join(printable(part).replace("\\|", "|").replace("<br>", " ").split()) for part in parts)


def is_rule(line: str) -> bool:
    """Whether a line of a table only divides it: `| --- | --- |`."""
    return not line.strip("| :+=-\n")


def is_prose(text: str) -> bool:
    """Whether a sentence can be an answer: no line of code, question or announcement."""
    line = text.strip().rstrip(_CLOSING)
    if line.startswith(("#", "|", "```", "~~~", ">>>", "$ ")) or line.endswith(("?", "？", "|")):
        return False
    if line.endswith(COLONS) and not _ENDED.search(line):
        return False
    return len(_WORD.findall(line)) >= _MIN_WORDS or (len(line) >= 12 and not line.isascii())


def is_fragment(text: str) -> bool:
    """Whether a sentence is short and does not end, as labels; texts without spaces are measured in characters."""
    short = len(_WORD.findall(text)) < _LEADING_WORDS and (text.isascii() or len(text) < 2 * _LEADING_WORDS)
    return short and not text.rstrip(_CLOSING).endswith((".", "!", ";", "。", "！"))


# --- Places -----------------------------------------------------------------------------------------------------------


def section(hit: Hit, place: Highlight) -> str:
    """Return the headings above a sentence, without the title of its document and the head of a table."""
    headings = place.headings.split(" > ") if place.headings else []
    if headings and headings[0] == hit.metadata.get("title"):
        headings = headings[1:]
    if place.headings == hit.headings and begun_table(hit):
        headings = headings[:-1]
    return printable(" > ".join(headings))


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


def check_question(question: str, most: int = 2**20) -> str:
    """Check a question, of at most so many characters, and strip it."""
    if not question.strip():
        raise DemoError("the question is empty; type one, such as: What is a window?")
    if len(question) > most:
        raise DemoError(f"the question has {len(question):,} characters; ask it in at most {most:,}")
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise DemoError(
            f"character {error.start} of the question is half of a surrogate pair: not valid Unicode; "
            "check the terminal's encoding"
        ) from None
    return question.strip()
