"""ASGI middleware in front of a whole application: names, origins, keys, sizes and times of requests."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from contextlib import suppress
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from eddy_embed.errors import InvalidParameter

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Host names of the loopback interface."""
CLOSE = {"connection": "close"}
"""Header of an answer before whose request was read to its end."""


class RequestRefused(Exception):
    """A request is not answered: HTTP status, reason, further headers, and what else the body of the error holds."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(message)
        self.status, self.headers, self.more = status, headers or {}, more


class HttpGuard:
    """Refuses requests that an application shall not see.

    Args:
        hosts: Names to accept in the Host header, against DNS rebinding; empty accepts any.
        body_bytes: Maximum size of the body of a request to a path.
        error_body: What the JSON of an error is.
        origins: Origins of pages whose scripts may ask, `*` for any; None: the server's own, and no option adds any.
        keys: Keys to accept in the header `Authorization: Bearer KEY`; empty asks for none.
        open_paths: Paths that need no key.
        body_seconds: Maximum time for a body to arrive; None for any.
    """

    def __init__(
        self,
        app: Callable[[Any, Receive, Send], Awaitable[None]],
        *,
        hosts: Iterable[str],
        body_bytes: Callable[[str], int],
        error_body: Callable[[RequestRefused], Any],
        origins: Collection[str] | None = None,
        keys: Iterable[str] = (),
        open_paths: Collection[str] = (),
        body_seconds: float | None = None,
    ) -> None:
        for origin in origins or ():
            if origin not in ("*", "null") and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\sA-Z]+", origin):
                raise InvalidParameter(
                    f"{origin!r:.80} is no origin of a page: give scheme, name and port as the browser does, in small "
                    "letters and without a path (http://localhost:3000, app://obsidian.md), or * for every page"
                )
        self.app, self._error_body, self._open_paths, self._origins = app, error_body, open_paths, origins
        self._body_bytes, self._body_seconds = body_bytes, body_seconds
        self._hosts = {host.lower().strip("[]") for host in hosts}
        self._keys = [sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Check one request and pass it on, or refuse it."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self.check(scope, headers)
            await self.app(scope, self._limited(scope["path"], headers, receive), send)
        except RequestRefused as refused:
            body = json.dumps(self._error_body(refused)).encode()
            more = {"content-type": "application/json", "content-length": str(len(body)), **refused.headers}
            pairs = [(name.encode(), value.encode("latin-1")) for name, value in more.items()]
            await send({"type": "http.response.start", "status": refused.status, "headers": pairs})
            await send({"type": "http.response.body", "body": body})

    def check(self, scope: Any, headers: dict[str, str]) -> None:
        """Raise `RequestRefused` where the head of a request is not accepted."""
        if {"content-length", "transfer-encoding"} <= headers.keys():
            # A proxy in front may have read the other one, and see another request where this one ends.
            raise RequestRefused(400, "the request has both Content-Length and Transfer-Encoding; send one", CLOSE)
        host = headers.get("host", "")
        if self._hosts and _hostname(host) not in self._hosts:
            message = f"this server does not answer to the name {host!r:.80}; start it with --allow-host to add a name"
            raise RequestRefused(421, message, code="host_not_allowed")
        known = self.knows_key(headers)
        if not (self._keys and known):
            self._check_origin(scope, headers, host.lower())
        if not known and scope["path"] not in self._open_paths:
            self.refuse_keyless(scope, headers)

    def _check_origin(self, scope: Any, headers: dict[str, str], host: str) -> None:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if {origin, "*"} & {*(self._origins or ())}:
            return
        reads = scope["method"] in ("GET", "HEAD")
        # A user may follow a link from another site; that site's images, frames and scripts may request nothing.
        follows = reads and headers.get("sec-fetch-dest") == "document" and not scope["path"].startswith("/api/")
        elsewhere = not reads and origin is not None and urlsplit(origin).netloc.lower() != host
        if elsewhere or (site not in ("same-origin", "none") and not follows):
            named = self._origins is not None and origin is not None
            hint = f"; start the server with --allowed-origin {origin:.80} to let it" if named else ""
            raise RequestRefused(403, f"a page of another origin asked for this; nothing was done{hint}")

    def knows_key(self, headers: dict[str, str]) -> bool:
        """Return whether a request has one of the keys, or needs none, in the same time for keys of a length."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        sent = sha256(key.strip(" \t").encode("latin-1")).digest()
        matches = [hmac.compare_digest(digest, sent) for digest in self._keys]  # all of them, also behind a match
        return not self._keys or (any(matches) and scheme.lower() == "bearer")

    def refuse_keyless(self, scope: Any, headers: dict[str, str]) -> None:
        """Refuse a request that needs a key and has none."""
        wrong = headers.get("authorization", "").partition(" ")[2].strip()
        message = "Incorrect API key provided." if wrong else "You didn't provide an API key."
        message += " Send it in the header 'Authorization: Bearer KEY'."
        raise RequestRefused(401, message, {"www-authenticate": "Bearer"}, code="invalid_api_key" if wrong else None)

    def _limited(self, path: str, headers: dict[str, str], receive: Receive) -> Receive:
        """Wrap `receive` so that it refuses a body that is too large or too slow, also one of undeclared length."""
        limit, size, more = self._body_bytes(path), 0, True
        end = time.monotonic() + (self._body_seconds or 0)
        size_in_words = f"{limit // 2**20} MB" if limit >= 2**20 else f"{limit // 2**10} kB"
        too_large = RequestRefused(413, f"it is larger than {size_in_words}", CLOSE, code="request_too_large")
        if int(headers.get("content-length", 0)) > limit:  # a number, as the server has seen to
            raise too_large

        async def limited_receive() -> Message:
            nonlocal size, more
            seconds = max(end - time.monotonic(), 0) if more and self._body_seconds else None
            try:
                message = await asyncio.wait_for(receive(), seconds)
            except asyncio.TimeoutError:
                slow = f"the body did not arrive within {self._body_seconds:g} s"
                raise RequestRefused(408, slow, CLOSE, code="request_timeout") from None
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
            if size > limit:
                raise too_large
            return message

        return limited_receive


def _hostname(host: str) -> str:
    """Return the name in a Host header, which may hold neither user information nor a path; "" for none."""
    with suppress(ValueError):
        parts = urlsplit(f"//{host}")
        return parts.hostname or "" if parts.netloc == host and "@" not in host else ""
    return ""
