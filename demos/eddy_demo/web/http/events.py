"""Server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse

Event = tuple[str, dict[str, Any]]
"""Name and data of an event."""


def encode_event(name: str, data: Any) -> bytes:
    """Encode one event in ASCII: a script may take U+2028, which a text can hold, for the end of a line."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    """Stream encoded events; the header keeps proxies from buffering them."""
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
