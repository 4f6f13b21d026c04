"""In what two makers of vectors differ, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value of nested dictionaries, by the names that lead to it, joined by points."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Names of the plain values in which two nested dictionaries differ, with both values; None: absent."""
    one, other = dict(leaves(there)), dict(leaves(here))
    return [(name, one.get(name), other.get(name)) for name in {**one, **other} if one.get(name) != other.get(name)]
