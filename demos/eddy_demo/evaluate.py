"""Hit rates of a library's search, and of meaning and words alone."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chroma_eddy import Index
from eddy_demo.errors import DemoError

_DEPTH = 5


@dataclass(frozen=True)
class JudgedQuestion:
    """A question and the names of its relevant documents."""

    text: str
    relevant: frozenset[str]


@dataclass(frozen=True)
class HitRates:
    """Shares of the questions with a passage of a relevant document among the first 1 and 5 passages."""

    system: str  # text form of the method, "BM25", or both
    passages: int  # in the library
    hit_at_1: float
    hit_at_5: float


def read_questions(queries: Path, qrels: Path) -> list[JudgedQuestion]:
    """Read the questions, rows {"id", "text"}, that have a relevant document by the table query-id, doc-id, score."""
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
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DemoError(f"cannot read {queries} and {qrels}: {error!r}") from None
    questions = [JudgedQuestion(text, frozenset(relevant[key])) for key, text in texts.items() if key in relevant]
    if not questions:
        raise DemoError(f"no question of {queries} has a relevant document in {qrels}; check that the ids agree")
    return questions


def score_library(index: Index, questions: Sequence[JudgedQuestion], rerank: bool = False) -> list[HitRates]:
    """Measure the library's own search, which `ask` uses, and its two sides: meaning alone, and words alone (BM25).

    With `rerank`, also the library's own search with its best passages judged by its model.
    """
    method = str(index.embedder.method)
    options: dict[str, dict[str, Any]] = {
        f"{method} and BM25": {"hybrid": True},
        method: {"hybrid": False},
        "BM25": {"alpha": 0},
        **({f"{method} and BM25, re-ranked": {"hybrid": True, "rerank": True}} if rerank else {}),
    }
    passages = index.status().passages
    return [_score(system, index, passages, questions, **chosen) for system, chosen in options.items()]


def _score(system: str, index: Index, passages: int, questions: Sequence[JudgedQuestion], **options: Any) -> HitRates:
    found = [[hit.metadata["name"] for hit in index.query(each.text, _DEPTH, **options)] for each in questions]

    def share(depth: int) -> float:
        hits = [not q.relevant.isdisjoint(names[:depth]) for q, names in zip(questions, found, strict=True)]
        return sum(hits) / len(hits)

    return HitRates(system, passages, share(1), share(_DEPTH))
