"""Translate LlamaIndex's metadata filters to Chroma's conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from eddy_embed.encoding.validation import check_kind
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT
from llama_index.vector_stores.eddy.nodes import DOCUMENT_KEYS

Condition = dict[str, Any] | bool
"""A condition; True if every row meets it, False if none does: Chroma cannot express these two."""

_ORDERED = {FilterOperator.GT: "$gt", FilterOperator.GTE: "$gte", FilterOperator.LT: "$lt", FilterOperator.LTE: "$lte"}
_OPERATORS = {
    **_ORDERED,
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.CONTAINS: "$contains",
}
# A row without the entry meets NE and NIN, as the negation of EQ and IN requires.
_OPPOSITE = {
    FilterOperator.EQ: FilterOperator.NE,
    FilterOperator.NE: FilterOperator.EQ,
    FilterOperator.IN: FilterOperator.NIN,
    FilterOperator.NIN: FilterOperator.IN,
}
_REFUSED = {
    FilterOperator.TEXT_MATCH: "Chroma finds words in texts, not in metadata: give "
    "vector_store_kwargs={'where_document': {'$contains': ...}}",
    FilterOperator.TEXT_MATCH_INSENSITIVE: "Chroma finds words in texts, not in metadata, and as they are spelt: give "
    "vector_store_kwargs={'where_document': {'$contains': ...}}",
    FilterOperator.IS_EMPTY: "Chroma does not look for what is absent: write a value of your own, such as 'none', and "
    "ask for it",
}


def to_condition(filters: MetadataFilters | None) -> Condition:
    """Translate filters; refuse what Chroma does not support."""
    if filters is None:
        return True
    check_kind("filters", filters, MetadataFilters, "LlamaIndex's MetadataFilters, or None")
    return _group(filters, negated=False)


def join_conditions(word: str, conditions: Sequence[Condition]) -> Condition:
    """Join one or more conditions by "$and" or "$or"."""
    decisive = word == "$or"  # one such condition decides the whole
    if any(each is decisive for each in conditions):
        return decisive
    rest = [each for each in conditions if not isinstance(each, bool)]
    if not rest:
        return not decisive
    return {word: rest} if len(rest) > 1 else rest[0]


def _group(filters: MetadataFilters, *, negated: bool) -> Condition:
    if not filters.filters:
        return True
    condition = FilterCondition(filters.condition or FilterCondition.AND)
    # "not" means that no filter is met.
    inside = negated != (condition == FilterCondition.NOT)
    either = (condition == FilterCondition.OR) != negated if condition != FilterCondition.NOT else negated
    conditions = [
        _group(each, negated=inside) if isinstance(each, MetadataFilters) else _single(each, negated=inside)
        for each in filters.filters
    ]
    return join_conditions("$or" if either else "$and", conditions)


def _single(given: MetadataFilter, *, negated: bool) -> Condition:
    operator, value = FilterOperator(given.operator or FilterOperator.EQ), given.value
    name = f"the filter {given.key!r} {operator.value} {value!r:.60}"
    if operator in _REFUSED:
        raise InvalidParameter(f"{name} cannot be asked: {_REFUSED[operator]}")
    if negated:
        if operator not in _OPPOSITE:
            raise InvalidParameter(
                f"{name} cannot be asked under 'not': Chroma has no words for its opposite, which rows without the "
                "entry meet too; ask for what is wanted instead"
            )
        operator = _OPPOSITE[operator]
    key = DOCUMENT if given.key in DOCUMENT_KEYS else given.key
    if operator in (FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL):
        return _list_condition(name, key, operator, value)
    if value is None or isinstance(value, list) or (operator in _ORDERED and isinstance(value, str)):
        wanted = "a number" if operator in _ORDERED else "a string or a number"
        raise InvalidParameter(f"{name} cannot be asked: the value must be {wanted}")
    return {key: {_OPERATORS[operator]: value}}


def _list_condition(name: str, key: str, operator: FilterOperator, value: Any) -> Condition:
    if not isinstance(value, list):
        raise InvalidParameter(f"{name} cannot be asked: the value must be a list")
    if not value:
        return operator in (FilterOperator.NIN, FilterOperator.ALL)
    if operator in (FilterOperator.ANY, FilterOperator.ALL):
        word = "$or" if operator == FilterOperator.ANY else "$and"
        return join_conditions(word, [{key: {"$contains": each}} for each in value])
    return {key: {"$in" if operator == FilterOperator.IN else "$nin": value}}


def to_where(condition: Condition, where: Mapping[str, Any] | None) -> tuple[dict[str, Any] | None, bool]:
    """Join a condition with one of Chroma's: Chroma's condition, or None; and whether any row can meet it."""
    if where is not None:
        check_kind("where", where, Mapping, "one of Chroma's conditions, such as {'year': {'$gte': 1921}}")
    both = join_conditions("$and", [condition, dict(where) if where else True])
    return (None, both) if isinstance(both, bool) else (both, True)
