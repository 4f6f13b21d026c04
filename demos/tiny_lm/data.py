"""Order and packing of the training data: a pure function of the shards, a seed and a length.

A *segment* is ``<s>`` and up to ``length - 1`` tokens of one document; a *row* is ``length`` positions that hold one
whole segment or several short ones, which training keeps apart.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiny_lm.prepare import BOS_ID, PAD_ID

IGNORED = -100
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowBatch:
    """A batch of rows, arrays of shape (B, n)."""

    ids: Ints
    targets: Ints  # id that follows each position, ``IGNORED`` where none does
    positions: Ints  # inside the segment
    segments: Ints  # number of the segment inside the row, -1 on filling

    @property
    def whole(self) -> bool:
        """Whether every row is one segment, so that a causal mask suffices."""
        return bool((self.segments == 0).all())


class Corpus:
    """Memory-mapped shards with the borders of their documents."""

    def __init__(self, folder: Path) -> None:
        self.meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        names = [shard["name"] for shard in self.meta["shards"]]
        self.sources: list[str] = [shard["source"] for shard in self.meta["shards"]]
        self.tokens = [np.memmap(folder / f"{name}.bin", dtype=np.uint16, mode="r") for name in names]
        self.starts = [np.load(folder / f"{name}.starts.npy") for name in names]

    def segments(self, length: int, minimum: int = 8) -> dict[str, Ints]:
        """Cut documents into segments; for each source (S, 4): shard, start, tokens, number of the document."""
        parts: dict[str, list[Ints]] = {}
        counts: dict[str, int] = {}
        for shard, (source, starts) in enumerate(zip(self.sources, self.starts, strict=True)):
            pieces = -(-np.diff(starts) // (length - 1))
            document = np.repeat(np.arange(len(pieces)), pieces)
            rank = np.arange(len(document)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
            start = starts[:-1][document] + rank * (length - 1)
            size = np.minimum(length - 1, starts[1:][document] - start)
            table = np.stack([np.full_like(start, shard), start, size, document + counts.get(source, 0)], axis=1)
            parts.setdefault(source, []).append(table[size >= minimum])
            counts[source] = counts.get(source, 0) + len(pieces)
        return {source: np.concatenate(tables) for source, tables in parts.items()}


class TrainingOrder:
    """All rows of one weighted pass over the corpus, in the order in which they are trained on.

    A source of weight w occurs w times in a pass.  Its copies follow one another, each in a random order of documents
    that is the same for every length, and the sources are mixed evenly: a stretch of the pass has about the same
    composition anywhere, and a phase of longer rows goes on with documents not yet seen.  The segments of a document
    are scattered over a fiftieth of the pass.
    """

    SCATTER = 0.02

    def __init__(self, corpus: Corpus, length: int, weights: dict[str, int], seed: int) -> None:
        self.corpus, self.length = corpus, length
        documents, places = np.random.default_rng([seed, 0]), np.random.default_rng([seed, length])
        picked, keys = [], []
        for name, table in sorted(corpus.segments(length).items()):
            weight, count = weights.get(name, 1), int(table[:, 3].max(initial=-1)) + 1
            for copy in range(weight):
                order = (documents.permutation(count) + 0.5) / max(1, count)
                picked.append(table)
                keys.append((copy + order[table[:, 3]]) / weight + self.SCATTER * places.random(len(table)))
        self.segments = np.concatenate(picked)[np.argsort(np.concatenate(keys), kind="stable")][:, :3]
        self.rows = pack(self.segments[:, 2] + 1, length)

    def batch(self, first: int, count: int) -> list[RowBatch]:
        """Rows ``first`` to ``first + count`` of the endless repetition of the pass: whole ones, then packed ones."""
        rows = [self.rows[i % len(self.rows)] for i in range(first, first + count)]
        kinds = [[r for r in rows if len(r) == 1], [r for r in rows if len(r) > 1]]
        return [self._build(kind) for kind in kinds if kind]

    def _build(self, rows: list[list[int]]) -> RowBatch:
        shape = (len(rows), self.length)
        ids, targets = np.full(shape, PAD_ID, np.int64), np.full(shape, IGNORED, np.int64)
        positions, numbers = np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
        for r, row in enumerate(rows):
            at = 0
            for number, segment in enumerate(row):
                shard, start, size = self.segments[segment]
                tokens = self.corpus.tokens[shard][start : start + size]
                ids[r, at] = BOS_ID
                ids[r, at + 1 : at + size + 1] = tokens
                targets[r, at : at + size] = tokens
                positions[r, at : at + size + 1] = np.arange(size + 1)
                numbers[r, at : at + size + 1] = number
                at += size + 1
            if len(row) == 1:
                numbers[r] = 0  # filling at the end of one segment is harmless: causal, and without a target
        return RowBatch(ids, targets, positions, numbers)


def pack(sizes: Ints, length: int, open_rows: int = 64) -> list[list[int]]:
    """Fill rows of ``length`` with segments of (S,) sizes in order, best fit among a few open rows."""
    rows: list[list[int]] = []
    waiting: list[tuple[int, list[int]]] = []
    for index, size in enumerate(sizes.tolist()):
        fits = [(room - size, place) for place, (room, _) in enumerate(waiting) if room >= size]
        if size >= length - 8:
            rows.append([index])
        elif fits:
            room, place = min(fits)
            row = [*waiting[place][1], index]
            if room < 16:
                rows.append(row)
                waiting.pop(place)
            else:
                waiting[place] = (room, row)
        else:
            waiting.append((length - size, [index]))
            if len(waiting) > open_rows:
                fullest = min(range(len(waiting)), key=lambda place: waiting[place][0])
                rows.append(waiting.pop(fullest)[1])
    return rows + [row for _, row in waiting]
