"""HTTP parts that know no library: limits, access control, bounded work, event streams."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eddy_embed.integrations.http_guard import LOOPBACK, HttpGuard, RequestRefused
from readers_eddy.content import ReadingLimits

T = TypeVar("T")
TOKEN_HEADER = "x-eddy-token"
UPLOAD_PATH = "/api/uploads"
"""The only path that accepts large bodies."""
_SECURITY_HEADERS = {
    # Forbid inline scripts and styles, other sources, and framing.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Limits(ReadingLimits):
    """Limits of one server, also of the files that it receives."""

    body_bytes: int = 64 * 2**10  # of any other request body
    question_characters: int = 2_000
    questions: int = 200  # that run or wait for an answer, and as many pages that wait to be drawn
    concurrent_searches: int = 4  # at the same time
    page_seconds: float = 20.0  # for drawing one page of a PDF file


# --- Work and its progress --------------------------------------------------------------------------------------------


class BoundedWork:
    """Work of one kind: so much of it runs at the same time, in the order of asking, and a bounded number waits."""

    def __init__(self, n_running: int, n_places: int, kind: str) -> None:
        """`n_places` of this `kind`, such as "questions", wait or run; the next one is refused."""
        self._n_running, self._free_places, self._kind = n_running, n_places, kind

    @cached_property  # older versions of anyio make limiters only in a running event loop
    def running(self) -> anyio.CapacityLimiter:
        """What runs, and how much waits for that."""
        return anyio.CapacityLimiter(self._n_running)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Have one of the places.

        Raises:
            RequestRefused: All are taken.
        """
        if not self._free_places:
            raise RequestRefused(503, f"too many {self._kind} at a time; ask again in a moment")
        self._free_places -= 1
        try:
            yield
        finally:
            self._free_places += 1

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call in a thread, when its turn comes, and return its result; refuse it without a place."""
        async with self.place():
            return await anyio.to_thread.run_sync(call, limiter=self.running)


class ChangeSignal:
    """Says that there was a change, which any thread may announce."""

    def __init__(self) -> None:
        self.count = 0
        """Another one after each change."""
        self.ended = False
        """Whether the server is about to stop."""
        self._numbers = itertools.count(1)

    def announce(self) -> None:
        """Announce a change."""
        self.count = next(self._numbers)


Event = tuple[str, dict[str, Any]]
"""Name and data of a server-sent event."""


def encode_event(name: str, data: Any) -> bytes:
    """Encode one event in ASCII: a script may take U+2028, which a text can hold, for the end of a line."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    """Stream encoded events; the header keeps proxies from buffering them."""
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


# --- Access -----------------------------------------------------------------------------------------------------------


class SecurityMiddleware(HttpGuard):
    """ASGI middleware around the whole application.

    A page of another origin can neither read a response nor, without the page's token, change anything. Browsers log in
    with the access token in an address, which sets a cookie; programs send it as a bearer key.
    """

    def __init__(
        self, app: ASGIApp, limits: Limits, hosts: Iterable[str] = (), access_token: str | None = None
    ) -> None:
        super().__init__(
            app,
            hosts=[*LOOPBACK, *hosts],
            keys=[access_token] if access_token else [],
            open_paths=("/api/health",),
            body_bytes=lambda path: limits.file_bytes if path == UPLOAD_PATH else limits.body_bytes,
            error_body=lambda refused: {"error": str(refused)},
        )
        self.token = secrets.token_urlsafe(24)
        self._access_token = (access_token or "").encode()
        self._cookie = hashlib.sha256(self._access_token).hexdigest()
        # Browsers share cookies among all ports of a host, where another library may have another token.
        self._cookie_name = f"eddy-{self._cookie[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request and pass it on, or refuse it."""
        complete = False

        async def send_secured(message: Message) -> None:
            nonlocal complete
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if not scope["path"].startswith("/static/"):
                    headers.setdefault("cache-control", "no-store")
            await send(message)
            complete = message["type"] == "http.response.body" and not message.get("more_body", False)

        scope.setdefault("state", {})["token"] = self.token
        try:
            await super().__call__(scope, receive, send_secured if scope["type"] == "http" else send)
        except Exception:
            if not complete:
                raise
            # The client has a complete response; raising would also close its connection.
            logging.getLogger(__name__).exception("%s failed", scope["path"])

    def check(self, scope: Any, headers: dict[str, str]) -> None:
        """Refuse also a change that neither the server's own page nor a program with the access token asks for."""
        super().check(scope, headers)
        if scope["method"] in ("GET", "HEAD") or (self._keys and self.knows_key(headers)):
            return
        if not secrets.compare_digest(headers.get(TOKEN_HEADER, "").encode(), self.token.encode()):
            raise RequestRefused(403, "the page is older than the server, which was started anew; reload the page")

    def refuse_keyless(self, scope: Any, headers: dict[str, str]) -> None:
        """Let a browser go on that has the cookie, give it to one that shows the token, and refuse others."""
        request = HTTPConnection(scope)
        shown = request.query_params.get("token")
        if shown is not None and secrets.compare_digest(shown.encode("utf-8", "replace"), self._access_token):
            answer = RedirectResponse(request.url.remove_query_params("token").replace(scheme="", netloc=""))
            answer.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="strict")
            raise RequestRefused(
                303, "go on without the token", {n: answer.headers[n] for n in ("location", "set-cookie")}
            )
        if not secrets.compare_digest(request.cookies.get(self._cookie_name, "").encode(), self._cookie.encode()):
            raise RequestRefused(
                401,
                "this page needs its access token: open its address once with ?token=TOKEN at the end, or send the "
                "header 'Authorization: Bearer TOKEN'",
            )
