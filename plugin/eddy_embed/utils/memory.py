"""Memory: errors that say it ran out, and the garbage collector."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory did not suffice."""
    said = str(error).lower()
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "can't allocate memory" in said or "out of memory" in said


def free_memory() -> int | None:
    """Return the bytes that the machine, or its container, has left; None where it does not say.

    Where only the whole memory is known, it counts as free.
    """
    sizes: list[int] = []
    with suppress(OSError, ValueError, AttributeError):  # sysconf is there on Unix alone
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")))
    with suppress(OSError, ValueError):  # "max" without a limit
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(sizes, default=None)


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
