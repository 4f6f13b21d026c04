"""Which sequences share a pass, and what happens if a pass does not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from eddy_embed.utils.memory import out_of_memory

PER_THREAD, ON_ACCELERATOR = 1024, 8192
"""Default of most tokens in a pass. The states of more tokens leave a processor's caches, and fewer do not keep its
threads busy: measured in docs/performance.md."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def budget(given: int | None, device: torch.device) -> int:
    """Most tokens in a pass on a device: the given number, or the default for None."""
    usual = min(PER_THREAD * torch.get_num_threads(), ON_ACCELERATOR) if device.type == "cpu" else ON_ACCELERATOR
    return given or usual


def passes(lengths: Sequence[int], batch_tokens: int, batch_size: int | None) -> list[list[int]]:
    """Indices of the sequences of each pass, longest first, so that memory runs out at the start or not at all."""
    # Sequences of similar length come together, which is what attention wants; nothing is padded.
    batches: list[list[int]] = []
    total = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        full = batch_size is not None and bool(batches) and len(batches[-1]) >= batch_size
        if not batches or full or total + lengths[index] > batch_tokens:
            batches.append([])
            total = 0
        batches[-1].append(index)
        total += lengths[index]
    return batches


def run_halving(run: Callable[[list[Item]], list[Result]], items: list[Item]) -> list[Result]:
    """Run items together, or in halves if memory does not suffice; MemoryError if one alone does not fit."""
    try:
        return run(items)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        if len(items) == 1:
            raise MemoryError(
                f"one sequence alone does not fit in memory ({error}); choose a smaller max_length or dtype='bfloat16'"
            ) from error
    # Outside the handler: the exception holds the failed pass's tensors alive.
    middle = len(items) // 2
    return run_halving(run, items[:middle]) + run_halving(run, items[middle:])
