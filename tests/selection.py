"""Which cases of a parametrised test run by default; the others carry the marker `slow`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import combinations, product
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


def turns(*values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Cases that have each value of each parameter at least once: as many as the longest has values."""
    lists = [list(each) for each in values]
    return [tuple(each[at % len(each)] for each in lists) for at in range(max(map(len, lists)))]


def each_once(*values: Iterable[Any]) -> list[Any]:
    """All combinations; slow are all but `turns`."""
    lists = [list(one) for one in values]
    return mostly_slow(product(*lists), turns(*lists))


def each_pair(*values: Iterable[Any]) -> list[Any]:
    """All combinations; those that run by default have every two values of two parameters together at least once."""
    lists = [list(each) for each in values]
    numbers = list(product(*(range(len(each)) for each in lists)))
    two = {case: set(combinations(enumerate(case), 2)) for case in numbers}
    missing, usual = set().union(*two.values()), set()
    while missing:
        best = max(numbers, key=lambda case: len(two[case] & missing))
        missing -= two[best]
        usual.add(best)
    cases = [(case, tuple(one[at] for one, at in zip(lists, case, strict=True))) for case in numbers]
    return [given if case in usual else slow(*given) for case, given in cases]
