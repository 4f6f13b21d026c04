"""uvicorn with timeouts for slow clients, and a shutdown that ends with status 0, or in time."""

from __future__ import annotations

import asyncio
import signal
from types import FrameType
from typing import Any, cast

from starlette.types import Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from openai_eddy.errors import ApiError
from openai_eddy.limits import Limits

HEAD_BYTES = 32 * 2**10
"""Maximum size of a request's head."""
GRACEFUL_SECONDS = 30
"""Time in which accepted requests are answered after a signal."""
_TWO_LENGTHS = ApiError(
    400, "The request has both Content-Length and Transfer-Encoding; send one.", headers={"connection": "close"}
)


def limited_protocol(limits: Limits) -> type[LimitedProtocol]:
    """The protocol for `uvicorn.Config(http=)` with these limits on time and on connections."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})


class LimitedProtocol(H11Protocol):
    """A connection that closes when its client is too slow to send a request's head or to read a response.

    Beyond `limits.connections` uvicorn answers 503 for it.
    """

    limits = Limits()
    _head_since: float | None = None  # time since which a head is awaited; None while none is, or idle
    _read_at = 0.0  # time when the client last read something, or nothing was left to read
    _unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch the client."""
        super().connection_made(transport)
        self.app = cast("Any", self._refuse_two_lengths)
        self.limit_concurrency = self.limits.connections
        self._head_since = self._read_at = self.loop.time()
        self._pause = min(self.limits.header_seconds, self.limits.write_seconds) / 5
        self._watching = self.loop.call_later(self._pause, self._watch)

    def data_received(self, data: bytes) -> None:
        """Note whether a request's head is complete."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._head_since = None
        elif self._head_since is None:
            # Also for the rest of a refused body: a client may not send it for ever.
            self._head_since = self.loop.time()

    def resume_writing(self) -> None:
        """Note that the client has read most of what waited."""
        super().resume_writing()
        self._read_at = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """End watching."""
        super().connection_lost(exc)
        self._watching.cancel()

    def _watch(self) -> None:
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        if unsent == 0 or unsent < self._unsent:
            self._read_at = now
        self._unsent = unsent
        slow_head = self._head_since is not None and now - self._head_since > self.limits.header_seconds
        if slow_head or now - self._read_at > self.limits.write_seconds:
            self.transport.abort()
        else:
            self._watching = self.loop.call_later(self._pause, self._watch)

    async def _refuse_two_lengths(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A proxy in front may have read the other one, and see another request where this one ends.
        two = {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}
        app = _TWO_LENGTHS.response() if two else cast("Any", self.config.loaded_app)
        await app(scope, receive, send)


class Endpoint(Server):
    """A server that answers what was accepted after a first signal, within a time, and ends at once after a second.

    It runs the ASGI application `app`, and has `graceful_timeout` seconds to answer after a signal; `force_exit` says
    that they were not enough.
    """

    def __init__(
        self, app: Any, limits: Limits, *, access_log: bool = False, graceful_timeout: int = GRACEFUL_SECONDS
    ) -> None:
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
