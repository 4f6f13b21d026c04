"""How well a library's search finds what answers, beside meaning and words alone, and what the page then quotes."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chroma_eddy import Hit, Index
from eddy_demo.ask import choose_quotes
from eddy_demo.errors import DemoError

_DEPTH = 10


@dataclass(frozen=True)
class LabelledQuestion:
    """A question, and what answers it: passages of the documents named, or those in which the needle is found."""

    text: str
    relevant: frozenset[str] = frozenset()
    needle: re.Pattern[str] | None = None

    def answered_by(self, hit: Hit) -> bool:
        """Whether a passage answers."""
        if self.needle is not None:
            return bool(self.needle.search(hit.text))
        return hit.metadata["name"] in self.relevant


@dataclass(frozen=True)
class SearchScores:
    """Shares of the questions; the last two for the library's own search alone, of what the page would quote.

    Attributes:
        system: Text form of the method, "BM25", or both.
        passages: In the library.
        hit_at_1: First passage answers.
        hit_at_5: One of the first 5 passages answers.
        mrr_at_10: Mean of 1 / rank of the first passage that answers, 0 below rank 10.
        answered: Some sentence is quoted.
        quoted: Their passages or, with needles, the sentences themselves answer.
    """

    system: str
    passages: int
    hit_at_1: float
    hit_at_5: float
    mrr_at_10: float
    answered: float | None = None
    quoted: float | None = None


def read_questions(queries: Path, qrels: Path | None) -> list[LabelledQuestion]:
    """Read the questions that have an answer.

    By a table query-id, doc-id, score they are rows {"id", "text"}; without one {"text", "needle"}, whose needle is a
    regular expression, in upper or lower case.
    """
    try:
        lines = [line for line in queries.read_text(encoding="utf-8").splitlines() if line.strip()]
        if qrels is None:
            found = [_with_needle(json.loads(line)) for line in lines]
        else:
            found = _of_table([json.loads(line) for line in lines], qrels)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, re.error) as error:
        files = " and ".join(str(path) for path in (queries, qrels) if path is not None)
        hint = "" if qrels else '; rows are {"text", "needle"}, or name --qrels'
        raise DemoError(f"cannot read {files}: {error!r}{hint}") from None
    if not found:
        raise DemoError(
            f"no question of {queries} has a relevant document in {qrels}; check that the ids agree"
            if qrels
            else f"{queries} has no question"
        )
    return found


def _with_needle(row: Any) -> LabelledQuestion:
    return LabelledQuestion(str(row["text"]), needle=re.compile(str(row["needle"]), re.IGNORECASE))


def _of_table(rows: list[Any], qrels: Path) -> list[LabelledQuestion]:
    texts = {str(row["id"]): str(row["text"]) for row in rows}
    relevant: dict[str, set[str]] = {}
    with qrels.open(encoding="utf-8", newline="") as table:
        for row in csv.reader(table, delimiter="\t"):
            if len(row) >= 3 and row[2].lstrip("-").isdigit() and int(row[2]) > 0:
                relevant.setdefault(row[0], set()).add(row[1])
    return [LabelledQuestion(text, frozenset(relevant[key])) for key, text in texts.items() if key in relevant]


def score_library(index: Index, questions: Sequence[LabelledQuestion], rerank: bool = False) -> list[SearchScores]:
    """Measure the library's own search, which `ask` uses, and its two sides: vectors alone, and keywords alone (BM25).

    With `rerank`, also the library's own search, re-ranked by its model.
    """
    method = str(index.embedder.method)
    own: dict[str, dict[str, Any]] = {f"{method} and BM25": {}}
    if rerank:
        own[f"{method} and BM25, re-ranked"] = {"rerank": True}
    sides: dict[str, dict[str, Any]] = {method: {"alpha": 1}, "BM25": {"alpha": 0}}
    return [
        *(_score(system, index, questions, sentences=True, **options) for system, options in own.items()),
        *(_score(system, index, questions, **options) for system, options in sides.items()),
    ]


def _score(system: str, index: Index, questions: Sequence[LabelledQuestion], **options: Any) -> SearchScores:
    found = [index.query(each.text, _DEPTH, **options) for each in questions]
    ranks = [_rank(question, hits) for question, hits in zip(questions, found, strict=True)]

    def share(depth: int) -> float:
        return sum(rank <= depth for rank in ranks) / len(ranks)

    answers = [_quotes(question, hits) for question, hits in zip(questions, found, strict=True)]
    quoted = {
        "answered": sum(right is not None for right in answers) / len(answers),
        "quoted": sum(bool(right) for right in answers) / len(answers),
    }
    reciprocal = sum(1 / rank for rank in ranks if rank <= _DEPTH) / len(ranks)
    passages = index.status().passages
    return SearchScores(
        system, passages, share(1), share(5), reciprocal, **(quoted if options.get("sentences") else {})
    )


def _rank(question: LabelledQuestion, hits: Sequence[Hit]) -> int:
    return next((rank for rank, hit in enumerate(hits, start=1) if question.answered_by(hit)), _DEPTH + 1)


def _quotes(question: LabelledQuestion, hits: list[Hit]) -> bool | None:
    """Whether the sentences that the page quotes from hits answer; None if it quotes none."""
    quotes = choose_quotes(hits)
    if not quotes:
        return None
    if question.needle is not None:
        return bool(question.needle.search(" ".join(quote.text for quote in quotes)))
    return any(question.answered_by(quote.hit) for quote in quotes)
