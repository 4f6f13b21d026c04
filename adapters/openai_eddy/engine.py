"""The models behind an endpoint: loading, preparing a request before the queue, running a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eddy_embed import Embedder, Reranker, methods
from eddy_embed.errors import (
    IncompatibleMethods,
    InvalidParameter,
    InvalidText,
    NotFinite,
    TextTooLong,
    UnsupportedModel,
)
from eddy_embed.integrations import PASSAGE_SIZE, TextRole, first_tokens, isolate_failures, open_embedder, open_model
from eddy_embed.integrations.settings import EmbedderSettings
from openai_eddy.errors import ApiError, invalid_request, server_error
from openai_eddy.limits import Limits
from openai_eddy.request import EmbeddingRequest, RerankRequest, Unit, check_size

LOADING = ("device", "dtype", "revision", "trust_remote_code", "local_files_only")
"""Settings of loading a model, which several methods and the reranker share."""
WARM_UP = "The ferry leaves at noon."


@dataclass(frozen=True)
class BatchKey:
    """What inputs must have in common to share a batch of vectors."""

    method: str
    role: TextRole = "document"
    unit: Unit = "document"
    passage_size: int = PASSAGE_SIZE
    late: bool = True


@dataclass(frozen=True)
class Question:
    """What documents must have in common to be judged in one batch."""

    text: str


@dataclass(frozen=True, eq=False)
class InputVectors:
    """The vectors of one input."""

    vectors: NDArray[np.float32]  # shape (vectors, dimension)
    spans: NDArray[np.int64] | None = None  # (vectors, 3): start, end, tokens; None for a whole input


@dataclass(frozen=True)
class PreparedRequest:
    """A request ready for the queue."""

    key: BatchKey | Question
    texts: list[str]
    counts: list[int]  # number of tokens of each text; of a document that is judged, those around it too


class Engine:
    """Embedders of one model, by the text form of their methods, of which the first is the default; its reranker."""

    def __init__(self, embedders: Mapping[str, Embedder], limits: Limits, reranker: Reranker | None = None) -> None:
        """Have each model read one text, so that failures surface here and not at the first request."""
        self.embedders, self.reranker = dict(embedders), reranker
        self.default = next(iter(self.embedders))
        self._limits = limits
        # Computed now: reading all tensors for the first time takes seconds on a large model.
        self.fingerprints = {name: each.fingerprint for name, each in self.embedders.items()}
        for each in self.embedders.values():
            each.encode_document(WARM_UP)
        if reranker is not None:
            reranker.scores(WARM_UP, WARM_UP)

    def required_reranker(self) -> Reranker:
        """The reranker; where there is none, `ApiError` says how to start a server that has one."""
        if self.reranker is None:
            raise ApiError(
                404,
                "This server does not re-rank: start it with `eddy serve MODEL --rerank`, or with "
                "`create_app(..., reranker=)`.",
                code="rerank_not_served",
            )
        return self.reranker

    def prepare(self, request: EmbeddingRequest | RerankRequest) -> PreparedRequest:
        """Validate a request against the model and count its tokens. Slow: not for the event loop's thread."""
        prepared = self._to_judge(request) if isinstance(request, RerankRequest) else self._to_embed(request)
        for index, count in enumerate(prepared.counts):
            check_size(f"{request.plural}[{index}]", count, "tokens", self._limits.input_tokens)
        if (total := sum(prepared.counts)) > (most := self._limits.request_tokens):
            raise invalid_request(
                f"'{request.plural}' has {total} tokens in all, more than this server's {most} for a request; send it "
                "in several.",
                request.plural,
                "max_tokens_per_request",
            )
        return prepared

    def _to_judge(self, request: RerankRequest) -> PreparedRequest:
        texts, reranker = request.documents, self.required_reranker()
        if request.max_tokens_per_doc is not None:
            texts = reranker.truncate(texts, request.max_tokens_per_doc)
        try:
            if (most := request.truncate_prompt_tokens) is not None:
                texts = reranker.truncate(texts, None if most == -1 else most, query=request.query)
            counts = reranker.count_tokens(request.query, texts)
        except TextTooLong as error:
            raise invalid_request(f"'query': {error}.", "query", "context_length_exceeded") from None
        return PreparedRequest(Question(request.query), texts, counts)

    def _to_embed(self, request: EmbeddingRequest) -> PreparedRequest:
        method = request.method or self.default
        if method not in self.embedders:
            raise invalid_request(
                f"'method' is {method!r:.80}; this server was started with {', '.join(self.embedders)}.", "method"
            )
        embedder = self.embedders[method]
        if request.dimensions is not None and request.dimensions > embedder.dimension:
            raise invalid_request(
                f"'dimensions' is {request.dimensions}; the vectors of this model have {embedder.dimension}.",
                "dimensions",
            )
        late = embedder.reads_late if request.late is None else request.late
        if late and request.unit != "document" and not embedder.can_embed_spans:
            raise invalid_request(
                f"'late': {method} reads one token for the whole text, so parts have no vectors in the pass over it; "
                "say false, or leave it out.",
                "late",
            )
        texts = [_text_of(index, each, embedder) for index, each in enumerate(request.inputs)]
        if (most := request.truncate_prompt_tokens) is not None:
            texts = first_tokens(embedder, texts, None if most == -1 else most, role=request.text_role)
        counts = embedder.count_tokens(texts)
        if 0 in counts:
            message = f"'input[{counts.index(0)}]' has no tokens in this model's vocabulary; leave it out."
            raise invalid_request(message, "input")
        if embedder.settings["overflow"] == "error":
            _refuse_long(embedder.count_tokens(texts, role=request.text_role), embedder.max_length)
        if request.unit == "document":
            return PreparedRequest(BatchKey(method, request.text_role), texts, counts)
        key = BatchKey(method, request.text_role, request.unit, request.passage_size, late)
        return PreparedRequest(key, texts, counts)

    def run(self, key: BatchKey | Question, texts: list[str]) -> Sequence[InputVectors | float | Exception]:
        """Embed or judge texts of several requests; a text that fails gets its error, the others their results.

        A judged text gets the mean log-probability of the question's tokens.
        """
        if isinstance(key, Question):
            return isolate_failures(lambda some: _judge(self.required_reranker(), key.text, some), texts)
        embedder = self.embedders[key.method]
        return isolate_failures(lambda some: _embed(embedder, key, some), texts)

    def windowed_texts(self) -> int:
        """Number of texts so far that exceeded the model's window."""
        return sum(each.counts.windowed_texts for each in self.embedders.values())


def open_models(
    model: str, method_texts: Sequence[str], *, post: Path | None = None, rerank: bool = False, **options: Any
) -> tuple[dict[str, Embedder], Reranker | None]:
    """Open an embedder for each method, and a reranker; they share one loaded model.

    Args:
        model: Name, path or Hugging Face id as for `Embedder`.
        method_texts: Text forms of methods, at least one; the keys of the embedders.
        post: File of fitted post-processing, for the methods that have some.
        rerank: Load all layers and the language-model head, and open a reranker too.
        **options: Further arguments of `Embedder`.

    Raises:
        InvalidParameter: Several methods for a model with a pooling of its own, or `post` without a method to use it.
        UnsupportedModel: With `rerank`, a model that gives no probabilities of words.
        EddyError: Any other error of `Embedder`.
    """
    parsed = {text: methods.parse(text) for text in dict.fromkeys(method_texts)}  # misspelt: fails before loading
    fitted = {text for text, method in parsed.items() if method.post is not None and method.post.learns}
    if post is not None and not fitted:
        raise InvalidParameter(
            f"--post {post}: none of {', '.join(parsed)} has post-processing; join some, as in +whiten"
        )
    posts = {text: {"fitted": str(post)} for text in fitted} if post is not None else {}
    live = reranker = None
    if len(parsed) > 1 or rerank:
        defaults = EmbedderSettings.model_fields
        loading: dict[str, Any] = {name: options.pop(name, defaults[name].default) for name in LOADING}
        opened = open_model(
            *(model, methods.plain(), None),
            **loading,
            cache_folder=None,
            model_kwargs={},
            show_progress=False,
            head=rerank,
        )
        if opened.trained is not None:
            raise InvalidParameter(
                f"{model} brings a pooling of its own, and serves one method; start a server for each"
            )
        live, options["dtype"] = (opened.model, opened.tokenizer), "auto"
        if rerank:
            shared = {name: options[name] for name in ("dtype", "max_length", "batch_tokens") if name in options}
            reranker = Reranker(opened.model, tokenizer=opened.tokenizer, **shared)
    settings = {
        text: EmbedderSettings(model_name=model, method=text, **options, **posts.get(text, {})) for text in parsed
    }
    return {text: open_embedder(each, live) for text, each in settings.items()}, reranker


def to_api_error(error: BaseException | None, plural: str, index: int) -> ApiError:
    """The error that a client gets for an input, by its field and position, on which the model failed alone."""
    place = f"'{plural}[{index}]'"
    message = str(error).replace("text 0", place, 1)
    if isinstance(error, TextTooLong):
        return invalid_request(message, plural, "context_length_exceeded")
    if isinstance(error, InvalidText | InvalidParameter | IncompatibleMethods | UnsupportedModel):
        return invalid_request(message, plural)
    if isinstance(error, MemoryError):
        return server_error(f"{place}: memory does not suffice for one pass; {error}")
    return server_error(f"The model failed on {place} ({type(error).__name__}); see the server's log.")


def _judge(reranker: Reranker, question: str, texts: list[str]) -> list[float]:
    scores = reranker.scores(question, texts, show_progress=False)
    if np.isnan(scores).any():
        raise NotFinite(f"text {int(np.isnan(scores).argmax())} gave NaN as its score")
    return [float(score) for score in scores]


def _embed(embedder: Embedder, key: BatchKey, texts: list[str]) -> list[InputVectors]:
    if key.unit == "document":
        encode = embedder.encode_query if key.role == "query" else embedder.encode_document
        # Copies: a view would keep the vectors of the whole batch until the last input of its request is done.
        return [InputVectors(vector[None].copy()) for vector in encode(texts, show_progress=False)]
    part: Any = f"{key.unit}s"
    documents = embedder.encode_long(
        texts, passage_size=key.passage_size, late=key.late, parts=(part,), show_progress=False
    )
    results = []
    for document in documents:
        parts = getattr(document, part)
        spans = np.array([(each.start, each.end, each.n_tokens) for each in parts], np.int64)
        results.append(InputVectors(np.stack([each.vector for each in parts]), spans))
    return results


def _text_of(index: int, value: str | list[int], embedder: Embedder) -> str:
    if isinstance(value, str):
        return value
    try:
        return embedder.text_of(value)
    except InvalidText as error:
        raise invalid_request(
            f"'input[{index}]': {error} (LangChain's OpenAIEmbeddings sends another tokenizer's ids, unless it is made "
            "with check_embedding_ctx_length=False.)",
            "input",
        ) from None


def _refuse_long(lengths: list[int], most: int) -> None:
    for index, length in enumerate(lengths):
        if length > most:
            raise invalid_request(
                f"'input[{index}]' takes {length} tokens with what the method puts around it, {length - most} more "
                f"than this model's maximum context length of {most}; split it.",
                "input",
                "context_length_exceeded",
            )
