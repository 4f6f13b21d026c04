"""Memory that runs out."""

from __future__ import annotations


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice."""
    said = str(error).lower()
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "can't allocate memory" in said or "out of memory" in said
