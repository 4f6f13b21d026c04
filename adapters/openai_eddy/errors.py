"""Errors as clients read them: OpenAI's `error` with message, type, param and code, and Jina's and vLLM's `detail`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse


class ApiError(Exception):
    """Ends a request with an error response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        told = {"message": message, "type": kind, "param": param, "code": code}
        self.body: dict[str, Any] = {"error": told, "detail": message}

    def response(self) -> JSONResponse:
        """The response for the client."""
        return JSONResponse(self.body, self.status, self.headers)


def invalid_request(message: str, param: str | None, code: str | None = None) -> ApiError:
    """Status 400: a field of the request is wrong."""
    return ApiError(400, message, param=param, code=code)


def rate_limited(seconds: int) -> ApiError:
    """Status 429: the client should retry after so many seconds."""
    return ApiError(
        429,
        f"The server has as much waiting as it accepts. Please try again in {seconds}s.",
        kind="requests",
        code="rate_limit_exceeded",
        headers={"retry-after": str(seconds)},
    )


def server_error(message: str) -> ApiError:
    """Status 500: the request is not to blame."""
    return ApiError(500, message, kind="server_error")
