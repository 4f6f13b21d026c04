"""A question to what the page shows: sentences that answer it, and the passages where they stand."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eddy_demo.ask import check_question
from eddy_demo.display_text import printable, unwrapped
from eddy_demo.errors import InvalidQuestion
from eddy_demo.web.answers.calibration import CANDIDATES, QUESTIONS, SHARE, best, prose
from eddy_demo.web.library_reader import entry_in

if TYPE_CHECKING:
    from chroma_eddy import Hit, Index
    from eddy_demo.web.library_reader import Shelf

MOST = 3
"""Sentences of an answer."""
Event = tuple[str, dict[str, Any]]


def checked(question: str, most: int) -> str:
    """A question that can be asked.

    Raises:
        InvalidQuestion: It is blank, too long, or not valid Unicode.
    """
    if not question.strip():
        raise InvalidQuestion("type a question first")
    if len(question) > most:
        raise InvalidQuestion(f"the question has {len(question):,} characters; ask it in at most {most:,}")
    check_question(question)
    return question.strip()


def link(document: str, start: int, end: int) -> str:
    """Where a sentence stands: an address that stays the same as long as the document does."""
    return f"/documents/{document}#s-{document}-{start}-{end}"


@dataclass(frozen=True)
class Answer:
    """What was found.

    Attributes:
        events: `answer`, and a `hit` for each passage, nearest first; nothing in an empty library.
        sentences: What a model may write from.
    """

    events: list[Event]
    sentences: list[dict[str, Any]]


def answer(shelf: Shelf, question: str, k: int) -> Answer:
    """Look for an answer.

    Args:
        shelf: The library.
        question: As `checked` gave it.
        k: How many passages.
    """
    shelf.wait()
    read = shelf.steadily(lambda index: None if index is None else _read(shelf, index, question, k))
    if read is None:
        return Answer([], [])
    found, hits = read
    told = {**found, "sentences": found["sentences"][:MOST]}
    ranked = [("hit", {"rank": rank, **hit_data(hit)}) for rank, hit in enumerate(hits, start=1)]
    return Answer([("answer", told), *ranked], found["sentences"])


def _read(shelf: Shelf, index: Index, question: str, k: int) -> tuple[dict[str, Any], list[Hit]]:
    vector = index.embedder.encode_query(question, show_progress=False)[None]
    near = index.search(vector, CANDIDATES, granularity="sentences")[0]
    hits = index.search(vector, k, sentences=True)[0]
    return extract(index, near, hits, shelf.calibration.threshold(index)), hits


def extract(index: Index, near: list[Hit], hits: list[Hit], threshold: float) -> dict[str, Any]:
    """The sentences that answer, as far as any do.

    Args:
        index: The library.
        near: The nearest sentences, nearest first.
        hits: The nearest passages, which tell what their sentences stand under.
        threshold: The cosine that they must pass.
    """
    found = [hit for hit in near if prose(hit.text) and hit.cosine > threshold]
    texts: set[str] = set()
    chosen: list[dict[str, Any]] = []
    for hit in found:
        text = " ".join(printable(hit.text).split())
        if text not in texts and len(chosen) < CANDIDATES:
            texts.add(text)
            chosen.append({"n": len(chosen) + 1, "text": text, **place(_told(index, hit, hits))})
    return {
        "threshold": round(threshold, 4),
        "best": round(best(near), 4),
        "trials": len(QUESTIONS),
        "share": SHARE,
        "sentences": chosen,
    }


def _told(index: Index, sentence: Hit, hits: list[Hit]) -> Hit:
    """A sentence with what its document, and its passage if that was found, say of it."""
    entry = entry_in(index, sentence.document)
    if entry is None:
        return sentence
    starts = entry.page_starts
    page, last = (bisect_right(starts, at) if starts else None for at in (sentence.start, sentence.end - 1))
    around = [hit for hit in hits if hit.document == sentence.document and hit.start <= sentence.start < hit.end]
    headings = around[0].headings if around else ""
    return replace(sentence, metadata=entry.metadata, page=page, last_page=last, headings=headings)


def place(hit: Hit) -> dict[str, Any]:
    """Where a hit stands."""
    return {
        "document": hit.document,
        "name": printable(str(hit.metadata.get("name", hit.document))),
        "title": printable(str(hit.metadata.get("title", ""))),
        "cosine": round(hit.cosine, 4),
        "start": hit.start,
        "end": hit.end,
        "page": hit.page,
        "last_page": hit.last_page,
        "headings": _under(hit),
        "link": link(hit.document, hit.start, hit.end),
    }


def _under(hit: Hit) -> str:
    """The path of its headings, without the title, which is shown beside it."""
    parts = [part for part in hit.headings.split(" > ") if part]
    return printable(" > ".join(parts[1:] if parts and parts[0] == hit.metadata.get("title") else parts))


def hit_data(hit: Hit) -> dict[str, Any]:
    """A passage with its parts: its sentences with their cosines, and what stands between them."""
    flat = unwrapped(hit.text)
    parts: list[dict[str, Any]] = []
    at = hit.start
    nearest = hit.best
    for sentence in hit.sentences:
        if sentence.start > at:
            parts.append({"text": _shown(flat, hit, at, sentence.start)})
        parts.append(
            {
                "text": _shown(flat, hit, sentence.start, sentence.end),
                "cosine": round(sentence.cosine, 4),
                "best": sentence is nearest,
                "link": link(hit.document, sentence.start, sentence.end),
            }
        )
        at = sentence.end
    if at < hit.end:
        parts.append({"text": _shown(flat, hit, at, hit.end)})
    target = (hit.start, hit.end) if nearest is None else (nearest.start, nearest.end)
    return {**place(hit), "parts": parts, "link": link(hit.document, *target)}


def _shown(flat: str, hit: Hit, start: int, end: int) -> str:
    return printable(flat[start - hit.start : end - hit.start].replace("\0", ""))
