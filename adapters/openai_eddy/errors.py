"""Errors as clients of OpenAI's interface expect them: a status, and `error` with message, type, param and code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """A request that is answered with an error.

    Attributes:
        status: Of HTTP.
        headers: Further headers of the answer.
    """

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
        """Say what is wrong.

        Args:
            status: Of HTTP.
            message: What is wrong, the value, and what to do.
            param: The field of the request.
            code: A word for programs.
            kind: The error's `type`.
            headers: Further headers of the answer.
        """
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self._told = {"message": message, "type": kind, "param": param, "code": code}

    @property
    def body(self) -> dict[str, Any]:
        """The answer's body."""
        return {"error": self._told}


def invalid(message: str, param: str | None, code: str | None = None) -> ApiError:
    """400, for a field that is not as it must be."""
    return ApiError(400, message, param=param, code=code)


def too_large(message: str) -> ApiError:
    """413; the connection is closed, so that the rest is not read."""
    return ApiError(413, message, code="request_too_large", headers={"connection": "close"})


def overloaded(seconds: int) -> ApiError:
    """429, which clients answer by asking again after so many seconds."""
    return ApiError(
        429,
        f"The server has as much waiting as it accepts. Please try again in {seconds}s.",
        kind="requests",
        code="rate_limit_exceeded",
        headers={"retry-after": str(seconds)},
    )


def failed(message: str) -> ApiError:
    """500, where the request is not to blame."""
    return ApiError(500, message, kind="server_error")
