"""Answers as responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from openai_eddy.errors import ApiError


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Plain values as JSON."""
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


def error_response(error: ApiError) -> Response:
    """An error as clients expect it."""
    return json_response(error.body, error.status, error.headers)
