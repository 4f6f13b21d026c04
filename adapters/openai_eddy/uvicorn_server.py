"""uvicorn with timeouts for slow clients, and a second signal that ends the process."""

from __future__ import annotations

import asyncio
import signal
from types import FrameType
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from openai_eddy.limits import Limits

HEAD_BYTES = 32 * 2**10
"""Maximum size of a request's head."""


class TimeoutProtocol(H11Protocol):
    """A connection that closes when its client is too slow to send a request's head or to read its response."""

    limits = Limits()
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the first request's head."""
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Stop the timeout once a request's head is complete; start it for the next head."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timers(head=True)
        elif self._head_timer is None:
            # This covers the rest of a refused body as well: a client may not send it for ever.
            self._start_head_timer()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if its client does not read what was sent."""
        super().timeout_keep_alive_handler()
        self._start_write_timer()

    def pause_writing(self) -> None:
        """Start the timeout for the client to read."""
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        """Stop the timeout for the client to read."""
        super().resume_writing()
        self._stop_timers(write=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timeouts."""
        super().connection_lost(exc)
        self._stop_timers(head=True, write=True)

    def _stop_timers(self, *, head: bool = False, write: bool = False) -> None:
        if head and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if write and self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _start_head_timer(self) -> None:
        if not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.limits.header_seconds, self.transport.abort)

    def _start_write_timer(self) -> None:
        if self._write_timer is None:
            self._unsent = self.transport.get_write_buffer_size()
            self._write_timer = self.loop.call_later(self.limits.write_seconds, self._check_progress)

    def _check_progress(self) -> None:
        # While writing is paused nothing enters the buffer: either it shrinks, or the client does not read.
        self._write_timer = None
        if self.transport.get_write_buffer_size() < self._unsent:
            self._start_write_timer()
        else:
            self.transport.abort()


class Endpoint(Server):
    """A server that answers everything accepted after a first signal, and ends at once after a second one."""

    def __init__(self, app: Any, limits: Limits, *, access_log: bool = False) -> None:
        """Configure the server without opening a socket.

        Args:
            app: The ASGI application.
            limits: Limits on time and on connections.
            access_log: Whether to log each request.
        """
        super().__init__(
            Config(
                app,
                http=type("TimeoutProtocol", (TimeoutProtocol,), {"limits": limits}),
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

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop accepting connections; the second time, end the process."""
        # uvicorn's own handler would raise the signal again after shutdown, so that the exit status would not be 0.
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.should_exit = True
