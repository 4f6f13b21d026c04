"""A library's time over Eddy's, and how well its vectors order pairs of sentences."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from evaluation.metrics import spearman
from evaluation.tasks import Pairs, find_tasks
from speed.timing import ratio, seconds

from peers.libraries import Batched, ModelFiles, Peer

if TYPE_CHECKING:
    from collections.abc import Iterator

WORSE = 1.5
"""Times the best, behind which no larger batch is tried."""
QUERIES = (11, 10)
"""Rounds for one query, which takes milliseconds, and how often it is asked in each."""


def rows(files: ModelFiles, texts: dict[str, list[str]], rounds: int, peer: Peer) -> Iterator[dict[str, Any]]:
    """The peer's time over Eddy's, at its default batch size and at its best one.

    Args:
        files: The model.
        texts: Of each sort.
        rounds: Pairs of each; `QUERIES` where there is one short text.
        peer: Whose.

    Raises:
        SystemExit: Its vectors are not those that Eddy computes.
    """
    ours, theirs = peer.eddy(files), peer.make(files)
    for sort, chosen in texts.items():
        cosine = _least_cosine(ours(chosen[:8]), theirs(peer.batch)(chosen[:8]))
        if not cosine >= peer.cosine:
            raise SystemExit(f"{peer.name}, {sort} texts: vectors have a cosine of {cosine:.4f} with Eddy's")
        words = sum(len(text.split()) for text in chosen)
        best = peer.batch if len(chosen) == 1 else _best(theirs, peer, chosen)
        often = QUERIES if sort == "one query" else (rounds, 1)
        for size in dict.fromkeys((peer.batch, best)):
            found = ratio(partial(theirs(size), chosen), partial(ours, chosen), *often)
            which = " and ".join(["default"] * (size == peer.batch) + ["best"] * (size == best))
            said = {"texts": sort, "words": words, "cosine": round(cosine, 4), "batch_size": size, "which": which}
            yield {**said, "time": found.row()}


def quality(files: ModelFiles, data: Path, peer: Peer) -> dict[str, Any]:
    """Spearman's correlation on the development pairs of STS-B."""
    (task,) = find_tasks(data, ["stsb_dev"])
    assert isinstance(task, Pairs)
    encode = peer.make(files)(peer.batch)
    first, second = (_units(encode(side)) for side in (task.first, task.second))
    return {"task": task.name, "spearman": float(spearman((first * second).sum(1), np.array(task.gold))[0])}


def _units(vectors: Any) -> Any:
    found = np.asarray(vectors, np.float64)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def _least_cosine(one: Any, other: Any) -> float:
    return float((_units(one) * _units(other)).sum(1).min())


def _best(theirs: Batched, peer: Peer, texts: list[str]) -> int:
    """The batch size with which a peer is fastest on these texts, each measured once after a few texts.

    Sizes rise until one takes `WORSE` times as long as the best, since larger ones are filled up still more.
    """
    if not peer.sizes:
        return peer.batch
    spent: dict[int, float] = {}
    for size in sorted({peer.batch, *peer.sizes}):
        theirs(size)(texts[:4])
        spent[size] = seconds(partial(theirs(size), texts))
        if spent[size] > WORSE * min(spent.values()):
            break
    return min(spent, key=lambda size: spent[size])
