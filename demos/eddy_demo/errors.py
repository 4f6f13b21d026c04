"""Errors of the demo. Each message names the problem, the offending value, and the remedy."""

from __future__ import annotations

import logging

from eddy_embed.errors import EddyError


class DemoError(Exception):
    """An error that the user can fix; the command line prints the message and exits with status 1."""


class NoLibrary(DemoError):
    """The folder holds no library, or one that cannot be read."""


class LibraryMismatch(DemoError):
    """The library was made with another model, method or setting than the requested one."""


def error_message(error: Exception) -> str:
    """Return what the page says about an error; log an unexpected one with its traceback."""
    if isinstance(error, (DemoError, EddyError, OSError)):
        return str(error)
    if isinstance(error, MemoryError):
        return str(error) or "out of memory"
    logging.getLogger(__name__).error("the work on the library failed", exc_info=error)
    return f"{type(error).__name__}: {error}"
