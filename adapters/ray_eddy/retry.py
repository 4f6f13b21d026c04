"""Retry while a server restarts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from chroma_eddy.errors import Unreachable

T = TypeVar("T")
PAUSE_SECONDS = 1.0
"""Time between two attempts."""


def retry_unreachable(action: Callable[[], T], patience: float, on_retry: Callable[[float], None] | None = None) -> T:
    """Call a function, again and again while the server does not answer.

    Args:
        action: An idempotent function.
        patience: Maximum time in seconds to retry.
        on_retry: Called before each retry with the seconds waited so far.

    Raises:
        Unreachable: The server has not answered within `patience`.
    """
    start = time.monotonic()
    while True:
        try:
            return action()
        except Unreachable:
            waited = time.monotonic() - start
            if waited > patience:
                raise
            if on_retry is not None:
                on_retry(waited)
            time.sleep(PAUSE_SECONDS)
