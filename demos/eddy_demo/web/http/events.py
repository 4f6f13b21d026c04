"""Server-sent events, and work in threads beside the loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from starlette.responses import StreamingResponse

from eddy_demo.web.http.security import Refused

if TYPE_CHECKING:
    from eddy_demo.web.uploads.library_writer import Writer

T = TypeVar("T")

_POLL = 0.2
_QUIET = 15.0
"""Seconds after which a comment shows that the connection lives."""


def event(name: str, data: Any) -> bytes:
    """One event, in ASCII: a script may take U+2028, which a text can hold, for the end of a line."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def streamed(events: AsyncIterator[bytes]) -> StreamingResponse:
    """A response of events, which nothing on the way may hold back."""
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def progress(writer: Writer, token: str, stopping: Callable[[], bool]) -> AsyncIterator[bytes]:
    """What the work has come to, whenever it changes.

    Args:
        writer: The work.
        token: That a page needs to change something: one that was open when the server was started anew gets it here.
        stopping: Whether the server is about to end.
    """
    seen, quiet = (-1, -1), time.monotonic()
    while not stopping():
        now = (writer.jobs.version, writer.shelf.version)
        if now != seen:
            seen, quiet = now, time.monotonic()
            yield event("progress", {**writer.snapshot(), "token": token})
        elif time.monotonic() - quiet > _QUIET:
            quiet = time.monotonic()
            yield b": still here\n\n"
        await asyncio.sleep(_POLL)


class Threads:
    """A few threads for what the model and the database do, and a queue of bounded length in front of them.

    Attributes:
        now: Calls that wait or run.
    """

    def __init__(self, at_once: int, most: int) -> None:
        """Start none.

        Args:
            at_once: How many there are.
            most: How many calls may wait or run.
        """
        self._limiter: anyio.CapacityLimiter | None = None
        self._at_once, self._most = at_once, most
        self.now = 0

    async def run(self, call: Callable[[], T]) -> T:
        """Call in a thread.

        Raises:
            Refused: Too many wait already.
        """
        if self.now >= self._most:
            raise Refused(503, "too many questions at a time; ask again in a moment")
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._at_once)
        self.now += 1
        try:
            return await anyio.to_thread.run_sync(call, limiter=self._limiter)
        finally:
            self.now -= 1


class Turn:
    """For what only one may do at a time: the others wait in order, and hold no thread meanwhile.

    Attributes:
        waiting: How many do.
    """

    def __init__(self, most: int) -> None:
        """Wait for nothing yet.

        Args:
            most: How many may wait.
        """
        self._lock = asyncio.Lock()
        self._most = most
        self.waiting = 0

    @property
    def free(self) -> bool:
        """Whether nobody is at it."""
        return not self._lock.locked()

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for it, and hold it.

        Raises:
            Refused: Too many wait already.
        """
        if self.waiting >= self._most:
            raise Refused(503, "too many answers wait to be written; ask again in a moment")
        self.waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._lock.release()
