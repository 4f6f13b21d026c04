"""ASGI middleware that checks API keys and the Host header, and counts responses."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eddy_embed.errors import InvalidParameter
from openai_eddy.errors import ApiError
from openai_eddy.metrics import Metrics

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Host names of the loopback interface."""
KEYLESS_PATHS = frozenset({"/health"})
"""Paths that need no API key."""
RERANK_PATHS = ("/v1/rerank", "/v2/rerank", "/rerank")
"""Where clients ask for re-ranking: Jina's and most others', Cohere's, and LiteLLM's of a vLLM server."""
PATHS = frozenset({"/v1/embeddings", "/v1/models", *RERANK_PATHS, "/health", "/metrics"})
"""Paths with counters of their own; counters for arbitrary paths of clients would fill the memory."""
KEYS_VARIABLE = "EDDY_API_KEYS"
"""Environment variable with API keys, separated by commas or white space."""


class Keys:
    """The API keys that a server accepts; without any, it asks for none."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """Keep the digests of the keys that clients send.

        Raises:
            InvalidParameter: A key has characters that an HTTP header cannot carry.
        """
        given = list(dict.fromkeys(keys))
        for number, key in enumerate(given, start=1):
            if not (key.isascii() and key.isprintable()) or " " in key or not key:
                raise InvalidParameter(f"API key {number} holds blanks or characters outside ASCII; choose another")
        self._digests = [hashlib.sha256(key.encode()).digest() for key in given]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def admit(self, key: bytes) -> bool:
        """Whether the server accepts a key; takes the same time for every key of a length."""
        given = hashlib.sha256(key).digest()
        return any([hmac.compare_digest(digest, given) for digest in self._digests])  # a list compares all of them


def read_keys(variable: str | None, file: Path | None) -> Keys:
    """Read API keys from an environment variable's value and the lines of a file, without those that begin with #."""
    keys: list[str] = []
    if variable is not None:
        keys = variable.replace(",", " ").split()
        if not keys:
            raise InvalidParameter(f"{KEYS_VARIABLE} is set and holds no key; give it one, or unset it")
    if file is not None:
        lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
        file_keys = [line for line in lines if line and not line.startswith("#")]
        if not file_keys:
            raise InvalidParameter(f"{file} holds no API key; write one a line")
        keys += file_keys
    return Keys(keys)


def check_origins(origins: Iterable[str]) -> None:
    """Raise InvalidParameter for what no browser sends as the origin of a page."""
    for origin in origins:
        if origin not in ("*", "null") and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\sA-Z]+", origin):
            raise InvalidParameter(
                f"{origin!r:.80} is no origin of a page: give scheme, name and port as the browser does, in small "
                "letters and without a path (http://localhost:3000, app://obsidian.md), or * for every page"
            )


class AccessMiddleware:
    """Admits a request or refuses it, and counts its response; a path may have slashes too many.

    The Host header protects against DNS rebinding: a page in a browser on the same machine can send requests to a
    loopback address under a domain of its own that it points there.
    """

    def __init__(self, app: ASGIApp, keys: Keys, hosts: Collection[str], metrics: Metrics) -> None:
        self._app, self._keys, self._metrics = app, keys, metrics
        self._hosts = frozenset(host.lower() for host in hosts)  # without ports; empty admits any

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A base URL with a slash at its end makes two of them, and some clients end every path with one.
        scope = {**scope, "path": "/" + "/".join(filter(None, scope["path"].split("/")))}
        start = time.perf_counter()
        status = 500

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            error = self._refusal(scope)
            await (error.response() if error else self._app)(scope, receive, send_and_note_status)
        finally:
            path = scope["path"] if scope["path"] in PATHS else "other"
            self._metrics.count_response(path, status, time.perf_counter() - start)

    def _refusal(self, scope: Scope) -> ApiError | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if "@" in host:
            return ApiError(400, f"The Host header {host!r:.80} holds user information; send the name alone.")
        host = _without_port(host)
        if self._hosts and host not in self._hosts:
            return ApiError(
                403,
                f"This server does not answer to the name {host!r:.80}; start it with --allow-host for each name that "
                "it is reached by.",
                code="host_not_allowed",
            )
        if not self._keys or scope["path"] in KEYLESS_PATHS:
            return None
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        challenge = {"www-authenticate": "Bearer"}
        if scheme.lower() != b"bearer" or not key.strip():
            return ApiError(
                401,
                "You didn't provide an API key. Send it in the header 'Authorization: Bearer KEY'.",
                headers=challenge,
            )
        if not self._keys.admit(key.strip()):
            return ApiError(401, "Incorrect API key provided.", code="invalid_api_key", headers=challenge)
        return None


def _without_port(host: str) -> str:
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
