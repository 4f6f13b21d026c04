"""LlamaIndex's metadata filters as conditions of Chroma's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from chroma_eddy.rows.schema import DOCUMENT
from eddy_embed.encoding.validation import check_kind
from eddy_embed.errors import InvalidParameter
from llama_index.vector_stores.eddy.nodes import DOCUMENT_KEYS

Condition = dict[str, Any] | bool
"""True: every row meets it; False: none does. Chroma has no words for these two."""

_PLAIN = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.CONTAINS: "$contains",
}
_ORDERED = (FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE)
# A row without the entry meets the second of each pair, as it should meet what is not the first.
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


def condition_of(filters: MetadataFilters | None) -> Condition:
    """The same filters as Chroma has them.

    Args:
        filters: LlamaIndex's; None: none.

    Raises:
        InvalidParameter: Chroma cannot do what a filter asks.
    """
    if filters is None:
        return True
    check_kind("filters", filters, MetadataFilters, "LlamaIndex's MetadataFilters, or None")
    return _several(filters, negated=False)


def joined(word: str, conditions: Sequence[Condition]) -> Condition:
    """Conditions under "$and" or "$or".

    Args:
        word: Which.
        conditions: What is joined; at least one.
    """
    settles = word == "$or"
    if any(each is settles for each in conditions):
        return settles
    left = [each for each in conditions if not isinstance(each, bool)]
    if not left:
        return not settles
    return {word: left} if len(left) > 1 else left[0]


def _several(filters: MetadataFilters, *, negated: bool) -> Condition:
    if not filters.filters:
        return True
    condition = FilterCondition(filters.condition or FilterCondition.AND)
    # "not" is met where none of the filters is.
    inside = negated != (condition == FilterCondition.NOT)
    either = (condition == FilterCondition.OR) != negated if condition != FilterCondition.NOT else negated
    found = [
        _several(each, negated=inside) if isinstance(each, MetadataFilters) else _one(each, negated=inside)
        for each in filters.filters
    ]
    return joined("$or" if either else "$and", found)


def _one(given: MetadataFilter, *, negated: bool) -> Condition:
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
        return _listed(name, key, operator, value)
    if value is None or isinstance(value, list) or (operator in _ORDERED and isinstance(value, str)):
        wanted = "a number" if operator in _ORDERED else "a string or a number"
        raise InvalidParameter(f"{name} cannot be asked: the value must be {wanted}")
    return {key: {_PLAIN[operator]: value}}


def _listed(name: str, key: str, operator: FilterOperator, value: Any) -> Condition:
    if not isinstance(value, list):
        raise InvalidParameter(f"{name} cannot be asked: the value must be a list")
    if not value:
        return operator in (FilterOperator.NIN, FilterOperator.ALL)
    if operator in (FilterOperator.ANY, FilterOperator.ALL):
        word = "$or" if operator == FilterOperator.ANY else "$and"
        return joined(word, [{key: {"$contains": each}} for each in value])
    return {key: {"$in" if operator == FilterOperator.IN else "$nin": value}}


def as_where(condition: Condition, where: Mapping[str, Any] | None) -> tuple[dict[str, Any] | None, bool]:
    """A condition beside one in Chroma's own words.

    Args:
        condition: From filters.
        where: Chroma's own.

    Returns:
        Chroma's condition, None for none; and whether any row can meet it.
    """
    both = joined("$and", [condition, dict(where) if where else True])
    return (None, both) if isinstance(both, bool) else (both, True)
