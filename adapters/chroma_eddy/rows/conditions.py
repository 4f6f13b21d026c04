"""Chroma's conditions on rows, checked before it sees them: its own errors do not name the condition."""

from __future__ import annotations

import math
from typing import Any

import regex
from chromadb.api.types import validate_where, validate_where_document

from eddy_embed.errors import InvalidParameter

_LOGICAL = ("$and", "$or")


def check_conditions(where: Any, where_document: Any = None) -> None:
    """Refuse conditions that Chroma does not take with InvalidParameter, which quotes them; None and {} are none."""
    for name, condition, validate in (
        ("where", where, validate_where),
        ("where_document", where_document, validate_where_document),
    ):
        if condition is None or condition == {}:
            continue
        try:
            validate(condition)
            _check_values(condition, name == "where")
        except (ValueError, TypeError, regex.error) as error:
            raise InvalidParameter(
                f"{name}={condition!r:.200} is no condition of Chroma's: {error}; write one such as "
                + ('{"year": {"$gte": 1921}}' if name == "where" else '{"$contains": "ferry"}')
            ) from None


def _check_values(condition: Any, of_metadata: bool) -> None:
    for key, value in condition.items():
        if key in _LOGICAL:
            for each in value:
                _check_values(each, of_metadata)
        elif of_metadata and key.startswith("$"):
            raise ValueError(f"{key!r} names no metadata")
        for operator, operand in value.items() if isinstance(value, dict) else ():
            if isinstance(operand, list) and operator not in ("$in", "$nin"):
                raise ValueError(f"{operator} compares with one value, not with {operand!r:.60}")
        for number in _leaves(value):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{number} is equal to nothing")
        if not of_metadata and key.endswith("regex"):
            regex.compile(value)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    return [leaf for each in value for leaf in _leaves(each)] if isinstance(value, list) else [value]
