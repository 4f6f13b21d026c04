"""The cyclic garbage collector, paused while imports and models make a million objects that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_FROZEN_AT_START = 1000
"""More objects than Python itself freezes at its start."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector, which would walk through all objects each time that their number has grown by a quarter."""
    if not gc.isenabled():  # the caller's choice, or another thread's pause
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() < _FROZEN_AT_START:
            # Together these make all objects old without a walk: as young ones they would be walked through at once.
            gc.freeze()
            gc.unfreeze()
        gc.enable()
