"""Times of two things, turn by turn, so that whatever else the machine does meets both alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median, quantiles
from typing import Any

import torch

REPEAT = 10
"""Calls in a round where there is one text."""


@dataclass(frozen=True)
class Ratio:
    """How many times as long one thing takes as another.

    Attributes:
        median: Of the rounds' ratios.
        low: Their lower quartile.
        high: Their upper quartile.
        rounds: How many there were.
        seconds: Median of the one that is measured.
        base: Median of the one that it is measured by.
    """

    median: float
    low: float
    high: float
    rounds: int
    seconds: float
    base: float

    @property
    def spread(self) -> str:
        """The median with its quartiles."""
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"

    def row(self) -> dict[str, Any]:
        """As plain values, to four digits."""
        return {key: float(f"{value:.4g}") if key != "rounds" else value for key, value in asdict(self).items()}


def ratio(measured: Callable[[], object], base: Callable[[], object], rounds: int = 7, repeat: int = 1) -> Ratio:
    """Time two things in turn; in every other round the second goes first.

    Args:
        measured: What the ratio is of.
        base: What it is to.
        rounds: Pairs.
        repeat: Calls of each in a round: for what takes less than some milliseconds.
    """
    measured()
    base()
    gc.collect()
    pairs = []
    for number in range(rounds):
        both = (measured, base) if number % 2 else (base, measured)
        times = [seconds(run, repeat) for run in both]
        pairs.append(times if number % 2 else times[::-1])
    ratios = [one / other for one, other in pairs]
    low, _, high = quantiles(ratios, n=4, method="inclusive") if rounds > 1 else ratios * 3
    return Ratio(
        median(ratios), low, high, rounds, median(one for one, _ in pairs), median(other for _, other in pairs)
    )


def seconds(run: Callable[[], object], repeat: int = 1) -> float:
    """Wall-clock time of one call, an accelerator's work included, without the collector of garbage in between."""
    gc.collect(1)  # what is old takes a third of a second to go through, between any two measurements
    gc.disable()
    try:
        synchronise()
        started = time.perf_counter()
        for _ in range(repeat):
            run()
        synchronise()
        return (time.perf_counter() - started) / repeat
    finally:
        gc.enable()


def synchronise() -> None:
    """Wait for the accelerator, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def embedding(measured: Any, base: Any, texts: list[str], rounds: int) -> Ratio:
    """Time two embedders on the same documents; one text alone `REPEAT` times in a round."""
    repeat = REPEAT if len(texts) == 1 else 1
    return ratio(partial(measured.encode_document, texts), partial(base.encode_document, texts), rounds, repeat)
