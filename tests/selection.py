"""Which cases of a parametrised test run by default; the others carry the marker `slow`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def slow(*case: Any) -> Any:
    """A case that does not run by default; several values for several parameters."""
    return pytest.param(*case, marks=pytest.mark.slow)


def mostly_slow(cases: Iterable[Any], usual: Container[Any]) -> list[Any]:
    """All cases; those that are not `usual` are slow. A case of several parameters is a tuple.

    Raises:
        ValueError: No case is usual.
    """
    cases = list(cases)
    if not any(case in usual for case in cases):
        raise ValueError(f"none of {cases} is usual")
    return [case if case in usual else slow(*(case if isinstance(case, tuple) else (case,))) for case in cases]


def grid(first: Iterable[str], second: Iterable[str], usual: Iterable[str]) -> list[Any]:
    """All pairs; slow are those of another first name than the first one, and a second name that is not `usual`.

    Raises:
        ValueError: No second name is usual.
    """
    names, seconds, kept = list(first), list(second), set(usual)
    if not kept & set(seconds):
        raise ValueError(f"none of {sorted(kept)} is among {seconds}")
    pairs = [(name, each) for name in names for each in seconds]
    return mostly_slow(pairs, [(name, each) for name, each in pairs if name == names[0] or each in kept])
