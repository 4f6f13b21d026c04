"""What embedding took: tokens, time, memory."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddy_embed import Embedder

_STATUS, _REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass
class Cost:
    """Of texts that were embedded.

    Attributes:
        texts: Texts.
        tokens: Their tokens, without prompts and placeholders.
        positions: Positions run through the model.
        seconds: From texts to vectors.
        peak: Most bytes of memory held meanwhile: on a GPU what torch allocated there, else the whole process. None
            where the system does not tell.
        blank: Texts that were blank, which cost nothing.
        cut: Texts whose end was cut.
    """

    texts: int = 0
    tokens: int = 0
    positions: int = 0
    seconds: float = 0.0
    peak: int | None = None
    blank: int = 0
    cut: int = 0

    def __add__(self, other: Cost) -> Cost:
        """Of both, one after the other."""
        peaks = [each.peak for each in (self, other) if each.peak is not None]
        return Cost(
            self.texts + other.texts,
            self.tokens + other.tokens,
            self.positions + other.positions,
            self.seconds + other.seconds,
            max(peaks, default=None),
            self.blank + other.blank,
            self.cut + other.cut,
        )

    @property
    def per_thousand(self) -> float | None:
        """Milliseconds for 1,000 tokens."""
        return self.seconds * 1e6 / self.tokens if self.tokens else None


@contextmanager
def measured(embedder: Embedder) -> Iterator[Cost]:
    """The cost of what an embedder does inside, filled in at the end."""
    cost, counts = Cost(), embedder.counts
    before = (counts.texts, counts.tokens, counts.positions, counts.truncated_texts)
    cuda = embedder.device.startswith("cuda")
    _start(cuda)
    started = time.perf_counter()
    yield cost
    cost.seconds = time.perf_counter() - started
    cost.texts, cost.tokens = counts.texts - before[0], counts.tokens - before[1]
    cost.positions, cost.cut = counts.positions - before[2], counts.truncated_texts - before[3]
    cost.peak = _peak(cuda)


def _start(cuda: bool) -> None:
    """Begin to measure a peak anew."""
    if cuda:
        import torch

        torch.cuda.reset_peak_memory_stats()
    elif _REFERENCES.exists():
        _REFERENCES.write_text("5", encoding="ascii")  # Linux: sets the process's high-water mark back


def _peak(cuda: bool) -> int | None:
    if cuda:
        import torch

        return int(torch.cuda.max_memory_allocated())
    if not _REFERENCES.exists():
        return None
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    marks = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]
    return marks[0] if marks else None
