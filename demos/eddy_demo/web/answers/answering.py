"""Answer a question with sentences of the library and the passages that hold them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any

from chroma_eddy import Hit, Index
from eddy_demo.ask import check_question
from eddy_demo.display_text import printable, unwrapped
from eddy_demo.errors import InvalidQuestion
from eddy_demo.web.answers.calibration import CANDIDATES, QUANTILE, UNANSWERABLE_QUESTIONS, best_cosine, is_prose
from eddy_demo.web.http.events import Event
from eddy_demo.web.library_reader import LibraryReader, find_entry

MAX_SENTENCES = 3
"""Maximum number of sentences that an answer shows."""


def checked_question(question: str, max_characters: int) -> str:
    """Check a question and strip it."""
    if not question.strip():
        raise InvalidQuestion("type a question first")
    if len(question) > max_characters:
        raise InvalidQuestion(f"the question has {len(question):,} characters; ask it in at most {max_characters:,}")
    check_question(question)
    return question.strip()


def span_link(document: str, start: int, end: int) -> str:
    """Return the address of a sentence, which stays the same as long as the document does."""
    return f"/documents/{document}#s-{document}-{start}-{end}"


@dataclass(frozen=True)
class Answer:
    """The events of a search, and the sentences that a generator may use."""

    events: list[Event]  # an `answer`, then a `hit` for each passage, nearest first
    sentences: list[dict[str, Any]]


def answer_question(reader: LibraryReader, question: str, k: int) -> Answer:
    """Search for an answer, and for the k nearest passages; an empty library gives no events."""
    reader.wait()
    result = reader.read_consistently(lambda index: None if index is None else _search(reader, index, question, k))
    if result is None:
        return Answer([], [])
    extract, hits = result
    shown = {**extract, "sentences": extract["sentences"][:MAX_SENTENCES]}
    ranked = [("hit", {"rank": rank, **hit_data(hit)}) for rank, hit in enumerate(hits, start=1)]
    return Answer([("answer", shown), *ranked], extract["sentences"])


def _search(reader: LibraryReader, index: Index, question: str, k: int) -> tuple[dict[str, Any], list[Hit]]:
    vector = index.embedder.encode_query(question, show_progress=False)[None]
    sentences = index.search(vector, CANDIDATES, granularity="sentences")[0]
    hits = index.search(vector, k, sentences=True)[0]
    return extract_sentences(index, sentences, hits, reader.calibration.threshold(index)), hits


def extract_sentences(index: Index, sentences: list[Hit], hits: list[Hit], threshold: float) -> dict[str, Any]:
    """Select the sentences above the threshold, nearest first; the hits know the headings of their sentences."""
    texts: set[str] = set()
    selected: list[dict[str, Any]] = []
    for sentence in sentences:
        text = " ".join(printable(sentence.text).split())
        if is_prose(sentence.text) and sentence.cosine > threshold and text not in texts:
            texts.add(text)
            location = hit_location(_with_context(index, sentence, hits))
            selected.append({"n": len(selected) + 1, "text": text, **location})
    return {
        "threshold": round(threshold, 4),
        "best": round(best_cosine(sentences), 4),
        "trials": len(UNANSWERABLE_QUESTIONS),
        "share": QUANTILE,
        "sentences": selected,
    }


def _with_context(index: Index, sentence: Hit, hits: list[Hit]) -> Hit:
    """Add metadata and pages of its document to a sentence, and the headings of its passage if that was found."""
    entry = find_entry(index, sentence.document)
    if entry is None:
        return sentence
    starts = entry.page_starts
    page, last = (bisect_right(starts, at) if starts else None for at in (sentence.start, sentence.end - 1))
    around = [hit for hit in hits if hit.document == sentence.document and hit.start <= sentence.start < hit.end]
    headings = around[0].headings if around else ""
    return replace(sentence, metadata=entry.metadata, page=page, last_page=last, headings=headings)


def hit_location(hit: Hit) -> dict[str, Any]:
    """Return where a hit is, as the page shows it."""
    title = hit.metadata.get("title", "")
    headings = [heading for heading in hit.headings.split(" > ") if heading]
    if headings and headings[0] == title:  # the page shows the title beside them
        headings = headings[1:]
    return {
        "document": hit.document,
        "name": printable(str(hit.metadata.get("name", hit.document))),
        "title": printable(str(title)),
        "cosine": round(hit.cosine, 4),
        "start": hit.start,
        "end": hit.end,
        "page": hit.page,
        "last_page": hit.last_page,
        "headings": printable(" > ".join(headings)),
        "link": span_link(hit.document, hit.start, hit.end),
    }


def hit_data(hit: Hit) -> dict[str, Any]:
    """Return a passage in parts: its sentences with their cosines, and the text between them."""
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
                "link": span_link(hit.document, sentence.start, sentence.end),
            }
        )
        at = sentence.end
    if at < hit.end:
        parts.append({"text": _shown(flat, hit, at, hit.end)})
    target = (hit.start, hit.end) if nearest is None else (nearest.start, nearest.end)
    return {**hit_location(hit), "parts": parts, "link": span_link(hit.document, *target)}


def _shown(flat: str, hit: Hit, start: int, end: int) -> str:
    return printable(flat[start - hit.start : end - hit.start].replace("\0", ""))
