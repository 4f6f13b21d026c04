"""A bounded pool of worker threads, and a fair lock for the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import anyio.to_thread

from eddy_demo.web.errors import RequestRefused

T = TypeVar("T")


class WorkerPool:
    """A fixed number of threads for calls of one kind; at most `max_calls` of them wait or run."""

    def __init__(self, n_threads: int, max_calls: int, kind: str = "questions") -> None:
        self._limiter: anyio.CapacityLimiter | None = None  # which needs a running event loop
        self._n_threads, self._max_calls, self._kind = n_threads, max_calls, kind
        self.active = 0

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call in a thread and return its result; refuse it if too many wait or run already."""
        if self.active >= self._max_calls:
            raise RequestRefused(503, f"too many {self._kind} at a time; ask again in a moment")
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._n_threads)
        self.active += 1
        try:
            return await anyio.to_thread.run_sync(call, limiter=self._limiter)
        finally:
            self.active -= 1


class FairLock:
    """A lock that waiting coroutines get in order, without occupying a thread meanwhile."""

    def __init__(self, max_waiting: int) -> None:
        self._lock = asyncio.Lock()
        self._max_waiting = max_waiting
        self.waiting = 0

    @property
    def is_free(self) -> bool:
        """Whether nobody holds the lock."""
        return not self._lock.locked()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Wait for the lock and hold it; refuse if too many wait already."""
        if self.waiting >= self._max_waiting:
            raise RequestRefused(503, "too many answers wait to be written; ask again in a moment")
        self.waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._lock.release()
