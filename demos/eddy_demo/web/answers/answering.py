"""Answer a question with sentences of the library and the passages that hold them."""

from __future__ import annotations

from typing import Any

from chroma_eddy import Highlight, Hit, Index
from eddy_demo.ask import check_question, pages_cited
from eddy_demo.display_text import printable, unwrapped
from eddy_demo.errors import InvalidQuestion
from eddy_demo.web.answers.support import ANSWERS, CANDIDATES, is_fragment, is_prose
from eddy_demo.web.http.events import Event
from eddy_demo.web.library_reader import LibraryReader, is_drawn

MAX_SENTENCES = 3
"""Maximum number of sentences that an answer shows, and that a model writes from."""
_MARKED = 0.3
"""Least weight of a word that is marked, as a share of the passage's weightiest: "the" is not."""


def checked_question(question: str, max_characters: int, name: str = "the question") -> str:
    """Check a question and strip it; errors about its length call it by `name`."""
    if not question.strip():
        raise InvalidQuestion("type a question first")
    if len(question) > max_characters:
        raise InvalidQuestion(f"{name} has {len(question):,} characters; ask it in at most {max_characters:,}")
    check_question(question)
    return question.strip()


def span_link(document: str, start: int, end: int) -> str:
    """Return the address of a sentence, which stays the same as long as the document does."""
    return f"/documents/{document}#s-{document}-{start}-{end}"


def answer_question(
    reader: LibraryReader, question: str, k: int, document: str | None = None, **reranking: Any
) -> list[Event]:
    """Search for an answer, and for the k best passages, of one document or all.

    `reranking` are `rerank` and `progress` of `Index.query`. The events are an `answer`, then a `hit` for each passage,
    best first; there are none for an empty library.
    """
    reader.wait()
    documents = None if document is None else [document]
    result = reader.read(lambda index: None if index is None else _search(index, question, k, documents, reranking))
    if result is None:
        return []
    extract, hits = result
    ranked = [("hit", {"rank": rank, **hit_data(hit)}) for rank, hit in enumerate(hits, start=1)]
    return [("answer", extract), *ranked]


def quoted(events: list[Event]) -> list[dict[str, Any]]:
    """The sentences that the answer among the events of a search quotes."""
    return [sentence for name, data in events if name == "answer" for sentence in data["sentences"]]


def _search(
    index: Index, question: str, k: int, documents: list[str] | None, reranking: dict[str, Any]
) -> tuple[dict[str, Any], list[Hit]]:
    hits = index.query(question, max(k, CANDIDATES), documents=documents, sentences=True, **reranking)
    return extract_sentences(hits[:CANDIDATES]), hits[:k]


def extract_sentences(hits: list[Hit]) -> dict[str, Any]:
    """Select the sentences of the passages that answer, best first by their own and their passage's score."""
    supported = [hit for hit in hits if hit.score >= ANSWERS]
    found = [(sentence, hit) for hit in supported for sentence in hit.sentences if is_prose(sentence.text)]
    texts: set[str] = set()
    selected: list[dict[str, Any]] = []
    for sentence, hit in sorted(found, key=_rank):
        if len(selected) == MAX_SENTENCES:
            break
        text = " ".join(printable(sentence.text).split())
        if text not in texts:
            texts.add(text)
            selected.append({"n": len(selected) + 1, "text": text, **hit_location(hit, sentence)})
    return {"best": round(hits[0].score, 4) if hits else 0.0, "sentences": selected}


def _rank(found: tuple[Highlight, Hit]) -> tuple[bool, float]:
    sentence, hit = found
    return is_fragment(sentence.text), -(sentence.fused + hit.fused)


def hit_location(hit: Hit, sentence: Highlight | None) -> dict[str, Any]:
    """Return where a sentence of a hit is, or else the hit, as the page shows it."""
    place = sentence or hit
    title = hit.metadata.get("title", "")
    headings = [heading for heading in hit.headings.split(" > ") if heading]
    if headings and headings[0] == title:  # the page shows the title beside them
        headings = headings[1:]
    return {
        "document": hit.document,
        "name": printable(str(hit.metadata.get("name", hit.document))),
        "title": printable(str(title)),
        "cosine": round(place.cosine, 4),
        "fit": round(hit.score, 2),
        "start": place.start,
        "end": place.end,
        "page": place.page,
        "last_page": place.last_page,
        "cited": pages_cited(place),
        "drawn": place.page is not None and is_drawn(hit.metadata),
        "headings": printable(" > ".join(headings)),
        "link": span_link(hit.document, place.start, place.end),
    }


def hit_data(hit: Hit) -> dict[str, Any]:
    """Return a passage in parts: its sentences with their cosines, and the text between them."""
    flat = unwrapped(hit.text)
    parts: list[dict[str, Any]] = []
    at = hit.start
    nearest = hit.best
    for sentence in hit.sentences:
        if sentence.start > at:
            parts.append({"pieces": _pieces(flat, hit, at, sentence.start)})
        parts.append(
            {
                "pieces": _pieces(flat, hit, sentence.start, sentence.end),
                "cosine": round(sentence.cosine, 4),
                "best": sentence is nearest,
                "link": span_link(hit.document, sentence.start, sentence.end),
            }
        )
        at = sentence.end
    if at < hit.end:
        parts.append({"pieces": _pieces(flat, hit, at, hit.end)})
    target = (hit.start, hit.end) if nearest is None else (nearest.start, nearest.end)
    return {
        **hit_location(hit, None),
        "cited": pages_cited(nearest or hit),
        "parts": parts,
        "link": span_link(hit.document, *target),
    }


def _pieces(flat: str, hit: Hit, start: int, end: int) -> list[dict[str, Any]]:
    """Return a part of a passage cut into text and the question's words; common words are text."""
    least = _MARKED * max((match.weight for match in hit.matches), default=0.0)
    words = [each for each in hit.matches if start <= each.start and each.end <= end and each.weight >= least]
    pieces: list[dict[str, Any]] = []
    at = start
    for match in words:
        if match.end <= at:  # a part of a compound that is marked as a whole
            continue
        if match.start < at:  # pairs of characters of a script without spaces overlap
            match = match._replace(start=at)
        if match.start > at:
            pieces.append({"text": _shown(flat, hit, at, match.start), "word": False})
        pieces.append({"text": _shown(flat, hit, match.start, match.end), "word": True})
        at = match.end
    if at < end:
        pieces.append({"text": _shown(flat, hit, at, end), "word": False})
    return pieces


def _shown(flat: str, hit: Hit, start: int, end: int) -> str:
    return printable(flat[start - hit.start : end - hit.start].replace("\0", ""))
