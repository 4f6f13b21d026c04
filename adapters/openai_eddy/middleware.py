"""In front of every path: whom the request is for, who asks, and how it was answered."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddy_embed.errors import InvalidParameter
from openai_eddy.errors import ApiError
from openai_eddy.metrics import Metrics
from openai_eddy.serialization import error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    pass

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names of this machine for itself."""
OPEN = frozenset({"/health"})
"""Paths that need no key."""
PATHS = frozenset({"/v1/embeddings", "/v1/models", "/health", "/metrics"})
"""Paths that are counted by name: those that clients make up would fill the memory."""


class Guard:
    """ASGI middleware that admits a request, or answers it with an error.

    A page in a browser on the same machine can send requests to a loopback address, under a name of its own that it
    lets point there; the Host header gives it away.
    """

    def __init__(self, app: ASGIApp, keys: Keys, hosts: Collection[str], metrics: Metrics) -> None:
        """Stand in front of an application.

        Args:
            app: The application.
            keys: Those that are accepted.
            hosts: Names that the Host header may have, without ports; empty for any.
            metrics: Told of every answer.
        """
        self._app = app
        self._keys = keys
        self._hosts = frozenset(host.lower() for host in hosts)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if (error := self._refusal(scope)) is None:
                await self._app(scope, receive, noting)
            else:
                await error_response(error)(scope, receive, noting)
        finally:
            path = scope["path"] if scope["path"] in PATHS else "other"
            self._metrics.answered(path, status, time.perf_counter() - begun)

    def _refusal(self, scope: Scope) -> ApiError | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._hosts and _name(host) not in self._hosts:
            return ApiError(
                403,
                f"This server does not answer to the name {_name(host)!r:.80}; start it with --allow-host for each "
                "name that it is reached by.",
                code="host_not_allowed",
            )
        if not self._keys or scope["path"] in OPEN:
            return None
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        asks = {"www-authenticate": "Bearer"}
        if scheme.lower() != b"bearer" or not key.strip():
            return ApiError(
                401,
                "You didn't provide an API key. Send it in the header 'Authorization: Bearer KEY'.",
                headers=asks,
            )
        if not self._keys.admit(key.strip()):
            return ApiError(401, "Incorrect API key provided.", code="invalid_api_key", headers=asks)
        return None


def _name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def content_type_is_json(headers: Any) -> bool:
    """Whether a body is said to be JSON, which a page of another origin cannot say without being asked first."""
    return str(headers.get("content-type", "")).partition(";")[0].strip().lower() == "application/json"


VARIABLE = "EDDY_API_KEYS"
"""Environment variable with keys, separated by commas or white space."""


class Keys:
    """The keys that a server accepts; none: it asks for none."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """Keep digests only.

        Args:
            keys: Each as clients send it.

        Raises:
            InvalidParameter: A key holds what the head of a request cannot.
        """
        given = list(dict.fromkeys(keys))
        for number, key in enumerate(given, start=1):
            if not (key.isascii() and key.isprintable()) or " " in key or not key:
                raise InvalidParameter(f"API key {number} holds blanks or characters outside ASCII; choose another")
        self._digests = [_digest(key.encode()) for key in given]

    def __bool__(self) -> bool:
        """Whether a key is asked for."""
        return bool(self._digests)

    def admit(self, key: bytes) -> bool:
        """Whether a key is one of them, in a time that tells nothing of any."""
        given = _digest(key)
        found = False
        for digest in self._digests:
            found |= hmac.compare_digest(digest, given)
        return found


def read_keys(variable: str | None, file: Path | None) -> Keys:
    """Keys out of a variable's value and the lines of a file.

    Args:
        variable: Keys separated by commas or white space.
        file: A key a line; blank lines and those that begin with # are none.

    Raises:
        InvalidParameter: The file holds no key, or the variable is there and empty.
        OSError: The file cannot be read.
    """
    keys: list[str] = []
    if variable is not None:
        keys = variable.replace(",", " ").split()
        if not keys:
            raise InvalidParameter(f"{VARIABLE} is set and holds no key; give it one, or unset it")
    if file is not None:
        lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
        found = [line for line in lines if line and not line.startswith("#")]
        if not found:
            raise InvalidParameter(f"{file} holds no API key; write one a line")
        keys += found
    return Keys(keys)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
