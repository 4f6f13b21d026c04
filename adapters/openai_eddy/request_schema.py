"""Parse and validate the JSON body of a request for embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from eddy_embed.parts.layout import TextRole
from openai_eddy.errors import ApiError, invalid_request
from openai_eddy.limits import Limits

Granularity = Literal["document", "passage", "sentence"]
Encoding = Literal["float", "base64"]
Input = str | list[int]

EXTENSION_FIELDS = {
    "role": "Whether the inputs are documents (the default) or queries, which may have a wording of their own.",
    "method": "One of those that the server was started with; the first of them by default.",
    "granularity": "One vector for each input (document), or one for each of its passages or sentences.",
    "passage_size": "With granularity passage: most tokens in one.",
    "late": "With granularity passage or sentence: whether they are read out of the pass over the whole input.",
}
"""Fields that OpenAI's API does not have, with their descriptions."""
OPENAI_FIELDS = ("model", "input", "encoding_format", "dimensions", "user")
MAX_TOKEN_ID = 2**31 - 1


@dataclass(frozen=True)
class EmbeddingRequest:
    """A validated request."""

    model: str
    inputs: list[Input]
    encoding: Encoding
    dimensions: int | None  # number of components of a vector to keep; None keeps all
    role: TextRole
    method: str | None  # None for the server's first
    granularity: Granularity
    passage_size: int  # maximum number of tokens
    late: bool | None  # None wherever the method can


def parse_request(body: Any, limits: Limits) -> EmbeddingRequest:
    """Validate parsed JSON, and apply the limits on the number of inputs, their characters and their token ids."""
    if not isinstance(body, dict):
        raise invalid_request(f"The body must be a JSON object, not {_json_type(body)}.", None)
    unknown = [name for name in body if name not in EXTENSION_FIELDS and name not in OPENAI_FIELDS]
    if unknown:
        raise invalid_request(
            f"Unrecognized request argument supplied: {', '.join(unknown)[:80]}. Known: "
            f"{', '.join((*OPENAI_FIELDS, *EXTENSION_FIELDS))}.",
            None,
        )
    # A client may send null for a field that it leaves open.
    fields = {name: value for name, value in body.items() if value is not None}
    for name in ("model", "input"):
        if name not in fields:
            raise invalid_request(f"You must provide {'a' if name == 'model' else 'an'} {name} parameter.", name)
    if not isinstance(fields["model"], str):
        raise invalid_request(f"'model' must be a string, not {_json_type(fields['model'])}.", "model")
    granularity = _choice(fields, "granularity", Granularity, "document")
    role = _choice(fields, "role", TextRole, "document")
    _check_granularity(fields, granularity, role)
    if not isinstance(method := fields.get("method", ""), str):
        raise invalid_request(f"'method' must be a string such as 'plain', not {_json_type(method)}.", "method")
    if not isinstance(late := fields.get("late"), bool | None):
        raise invalid_request(f"'late' must be true or false, not {late!r:.40}.", "late")
    return EmbeddingRequest(
        model=fields["model"],
        inputs=_parse_inputs(fields["input"], limits),
        encoding=cast("Encoding", _choice(fields, "encoding_format", Encoding, "float")),
        dimensions=_positive_int(fields, "dimensions", None),
        role=cast("TextRole", role),
        method=method or None,
        granularity=cast("Granularity", granularity),
        passage_size=cast("int", _positive_int(fields, "passage_size", 256)),
        late=late,
    )


def _check_granularity(fields: dict[str, Any], granularity: str, role: str) -> None:
    """Refuse fields without an effect at this granularity."""
    if granularity != "document" and role == "query":
        raise invalid_request("'role' query has one vector for each input; use granularity document.", "granularity")
    if "passage_size" in fields and granularity != "passage":
        raise invalid_request("'passage_size' is for granularity passage.", "passage_size")
    if "late" in fields and granularity == "document":
        raise invalid_request("'late' is for granularity passage or sentence.", "late")


def _parse_inputs(value: Any, limits: Limits) -> list[Input]:
    if not isinstance(value, str | list):
        raise invalid_request(
            f"'input' must be a string, a list of strings, a list of token ids or a list of such lists, not "
            f"{_json_type(value)}.",
            "input",
        )
    if not value and isinstance(value, list):
        raise invalid_request("'input' is an empty list; give at least one input.", "input")
    inputs: list[Any] = [value] if isinstance(value, str) or _are_ids(value) else value
    if len(inputs) > limits.inputs:
        raise invalid_request(
            f"'input' has {len(inputs)} inputs, more than {limits.inputs}; send them in several requests.", "input"
        )
    texts = isinstance(inputs[0], str)
    for index, each in enumerate(inputs):
        if not (isinstance(each, str) if texts else isinstance(each, list) and _are_ids(each)):
            raise invalid_request(
                f"'input[{index}]' is {_json_type(each)}; inputs are all strings, or all lists of token ids.", "input"
            )
        _check_input(index, each, limits)
    return inputs


def _check_input(index: int, value: str | list[int], limits: Limits) -> None:
    if not (value.strip() if isinstance(value, str) else value):
        raise invalid_request(
            f"'input[{index}]' is {'blank' if value else 'empty'} and has no vector; leave it out.", "input"
        )
    if isinstance(value, str) and len(value) > limits.input_characters:
        raise _input_too_long(index, len(value), "characters", limits.input_characters)
    if isinstance(value, list):
        if len(value) > limits.input_tokens:
            raise _input_too_long(index, len(value), "tokens", limits.input_tokens)
        if not 0 <= min(value) <= max(value) <= MAX_TOKEN_ID:
            raise invalid_request(f"'input[{index}]' holds a number that is no token id.", "input")


def _input_too_long(index: int, size: int, unit: str, most: int) -> ApiError:
    return invalid_request(
        f"'input[{index}]' has {size} {unit}, more than this server's {most} for an input; split it.",
        "input",
        "context_length_exceeded",
    )


def check_token_counts(counts: list[int], limits: Limits) -> None:
    """Apply the limits on tokens to the number of tokens of each input."""
    for index, count in enumerate(counts):
        if count == 0:
            raise invalid_request(f"'input[{index}]' has no tokens in this model's vocabulary; leave it out.", "input")
        if count > limits.input_tokens:
            raise _input_too_long(index, count, "tokens", limits.input_tokens)
    if (total := sum(counts)) > limits.request_tokens:
        raise invalid_request(
            f"'input' has {total} tokens in all, more than this server's {limits.request_tokens} for a request; send "
            "it in several.",
            "input",
            "max_tokens_per_request",
        )


def _choice(fields: dict[str, Any], name: str, choices: Any, default: str) -> str:
    value = fields.get(name, default)
    if value not in get_args(choices):
        raise invalid_request(f"'{name}' is {value!r:.40}; choose one of {', '.join(get_args(choices))}.", name)
    return cast("str", value)


def _positive_int(fields: dict[str, Any], name: str, default: int | None) -> int | None:
    value = fields.get(name, default)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise invalid_request(f"'{name}' is {value!r:.40}; it must be a whole number of at least 1.", name)
    return value


def _are_ids(values: list[Any]) -> bool:
    return all(type(value) is int for value in values)


def _json_type(value: Any) -> str:
    names = {type(None): "null", bool: "true or false", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")


def json_schema() -> dict[str, Any]:
    """The body's JSON schema, for the OpenAPI description."""
    count = {"type": "integer", "minimum": 1}
    ids = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    texts = {"type": "array", "items": {"type": "string"}}
    types: dict[str, dict[str, Any]] = {
        "model": {"type": "string"},
        "input": {"anyOf": [{"type": "string"}, texts, ids, {"type": "array", "items": ids}]},
        "encoding_format": {"enum": list(get_args(Encoding)), "default": "float"},
        "dimensions": {**count, "description": "Keep so many of a vector's first numbers, and give it length 1 again."},
        "user": {"type": "string", "description": "Ignored."},
        "role": {"enum": list(get_args(TextRole)), "default": "document"},
        "method": {"type": "string"},
        "granularity": {"enum": list(get_args(Granularity)), "default": "document"},
        "passage_size": {**count, "default": 256},
        "late": {"type": "boolean"},
    }
    for name, description in EXTENSION_FIELDS.items():
        types[name]["description"] = description
    return {"type": "object", "required": ["model", "input"], "properties": types, "additionalProperties": False}
