"""Bodies of requests: their fields, those of other servers that mean the same, and limits that need no tokenizer."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, ValidationError
from pydantic_core import PydanticCustomError

from eddy_embed.integrations.http_guard import RequestRefused


@dataclass(frozen=True)
class Limits:
    """Limits of an endpoint on sizes and time."""

    inputs: int = 2048  # in a request
    input_characters: int = 1_000_000  # in an input, checked before it becomes tokens
    input_tokens: int = 65_536  # in an input
    request_tokens: int = 300_000  # in a request
    pending_tokens: int = 600_000  # accepted and not embedded yet
    body_bytes: int = 8 * 2**20  # of a request
    body_seconds: float = 60.0  # for the body of a request to arrive


def invalid(message: str, param: str | None, code: str | None = None) -> RequestRefused:
    """Status 400: a field of the request is wrong."""
    return RequestRefused(400, message, param=param, code=code)


def _checked_text(value: Any) -> Any:
    """Return a text as it is or in an object, in which some servers take images too."""
    if isinstance(value, dict) and value.keys() <= {"text", "type"} and value.get("type", "text") == "text":
        value = value.get("text")
    if not isinstance(value, str):
        raise PydanticCustomError("text", 'Input should be a string or {"text": a string}')
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise PydanticCustomError("half", "holds half a character (a lone surrogate, as of half an emoji); drop it")
    return value


def _also(*names: str) -> Any:
    """Return a field that other servers call otherwise; two of its names in one request are refused."""
    return Field(None, validation_alias=AliasChoices(*names))


Text = Annotated[str, BeforeValidator(_checked_text)]
# The first bad item ends validation: a body may hold a million of them.
Texts = Annotated[list[Text], Field(min_length=1, fail_fast=True)]
Role = Literal["document", "query", "passage", "search_document", "search_query", "retrieval.passage"]
OtherRole = Literal["retrieval.query", "text-matching", "classification", "separation", "clustering"]


class ApiRequest(BaseModel):
    """The body of a request. Unknown fields are refused; null is as if the field were left out.

    Fields of other servers are taken with the values that change nothing here, or that this server has a word for.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    plural: ClassVar[str]  # the field with the inputs

    model: str
    # As vLLM: read so many tokens of an input, or of query and document; -1: as many as one pass takes.
    truncate_prompt_tokens: PositiveInt | Literal[-1] | None = None
    # True and END as -1; otherwise texts are read to their end.
    truncate: Literal[False, True, "NONE", "END"] | None = _also("truncate", "truncation")
    user: Any = None
    metadata: Any = None
    priority: Literal[0] | None = None
    add_special_tokens: Literal[True] | None = None

    @property
    def cut(self) -> int | None:
        """How many tokens are read; None: all, -1: as many as one pass takes."""
        return self.truncate_prompt_tokens or (-1 if self.truncate in (True, "END") else None)


class EmbeddingRequest(ApiRequest):
    """The fields of OpenAI's API, and those that it does not have."""

    plural = "input"

    input: Annotated[Texts, BeforeValidator(lambda value: value if isinstance(value, list) else [value])]
    encoding_format: Literal["float", "base64"] | None = _also("encoding_format", "embedding_type")
    embedding_types: list[Literal["float"]] | None = None
    output_dtype: Literal["float"] | None = None
    dimensions: PositiveInt | None = _also("dimensions", "output_dimension")  # the first numbers, at length 1 again
    normalize: bool | None = _also("normalize", "normalized")
    late_chunking: Literal[False] | None = None
    # The words of Cohere, Voyage, NVIDIA and Jina; what is no query has the wording of documents.
    role: Role | OtherRole | None = _also("role", "input_type", "task")
    method: str | None = None  # one of those that the server was started with; by default the first of them


class RerankRequest(ApiRequest):
    """The fields that Jina, Cohere and vLLM have in common, and how Cohere limits what is read of a document."""

    plural = "documents"

    query: Text
    documents: Texts
    top_n: PositiveInt | None = _also("top_n", "top_k")
    return_documents: bool = True
    max_tokens_per_doc: PositiveInt | None = None
    rank_fields: list[Literal["text"]] | None = None


def parse_request(kind: type[EmbeddingRequest | RerankRequest], body: bytes, limits: Limits) -> Any:
    """Validate a body, and apply the limits that need no tokenizer.

    Raises:
        RequestRefused: The body is not valid; the error names the field.
    """
    try:
        values = json.loads(body)  # of bytes: in UTF-8, -16 or -32, with a byte order mark or without
    except (ValueError, RecursionError) as error:
        raise invalid(f"We could not parse the JSON body of your request: {error}.", None) from None
    if not isinstance(values, dict):
        raise invalid(f"The body must be a JSON object, not a {type(values).__name__}.", None)
    try:
        request = kind.model_validate({name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        raise _refusal(error, ", ".join(kind.model_fields)) from None
    plural, texts = request.plural, getattr(request, request.plural)
    if len(texts) > limits.inputs:
        raise invalid(f"'{plural}' has {len(texts)} inputs, more than {limits.inputs}; send several requests.", plural)
    for index, text in enumerate(texts):
        check_size(f"{plural}[{index}]", len(text), "characters", limits.input_characters)
    if isinstance(request, RerankRequest):
        check_size("query", len(request.query), "characters", limits.input_characters)
        if not request.query.strip():
            raise invalid("'query' is blank: there is nothing to rank documents by.", "query")
    return request


def check_size(place: str, size: int, counted: str, most: int) -> None:
    """Refuse an input with more characters or tokens than the server accepts."""
    if size > most:
        message = f"'{place}' has {size} {counted}, more than this server's {most} for an input; split it."
        raise invalid(message, place.partition("[")[0], "context_length_exceeded")


def _refusal(invalid_body: ValidationError, known: str) -> RequestRefused:
    """Name the field, as OpenAI does, and the value."""
    error = invalid_body.errors(include_url=False)[0]
    field, kind = str(error["loc"][0]), error["type"]
    if kind == "missing":
        return invalid(f"You must provide '{field}'.", field)
    if kind == "extra_forbidden":
        return invalid(f"Unrecognized request argument supplied: {field:.80}. Known: {known}.", field)
    place = field + "".join(f"[{index}]" for index in error["loc"][1:] if isinstance(index, int))
    value = f", not {reprlib.repr(error['input'])}" if error["msg"].startswith("Input") else ""
    if field == "input" and isinstance(error["input"], int | list):
        value += "; send texts, not their tokens (LangChain's OpenAIEmbeddings: check_embedding_ctx_length=False)"
    return invalid(f"'{place}': {error['msg']}{value}.", field)
