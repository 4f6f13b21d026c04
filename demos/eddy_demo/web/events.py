"""Server-sent events, and work in threads beside the loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from starlette.responses import StreamingResponse

from eddy_demo.web.safety import Refused

if TYPE_CHECKING:
    from eddy_demo.web.jobs import Jobs

T = TypeVar("T")

_POLL = 0.2
_QUIET = 15.0
"""Seconds after which a comment shows that the connection lives."""
_END = object()


def event(name: str, data: Any) -> bytes:
    """One event, in ASCII: a script may take U+2028, which a text can hold, for the end of a line."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def streamed(events: AsyncIterator[bytes]) -> StreamingResponse:
    """A response of events, which nothing on the way may hold back."""
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def progress(jobs: Jobs, token: str, stopping: Callable[[], bool]) -> AsyncIterator[bytes]:
    """What the work has come to, whenever it changes.

    Args:
        jobs: The work.
        token: That a page needs to change something: one that was open when the server was started anew gets it here.
        stopping: Whether the server is about to end.
    """
    seen, quiet = (-1, -1), time.monotonic()
    while not stopping():
        now = (jobs.version, jobs.shelf.version)
        if now != seen:
            seen, quiet = now, time.monotonic()
            yield event("progress", {**jobs.snapshot(), "token": token})
        elif time.monotonic() - quiet > _QUIET:
            quiet = time.monotonic()
            yield b": still here\n\n"
        await asyncio.sleep(_POLL)


class Threads:
    """A few threads for what the model and the database do, and a queue of bounded length in front of them."""

    def __init__(self, at_once: int, most: int) -> None:
        """Start none.

        Args:
            at_once: How many there are.
            most: How many calls may wait or run.
        """
        self._limiter: anyio.CapacityLimiter | None = None
        self._at_once, self._most, self._now = at_once, most, 0

    async def run(self, call: Callable[[], T]) -> T:
        """Call in a thread.

        Raises:
            Refused: Too many wait already.
        """
        if self._now >= self._most:
            raise Refused(503, "too many questions at a time; ask again in a moment")
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._at_once)
        self._now += 1
        try:
            return await anyio.to_thread.run_sync(call, limiter=self._limiter)
        finally:
            self._now -= 1

    async def each(self, items: Iterator[T]) -> AsyncIterator[T]:
        """The items of an iterator that works, each made in a thread."""
        while (item := await self.run(lambda: next(items, _END))) is not _END:
            yield item  # type: ignore[misc]  # not the end
