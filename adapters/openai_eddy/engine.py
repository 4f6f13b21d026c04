"""The models behind an endpoint: loading, preparing a request before the queue, running a batch."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eddy_embed import errors, methods
from eddy_embed.integrations.documents import filled, first_tokens, isolate_failures
from eddy_embed.integrations.http_guard import RequestRefused
from eddy_embed.integrations.settings import EmbedderSettings
from eddy_embed.integrations.shared import open_embedder, scores_with_blank
from eddy_embed.parts.layout import TextRole
from openai_eddy.request import EmbeddingRequest, Limits, RerankRequest, check_size, invalid

if TYPE_CHECKING:
    from eddy_embed import Embedder, Reranker

LOADING = ("device", "dtype", "revision", "cache_folder", "trust_remote_code", "local_files_only", "model_kwargs")
"""Settings of loading a model, which several methods and the reranker share."""
AT_FAULT = (errors.TextTooLong, errors.InvalidText, errors.InvalidParameter, errors.IncompatibleMethods)
WARM_UP = "The ferry leaves at noon."


@dataclass(frozen=True)
class Job:
    """What texts must have in common to share a batch: a method and whether they are queries, or their question."""

    method: str = ""
    is_query: bool = False
    question: str | None = None


class Engine:
    """Embedders of one model, by the text form of their methods, of which the first is the default; its reranker."""

    def __init__(self, embedders: Mapping[str, Embedder], limits: Limits, reranker: Reranker | None = None) -> None:
        """Have each model read one text, so that failures surface here and not at the first request."""
        self.embedders, self.reranker, self._limits = dict(embedders), reranker, limits
        self.default = next(iter(self.embedders))
        # Computed now: reading all tensors for the first time takes seconds on a large model.
        self.fingerprints = {name: embedder.fingerprint for name, embedder in self.embedders.items()}
        for embedder in self.embedders.values():
            embedder.encode_document(WARM_UP)
        if reranker is not None:
            reranker.scores(WARM_UP, WARM_UP)

    def prepare(self, request: EmbeddingRequest | RerankRequest) -> tuple[Job, list[str], list[int]]:
        """Check a request; return what its texts have in common, the texts, and how many tokens each has."""
        job, texts, counts = self._judging(request) if isinstance(request, RerankRequest) else self._embedding(request)
        for index, count in enumerate(counts):
            check_size(f"{request.plural}[{index}]", count, "tokens", self._limits.input_tokens)
        if (total := sum(counts)) > (most := self._limits.request_tokens):
            message = f"'{request.plural}' has {total} tokens in all, more than this server's {most} for a request"
            raise invalid(f"{message}; send it in several.", request.plural, "max_tokens_per_request")
        return job, texts, counts

    def _judging(self, request: RerankRequest) -> tuple[Job, list[str], list[int]]:
        if self.reranker is None:
            message = "This server does not re-rank: start it with `eddy serve MODEL --rerank`"
            raise RequestRefused(404, f"{message}, or with `create_app(..., reranker=)`.", code="rerank_not_served")
        query, texts, most = request.query, filled(request.documents), request.cut
        try:
            if request.max_tokens_per_doc is not None:
                texts = self.reranker.truncate(texts, request.max_tokens_per_doc)
            if most is not None:
                texts = self.reranker.truncate(texts, None if most == -1 else most, query=query)
            counts = self.reranker.count_tokens(query, texts)
        except errors.TextTooLong as error:
            raise invalid(f"'query': {error}.", "query", "context_length_exceeded") from None
        blank = [not document.strip() for document in request.documents]
        return Job(question=query), ["" if none else text for none, text in zip(blank, texts, strict=True)], counts

    def _embedding(self, request: EmbeddingRequest) -> tuple[Job, list[str], list[int]]:
        method, most = request.method or self.default, request.cut
        if method not in self.embedders:
            raise invalid(f"'method' is {method!r:.80}; this server has {', '.join(self.embedders)}.", "method")
        embedder = self.embedders[method]
        if request.dimensions is not None and request.dimensions > embedder.dimension:
            message = f"'dimensions' is {request.dimensions}; the vectors of this model have {embedder.dimension}."
            raise invalid(message, "dimensions")
        if request.normalize not in (None, embedder.normalize):
            message = f"'normalize' is {request.normalize}; the server makes vectors with {embedder.normalize}."
            raise invalid(message, "normalize")
        role: TextRole = "query" if (request.role or "").endswith("query") else "document"
        texts = filled(request.input)
        if most is not None:
            texts = first_tokens(embedder, texts, None if most == -1 else most, role=role)
        return Job(method, role == "query"), texts, embedder.count_tokens(texts)

    def run(self, job: Job, texts: list[str]) -> Sequence[Any]:
        """Return for each text its vector, shape (dimension,), or its score from 0 to 1; or its error."""
        return isolate_failures(lambda some: self._run(job, some), texts)

    def _run(self, job: Job, texts: list[str]) -> Sequence[Any]:
        if job.question is not None and self.reranker is not None:
            scores = scores_with_blank(self.reranker, job.question, texts, show_progress=False)
            if np.isnan(scores).any():
                raise errors.NotFinite(f"text {int(np.isnan(scores).argmax())} gave NaN as its score")
            return self.reranker.rerank_scores(scores.astype(np.float64)).tolist()  # type: ignore[no-any-return]
        embedder = self.embedders[job.method]
        encode = embedder.encode_query if job.is_query else embedder.encode_document
        # Copies: a view would keep the vectors of the whole batch until the last input of its request is done.
        return [vector.copy() for vector in encode(texts, show_progress=False)]


def open_models(
    model: str, method_texts: Sequence[str], *, rerank: bool = False, **options: Any
) -> tuple[dict[str, Embedder], Reranker | None]:
    """Open an embedder for each method, with arguments of `Embedder`, and a reranker, which share one loaded model."""
    from eddy_embed import Reranker
    from eddy_embed.encoding.build import open_model

    for text in method_texts:
        methods.parse(text)  # misspelt: fails before loading
    live = reranker = None
    if len(method_texts) > 1 or rerank:
        settings = EmbedderSettings(model_name=model, **options)
        loading: dict[str, Any] = {name: getattr(settings, name) for name in LOADING}
        opened = open_model(model, methods.plain(), None, show_progress=False, head=rerank, **loading)
        if opened.trained is not None:
            raise errors.InvalidParameter(f"{model} has a pooling of its own: start a server for each method")
        live, options = (opened.model, opened.tokenizer), {k: v for k, v in options.items() if k not in LOADING}
        if rerank:
            sizes: dict[str, Any] = {"max_length": settings.max_length, "batch_tokens": settings.batch_tokens}
            reranker = Reranker(opened.model, tokenizer=opened.tokenizer, **sizes)
    each = {text: EmbedderSettings(model_name=model, method=text, **options) for text in method_texts}
    return {text: open_embedder(settings, live) for text, settings in each.items()}, reranker


def refusal_of(error: Exception, plural: str, index: int) -> RequestRefused:
    """Return what a client is told of an input, by its field and position, on which the model failed alone."""
    place = f"'{plural}[{index}]'"
    if isinstance(error, AT_FAULT):
        code = "context_length_exceeded" if isinstance(error, errors.TextTooLong) else None
        return invalid(str(error).replace("text 0", place, 1), plural, code)
    logging.getLogger("openai_eddy").error("the model failed on an input", exc_info=error)
    return RequestRefused(500, f"The model failed on {place} ({type(error).__name__}); see the server's log.")
