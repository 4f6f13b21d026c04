"""The texts that a diagnosis looks at, by their lengths, and pairs of texts that mean the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from eddy_embed.analysis.layers.measure import chosen
from eddy_embed.analysis.text_files import decoded
from eddy_embed.encoding.validation import checked_text_list
from eddy_embed.errors import InvalidParameter
from eddy_embed.text.tokenizer import Tokenizer

ALIKE = 0.8
"""Pairs with scores: those of at least this share of the best one mean the same."""


@dataclass(frozen=True)
class Bin:
    """Texts of like length: their fewest and most tokens, and their indices."""

    low: int
    high: int
    members: tuple[int, ...]

    @property
    def label(self) -> str:
        """Its lengths, as shown."""
        return f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"


@dataclass(frozen=True)
class Sample:
    """Texts, and which of them are of like length, from the shortest on.

    `whole` are indices of different texts, none of which is another one cut; `cut`: the bins hold the same texts, cut.
    """

    texts: tuple[str, ...]
    bins: tuple[Bin, ...]
    whole: tuple[int, ...]
    cut: bool


def drawn(texts: Iterable[str], count: int, seed: int) -> list[str]:
    """So many different texts, in their order; all where there are no more."""
    there = list(dict.fromkeys(checked_text_list(texts)))
    if len(there) < 2:
        raise InvalidParameter(
            f"a diagnosis compares texts, and the sample has {len(there)} different one{'s' * (len(there) != 1)}; "
            "add texts, one in a line"
        )
    return chosen(there, min(count, len(there)), seed)


def by_length(texts: Sequence[str], tokenizer: Tokenizer, bins: int) -> Sample:
    """Different texts as they are, in bins of about as many each; fewer bins where many texts are of one length."""
    tokens = np.array([len(tokenizer.places(text)[0]) for text in texts])
    edges = np.unique(np.quantile(tokens, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
    place = np.searchsorted(edges, tokens, side="left")
    groups = [np.flatnonzero(place == number) for number in np.unique(place)]
    found = [Bin(int(tokens[own].min()), int(tokens[own].max()), tuple(own.tolist())) for own in groups]
    return Sample(tuple(texts), tuple(found), tuple(range(len(texts))), cut=False)


def by_cutting(texts: Sequence[str], tokenizer: Tokenizer, lengths: Sequence[int]) -> Sample:
    """The same texts cut to several lengths in tokens, so that the bins differ in nothing else.

    Texts shorter than the longest cut are left out.
    """
    if not lengths or lengths[0] < 1 or any(a >= b for a, b in pairwise(lengths)):
        raise InvalidParameter(f"lengths={tuple(lengths)} must be numbers of tokens that rise, such as 16,64,256")
    ends = [tokenizer.places(text)[1] for text in texts]
    long = [at for at, each in enumerate(ends) if len(each) >= lengths[-1]]
    found: list[str] = []
    bins = []
    for length in lengths:
        # Different texts may begin alike.
        cut = dict.fromkeys(texts[at][: int(ends[at][length - 1])] for at in long)
        bins.append(Bin(length, length, tuple(range(len(found), len(found) + len(cut)))))
        found += cut
    if min(len(each.members) for each in bins) < 2:
        raise InvalidParameter(
            f"{len(long)} of {len(texts)} texts have {lengths[-1]} tokens or more, and two or more must, and begin "
            "differently; add longer texts, or cut shorter"
        )
    return Sample(tuple(found), tuple(bins), bins[-1].members, cut=True)


def read_texts(path: Path) -> list[str]:
    """Texts of a .jsonl file, rows `{"text": ...}`."""
    return [row["text"] for row in _rows(path, "text")]


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Pairs of texts that mean the same: rows `{"a": ..., "b": ...}` of a .jsonl file.

    Where rows have a "score", those of at least `ALIKE` of the highest one.
    """
    rows = _rows(path, "a", "b")
    scores = [row["score"] for row in rows if isinstance(row.get("score"), int | float)]
    if scores and len(scores) < len(rows):
        raise InvalidParameter(f"{path}: {len(rows) - len(scores)} rows have no number as their score; give all one")
    if scores:
        rows = [row for row in rows if row["score"] >= ALIKE * max(scores)]
    return [(row["a"], row["b"]) for row in rows]


def _rows(path: Path, *wanted: str) -> list[dict[str, Any]]:
    """Rows of a .jsonl file, each of which has strings under the wanted names."""
    shape = ", ".join(f'"{name}": ...' for name in wanted)
    found = []
    for number, line in enumerate(decoded(str(path), path.read_bytes()).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidParameter(f"{path}, line {number}: {error}; rows must be {{{shape}}}") from None
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in wanted):
            raise InvalidParameter(f"{path}, line {number} must be {{{shape}}} with texts, not {line:.60}")
        found.append(row)
    if not found:
        raise InvalidParameter(f"{path} is empty; it needs rows {{{shape}}}")
    return found
