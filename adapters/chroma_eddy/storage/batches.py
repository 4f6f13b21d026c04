"""Batches of rows that the database accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

BATCH_BYTES = 8 * 2**20
"""Most bytes in a batch: a server refuses requests of 40 MB, and encoding makes vectors a third larger."""


def slices(count: int, limit: int) -> Iterator[slice]:
    """Slices of at most `limit` out of `count` rows."""
    return (slice(start, start + limit) for start in range(0, count, limit))


def byte_limited_slices(count: int, width: int, texts: Sequence[Any] | None, limit: int) -> Iterator[slice]:
    """As `slices`, also limited by the bytes of vectors of `width` numbers and of texts."""
    start, size = 0, 0
    for number in range(count):
        row_size = width * 6 + 1000 + (len(texts[number]) * 4 if texts is not None else 0)
        if number > start and (number - start == limit or size + row_size > BATCH_BYTES):
            yield slice(start, number)
            start, size = number, 0
        size += row_size
    if count:
        yield slice(start, count)
