"""Memory that runs out."""

from __future__ import annotations


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice."""
    name = type(error).__name__
    return (
        isinstance(error, MemoryError)
        or name == "OutOfMemoryError"
        or any(said in str(error).lower() for said in ("can't allocate memory", "out of memory"))
    )
