"""Retry while a server restarts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from chroma_eddy.errors import Unreachable

T = TypeVar("T")
PAUSE_SECONDS = 1.0
"""Time between two attempts."""


def retry_unreachable(
    action: Callable[[], T], patience: float, on_retry: Callable[[float], None] = lambda _: None
) -> T:
    """Call an idempotent function again while the server does not answer, for at most `patience` seconds."""
    start = time.monotonic()
    while True:
        try:
            return action()
        except Unreachable:
            waited = time.monotonic() - start
            if waited > patience:
                raise
            on_retry(waited)
            time.sleep(PAUSE_SECONDS)
