"""Which cases of a parametrised test run by default.

The others carry the marker `slow`, and are generated only where EDDY_ALL is set: `conftest` sets it where `-m` selects
them.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from itertools import combinations, product
from typing import Any

import pytest


def slow(*case: Any) -> Any:
    """A case that does not run by default; several values for several parameters."""
    return pytest.param(*case, marks=pytest.mark.slow)


def mostly_slow(cases: Iterable[Any], usual: Container[Any]) -> list[Any]:
    """Return the cases that are `usual`, and with EDDY_ALL the others as slow. A case of several parameters is a tuple.

    Raises:
        ValueError: No case is usual.
    """
    cases = list(cases)
    if not any(case in usual for case in cases):
        raise ValueError(f"none of {cases} is usual")
    others = [case for case in cases if case not in usual] if os.environ.get("EDDY_ALL") else []
    return [
        *(case for case in cases if case in usual),
        *(slow(*(case if isinstance(case, tuple) else (case,))) for case in others),
    ]


def turns(*values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Cases that have each value of each parameter at least once: as many as the longest has values."""
    lists = [list(each) for each in values]
    return [tuple(each[at % len(each)] for each in lists) for at in range(max(map(len, lists)))]


def each_once(*values: Iterable[Any]) -> list[Any]:
    """Return `turns`, and with EDDY_ALL all other combinations as slow."""
    lists = [list(one) for one in values]
    return mostly_slow(product(*lists), turns(*lists))


def each_pair(*values: Iterable[Any]) -> list[Any]:
    """Return combinations with every two values of two parameters together; with EDDY_ALL all others as slow."""
    lists = [list(one) for one in values]
    numbers = list(product(*(range(len(one)) for one in lists)))
    pairs = {case: set(combinations(enumerate(case), 2)) for case in numbers}
    missing, usual = set().union(*pairs.values()), []
    while missing:
        usual.append(max(numbers, key=lambda case: len(pairs[case] & missing)))
        missing -= pairs[usual[-1]]
    values_of = {case: tuple(one[at] for one, at in zip(lists, case, strict=True)) for case in numbers}
    others = [slow(*values_of[case]) for case in numbers if case not in usual] if os.environ.get("EDDY_ALL") else []
    return [*(values_of[case] for case in usual), *others]
