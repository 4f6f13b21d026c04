"""How often the right document is found, beside BM25 over the same passages."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eddy_demo.errors import InvalidTable

if TYPE_CHECKING:
    from eddy_demo.library import Library
    from eddy_embed import Embedder

DEPTH = 5


@dataclass(frozen=True)
class Question:
    """A question and the names of the documents that answer it."""

    text: str
    relevant: frozenset[str]


@dataclass(frozen=True)
class Score:
    """Share of the questions with a relevant document's passage among the first 1 and 5 passages."""

    system: str
    passages: int
    hit_at_1: float
    hit_at_5: float


def read_questions(queries: Path, qrels: Path) -> list[Question]:
    """Questions with a relevant document: `queries` has rows {"id", "text"}, `qrels` query-id, doc-id, score by tabs.

    Raises:
        InvalidTable: A file cannot be read, or they have no question in common.
    """
    relevant: dict[str, set[str]] = {}
    try:
        texts = {}
        for line in queries.read_text(encoding="utf-8").splitlines():
            if line.strip():
                row = json.loads(line)
                texts[str(row["id"])] = str(row["text"])
        with qrels.open(encoding="utf-8", newline="") as table:
            for row in csv.reader(table, delimiter="\t"):
                if len(row) >= 3 and row[2].lstrip("-").isdigit() and int(row[2]) > 0:
                    relevant.setdefault(row[0], set()).add(row[1])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidTable(f"cannot read {queries} and {qrels}: {error!r}") from None
    questions = [Question(text, frozenset(relevant[key])) for key, text in texts.items() if key in relevant]
    if not questions:
        raise InvalidTable(f"no question of {queries} has a relevant document in {qrels}; check that the ids agree")
    return questions


def score_library(library: Library, embedder: Embedder, questions: Sequence[Question]) -> Score:
    """Hits of the library's own search, the one that `ask` uses."""
    library.check_embedder(embedder)
    names = {key: entry.name for key, entry in library.entries().items()}
    vectors = np.asarray(embedder.encode_query([question.text for question in questions]), np.float32)
    found = [[names[hit.document] for hit in hits] for hits in library.search(vectors, DEPTH)]
    passages = sum(entry.passages for entry in library.entries().values() if entry.complete)
    return _score(library.recipe.method, passages, questions, found)


def score_bm25(library: Library, questions: Sequence[Question]) -> Score:
    """Hits of BM25 (Lucene's variant, k1 = 1.5, b = 0.75, English stop words left out) over the library's passages."""
    import bm25s

    names = {key: entry.name for key, entry in library.entries().items()}
    owners, texts = zip(*library.passages(), strict=True)
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index(bm25s.tokenize(list(texts), stopwords="en", show_progress=False), show_progress=False)
    tokens = bm25s.tokenize([question.text for question in questions], stopwords="en", show_progress=False)
    rows, _ = index.retrieve(tokens, k=min(DEPTH, len(texts)), show_progress=False)
    return _score("BM25", len(texts), questions, [[names[owners[at]] for at in row] for row in rows])


def _score(system: str, passages: int, questions: Sequence[Question], found: list[list[str]]) -> Score:
    def share(depth: int) -> float:
        hits = [not q.relevant.isdisjoint(names[:depth]) for q, names in zip(questions, found, strict=True)]
        return sum(hits) / len(hits)

    return Score(system, passages, share(1), share(DEPTH))
