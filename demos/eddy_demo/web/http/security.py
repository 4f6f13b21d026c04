"""The guard of the page: the checks of `HttpGuard`, a login by the page's address, and security headers."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eddy_demo.web.errors import RequestRefused
from eddy_demo.web.limits import Limits
from eddy_embed.integrations.http_guard import LOOPBACK, HttpGuard

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
