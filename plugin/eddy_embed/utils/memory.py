"""Memory that runs out."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice."""
    said = str(error).lower()
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "can't allocate memory" in said or "out of memory" in said


def free_memory() -> int | None:
    """Bytes that a process can take before the machine, or its container, has none left; None where it does not say.

    Where only the whole memory is known, it counts as free.
    """
    found: list[int] = []
    with suppress(OSError, ValueError, AttributeError):  # sysconf is there on Unix alone
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")))
    with suppress(OSError, ValueError):  # "max" without a limit
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(found, default=None)
