"""Rows cut into as many as a database takes at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

BATCH_BYTES = 8 * 2**20
"""Most bytes that are sent at a time: a server refuses requests of 40 megabytes, and vectors grow by a third there."""


def slices(count: int, limit: int) -> Iterator[slice]:
    """Of so many rows, at most so many at a time."""
    return (slice(at, at + limit) for at in range(0, count, limit))


def byte_limited_slices(count: int, width: int, texts: Sequence[Any] | None, limit: int) -> Iterator[slice]:
    """As `slices`, where vectors and texts are sent too.

    Args:
        count: How many rows there are.
        width: Numbers in a vector.
        texts: Of the rows, if they have any.
        limit: Most rows at a time.
    """
    start, size = 0, 0
    row = width * 6 + 1000
    for at in range(count):
        own = row + (len(texts[at]) * 4 if texts is not None else 0)
        if at > start and (at - start == limit or size + own > BATCH_BYTES):
            yield slice(start, at)
            start, size = at, 0
        size += own
    if count:
        yield slice(start, count)
