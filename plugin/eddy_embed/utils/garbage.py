"""The cyclic garbage collector, paused while imports and models make a million objects that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_FROZEN_AT_START = 1000
"""More objects than Python itself freezes at its start."""
_others_freeze = False
"""Whether the program froze objects of its own; kept, since Python counts them in a walk through all of them."""


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
        _make_all_old()
        gc.enable()


def _make_all_old() -> None:
    """Make all objects old without a walk: as young ones they would be walked through at once.

    Objects that the program froze would be thawed: where there are any, nothing is done, from then on.
    """
    global _others_freeze
    _others_freeze = _others_freeze or gc.get_freeze_count() >= _FROZEN_AT_START
    if not _others_freeze:
        gc.freeze()
        gc.unfreeze()
