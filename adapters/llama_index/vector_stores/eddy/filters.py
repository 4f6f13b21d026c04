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
_SINGLE = {FilterOperator.EQ: "$eq", FilterOperator.NE: "$ne", FilterOperator.CONTAINS: "$contains", **_ORDERED}
_LISTS = {FilterOperator.IN: "$in", FilterOperator.NIN: "$nin", FilterOperator.ANY: "$or", FilterOperator.ALL: "$and"}
_PAIRS = ((FilterOperator.EQ, FilterOperator.NE), (FilterOperator.IN, FilterOperator.NIN))
_OPPOSITE = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
"""A row without the entry meets NE and NIN, as the negation of EQ and IN requires."""
_ABSENT = "Chroma does not look for what is absent: write a value of your own, such as 'none', and ask for it"
_WORDS = (
    "Chroma finds words in texts, as they are spelt, not in metadata: give vector_store_kwargs={'where_document': "
    "{'$contains': ...}}"
)


def to_where(
    filters: MetadataFilters | None, where: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any] | None, bool]:
    """Join filters with one of Chroma's conditions: Chroma's condition, or None; and whether any row can meet it.

    Raises:
        InvalidParameter: Chroma does not support a filter.
    """
    check_kind("filters", filters, MetadataFilters | None, "LlamaIndex's MetadataFilters, or None")
    check_kind("where", where, Mapping | None, "one of Chroma's conditions, such as {'year': {'$gte': 1921}}")
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
    is_not = condition == FilterCondition.NOT  # no filter is met
    inside, either = negated != is_not, negated if is_not else (condition == FilterCondition.OR) != negated
    conditions = [
        _group(part, negated=inside) if isinstance(part, MetadataFilters) else _single(part, negated=inside)
        for part in filters.filters
    ]
    return _joined("$or" if either else "$and", conditions)


def _single(part: MetadataFilter, *, negated: bool) -> _Condition:
    operator, value = FilterOperator(part.operator or FilterOperator.EQ), part.value
    key, reason = DOCUMENT if part.key in DOCUMENT_KEYS else part.key, ""
    if operator not in {**_SINGLE, **_LISTS}:
        reason = _ABSENT if operator == FilterOperator.IS_EMPTY else _WORDS
    elif negated and operator not in _OPPOSITE:
        reason = "under 'not' Chroma has no words for its opposite, which rows without the entry meet too"
    elif operator in _LISTS and not isinstance(value, list):
        reason = "the value must be a list"
    elif operator in _ORDERED and not isinstance(value, int | float):
        reason = "the value must be a number"
    elif operator in _SINGLE and (value is None or isinstance(value, list)):
        reason = "the value must be a string or a number"
    if reason:
        raise InvalidParameter(f"the filter {part.key!r} {operator.value} {value!r:.60} cannot be asked: {reason}")
    operator = _OPPOSITE[operator] if negated else operator
    if operator in _SINGLE:
        return {key: {_SINGLE[operator]: value}}
    if not value:
        return operator in (FilterOperator.NIN, FilterOperator.ALL)
    if operator in (FilterOperator.IN, FilterOperator.NIN):
        return {key: {_LISTS[operator]: value}}
    return _joined(_LISTS[operator], [{key: {"$contains": item}} for item in value])  # type: ignore[union-attr]
