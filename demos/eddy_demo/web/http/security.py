"""Middleware that checks host names, origins and tokens, limits bodies, and sets security headers."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eddy_demo.web.errors import RequestRefused
from eddy_demo.web.http.access import AccessToken
from eddy_demo.web.limits import Limits

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
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


class SecurityMiddleware:
    """ASGI middleware around the whole application.

    The check of the Host header prevents DNS rebinding. A page of another origin can neither read a response nor,
    without the token, change anything. Starlette's TrustedHostMiddleware would not tell the user how to add a name.
    """

    def __init__(
        self, app: ASGIApp, limits: Limits, hosts: Iterable[str] = (), access_token: str | None = None
    ) -> None:
        self.app, self.limits = app, limits
        self.hosts = {*LOOPBACK, *(host.lower() for host in hosts)}
        self.access = AccessToken(access_token) if access_token else None
        self.token = secrets.token_urlsafe(24)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request and pass it on, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._handle(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["token"] = self.token
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

        try:
            headers = Headers(scope=scope)
            self._check_site(scope, headers)
            answer = self.access.login(HTTPConnection(scope)) if self.access else None
            if answer is None:
                self._check_page(scope, headers)
            await (answer or self.app)(scope, self._limited(scope, headers, receive), send_secured)
        except RequestRefused as refusal:
            closing = {"connection": "close"} if refusal.status == 413 else None
            response = JSONResponse({"error": str(refusal)}, refusal.status, closing)
            await response(scope, receive, send_secured)
        except Exception:
            if not complete:
                raise
            # The client has a complete response; raising would also close its connection.
            logging.getLogger(__name__).exception("%s failed", scope["path"])

    def _check_site(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if _hostname(host) not in self.hosts:
            raise RequestRefused(
                421, f"this server does not answer to the name {host!r:.80}; start it with --allow-host to add a name"
            )
        reads = scope["method"] in ("GET", "HEAD")
        # A user may follow a link from another site; that site's images, frames and scripts may request nothing.
        follows = reads and headers.get("sec-fetch-dest") == "document" and not scope["path"].startswith("/api/")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and not follows:
            raise RequestRefused(403, "a page of another site asked for this; nothing was done")

    def _check_page(self, scope: Scope, headers: Headers) -> None:
        """Refuse a change that neither the server's own page nor a program with the access token asks for."""
        if scope["method"] in ("GET", "HEAD") or (self.access and self.access.is_bearer(HTTPConnection(scope))):
            return
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise RequestRefused(403, "a page of another origin asked for this; nothing was done")
        if not secrets.compare_digest(headers.get(TOKEN_HEADER, "").encode(), self.token.encode()):
            raise RequestRefused(403, "the page is older than the server, which was started anew; reload the page")

    def _limited(self, scope: Scope, headers: Headers, receive: Receive) -> Receive:
        """Wrap `receive` so that it refuses a body that is too large, also one without a declared length."""
        limit = self.limits.file_bytes if scope["path"] == UPLOAD_PATH else self.limits.body_bytes
        unit = f"{limit // 2**20} MB" if limit >= 2**20 else f"{limit // 2**10} kB"
        declared = headers.get("content-length", "0")
        if declared.isascii() and declared.isdigit() and int(declared) > limit:
            raise RequestRefused(413, f"it is larger than {unit}")
        size = 0

        async def receive_limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > limit:
                raise RequestRefused(413, f"it is larger than {unit}")
            return message

        return receive_limited


def _hostname(host: str) -> str:
    try:
        parts = urlsplit(f"//{host}")
        # A browser's address may hold user information or a path; a Host header may not.
        return parts.hostname or "" if parts.netloc == host and "@" not in host else ""
    except ValueError:
        return ""
