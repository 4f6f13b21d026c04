"""uvicorn with limits on connections, timeouts for slow clients, and a shutdown that ends."""

from __future__ import annotations

import asyncio
import signal
from types import FrameType
from typing import Any, cast

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from openai_eddy.limits import Limits

HEAD_BYTES = 32 * 2**10
"""Maximum size of a request's head."""


GRACEFUL_SECONDS = 30
"""Time in which accepted requests are answered after a signal."""
WAITED_SECONDS = 1.0
"""Time after which a connection without a request may lose its place to a new one."""


def limited_protocol(limits: Limits) -> type[LimitedProtocol]:
    """The protocol for `uvicorn.Config(http=)` with these limits on connections and time."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})


class LimitedProtocol(H11Protocol):
    """A connection that has a place among the others, and closes when its client is too slow to send or to read."""

    limits = Limits()
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _unsent = 0
    _waiting_since = 0.0
    _admitted = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Find a place for the connection, and start the timeout for the first request's head."""
        super().connection_made(transport)
        self._waiting_since = self.loop.time()
        self._admitted = self._find_place()
        self.app = cast("Any", self._respond)  # refuses some requests before the application sees them
        self._start_head_timer()

    def on_response_complete(self) -> None:
        """Note since when the connection waits for its next request."""
        self._waiting_since = self.loop.time()
        super().on_response_complete()

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

    def _find_place(self) -> bool:
        """Whether the limits allow this connection; if not, one that has waited long for a request makes way."""
        others = [cast("LimitedProtocol", each) for each in self.connections if each is not self]
        for own_only, most in ((True, self.limits.client_connections), (False, self.limits.connections)):
            rivals = [
                each
                for each in others
                if each._admitted and not each.transport.is_closing() and (not own_only or self._is_of(each.client))
            ]
            if len(rivals) < most:
                continue
            since = self.loop.time() - WAITED_SECONDS
            waiting = [each for each in rivals if each._is_waiting() and each._waiting_since <= since]
            if not waiting:
                return False
            min(waiting, key=lambda each: each._waiting_since).transport.close()
        return True

    def _is_of(self, client: tuple[str, int] | None) -> bool:
        return bool(self.client and client and client[0] == self.client[0])

    def _is_waiting(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name for name, _ in scope["headers"]}
        if not self._admitted:
            await _refusal(503, "The server has as many connections as it accepts.")(scope, receive, send)
        elif {b"content-length", b"transfer-encoding"} <= headers:
            # A proxy in front may have read the other one, and see another request where this one ends.
            message = "The request has both Content-Length and Transfer-Encoding; send one."
            await _refusal(400, message)(scope, receive, send)
        else:
            await cast("Any", self.config.loaded_app)(scope, receive, send)

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


def _refusal(status: int, message: str) -> JSONResponse:
    headers = {"connection": "close", **({"retry-after": "1"} if status == 503 else {})}
    kind = "invalid_request_error" if status == 400 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status, headers)


class Endpoint(Server):
    """A server that answers what was accepted after a first signal, within a time, and ends at once after a second.

    Attributes:
        force_exit: Whether the time was over before everything was answered.
    """

    def __init__(
        self, app: Any, limits: Limits, *, access_log: bool = False, graceful_timeout: int = GRACEFUL_SECONDS
    ) -> None:
        """Configure the server without opening a socket.

        Args:
            app: The ASGI application.
            limits: Limits on time and on connections.
            access_log: Whether to log each request.
            graceful_timeout: Time in seconds to answer what was accepted, after a signal.
        """
        super().__init__(
            Config(
                app,
                http=limited_protocol(limits),
                loop="asyncio",
                ws="none",
                lifespan="on",
                log_level="info" if access_log else "warning",
                access_log=access_log,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=limits.idle_seconds,
                timeout_graceful_shutdown=graceful_timeout,
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

    async def _wait_tasks_to_complete(self) -> None:
        try:
            await super()._wait_tasks_to_complete()
        except asyncio.CancelledError:  # the time is over; the application's own end would wait for the model
            self.force_exit = True
            raise
