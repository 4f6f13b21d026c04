"""The bodies of requests: read within limits on time, on size, and on what all of them take together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from openai_eddy.errors import ApiError, overloaded, too_large

if TYPE_CHECKING:
    from starlette.requests import Request

    from openai_eddy.limits import Limits


class Gone(Exception):
    """The client has closed the connection."""


class Bodies:
    """Reads bodies, and knows how much of them is underway."""

    def __init__(self, limits: Limits) -> None:
        """Nothing is underway yet.

        Args:
            limits: On bytes and seconds.
        """
        self._limits = limits
        self._underway = 0

    async def read(self, request: Request) -> bytes:
        """The body of a request.

        Raises:
            ApiError: It is too large, too slow, or too much is underway already.
            Gone: The client has left.
        """
        told = request.headers.get("content-length", "")
        if told.isdecimal() and int(told) > self._limits.body_bytes:
            raise self._too_large()
        try:
            return await asyncio.wait_for(self._read(request), self._limits.body_seconds)
        except asyncio.TimeoutError:
            raise ApiError(
                408,
                f"The body did not arrive within {self._limits.body_seconds:g} s.",
                code="request_timeout",
                headers={"connection": "close"},
            ) from None

    async def _read(self, request: Request) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                part: bytes = message.get("body", b"")
                parts.append(part)
                size += len(part)
                self._underway += len(part)
                if size > self._limits.body_bytes:
                    raise self._too_large()
                if self._underway > self._limits.pending_bytes:
                    raise overloaded(1)
                if not message.get("more_body", False):
                    return b"".join(parts)
        finally:
            self._underway -= size

    def _too_large(self) -> ApiError:
        return too_large(
            f"The body has more than this server's {self._limits.body_bytes} bytes; send the inputs in several "
            "requests."
        )
