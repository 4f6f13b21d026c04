"""Who may ask: pages of this server alone, under names that it knows, and no more than it can hold."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from eddy_demo.web.limits import Limits

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN_HEADER = "x-eddy-token"
UPLOAD = "/api/uploads"
"""The one path whose body may be large; it counts by itself."""
_READS = ("GET", "HEAD")
_HEADERS = {
    # No inline script or style anywhere, nothing from elsewhere, and no page may frame this one.
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


class Refused(Exception):
    """A request that is not answered.

    Attributes:
        status: Of the response.
    """

    def __init__(self, status: int, message: str) -> None:
        """Say why.

        Args:
            status: Of the response.
            message: In plain words.
        """
        super().__init__(message)
        self.status = status


class Guard:
    """ASGI middleware in front of everything.

    A name that somebody else's domain server points to this machine (DNS rebinding) is no name of ours. A page of
    another origin can neither read an answer nor, without the token, change anything.
    """

    def __init__(self, app: App, limits: Limits, hosts: Iterable[str] = ()) -> None:
        """Wrap an application.

        Args:
            app: The application.
            limits: Of bodies.
            hosts: Names beside those of the loopback interface.
        """
        self.app, self.limits = app, limits
        self.hosts = {*LOOPBACK, *(host.lower() for host in hosts)}
        self.token = secrets.token_urlsafe(24)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        scope.setdefault("state", {})["token"] = self.token
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}

        complete = False

        async def guarded(message: MutableMapping[str, Any]) -> None:
            nonlocal complete
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.setdefault("headers", [])}
                added = dict(_HEADERS)
                if not scope["path"].startswith("/static/"):
                    added["cache-control"] = "no-store"
                more = [(name.encode(), value.encode()) for name, value in added.items()]
                message["headers"] = [*message["headers"], *(pair for pair in more if pair[0] not in names)]
            await send(message)
            complete = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            self._check(scope, headers)
            await self.app(scope, self._counted(scope, headers, receive), guarded)
        except Refused as refusal:
            await _refuse(refusal, guarded)
        except Exception:
            if not complete:
                raise
            # It was answered in plain words; raised on, it would cost the client its connection.
            logging.getLogger(__name__).exception("%s failed", scope["path"])

    def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        host = headers.get("host", "")
        if _hostname(host) not in self.hosts:
            raise Refused(
                421, f"this server does not answer to the name {host!r:.80}; start it with --allow-host to add a name"
            )
        reads = scope["method"] in _READS
        site = headers.get("sec-fetch-site", "same-origin")
        # Of a page of another site, a reader may follow a link here; its pictures, frames and scripts may not ask.
        follows = reads and headers.get("sec-fetch-dest") == "document" and not scope["path"].startswith("/api/")
        if site not in ("same-origin", "none") and not follows:
            raise Refused(403, "a page of another site asked for this; nothing was done")
        if reads:
            return
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise Refused(403, "a page of another origin asked for this; nothing was done")
        if not secrets.compare_digest(headers.get(TOKEN_HEADER, "").encode(), self.token.encode()):
            raise Refused(403, "the page is older than the server, which was started anew; reload the page")

    def _counted(self, scope: Scope, headers: dict[str, str], receive: Receive) -> Receive:
        most = self.limits.upload_bytes if scope["path"] == UPLOAD else self.limits.body_bytes
        told = headers.get("content-length", "0")
        if told.isascii() and told.isdigit() and int(told) > most:
            raise Refused(413, too_large(most))
        size = 0

        async def counted() -> MutableMapping[str, Any]:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > most:
                raise Refused(413, too_large(most))
            return message

        return counted


def too_large(most: int) -> str:
    """Why a body is not taken."""
    return f"it is larger than {most // 2**20} MB" if most >= 2**20 else f"it is larger than {most // 2**10} kB"


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def _refuse(refusal: Refused, send: Send) -> None:
    body = json.dumps({"error": str(refusal)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
