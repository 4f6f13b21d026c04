"""uvicorn with what it lacks: time limits for slow clients, and an end that a second signal makes sudden."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from openai_eddy.limits import Limits

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
HEAD_BYTES = 32 * 2**10
"""Most bytes in the head of a request."""


class Timed(H11Protocol):
    """A connection that is closed when its client takes too long with a request's head, or to read its answer."""

    limits = Limits()
    _head: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head, or no longer."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._calm()
        elif self._head is None:
            # The rest of a body that was refused counts as well: it may not go on for ever.
            self._expect_head()

    def timeout_keep_alive_handler(self) -> None:
        """Close, whether or not the client reads what was sent."""
        super().timeout_keep_alive_handler()
        self._expect_reading()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Go on writing."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._calm()
        if self._stuck is not None:
            self._stuck.cancel()
        super().connection_lost(exc)

    def _calm(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _expect_head(self) -> None:
        if not self.transport.is_closing():
            self._head = self.loop.call_later(self.limits.header_seconds, self.transport.abort)

    def _expect_reading(self) -> None:
        if self._stuck is None:
            self._unsent = self.transport.get_write_buffer_size()
            self._stuck = self.loop.call_later(self.limits.write_seconds, self._look_at_reading)

    def _look_at_reading(self) -> None:
        # While writing is paused nothing is added to the buffer: it shrinks, or the client does not read.
        self._stuck = None
        if self.transport.get_write_buffer_size() < self._unsent:
            self._expect_reading()
        else:
            self.transport.abort()


class Endpoint(Server):
    """A server that a first signal ends when everything accepted is answered, and a second one at once."""

    def __init__(
        self, app: Any, limits: Limits, *, access_log: bool = False, ready: Callable[[], None] | None = None
    ) -> None:
        """Configure, without opening anything.

        Args:
            app: The ASGI application.
            limits: On time and on connections.
            access_log: Whether each request is logged.
            ready: Called once requests are accepted.
        """
        super().__init__(
            Config(
                app,
                http=type("Timed", (Timed,), {"limits": limits}),
                loop="asyncio",
                ws="none",
                lifespan="on",
                log_level="info" if access_log else "warning",
                access_log=access_log,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=limits.connections,
                timeout_keep_alive=limits.idle_seconds,
                h11_max_incomplete_event_size=HEAD_BYTES,
            )
        )
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        """Open, and say so."""
        await super().startup(sockets)
        if self.started and self._ready is not None:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving; afterwards, what handled them before does again, and none is raised anew."""
        before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (int(getattr(signal, name)) for name in SIGNALS if hasattr(signal, name)):
                if signal.getsignal(number) != signal.SIG_IGN:
                    before[number] = signal.signal(number, self.handle_exit)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop accepting; the second time, end the process."""
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.should_exit = True
