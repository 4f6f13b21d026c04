"""Embedder: texts to vectors, with a language model as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast, get_args, overload

import numpy as np
import torch

from eddy_embed import methods
from eddy_embed.batching import BATCH_TOKENS
from eddy_embed.document import LongDocument, assemble, group_sentences
from eddy_embed.errors import EddyError, IncompatibleMethods, InvalidParameter, NotFinite
from eddy_embed.explanation import Explanation, explain
from eddy_embed.fingerprint import Counts, digest, weights_digest
from eddy_embed.host import Host
from eddy_embed.inputs import check_count, check_options, checked_texts, chunks
from eddy_embed.layout import Layout, TextRole
from eddy_embed.loading import load
from eddy_embed.method import Method
from eddy_embed.plan import Overflow, Planned, Planner
from eddy_embed.progress import Progress
from eddy_embed.readout import Readout
from eddy_embed.runner import Runner
from eddy_embed.segment import Segmenter
from eddy_embed.tokens import Tokenizer
from eddy_embed.view import describe

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

    from eddy_embed.backbone import Backbone
    from eddy_embed.sequence import Ints

    Vectors = NDArray[np.float32]
    Raw = NDArray[np.float64]


class Embedder:
    """Turns a causal language model into an embedding model.

    Thread-safe. Vectors of a text are the same alone and in any company: within 1e-5 in float32, 2e-2 in bfloat16.

    Attributes:
        method: The method, with every default filled in for this model.
        backbone: Shape of the full model.
        max_length: Most tokens in a pass over one text.
        counts: What was read, windowed and cut so far.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | torch.nn.Module,
        *,
        method: str | Method,
        tokenizer: Any | None = None,
        max_length: int | None = None,
        overflow: Overflow = "window",
        query_instruction: str | None = None,
        text_instruction: str | None = None,
        normalize: bool = True,
        batch_size: int | None = None,
        batch_tokens: int = BATCH_TOKENS,
        device: str | None = None,
        dtype: str = "auto",
        language: str = "en",
        revision: str | None = None,
        cache_folder: str | None = None,
        trust_remote_code: bool = False,
        local_files_only: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        show_progress: bool = False,
    ) -> None:
        """Load a model up to the method's exit layer, or share a loaded one.

        Args:
            model: "eddy-tiny" (bundled), a folder, a Hugging Face id, or a loaded model, whose weights are shared and
                which is left exactly as it is.
            method: Text form, such as "htp" or "tp:prompt=prompteol,range=1-7", or a Method.
            tokenizer: The tokenizer of a loaded model (a fast one).
            max_length: Most tokens in a pass, prompt and placeholders included; None: the model's window.
            overflow: Longer texts: "window" reads all of it in overlapping windows, "error" refuses, "truncate" cuts
                the end and counts what was cut.
            query_instruction: Put in front of queries.
            text_instruction: Put in front of documents.
            normalize: Whether vectors have length 1.
            batch_size: Most texts in a pass, None for no limit.
            batch_tokens: Most tokens in a pass.
            device: "cpu", "cuda", "mps" ..; None: an accelerator if there is one. A loaded model stays where it is.
            dtype: "auto" (float32 on a processor, the checkpoint's own elsewhere), "float32", "bfloat16", ..
            language: Language code for sentences ("xx" for any).
            revision: Revision of a hub model.
            cache_folder: Where hub models are kept.
            trust_remote_code: Whether a model may bring its own code.
            local_files_only: Never ask the hub.
            model_kwargs: Further keyword arguments of the model's `from_pretrained`.
            show_progress: Show a bar on long work.

        Raises:
            ModelNotFound: No usable model there.
            UnsupportedModel: The model cannot be run exactly.
            UnknownMethod: No method of that name.
            InvalidParameter: A value is outside its range.
        """
        check_options(
            overflow, normalize, {"query_instruction": query_instruction, "text_instruction": text_instruction}
        )
        check_count("max_length", max_length, optional=True)
        check_count("batch_size", batch_size, optional=True)
        check_count("batch_tokens", batch_tokens)
        asked = method if isinstance(method, Method) else methods.parse(method)
        if isinstance(model, torch.nn.Module):
            if tokenizer is None:
                raise InvalidParameter("a loaded model needs tokenizer=, the one it was trained with")
            self.backbone: Backbone = describe(getattr(model, "config", None))
            self.model_name = str(getattr(model, "name_or_path", "") or type(model).__name__)
        else:
            options = {
                "revision": revision,
                "cache_dir": cache_folder,
                "trust_remote_code": trust_remote_code,
                "local_files_only": local_files_only,
            }
            if not isinstance(model, str | os.PathLike):
                raise InvalidParameter(f"model={model!r} must be a name, a folder, or a loaded model")
            self.model_name = os.fspath(model)
            model, tokenizer, self.backbone = load(
                model,
                exit_of=lambda backbone: _exit(methods.resolve(asked, backbone)),
                device=device,
                dtype=dtype,
                options={key: value for key, value in options.items() if value not in (None, False)},
                model_kwargs=dict(model_kwargs or {}),
                tokenizer=tokenizer,
                show_progress=show_progress,
            )
        self.method = methods.resolve(asked, self.backbone)
        self._readout = cast("Readout", self.method.readout)
        self._runner: Runner | None = Runner(
            Host(model, exit_layer=_exit(self.method), layers=self.backbone.layers),
            self.method,
            batch_tokens=batch_tokens,
            batch_size=batch_size,
        )
        self._tokenizer = Tokenizer(tokenizer)
        self.max_length = self._window(max_length)
        self._planner = Planner(
            layout=cast("Layout", self.method.layout),
            tokenizer=self._tokenizer,
            segmenter=Segmenter(language),
            max_length=self.max_length,
            overflow=overflow,
            instructions={"query": query_instruction, "document": text_instruction},
        )
        self.normalize = normalize
        self.show_progress = show_progress
        self.counts = Counts()
        self._settings: dict[str, Any] | None = None

    @property
    def dimension(self) -> int:
        """Width of the vectors."""
        return self.backbone.hidden

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides a vector, as plain values."""
        if self._settings is None:
            self._settings = {
                "format": 1,
                "architecture": self.backbone.architecture,
                "weights": weights_digest(self._open().host.tensors()),
                "tokenizer": self._tokenizer.digest,
                "method": self.method.settings,
                "segmenter": self._planner.segmenter.fingerprint,
                "max_length": self.max_length,
                "overflow": self._planner.overflow,
                "query_instruction": self._planner.instructions["query"],
                "text_instruction": self._planner.instructions["document"],
                "normalize": self.normalize,
            }
        return self._settings

    @property
    def fingerprint(self) -> str:
        """Hash of `settings`: vectors of equal fingerprint may be compared, others may not."""
        return digest(self.settings)

    def encode_document(self, texts: str | Iterable[str], *, show_progress: bool | None = None) -> Vectors:
        """Vectors of documents.

        Args:
            texts: One text or several.
            show_progress: Show a bar; None: as the embedder was told.

        Returns:
            float32, shape (dimension,) for one text, (texts, dimension) for several, in their order.

        Raises:
            InvalidText: A text is blank, no string, or not valid Unicode.
            TextTooLong: A text exceeds the window and overflow is "error".
            NotFinite: The model gave NaN or infinity.
        """
        return self._encode(texts, "document", show_progress)

    def encode_query(self, texts: str | Iterable[str], *, show_progress: bool | None = None) -> Vectors:
        """Vectors of queries: as `encode_document`, with the query's wording and instruction."""
        return self._encode(texts, "query", show_progress)

    @overload
    def encode_long(
        self,
        texts: str,
        *,
        passage_size: int = 256,
        late: bool = True,
        show_progress: bool | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> LongDocument: ...
    @overload
    def encode_long(
        self,
        texts: list[str] | tuple[str, ...],
        *,
        passage_size: int = 256,
        late: bool = True,
        show_progress: bool | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> list[LongDocument]: ...
    def encode_long(
        self,
        texts: str | Iterable[str],
        *,
        passage_size: int = 256,
        late: bool = True,
        show_progress: bool | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> LongDocument | list[LongDocument]:
        """Vectors of documents, their passages and their sentences.

        Args:
            texts: One text or several.
            passage_size: Most tokens in a passage, which holds whole sentences, at least one.
            late: Passages and sentences are read out of the pass over the whole document, so that they know what
                surrounds them (late chunking). False: each is embedded by itself.
            show_progress: Show a bar; None: as the embedder was told.
            progress: Called with the number of windows done, their total, and "embed".

        Returns:
            A document for each text.

        Raises:
            IncompatibleMethods: `late`, and the method reads one token only.
            InvalidText: A text is blank, no string, or not valid Unicode.
            TextTooLong: A text exceeds the window and overflow is "error".
            NotFinite: The model gave NaN or infinity.
        """
        check_count("passage_size", passage_size)
        if late and not self._readout.spans:
            raise IncompatibleMethods(
                f"{self.method} reads pool={self._readout.pool!r}, which has no vectors for parts of a text; use "
                "late=False to embed each passage by itself, or a method with pool=mean"
            )
        given = checked_texts(texts)
        documents: list[LongDocument] = []
        with Progress(self._shows(show_progress), progress) as bar:
            for first, chunk in chunks(given):
                planned = self._plan(chunk, "document", first, sentences=True)
                groups = [group_sentences(cast("Ints", plan.sizes).tolist(), passage_size) for plan in planned]
                divisions = [_divisions(plan, passages) for plan, passages in zip(planned, groups, strict=True)]
                sums = self._open().run(planned, divisions if late else [[] for _ in planned], bar)
                for at, (text, plan) in enumerate(zip(chunk, planned, strict=True)):
                    vector = self._unit(sums[at].document / sums[at].tokens, first + at).astype(np.float32)
                    if late:
                        vectors = [
                            self._means(*part, first + at) for part in zip(sums[at].parts, sums[at].sizes, strict=True)
                        ]
                    else:
                        vectors = [self._alone(text, spans) for spans in divisions[at]]
                    documents.append(assemble(text, plan, groups[at], (vectors[0], vectors[1]), vector))
        return documents[0] if isinstance(texts, str) else documents

    def explain(self, text: str, *, role: TextRole = "document") -> Explanation:
        """What happens to a text: its tokens, placeholders, copies, layers, pooled positions, kernels and cost.

        Raises:
            InvalidParameter: No such role.
            InvalidText: The text is blank, no string, or not valid Unicode.
        """
        if role not in get_args(TextRole):
            raise InvalidParameter(f"role={role!r} is unknown; choose one of {', '.join(get_args(TextRole))}")
        (plan,) = self._planner.plan(checked_texts(text), role)
        return explain(plan, method=self.method, host=self._open().host, tokenizer=self._tokenizer)

    def close(self) -> None:
        """Let go of the model; a shared one stays with its owner."""
        self._runner = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def __enter__(self) -> Embedder:
        """Use as a context manager: closed at the end."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Close."""
        self.close()

    def _open(self) -> Runner:
        if self._runner is None:
            raise EddyError("this embedder is closed; make a new one")
        return self._runner

    def _window(self, max_length: int | None) -> int:
        window = min(self.backbone.window, self._tokenizer.max_length)
        if max_length is None:
            return window
        if not 1 <= max_length <= window:
            raise InvalidParameter(
                f"max_length={max_length} must lie between 1 and the model's window of {window} tokens; longer texts "
                "are read in windows"
            )
        return max_length

    def _shows(self, show_progress: bool | None) -> bool:
        return self.show_progress if show_progress is None else show_progress

    def _plan(self, texts: list[str], role: TextRole, first: int, *, sentences: bool = False) -> list[Planned]:
        planned = self._planner.plan(texts, role, first=first, sentences=sentences)
        self.counts.add(planned)
        return planned

    def _encode(self, texts: str | Iterable[str], role: TextRole, show_progress: bool | None) -> Vectors:
        given = checked_texts(texts)
        vectors = np.empty((len(given), self.dimension), np.float32)
        with Progress(self._shows(show_progress)) as bar:
            for at, vector in self._vectors(given, role, bar):
                vectors[at] = vector
        return cast("Vectors", vectors[0]) if isinstance(texts, str) else vectors

    def _vectors(self, texts: list[str], role: TextRole, bar: Progress) -> Iterator[tuple[int, Raw]]:
        """Index and vector of every text, in the full precision of the sums."""
        for first, chunk in chunks(texts):
            planned = self._plan(chunk, role, first)
            for at, sums in enumerate(self._open().run(planned, [[] for _ in planned], bar), start=first):
                yield at, self._unit(sums.document / sums.tokens, at)

    def _unit(self, raw: Raw, text: int) -> Raw:
        if not np.isfinite(raw).all():
            raise NotFinite(
                f"text {text}: the model gave NaN or infinity; load it with dtype='float32' or 'bfloat16', or choose "
                "an earlier exit layer"
            )
        length = np.linalg.norm(raw, axis=-1, keepdims=True) if self.normalize else 1.0
        return np.asarray(raw / np.maximum(length, np.finfo(np.float64).tiny))

    def _means(self, total: Raw, sizes: Ints, text: int) -> tuple[Vectors, Ints]:
        return self._unit(total / np.maximum(sizes, 1)[:, None], text).astype(np.float32), sizes

    def _alone(self, text: str, spans: Ints) -> tuple[Vectors, Ints]:
        """Vectors and token counts of spans of a text, each embedded by itself."""
        parts = [text[start:end] for start, end in spans.tolist()]
        planned = self._planner.plan(parts, "document")
        sums = self._open().run(planned, [[] for _ in planned], Progress(show=False))
        vectors = [self._unit(each.document / each.tokens, at) for at, each in enumerate(sums)]
        return np.stack(vectors).astype(np.float32), np.array([plan.tokens for plan in planned], np.int64)


def _exit(method: Method) -> int:
    """The exit layer of a resolved method."""
    return cast("int", cast("Readout", method.readout).exit)


def _divisions(plan: Planned, passages: list[tuple[int, int]]) -> list[Ints]:
    """The sentences' spans, and the passages' from their first sentence's start to their last one's end."""
    spans = cast("Ints", plan.spans)
    around = [(spans[first, 0], spans[last, 1]) for first, last in passages]
    return [spans, np.array(around, np.int64).reshape(-1, 2)]
