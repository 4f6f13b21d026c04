"""Requests that the server refuses, and how the page words an error."""

from __future__ import annotations

import logging

from eddy_demo.errors import DemoError
from eddy_embed.errors import EddyError
from eddy_embed.integrations.http_guard import RequestRefused

__all__ = ["RequestRefused", "error_message"]


def error_message(error: Exception) -> str:
    """Return what the page says about an error; log an unexpected one with its traceback."""
    if isinstance(error, (DemoError, EddyError, OSError)):
        return str(error)
    if isinstance(error, MemoryError):
        return str(error) or "out of memory"
    logging.getLogger(__name__).error("the work on the library failed", exc_info=error)
    return f"{type(error).__name__}: {error}"
