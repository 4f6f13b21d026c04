"""What the C library does with memory that a pass has freed.

By default glibc gives it back to the operating system after almost every layer, and asks for it again, page by page:
a tenth of a pass's time on a processor (docs/performance.md).
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys

KEPT, OWN = 2**27, 2**25
"""Bytes of freed memory that are kept for the next pass, and bytes from which an allocation is given back by itself."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")


@functools.cache
def keep_freed() -> bool:
    """Have glibc keep freed memory, in this process and once; whether it does.

    It does not where there is another C library, nor where the environment says something about it.
    """
    if sys.platform != "linux" or chosen():
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    # Both or none: with one of them set, the other no longer adapts to what is allocated.
    return bool(library.mallopt(_MMAP_THRESHOLD, OWN) and library.mallopt(_TRIM_THRESHOLD, KEPT))


def chosen() -> bool:
    """Whether the environment says how glibc is to handle freed memory."""
    return any(name in os.environ for name in _VARIABLES) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
