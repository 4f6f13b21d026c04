"""Waiting for a server that is started again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from chroma_eddy.errors import Unreachable

T = TypeVar("T")
PAUSE = 1.0
"""Seconds between two tries."""


def patiently(action: Callable[[], T], patience: float, waiting: Callable[[float], None] | None = None) -> T:
    """Do something, and do it again for as long as the server does not answer.

    Args:
        action: May be done any number of times.
        patience: Most seconds to wait.
        waiting: Told at each try for how long.

    Raises:
        Unreachable: It did not answer for so long.
    """
    since = time.monotonic()
    while True:
        try:
            return action()
        except Unreachable:
            waited = time.monotonic() - since
            if waited > patience:
                raise
            if waiting is not None:
                waiting(waited)
            time.sleep(PAUSE)
