"""What a training step reads: a pure function of the token ids, the settings and the step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from tiny_lm.prepare import BOS_ID, PAD_ID, source_of

IGNORED, LEAST = -100, 8
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """Settings that determine the result of a run, together with the data."""

    phases: Sequence[tuple[int, int]]  # length of a row, and number of steps, one phase after the other
    schedule: Sequence[tuple[int, float]]  # step, and factor on the learning rates; straight lines in between
    tokens: int = 12288  # positions of a step
    weights: dict[str, int] = field(default_factory=dict)  # how often a source occurs in a pass; once if not named
    seed: int = 1  # of the order of documents, and of the first weights


def ordered_documents(folder: Path, recipe: Recipe) -> list[Ints]:
    """Documents of one pass, sources mixed evenly: a stretch of it has about the same composition anywhere."""
    random, texts, keys = np.random.default_rng(recipe.seed), [], []
    for path in sorted(folder.glob("*.npz")):
        stored = np.load(path)
        own = np.split(stored["tokens"].astype(np.int64), stored["starts"][1:-1])
        weight = recipe.weights.get(source_of(path), 1)
        for copy in range(weight):
            keys.append((copy + (random.permutation(len(own)) + 0.5) / len(own)) / weight)
            texts += own
    return [texts[at] for at in np.argsort(np.concatenate(keys), kind="stable")]


def rows(texts: list[Ints], lengths: Iterable[int]) -> Iterator[tuple[Ints, Ints]]:
    """Ids and positions of rows of these lengths, over the documents and over again.

    A document is cut where its row ends. Each piece begins with `<s>` and counts its positions from 0, by which
    transformers keeps pieces apart. Fewer than `LEAST` positions at the end are filled, each a piece of its own.
    """
    stream = cycle(texts)
    rest = next(stream)
    for length in lengths:
        ids, positions, at = np.full(length, PAD_ID, np.int64), np.zeros(length, np.int64), 0
        while length - at >= LEAST:
            size = min(len(rest), length - at - 1)
            ids[at], ids[at + 1 : at + size + 1] = BOS_ID, rest[:size]
            positions[at : at + size + 1] = np.arange(size + 1)
            at, rest = at + size + 1, rest[size:] if size < len(rest) else next(stream)
        yield ids, positions


class Steps(Dataset[dict[str, torch.Tensor]]):
    """A batch for each step: `input_ids`, `position_ids`, `labels`, each of shape (rows, length)."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        steps = [[length] * max(1, recipe.tokens // length) for length, count in recipe.phases for _ in range(count)]
        made = rows(ordered_documents(folder, recipe), chain.from_iterable(steps))
        # A row of ids over one of positions, in 16 bits: the whole run stays in memory.
        self._batches = [np.array([next(made) for _ in lengths], np.uint16) for lengths in steps]

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, step: int) -> dict[str, torch.Tensor]:
        ids, positions = torch.from_numpy(self._batches[step].astype(np.int64)).unbind(1)
        labels = ids.masked_fill((ids == BOS_ID) | (ids == PAD_ID), IGNORED)  # nothing foretells another piece
        return {"input_ids": ids, "position_ids": positions, "labels": labels}
