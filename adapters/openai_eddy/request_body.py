"""The bodies of requests: read within limits on time and on size, and held within one on what all of them take."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from openai_eddy.errors import ApiError, overloaded, too_large

if TYPE_CHECKING:
    from starlette.requests import Request

    from openai_eddy.limits import Limits


class Gone(Exception):
    """The client has closed the connection."""


class Body:
    """The body of a request.

    Attributes:
        content: What was read so far; empty after `let_go`.
    """

    def __init__(self, request: Request, among: Bodies) -> None:
        """Nothing was read yet.

        Args:
            request: Whose body it is.
            among: What counts it.
        """
        self._request = request
        self._among = among
        self._size = 0
        self.content = bytearray()

    async def read(self) -> None:
        """Read all of it.

        Raises:
            ApiError: It is too large, too slow, or too much is held already.
            Gone: The client has left.
        """
        limits = self._among.limits
        told = self._request.headers.get("content-length", "")
        if told.isdecimal() and int(told) > limits.body_bytes:
            raise self._too_large()
        try:
            await asyncio.wait_for(self._read(), limits.body_seconds)
        except asyncio.TimeoutError:
            raise ApiError(
                408,
                f"The body did not arrive within {limits.body_seconds:g} s.",
                code="request_timeout",
                headers={"connection": "close"},
            ) from None

    def let_go(self) -> None:
        """Hold it no longer; again, without effect."""
        self.content = bytearray()
        self._among.held -= self._size
        self._size = 0

    async def _read(self) -> None:
        limits = self._among.limits
        while True:
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            part: bytes = message.get("body", b"")
            self.content += part
            self._size += len(part)
            self._among.held += len(part)
            if self._size > limits.body_bytes:
                raise self._too_large()
            if self._among.held > limits.pending_bytes:
                raise overloaded(1)
            if not message.get("more_body", False):
                return

    def _too_large(self) -> ApiError:
        return too_large(
            f"The body has more than this server's {self._among.limits.body_bytes} bytes; send the inputs in several "
            "requests."
        )


class Bodies:
    """All bodies that are held.

    Attributes:
        limits: On bytes and seconds.
        held: Bytes of them, whether all of a body is there or not.
    """

    def __init__(self, limits: Limits) -> None:
        """Nothing is held yet.

        Args:
            limits: On bytes and seconds.
        """
        self.limits = limits
        self.held = 0

    @contextmanager
    def of(self, request: Request) -> Iterator[Body]:
        """The body of a request, to be read; let go at the end of the block at the latest."""
        body = Body(request, self)
        try:
            yield body
        finally:
            body.let_go()
