"""The body of a request for embeddings, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from eddy_embed.layout import TextRole
from openai_eddy.errors import ApiError, invalid
from openai_eddy.limits import Limits

Granularity = Literal["document", "passage", "sentence"]
Encoding = Literal["float", "base64"]
Input = str | list[int]

OURS = {
    "role": "Whether the inputs are documents (the default) or queries, which may have a wording of their own.",
    "method": "One of those that the server was started with; the first of them by default.",
    "granularity": "One vector for each input (document), or one for each of its passages or sentences.",
    "passage_size": "With granularity passage: most tokens in one.",
    "late": "With granularity passage or sentence: whether they are read out of the pass over the whole input.",
}
"""Fields that OpenAI's interface has not, and what they are for."""
THEIRS = ("model", "input", "encoding_format", "dimensions", "user")
LARGEST_ID = 2**31 - 1


@dataclass(frozen=True)
class Asked:
    """A request as it was asked.

    Attributes:
        model: The model's name.
        inputs: Texts, or token ids.
        encoding: Of the vectors.
        dimensions: How many of the first numbers of a vector are kept; None: all.
        role: What the inputs are.
        method: None: the server's first.
        granularity: What has a vector.
        passage_size: Most tokens in a passage.
        late: None: where the method can.
    """

    model: str
    inputs: list[Input]
    encoding: Encoding
    dimensions: int | None
    role: TextRole
    method: str | None
    granularity: Granularity
    passage_size: int
    late: bool | None


def asked(body: Any, limits: Limits) -> Asked:
    """A request out of its body.

    Args:
        body: What the JSON stands for.
        limits: Those on the number of inputs and on their characters are held here.

    Raises:
        ApiError: A field is missing, unknown, or not as it must be.
    """
    if not isinstance(body, dict):
        raise invalid(f"The body must be a JSON object, not {_kind(body)}.", None)
    unknown = [name for name in body if name not in OURS and name not in THEIRS]
    if unknown:
        raise invalid(
            f"Unrecognized request argument supplied: {', '.join(unknown)[:80]}. Known: {', '.join((*THEIRS, *OURS))}.",
            None,
        )
    # A client that leaves a choice open may also say null.
    given = {name: value for name, value in body.items() if value is not None}
    for name in ("model", "input"):
        if name not in given:
            raise invalid(f"You must provide {'a' if name == 'model' else 'an'} {name} parameter.", name)
    if not isinstance(given["model"], str):
        raise invalid(f"'model' must be a string, not {_kind(given['model'])}.", "model")
    granularity = _choice(given, "granularity", Granularity, "document")
    role = _choice(given, "role", TextRole, "document")
    _only_for_parts(given, granularity, role)
    if not isinstance(method := given.get("method", ""), str):
        raise invalid(f"'method' must be a string such as 'plain', not {_kind(method)}.", "method")
    if not isinstance(late := given.get("late"), bool | None):
        raise invalid(f"'late' must be true or false, not {late!r:.40}.", "late")
    return Asked(
        model=given["model"],
        inputs=_inputs(given["input"], limits),
        encoding=cast("Encoding", _choice(given, "encoding_format", Encoding, "float")),
        dimensions=_count(given, "dimensions", None),
        role=cast("TextRole", role),
        method=method or None,
        granularity=cast("Granularity", granularity),
        passage_size=cast("int", _count(given, "passage_size", 256)),
        late=late,
    )


def _only_for_parts(given: dict[str, Any], granularity: str, role: str) -> None:
    """Refuse fields that would have no effect."""
    if granularity != "document" and role == "query":
        raise invalid("'role' query has one vector for each input; use granularity document.", "granularity")
    if "passage_size" in given and granularity != "passage":
        raise invalid("'passage_size' is for granularity passage.", "passage_size")
    if "late" in given and granularity == "document":
        raise invalid("'late' is for granularity passage or sentence.", "late")


def _inputs(value: Any, limits: Limits) -> list[Input]:
    if isinstance(value, str):
        found: list[Any] = [value]
    elif isinstance(value, list) and value and _is_ids(value):
        found = [value]
    elif isinstance(value, list):
        found = value
    else:
        raise invalid(
            f"'input' must be a string, a list of strings, a list of token ids or a list of such lists, not "
            f"{_kind(value)}.",
            "input",
        )
    if not found:
        raise invalid("'input' is an empty list; give at least one input.", "input")
    if len(found) > limits.inputs:
        raise invalid(
            f"'input' has {len(found)} inputs, more than {limits.inputs}; send them in several requests.", "input"
        )
    texts = isinstance(found[0], str)
    for index, each in enumerate(found):
        if isinstance(each, str) != texts or not (isinstance(each, str) or (isinstance(each, list) and _is_ids(each))):
            raise invalid(
                f"'input[{index}]' is {_kind(each)}; inputs are all strings, or all lists of token ids.", "input"
            )
        _check_input(index, each, limits)
    return cast("list[Input]", found)


def _check_input(index: int, value: str | list[int], limits: Limits) -> None:
    if not (value.strip() if isinstance(value, str) else value):
        raise invalid(f"'input[{index}]' is {'blank' if value else 'empty'} and has no vector; leave it out.", "input")
    if isinstance(value, str) and len(value) > limits.input_characters:
        raise _too_long(index, len(value), "characters", limits.input_characters)
    if isinstance(value, list):
        if len(value) > limits.input_tokens:
            raise _too_long(index, len(value), "tokens", limits.input_tokens)
        if not 0 <= min(value) <= max(value) <= LARGEST_ID:
            raise invalid(f"'input[{index}]' holds a number that is no token id.", "input")


def _too_long(index: int, size: int, unit: str, most: int) -> ApiError:
    return invalid(
        f"'input[{index}]' has {size} {unit}, more than this server's {most} for an input; split it.",
        "input",
        "context_length_exceeded",
    )


def check_tokens(counts: list[int], limits: Limits) -> None:
    """Hold the limits on tokens.

    Args:
        counts: Tokens of each input.
        limits: Of the server.

    Raises:
        ApiError: An input has too many, or all of them together; or one has none.
    """
    for index, count in enumerate(counts):
        if count == 0:
            raise invalid(f"'input[{index}]' has no tokens in this model's vocabulary; leave it out.", "input")
        if count > limits.input_tokens:
            raise _too_long(index, count, "tokens", limits.input_tokens)
    if (total := sum(counts)) > limits.request_tokens:
        raise invalid(
            f"'input' has {total} tokens in all, more than this server's {limits.request_tokens} for a request; send "
            "it in several.",
            "input",
            "max_tokens_per_request",
        )


def _choice(given: dict[str, Any], name: str, kind: Any, usual: str) -> str:
    value = given.get(name, usual)
    if value not in get_args(kind):
        raise invalid(f"'{name}' is {value!r:.40}; choose one of {', '.join(get_args(kind))}.", name)
    return cast("str", value)


def _count(given: dict[str, Any], name: str, usual: int | None) -> int | None:
    value = given.get(name, usual)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise invalid(f"'{name}' is {value!r:.40}; it must be a whole number of at least 1.", name)
    return value


def _is_ids(values: list[Any]) -> bool:
    return all(type(value) is int for value in values)


def _kind(value: Any) -> str:
    names = {type(None): "null", bool: "true or false", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")


def schema() -> dict[str, Any]:
    """The body's JSON schema, for the interface's description."""
    count = {"type": "integer", "minimum": 1}
    ids = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    kinds: dict[str, dict[str, Any]] = {
        "model": {"type": "string"},
        "input": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                ids,
                {"type": "array", "items": ids},
            ]
        },
        "encoding_format": {"enum": list(get_args(Encoding)), "default": "float"},
        "dimensions": {**count, "description": "Keep so many of a vector's first numbers, and give it length 1 again."},
        "user": {"type": "string", "description": "Ignored."},
        "role": {"enum": list(get_args(TextRole)), "default": "document"},
        "method": {"type": "string"},
        "granularity": {"enum": list(get_args(Granularity)), "default": "document"},
        "passage_size": {**count, "default": 256},
        "late": {"type": "boolean"},
    }
    told = {name: {**kind, **({"description": OURS[name]} if name in OURS else {})} for name, kind in kinds.items()}
    return {"type": "object", "required": ["model", "input"], "properties": told, "additionalProperties": False}
