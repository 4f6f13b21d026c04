"""The embedders behind an endpoint: what is prepared before the queue, and what runs in the worker thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from eddy_embed import Embedder, methods
from eddy_embed.engines import open_embedder
from eddy_embed.errors import (
    FingerprintMismatch,
    IncompatibleMethods,
    InvalidParameter,
    InvalidText,
    NotFitted,
    TextTooLong,
    UnsupportedModel,
)
from eddy_embed.opening import open_model
from openai_eddy.errors import ApiError, failed, invalid
from openai_eddy.request_schema import Asked, Granularity, check_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddy_embed.layout import TextRole
    from openai_eddy.limits import Limits

    Vectors = NDArray[np.float32]

Item = TypeVar("Item")
Result = TypeVar("Result")

WARM_UP = "The ferry leaves at noon."


@dataclass(frozen=True)
class Work:
    """What inputs must have in common to be embedded together.

    Attributes:
        method: Which embedder.
        role: Documents or queries.
        granularity: What has a vector.
        passage_size: Most tokens in a passage.
        late: Whether parts are read out of the pass over the whole.
    """

    method: str
    role: TextRole = "document"
    granularity: Granularity = "document"
    passage_size: int = 256
    late: bool = True


@dataclass(frozen=True, eq=False)
class Made:
    """The vectors of one input.

    Attributes:
        vectors: Shape (vectors, dimension).
        spans: Start, end and number of tokens of the part that each vector is for, shape (vectors, 3); None where
            there is one vector, for all of the input.
    """

    vectors: Vectors
    spans: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Prepared:
    """A request ready for the queue.

    Attributes:
        work: What is to be done.
        texts: The inputs as texts.
        counts: Tokens of each.
    """

    work: Work
    texts: list[str]
    counts: list[int]


class Engine:
    """Embedders of one model by the text form of their methods, the usual one first."""

    def __init__(self, embedders: Mapping[str, Embedder], limits: Limits) -> None:
        """Embed one text with each embedder, so that what cannot work fails here and not with the first request.

        Args:
            embedders: By the text form of their methods, as clients name them; at least one.
            limits: On tokens.

        Raises:
            NotFitted: A method's post-processing has learned nothing.
            EddyError: What else an embedder raises.
        """
        self.embedders = dict(embedders)
        self.usual = next(iter(self.embedders))
        self._limits = limits
        # Of each: reading all tensors for the first time takes seconds on a large model.
        self.fingerprints = {name: each.fingerprint for name, each in self.embedders.items()}
        for each in self.embedders.values():
            each.encode_document(WARM_UP)

    def prepare(self, asked: Asked) -> Prepared:
        """Check a request against the model, and count its tokens; not in the event loop's thread.

        Raises:
            ApiError: The method or the number of dimensions is not to be had, token ids are not this tokenizer's, or
                an input is too long.
        """
        method = asked.method or self.usual
        if method not in self.embedders:
            raise invalid(
                f"'method' is {method!r:.80}; this server was started with {', '.join(self.embedders)}.", "method"
            )
        embedder = self.embedders[method]
        if asked.dimensions is not None and asked.dimensions > embedder.dimension:
            raise invalid(
                f"'dimensions' is {asked.dimensions}; the vectors of this model have {embedder.dimension}.",
                "dimensions",
            )
        late = embedder.reads_spans if asked.late is None else asked.late
        if late and asked.granularity != "document" and not embedder.reads_spans:
            raise invalid(
                f"'late': {method} reads one token for the whole text, so parts have no vectors in the pass over it; "
                "say false, or leave it out.",
                "late",
            )
        texts = [_text(index, each, embedder) for index, each in enumerate(asked.inputs)]
        counts = embedder.count_tokens(texts)
        check_tokens(counts, self._limits)
        if embedder.settings["overflow"] == "error":
            _refuse_long(embedder.count_tokens(texts, role=asked.role), embedder.max_length)
        if asked.granularity == "document":
            return Prepared(Work(method, asked.role), texts, counts)
        return Prepared(Work(method, asked.role, asked.granularity, asked.passage_size, late), texts, counts)

    def run(self, work: Work, texts: list[str]) -> list[Made | Exception]:
        """Embed texts of several requests; a text that cannot be embedded has its error, and the others their vectors.

        Args:
            work: What all of them ask for.
            texts: Checked ones.
        """
        embedder = self.embedders[work.method]
        return isolated(lambda some: _made(embedder, work, some), texts)

    def texts_read_in_windows(self) -> int:
        """How many texts exceeded the model's window so far."""
        return sum(each.counts.windowed_texts for each in self.embedders.values())


def isolated(run: Callable[[list[Item]], list[Result]], items: list[Item]) -> list[Result | Exception]:
    """Results of items that run together; where that fails, of halves, until only those that fail alone are left."""
    try:
        return [*run(items)]
    except Exception as error:
        if len(items) == 1:
            return [error]
    # Outside the handler: the exception holds the failed pass's tensors alive.
    middle = len(items) // 2
    return [*isolated(run, items[:middle]), *isolated(run, items[middle:])]


def told(error: BaseException | None, index: int) -> ApiError:
    """What a client is told of an input that could not be embedded.

    Args:
        error: Of a text that ran alone.
        index: Of the input in its request.
    """
    message = str(error).replace("text 0", f"'input[{index}]'", 1)
    if isinstance(error, TextTooLong):
        return invalid(message, "input", "context_length_exceeded")
    if isinstance(error, InvalidText | InvalidParameter | IncompatibleMethods | UnsupportedModel):
        return invalid(message, "input")
    if isinstance(error, MemoryError):
        return failed(f"'input[{index}]': memory does not suffice for one pass; {error}")
    if isinstance(error, NotFitted | FingerprintMismatch):
        return failed(message)
    return failed(f"'input[{index}]' could not be embedded ({type(error).__name__}); see the server's log.")


def _made(embedder: Embedder, work: Work, texts: list[str]) -> list[Made]:
    if work.granularity == "document":
        encode = embedder.encode_query if work.role == "query" else embedder.encode_document
        # Copies: a view would hold the vectors of the whole batch until the last input of its request is done.
        return [Made(vector[None].copy()) for vector in encode(texts, show_progress=False)]
    part: Any = f"{work.granularity}s"
    documents = embedder.encode_long(
        texts, passage_size=work.passage_size, late=work.late, parts=(part,), show_progress=False
    )
    return [_parts(getattr(document, part)) for document in documents]


def _parts(found: Sequence[Any]) -> Made:
    spans = np.array([(each.start, each.end, each.n_tokens) for each in found], np.int64)
    return Made(np.stack([each.vector for each in found]), spans)


def _text(index: int, given: str | list[int], embedder: Embedder) -> str:
    if isinstance(given, str):
        return given
    try:
        return embedder.text_of(given)
    except InvalidText as error:
        raise invalid(
            f"'input[{index}]': {error} (LangChain's OpenAIEmbeddings sends another tokenizer's ids, unless it is made "
            "with check_embedding_ctx_length=False.)",
            "input",
        ) from None


def _refuse_long(lengths: list[int], most: int) -> None:
    for index, length in enumerate(lengths):
        if length > most:
            raise invalid(
                f"'input[{index}]' takes {length} tokens with what the method puts around it, {length - most} more "
                f"than this model's maximum context length of {most}; split it.",
                "input",
                "context_length_exceeded",
            )


LOADING = ("device", "dtype", "revision", "trust_remote_code", "local_files_only")
"""Options that concern the loading of a model, which several methods share."""


def open_embedders(
    model: str, asked: Sequence[str], *, post: Path | None = None, **options: Any
) -> dict[str, Embedder]:
    """An embedder for each method, by the method's text as it was asked for; the model is loaded once.

    Args:
        model: Bundled name, folder, or Hugging Face id.
        asked: Text forms of methods, at least one.
        post: What post-processing learned, for the methods that have some.
        **options: Further arguments of `Embedder`.

    Raises:
        InvalidParameter: Several methods are asked of a model that brings a pooling of its own.
        NotFitted: A method has post-processing, and there is no `post`.
        EddyError: What else an embedder raises.
    """
    parsed = {text: methods.parse(text) for text in dict.fromkeys(asked)}  # misspelt: before a model loads
    learns = {text for text, method in parsed.items() if method.post is not None and method.post.learns}

    def settings(text: str, own: dict[str, Any]) -> dict[str, Any]:
        return {**own, "method": text, **({"post": str(post)} if post is not None and text in learns else {})}

    if post is not None and not learns:
        raise InvalidParameter(
            f"--post {post}: none of {', '.join(parsed)} has post-processing; join some, as in +whiten"
        )
    if len(parsed) == 1:
        (text,) = parsed
        return {text: open_embedder(model, settings(text, options))}
    loading = {name: options.pop(name) for name in LOADING if name in options}
    usual = {"device": None, "dtype": "auto", "revision": None, "trust_remote_code": False, "local_files_only": False}
    opened = open_model(
        model, methods.plain(), None, cache_folder=None, model_kwargs={}, show_progress=False, **{**usual, **loading}
    )
    if opened.trained is not None:
        raise InvalidParameter(f"{model} brings a pooling of its own, and serves one method; start a server for each")
    live = (opened.model, opened.tokenizer)
    return {text: open_embedder(model, settings(text, options), live) for text in parsed}
