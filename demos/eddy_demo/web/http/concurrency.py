"""Bounds on work of one kind, and a signal from any thread to the coroutines that wait for a change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import TypeVar

import anyio
import anyio.to_thread

from eddy_demo.web.errors import RequestRefused

T = TypeVar("T")


class BoundedWork:
    """Work of one kind: so much of it runs at the same time, in the order of asking, and a bounded number waits."""

    def __init__(self, n_running: int, n_places: int, kind: str) -> None:
        """`n_places` of this `kind`, such as "questions", wait or run; the next one is refused."""
        self._n_running, self._n_places, self._kind = n_running, n_places, kind

    # Older versions of anyio make limiters only in a running event loop.
    @cached_property
    def running(self) -> anyio.CapacityLimiter:
        """What runs, and how much waits for that."""
        return anyio.CapacityLimiter(self._n_running)

    @cached_property
    def _places(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(self._n_places)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Have one of the places.

        Raises:
            RequestRefused: All are taken.
        """
        try:
            self._places.acquire_nowait()
        except anyio.WouldBlock:
            raise RequestRefused(503, f"too many {self._kind} at a time; ask again in a moment") from None
        try:
            yield
        finally:
            self._places.release()

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call in a thread, when its turn comes, and return its result; refuse it without a place."""
        async with self.place():
            return await anyio.to_thread.run_sync(call, limiter=self.running)


class ChangeSignal:
    """Wakes the coroutines that wait for a change; any thread may announce one."""

    def __init__(self) -> None:
        self.count = 0
        """Number of changes; only the event loop counts."""
        self.ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: asyncio.Event | None = None

    def start(self) -> None:
        """Take announcements from now on, in the running event loop."""
        self._loop = asyncio.get_running_loop()

    def announce(self) -> None:
        """Announce a change."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._wake)

    def end(self) -> None:
        """Let everybody go who waits, because the server is about to stop; called in the event loop."""
        self.ended = True
        self._wake()

    async def wait(self, seen: int) -> None:
        """Wait until the count is another than the one `seen`, or the server is about to stop."""
        while self.count == seen and not self.ended:
            self._next = self._next or asyncio.Event()
            await self._next.wait()

    def _wake(self) -> None:
        self.count += 1
        if self._next is not None:
            self._next.set()
            self._next = None
