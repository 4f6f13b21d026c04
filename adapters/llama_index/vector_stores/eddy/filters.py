"""Translate LlamaIndex's metadata filters to Chroma's conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from eddy_embed.encoding.validation import check_kind
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT

DOCUMENT_KEYS = ("document_id", "doc_id", "ref_doc_id")
"""Metadata keys of a node's document in LlamaIndex; the index has a key of its own for it."""
_Condition = dict[str, Any] | bool
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
_IN_TEXTS = "give vector_store_kwargs={'where_document': {'$contains': ...}}"
_REFUSED = {
    FilterOperator.TEXT_MATCH: f"Chroma finds words in texts, not in metadata: {_IN_TEXTS}",
    FilterOperator.TEXT_MATCH_INSENSITIVE: "Chroma finds words in texts, not in metadata, and as they are spelt: "
    + _IN_TEXTS,
    FilterOperator.IS_EMPTY: "Chroma does not look for what is absent: write a value of your own, such as 'none', and "
    "ask for it",
}


def to_where(
    filters: MetadataFilters | None, where: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any] | None, bool]:
    """Join filters with one of Chroma's conditions: Chroma's condition, or None; and whether any row can meet it.

    Raises:
        InvalidParameter: Chroma does not support a filter.
    """
    if filters is not None:
        check_kind("filters", filters, MetadataFilters, "LlamaIndex's MetadataFilters, or None")
    if where is not None:
        check_kind("where", where, Mapping, "one of Chroma's conditions, such as {'year': {'$gte': 1921}}")
    filtered = filters is None or _group(filters, negated=False)
    joined = _joined("$and", [filtered, dict(where) if where else True])
    return (None, joined) if isinstance(joined, bool) else (joined, True)


def _joined(operator: str, conditions: Sequence[_Condition]) -> _Condition:
    """Join one or more conditions by "$and" or "$or"."""
    decisive = operator == "$or"  # one such condition decides the whole
    if any(condition is decisive for condition in conditions):
        return decisive
    rest = [condition for condition in conditions if not isinstance(condition, bool)]
    if not rest:
        return not decisive
    return {operator: rest} if len(rest) > 1 else rest[0]


def _group(filters: MetadataFilters, *, negated: bool) -> _Condition:
    if not filters.filters:
        return True
    condition = FilterCondition(filters.condition or FilterCondition.AND)
    # "not" means that no filter is met.
    inside = negated != (condition == FilterCondition.NOT)
    either = (condition == FilterCondition.OR) != negated if condition != FilterCondition.NOT else negated
    conditions = [
        _group(part, negated=inside) if isinstance(part, MetadataFilters) else _single(part, negated=inside)
        for part in filters.filters
    ]
    return _joined("$or" if either else "$and", conditions)


def _single(part: MetadataFilter, *, negated: bool) -> _Condition:
    operator, value = FilterOperator(part.operator or FilterOperator.EQ), part.value
    name = f"the filter {part.key!r} {operator.value} {value!r:.60}"
    if operator in _REFUSED:
        raise InvalidParameter(f"{name} cannot be asked: {_REFUSED[operator]}")
    if negated:
        if operator not in _OPPOSITE:
            raise InvalidParameter(
                f"{name} cannot be asked under 'not': Chroma has no words for its opposite, which rows without the "
                "entry meet too; ask for what is wanted instead"
            )
        operator = _OPPOSITE[operator]
    key = DOCUMENT if part.key in DOCUMENT_KEYS else part.key
    if operator in (FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL):
        return _list_condition(name, key, operator, value)
    if value is None or isinstance(value, list) or (operator in _ORDERED and isinstance(value, str)):
        wanted = "a number" if operator in _ORDERED else "a string or a number"
        raise InvalidParameter(f"{name} cannot be asked: the value must be {wanted}")
    return {key: {_OPERATORS[operator]: value}}


def _list_condition(name: str, key: str, operator: FilterOperator, value: Any) -> _Condition:
    if not isinstance(value, list):
        raise InvalidParameter(f"{name} cannot be asked: the value must be a list")
    if not value:
        return operator in (FilterOperator.NIN, FilterOperator.ALL)
    if operator in (FilterOperator.ANY, FilterOperator.ALL):
        return _joined("$or" if operator == FilterOperator.ANY else "$and", [{key: {"$contains": v}} for v in value])
    return {key: {"$in" if operator == FilterOperator.IN else "$nin": value}}
