"""Answers as responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

from openai_eddy.errors import ApiError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

PART = 256 * 2**10
"""Bytes of an answer that are handed over at a time, each when its client has taken in most of those before."""


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Plain values as JSON."""
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


def error_response(error: ApiError) -> Response:
    """An error as clients expect it."""
    return json_response(error.body, error.status, error.headers)


class Answers:
    """All answers that are being sent.

    Attributes:
        held: Bytes of them, whether some of an answer was sent or not.
    """

    def __init__(self) -> None:
        """Nothing is sent yet."""
        self.held = 0


class Counted(Response):
    """An answer that is counted until it is sent, or nobody is there any more to read it."""

    def __init__(self, content: bytes, headers: Mapping[str, str], among: Answers) -> None:
        """Take what is ready.

        Args:
            content: JSON.
            headers: Beside the usual ones.
            among: What counts it.
        """
        super().__init__(content, headers=dict(headers), media_type="application/json")
        self._among = among

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, part by part."""
        self._among.held += len(self.body)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for first in range(0, len(self.body), PART):
                part, more = self.body[first : first + PART], first + PART < len(self.body)
                await send({"type": "http.response.body", "body": part, "more_body": more})
        finally:
            self._among.held -= len(self.body)
