"""How well a library's search finds what answers, beside meaning and words alone, and what the page then quotes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chroma_eddy import Hit, Index
from eddy_demo.ask import choose_quotes
from eddy_demo.errors import DemoError

_DEPTH = 10


@dataclass(frozen=True)
class LabelledQuestion:
    """A question, and the needle that what answers it holds."""

    text: str
    needle: re.Pattern[str]


@dataclass(frozen=True)
class SearchScores:
    """Shares of the questions; the last two for the library's own search alone, of what the page would quote."""

    system: str  # text form of the method, "BM25", or both
    passages: int  # in the library
    hit_at_1: float  # the first passage answers
    hit_at_5: float  # one of the first 5 does
    mrr_at_10: float  # mean of 1 / rank of the first passage that answers, 0 below rank 10
    answered: float | None = None  # some sentence is quoted
    quoted: float | None = None  # the quoted sentences answer


def read_questions(queries: Path) -> list[LabelledQuestion]:
    """Read questions, rows {"text", "needle"}, whose needle is a regular expression, in upper or lower case."""
    try:
        rows = [json.loads(line) for line in queries.read_text(encoding="utf-8").splitlines() if line.strip()]
        found = [LabelledQuestion(str(row["text"]), re.compile(str(row["needle"]), re.IGNORECASE)) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, re.error) as error:
        raise DemoError(f'cannot read {queries}: {error!r}; rows are {{"text", "needle"}}') from None
    if not found:
        raise DemoError(f"{queries} has no question")
    return found


def score_library(index: Index, questions: Sequence[LabelledQuestion], rerank: bool = False) -> list[SearchScores]:
    """Measure the library's own search, which `ask` uses, and its two sides: vectors alone, and keywords alone (BM25).

    With `rerank`, also the library's own search, re-ranked by its model.
    """
    method, systems = str(index.embedder.method), dict[str, dict[str, Any]]()
    systems[f"{method} and BM25"] = {"sentences": True}
    if rerank:
        systems[f"{method} and BM25, re-ranked"] = {"sentences": True, "rerank": True}
    systems |= {method: {"alpha": 1}, "BM25": {"alpha": 0}}
    return [_score(system, index, questions, **options) for system, options in systems.items()]


def _score(system: str, index: Index, questions: Sequence[LabelledQuestion], **options: Any) -> SearchScores:
    hits = [index.query(question.text, _DEPTH, **options) for question in questions]
    ranks = np.array([_rank(*both) for both in zip(questions, hits, strict=True)])
    scores = [np.mean(ranks <= 1), np.mean(ranks <= 5), np.mean(np.where(ranks <= _DEPTH, 1 / ranks, 0))]
    if options.get("sentences"):
        quotes = [_quotes(*both) for both in zip(questions, hits, strict=True)]
        scores += [np.mean([right is not None for right in quotes]), np.mean([right is True for right in quotes])]
    return SearchScores(system, index.status().passages, *map(float, scores))


def _rank(question: LabelledQuestion, hits: Sequence[Hit]) -> int:
    ranks = (rank for rank, hit in enumerate(hits, start=1) if question.needle.search(hit.text))
    return next(ranks, _DEPTH + 1)


def _quotes(question: LabelledQuestion, hits: list[Hit]) -> bool | None:
    """Whether the sentences that the page quotes from hits answer; None if it quotes none."""
    quotes = choose_quotes(hits)
    return bool(question.needle.search(" ".join(quote.text for quote in quotes))) if quotes else None
