"""Answer a question with sentences of the library and the passages that hold them, as the page shows them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

from chroma_eddy import Highlight, Hit, Index
from eddy_demo.ask import (
    ANSWERS,
    CANDIDATES,
    PIPE,
    begun_table,
    best_sentence,
    cells,
    choose_quotes,
    is_rule,
    pages_cited,
    section,
)
from eddy_demo.display_text import printable, unwrapped
from eddy_demo.web.answers.write import from_thread
from eddy_demo.web.http import Event
from eddy_demo.web.library_reader import LibraryReader, is_drawn

_MARKED = 0.3
"""Least weight of a word that is marked, as a share of the passage's weightiest: "the" is not."""


def answer_question(
    reader: LibraryReader, question: str, k: int, document: str | None = None, **reranking: Any
) -> list[Event]:
    """Search for an answer, and for the k best passages, of one document or all.

    `reranking` are `rerank` and `progress` of `Index.query`. The events are an `answer`, then a `hit` for each passage,
    best first; there are none for an empty library.
    """
    reader.wait()

    def search(index: Index | None) -> list[Hit] | None:
        if index is None:
            return None
        documents = None if document is None else [document]
        return index.query(question, max(k, CANDIDATES), documents=documents, sentences=True, **reranking)

    hits = reader.read(search)
    if hits is None:
        return []
    ranked = [("hit", {"rank": rank, **hit_data(hit)}) for rank, hit in enumerate(hits[:k], start=1)]
    return [("answer", answer_data(hits)), *ranked]


def reranked_answer(
    reader: LibraryReader, question: str, k: int, document: str | None = None
) -> Generator[Event, None, None]:
    """Yield `reranking` with what is done, then the events of `answer_question` of the re-ranked passages.

    Closing this generator stops the model after the pass that is under way.
    """
    answer = list[Event]()

    def rerank(hand: Callable[[Event], None]) -> None:
        def progress(done: int, total: int, _: str) -> None:
            hand(("reranking", {"done": done, "total": total}))

        progress(0, 0, "")
        answer.extend(answer_question(reader, question, k, document, rerank=reader.reranker(), progress=progress))

    with closing(from_thread(rerank)) as events:
        yield from (event for event in events if event)
    yield from answer


# --- What the page shows ----------------------------------------------------------------------------------------------


def answer_data(hits: list[Hit]) -> dict[str, Any]:
    """Return the sentences and table rows that answer, numbered, and whether a passage does, which may have none."""
    sentences = [
        {"n": n, "text": quote.text, "head": quote.head, "row": quote.row, **location(quote.hit, quote.place)}
        for n, quote in enumerate(choose_quotes(hits), start=1)
    ]
    return {"answers": bool(hits) and hits[0].score >= ANSWERS, "sentences": sentences}


def location(hit: Hit, place: Highlight) -> dict[str, Any]:
    """Return where a sentence of a hit is, as the page shows it, and how well the hit fits."""
    return {
        "document": hit.document,
        "name": printable(str(hit.metadata.get("name", hit.document))),
        "title": printable(str(hit.metadata.get("title", ""))),
        "fit": round(hit.score, 2),
        "start": place.start,
        "end": place.end,
        "page": place.page,
        "cited": pages_cited(place),
        "drawn": place.page is not None and is_drawn(hit.metadata),
        "headings": section(hit, place),
        "link": f"/documents/{hit.document}#s-{hit.document}-{place.start}-{place.end}",
    }


def hit_data(hit: Hit) -> dict[str, Any]:
    """Return a passage in parts, its sentences and the text between them, with the place of its best sentence."""
    flat, best = unwrapped(hit.text), best_sentence(hit)
    head = begun_table(hit)
    parts: list[dict[str, Any]] = [{"cells": [[{"text": cell, "word": False}] for cell in head]}] if head else []
    at = hit.start
    for sentence in hit.sentences:
        if sentence.start > at:
            parts.append({"pieces": _pieces(flat, hit, at, sentence.start)})
        at = sentence.end
        pieces = _pieces(flat, hit, sentence.start, at)
        row = cells(sentence.text)
        if not is_rule(sentence.text):
            parts.append({**({"cells": _split(pieces)} if row else {"pieces": pieces}), "best": sentence is best})
    if at < hit.end:
        parts.append({"pieces": _pieces(flat, hit, at, hit.end)})
    return {**location(hit, best), "start": hit.start, "end": hit.end, "cosine": round(hit.cosine, 4), "parts": parts}


def _split(pieces: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the pieces of each cell of a table's row."""
    row: list[list[dict[str, Any]]] = []
    for piece in pieces:
        for number, text in enumerate(PIPE.split(piece["text"])):
            if number or not row:
                row.append([])
            row[-1].append({**piece, "text": text.replace("\\|", "|").replace("<br>", " ")})
    return row[1:-1]


def _pieces(flat: str, hit: Hit, start: int, end: int) -> list[dict[str, Any]]:
    """Return a part of a passage cut into text and the question's words; common words are text."""
    least = _MARKED * max((match.weight for match in hit.matches), default=0.0)
    words = [match for match in hit.matches if start <= match.start and match.end <= end and match.weight >= least]
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
