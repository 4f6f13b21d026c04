"""Receive request bodies within limits on time, on their own size, and on the memory that all of them take."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.requests import Request

from openai_eddy.errors import ApiError, rate_limited
from openai_eddy.limits import Limits


class ClientDisconnected(Exception):
    """The client has closed the connection."""


@dataclass
class PendingBodies:
    """Counts the bytes of all bodies that are being received or not validated yet."""

    limits: Limits
    size: int = 0


class RequestBody:
    """The body of one request."""

    def __init__(self, request: Request, pending: PendingBodies) -> None:
        self._request = request
        self._pending = pending
        self._size = 0
        self.content = bytearray()  # received so far

    async def read(self) -> None:
        """Receive the whole body; refuse one that is too large or too slow, or if other bodies take too much memory."""
        limits = self._pending.limits
        length = self._request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limits.body_bytes:
            raise self._too_large()
        try:
            await asyncio.wait_for(self._receive(), limits.body_seconds)
        except asyncio.TimeoutError:
            raise ApiError(
                408,
                f"The body did not arrive within {limits.body_seconds:g} s.",
                code="request_timeout",
                headers={"connection": "close"},
            ) from None

    def close(self) -> None:
        """Free the memory of the body; a second call does nothing."""
        self.content = bytearray()
        self._pending.size -= self._size
        self._size = 0

    async def _receive(self) -> None:
        limits = self._pending.limits
        more = True
        while more:
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            part: bytes = message.get("body", b"")
            self.content += part
            self._size += len(part)
            self._pending.size += len(part)
            if self._size > limits.body_bytes:
                raise self._too_large()
            if self._pending.size > limits.pending_bytes:
                raise rate_limited(1)
            more = message.get("more_body", False)

    def _too_large(self) -> ApiError:
        most = self._pending.limits.body_bytes
        return ApiError(
            413,
            f"The body has more than this server's {most} bytes; send the inputs in several requests.",
            code="request_too_large",
            headers={"connection": "close"},  # so that the server does not read the rest
        )
