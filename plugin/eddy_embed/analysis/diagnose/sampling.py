"""The texts that a diagnosis looks at, by their lengths, and pairs of texts that mean the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from eddy_embed.encoding.validation import checked_text_list
from eddy_embed.errors import InvalidParameter, InvalidText

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from eddy_embed.text.tokenizer import Tokenizer

ALIKE = 0.8
"""Pairs with scores: those of at least this share of the best one mean the same."""


@dataclass(frozen=True)
class Bin:
    """Texts of like length.

    Attributes:
        low: Fewest tokens.
        high: Most tokens.
        members: Indices of its texts.
    """

    low: int
    high: int
    members: tuple[int, ...]

    @property
    def label(self) -> str:
        """Its lengths, as shown."""
        return f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"


@dataclass(frozen=True)
class Sample:
    """Texts, and which of them are of like length.

    Attributes:
        texts: All.
        tokens: Of each text alone, without prompt and specials.
        bins: From the shortest on.
        whole: Indices of different texts, none of which is another one cut.
        cut: Whether the bins hold the same texts, cut.
    """

    texts: tuple[str, ...]
    tokens: tuple[int, ...]
    bins: tuple[Bin, ...]
    whole: tuple[int, ...]
    cut: bool


def drawn(texts: Iterable[str], count: int, seed: int) -> list[str]:
    """So many different texts, in their order; all where there are no more.

    Raises:
        InvalidText: A text is blank, no string, or not valid Unicode.
        InvalidParameter: There are fewer than two different texts.
    """
    there = list(dict.fromkeys(checked_text_list(texts)))
    if len(there) < 2:
        raise InvalidParameter(
            f"a diagnosis compares texts, and the sample has {len(there)} different one{'s' * (len(there) != 1)}; "
            "add texts, one in a line"
        )
    if len(there) <= count:
        return there
    chosen = np.random.default_rng(seed).choice(len(there), count, replace=False)
    return [there[index] for index in np.sort(chosen).tolist()]


def by_length(texts: Sequence[str], tokenizer: Tokenizer, bins: int) -> Sample:
    """Texts as they are, in bins of about as many each.

    Args:
        texts: Different ones.
        tokenizer: Counts.
        bins: How many; fewer come out where many texts are of one length.
    """
    tokens = np.array([len(tokenizer.places(text)[0]) for text in texts])
    edges = np.unique(np.quantile(tokens, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
    place = np.searchsorted(edges, tokens, side="left")
    found = []
    for number in np.unique(place).tolist():
        members = np.flatnonzero(place == number)
        found.append(Bin(int(tokens[members].min()), int(tokens[members].max()), tuple(members.tolist())))
    return Sample(tuple(texts), tuple(tokens.tolist()), tuple(found), tuple(range(len(texts))), cut=False)


def by_cutting(texts: Sequence[str], tokenizer: Tokenizer, lengths: Sequence[int]) -> Sample:
    """The same texts cut to several lengths, so that the bins differ in nothing else.

    Args:
        texts: Different ones; those shorter than the longest cut are left out.
        tokenizer: Counts.
        lengths: In tokens, rising.

    Raises:
        InvalidParameter: The lengths do not rise, or fewer than two different texts are as long as the longest.
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
    tokens = [length for length, each in zip(lengths, bins, strict=True) for _ in each.members]
    return Sample(tuple(found), tuple(tokens), tuple(bins), bins[-1].members, cut=True)


def read_texts(path: Path) -> list[str]:
    """Texts of a .jsonl file, rows `{"text": ...}`.

    Raises:
        InvalidText: The file is not UTF-8.
        InvalidParameter: A row is no such thing, or the file is empty.
        OSError: The file cannot be opened.
    """
    return [row["text"] for _, row in _rows(path, {"text": str})]


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Pairs of texts that mean the same: rows `{"a": ..., "b": ...}` of a .jsonl file.

    Where rows have a "score", those of at least `ALIKE` of the highest one.

    Raises:
        InvalidText: The file is not UTF-8.
        InvalidParameter: A row is no such thing, or no row is left.
        OSError: The file cannot be opened.
    """
    rows = [row for _, row in _rows(path, {"a": str, "b": str})]
    scores = [row["score"] for row in rows if isinstance(row.get("score"), int | float)]
    if scores and len(scores) < len(rows):
        raise InvalidParameter(f"{path}: {len(rows) - len(scores)} rows have no number as their score; give all one")
    if scores:
        rows = [row for row in rows if row["score"] >= ALIKE * max(scores)]
    return [(row["a"], row["b"]) for row in rows]


def _rows(path: Path, wanted: dict[str, type]) -> list[tuple[int, dict[str, Any]]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidText(f"{path}: byte {error.start} is not UTF-8; convert the file first") from None
    shape = ", ".join(f'"{name}": ...' for name in wanted)
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InvalidParameter(f"{path}, line {number}: {error}; rows must be {{{shape}}}") from None
        if not isinstance(row, dict) or not all(isinstance(row.get(name), kind) for name, kind in wanted.items()):
            raise InvalidParameter(f"{path}, line {number} must be {{{shape}}} with texts, not {line:.60}")
        found.append((number, row))
    if not found:
        raise InvalidParameter(f"{path} is empty; it needs rows {{{shape}}}")
    return found
