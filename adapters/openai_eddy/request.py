"""Requests: receiving a body within limits, and the fields of its JSON."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

import anyio
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PositiveInt,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError
from starlette.requests import Request

from eddy_embed.integrations import PASSAGE_SIZE, TextRole
from openai_eddy.errors import ApiError, invalid_request, rate_limited
from openai_eddy.limits import Limits

Unit = Literal["document", "passage", "sentence"]
InputType = Literal["search_document", "search_query", "document", "passage", "query", "classification", "clustering"]
"""Of Cohere, Voyage and NVIDIA; the last two have the wording of documents."""
Task = Literal["retrieval.passage", "retrieval.query", "text-matching", "classification", "separation", "clustering"]
"""Of Jina."""


@dataclass
class PendingBodies:
    """Receives bodies, and counts the bytes of all that are being received or not validated yet."""

    limits: Limits
    size: int = 0

    async def receive(self, http: Request, content: bytearray) -> None:
        """Append a request's body to `content`, which counts until `release`.

        Raises:
            ApiError: The body is too large or too slow, or all of them together are too large.
            ClientDisconnect: The client has closed the connection.
        """
        close = {"connection": "close"}  # so that the server does not read the rest
        message = f"The body has more than this server's {self.limits.body_bytes} bytes; send several requests."
        too_large = ApiError(413, message, code="request_too_large", headers=close)
        if int(http.headers.get("content-length", 0)) > self.limits.body_bytes:
            raise too_large
        try:
            with anyio.fail_after(self.limits.body_seconds):
                async for part in http.stream():
                    content += part
                    self.size += len(part)
                    if len(content) > self.limits.body_bytes:
                        raise too_large
                    if self.size > self.limits.pending_bytes:
                        raise rate_limited(1)
        except TimeoutError:
            message = f"The body did not arrive within {self.limits.body_seconds:g} s."
            raise ApiError(408, message, code="request_timeout", headers=close) from None

    def release(self, content: bytearray) -> None:
        """Free the memory of a body; a second call does nothing."""
        self.size -= len(content)
        content.clear()


def _form_of_input(value: Any) -> str | None:
    if isinstance(value, str):
        return "text"
    if not isinstance(value, list):
        return None
    first = value[0] if value else ""
    return "texts" if isinstance(first, str) else "several ids" if isinstance(first, list) else "ids"


# The first bad item ends validation: a body may hold a million of them.
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, fail_fast=True)]
Inputs = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[list[str], Field(min_length=1, fail_fast=True), Tag("texts")]
    | Annotated[TokenIds, Tag("ids")]
    | Annotated[list[TokenIds], Field(fail_fast=True), Tag("several ids")],
    Discriminator(
        _form_of_input,
        custom_error_type="input",
        custom_error_message="Input should be a string, a list of strings, a list of token ids or a list of such lists",
    ),
]


def _text_of_document(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict) or list(value) != ["text"] or not isinstance(value["text"], str):
        raise PydanticCustomError("document", 'Input should be a string or {"text": a string}')
    return value["text"]


def _not_zero(value: int) -> int:
    if value == 0:
        raise PydanticCustomError("nothing", "0 leaves nothing to read; send -1 or more")
    return value


Truncation = Annotated[int, Field(ge=-1), AfterValidator(_not_zero)]
Document = Annotated[str, BeforeValidator(_text_of_document, json_schema_input_type=str | dict[Literal["text"], str])]


class ApiRequest(BaseModel):
    """The body of a request. Unknown fields are refused; null is as if the field were left out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    plural: ClassVar[str]  # the field with the inputs

    model: str

    @property
    def inputs(self) -> list[Any]:
        """The texts that the model reads, or lists of their token ids."""
        raise NotImplementedError

    def check_fields(self, limits: Limits) -> None:
        """Raise `ApiError` where fields do not go together, or one beside the inputs exceeds a limit."""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            raise invalid_request(f"The body must be a JSON object, not a {type(body).__name__}.", None)
        if unknown := ", ".join(name for name in body if name not in cls.model_fields):
            known = ", ".join(cls.model_fields)
            raise invalid_request(f"Unrecognized request argument supplied: {unknown:.80}. Known: {known}.", None)
        # A client may send null for a field that it leaves open.
        return {name: value for name, value in body.items() if value is not None}


Asked = TypeVar("Asked", bound=ApiRequest)


class EmbeddingRequest(ApiRequest):
    """The fields of OpenAI's API, and those that it does not have, each with a description."""

    plural = "input"

    input: Inputs
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: PositiveInt | None = Field(
        None, description="Keep so many of a vector's first numbers, and give it length 1 again."
    )
    user: Any = Field(None, description="Ignored.")
    input_type: InputType | None = Field(None, description="As `role`, in the words of Cohere, Voyage and NVIDIA.")
    task: Task | None = Field(None, description="As `role`, in the words of Jina.")
    truncate_prompt_tokens: Truncation | None = Field(
        None, description="As vLLM: read so many of an input's first tokens; -1: as many as one pass takes."
    )
    role: TextRole = Field(
        "document", description="Whether the inputs are documents or queries, which may have a wording of their own."
    )
    method: str | None = Field(
        None, description="One of those that the server was started with; the first of them by default."
    )
    unit: Unit = Field(
        "document", description="One vector for each input (document), or one for each of its passages or sentences."
    )
    passage_size: PositiveInt = Field(PASSAGE_SIZE, description="With unit passage: most tokens in one.")
    late: bool | None = Field(
        None, description="With unit passage or sentence: whether they are read out of the pass over the whole input."
    )

    @property
    def inputs(self) -> list[Any]:
        """The inputs as a list, also if there is one: texts, or lists of token ids."""
        alone = _form_of_input(self.input) in ("text", "ids")
        return [self.input] if alone else cast("list[Any]", self.input)

    @property
    def text_role(self) -> TextRole:
        """What the inputs are, by `role` or by another API's name for it."""
        asked = (self.input_type or self.task or self.role).endswith("query")
        return "query" if asked else "document"

    def check_fields(self, limits: Limits) -> None:
        """Raise `ApiError` where fields do not go together."""
        named = [name for name in ("role", "input_type", "task") if name in self.model_fields_set]
        if len(named) > 1:
            raise invalid_request(f"'{named[0]}' and '{named[1]}' say the same in two ways; send one.", named[1])
        if self.unit != "document" and self.text_role == "query":
            raise invalid_request("A query has one vector for each input; use unit document.", "unit")
        if self.unit != "passage" and "passage_size" in self.model_fields_set:
            raise invalid_request("'passage_size' is for unit passage.", "passage_size")
        if self.unit == "document" and "late" in self.model_fields_set:
            raise invalid_request("'late' is for unit passage or sentence.", "late")


class RerankRequest(ApiRequest):
    """The fields that Jina, Cohere and vLLM have in common, and how Cohere limits what is read of a document."""

    plural = "documents"

    query: str
    documents: Annotated[list[Document], Field(min_length=1, fail_fast=True)]
    top_n: PositiveInt | None = Field(None, description="Return so many of the best; left out: all.")
    return_documents: bool = Field(True, description="Whether the response repeats the documents' texts.")
    max_tokens_per_doc: PositiveInt | None = Field(
        None, description="Read so many of a document's first tokens; left out: all, in windows where it is long."
    )
    truncate_prompt_tokens: Truncation | None = Field(
        None, description="As vLLM: read so many tokens of query and document together; -1: as many as one pass takes."
    )

    @property
    def inputs(self) -> list[Any]:
        """The documents' texts."""
        return self.documents

    def check_fields(self, limits: Limits) -> None:
        """Raise `ApiError` where the question is blank or too long."""
        if not self.query.strip():
            raise invalid_request("'query' is blank: there is nothing to judge documents by.", "query")
        check_size("query", len(self.query), "characters", limits.input_characters)


def parse_request(kind: type[Asked], body: bytearray, limits: Limits) -> Asked:
    """Validate a body, and apply the limits that need no tokenizer.

    Raises:
        ApiError: The body is not valid; the error names the field.
    """
    try:
        request = kind.model_validate_json(body)
    except ValidationError as error:
        raise _to_api_error(error.errors(include_url=False)[0]) from None
    request.check_fields(limits)
    plural = request.plural
    if len(request.inputs) > limits.inputs:
        raise invalid_request(
            f"'{plural}' has {len(request.inputs)} inputs, more than {limits.inputs}; send them in several requests.",
            plural,
        )
    for index, each in enumerate(request.inputs):
        place = f"{plural}[{index}]"
        if isinstance(each, list):
            check_size(place, len(each), "tokens", limits.input_tokens)
        elif each.strip():
            check_size(place, len(each), "characters", limits.input_characters)
        else:
            raise invalid_request(f"'{place}' is blank; leave it out.", plural)
    return request


def check_size(place: str, size: int, counted: str, most: int) -> None:
    """Refuse an input with more characters or tokens than the server accepts."""
    if size > most:
        raise invalid_request(
            f"'{place}' has {size} {counted}, more than this server's {most} for an input; split it.",
            place.partition("[")[0],
            "context_length_exceeded",
        )


def _to_api_error(error: ErrorDetails) -> ApiError:
    """Name the field, as OpenAI does, and the value."""
    if error["type"] == "json_invalid":
        return invalid_request(f"We could not parse the JSON body of your request: {error['msg']}.", None)
    field = str(error["loc"][0])
    if error["type"] == "missing":
        return invalid_request(f"You must provide '{field}'.", field)
    place = field + "".join(f"[{index}]" for index in error["loc"][1:] if isinstance(index, int))
    given = f", not {reprlib.repr(error['input'])}" if error["msg"].startswith("Input") else ""
    return invalid_request(f"'{place}': {error['msg']}{given}.", field)
