"""Embedder: texts to vectors, with a language model as it is."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Any, cast, get_args, overload

import numpy as np
import torch

from eddy_embed import methods
from eddy_embed.encoding.build import assemble, finish_for, first_finish, made_by, open_model, settings_of
from eddy_embed.encoding.calibration import calibrated, fitted_on
from eddy_embed.encoding.collapse import warn_of_collapse
from eddy_embed.encoding.document import LongDocument, Part, PassageUnit
from eddy_embed.encoding.encoder import Counts, Encoder
from eddy_embed.encoding.explain import Explanation, explain
from eddy_embed.encoding.planner import Overflow
from eddy_embed.encoding.validation import PARTS, PASSAGE_SIZE, check_parts, checked_spans, checked_texts, chunks
from eddy_embed.errors import IncompatibleMethods, InvalidParameter
from eddy_embed.methods.method import Method
from eddy_embed.parts.layout import TextRole
from eddy_embed.parts.postprocess import Fitted
from eddy_embed.text.calibration import calibration_text
from eddy_embed.utils.arrays import Floats
from eddy_embed.utils.checks import check_choice, check_count, raise_on_surrogates
from eddy_embed.utils.progress import Progress
from eddy_embed.utils.settings import digest


class Embedder:
    """Turns a causal language model into an embedding model: `Embedder("smollm2").encode_query("When does it sail?")`.

    `embedder.encode_document(texts) @ embedder.encode_query(question)` are cosines; `encode_long` gives parts.

    Thread-safe. The vector of a text does not depend on other texts: within 1e-5 in float32, 2e-2 in bfloat16.

    Attributes:
        method: The method, with every default filled in for this model.
        backbone: Shape of the full model.
        max_length: Most tokens in a pass over one text.
        shares_model: Whether the model was loaded by somebody else.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | torch.nn.Module,
        method: str | Method | None = "recommended",
        *,
        tokenizer: Any | None = None,
        max_length: int | None = None,
        overflow: Overflow = "window",
        query_instruction: str | None = None,
        text_instruction: str | None = None,
        normalize: bool = True,
        fitted: Fitted | str | os.PathLike[str] | None = None,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype = "auto",
        language: str = "en",
        revision: str | None = None,
        cache_folder: str | os.PathLike[str] | None = None,
        trust_remote_code: bool = False,
        local_files_only: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        show_progress: bool = False,
        check: bool = True,
    ) -> None:
        """Load a model up to the method's exit layer, or share a loaded one.

        Args:
            model: "eddy-tiny" (bundled), a folder, a .gguf file, "ollama:NAME" or "lmstudio:NAME" for what these
                programs have on this machine, "smollm2", a Hugging Face id, or a loaded model or SentenceTransformer,
                whose weights are shared and which is left exactly as it is.
            method: Text form, such as "htp" or "tp:prompt=prompteol,range=1-7", or a Method. None or "recommended":
                the model's own for retrieval; the attribute `method` then says which.
            tokenizer: The tokenizer of a loaded model (a fast one).
            max_length: Most tokens in a pass, prompt and placeholders included; None: the model's window.
            overflow: Longer texts: "window" reads all of it in overlapping windows, "error" refuses, "truncate" cuts
                the end and counts the tokens cut.
            query_instruction: Put before queries. None: the model's own prompt, if its folder has one.
            text_instruction: Put before documents. None: likewise.
            normalize: Whether vectors have length 1.
            fitted: For a method with post-processing: what an earlier fit learned, or its file. None: the model's
                calibration, fitted on general text when it is first needed, and kept in the cache.
            batch_size: Most texts in a pass, None for no limit.
            batch_tokens: Most tokens in a pass; None: 1,024 per thread of a processor, 8,192 at most, 16,384 elsewhere.
            device: "cpu", "cuda", "mps" ..; None: an accelerator if there is one. A loaded model stays where it is.
            dtype: "auto" (the checkpoint's; float32 on processors without bfloat16), "float32" ..; or torch's.
            language: Language code for sentences ("xx" for any).
            revision: Revision of a hub model.
            cache_folder: Where hub models are kept.
            trust_remote_code: Whether a model may bring its own code.
            local_files_only: Never ask the hub.
            model_kwargs: Further keyword arguments of the model's `from_pretrained`.
            show_progress: Show a bar on long work; a calibration has one on every terminal.
            check: Embed 32 short sentences, and warn with `MethodCollapse` if that shows a collapse of the method.

        Raises:
            ModelNotFound: No usable model there.
            UnsupportedModel: The model cannot be run exactly.
            UnknownMethod: No method of that name.
            InvalidParameter: A value is outside its range.
            InvalidText: An instruction is not valid Unicode.
            FingerprintMismatch: `fitted` was fitted with another model, method or setting.
        """
        check_choice("overflow", overflow, get_args(Overflow))
        _check_instructions(query_instruction, text_instruction)
        check_count("batch_size", batch_size)
        check_count("batch_tokens", batch_tokens)
        asked = method if isinstance(method, Method) else methods.parse("recommended" if method is None else method)
        opened = open_model(
            model,
            asked,
            tokenizer,
            device=device,
            dtype=dtype,
            revision=revision,
            cache_folder=cache_folder,
            trust_remote_code=trust_remote_code,
            local_files_only=local_files_only,
            model_kwargs=model_kwargs,
            show_progress=show_progress,
        )
        self.model_name, self.backbone, self.method = opened.name, opened.backbone, opened.method
        self.shares_model = not isinstance(model, str | os.PathLike)
        self._pipeline = assemble(
            opened,
            max_length=max_length,
            overflow=overflow,
            instructions={"query": query_instruction, "document": text_instruction},
            language=language,
            finish=first_finish(opened, fitted, normalize),
            batch_tokens=batch_tokens,
            batch_size=batch_size,
        )
        self.max_length, self.show_progress = self._pipeline.planner.max_length, show_progress
        self._settings: dict[str, Any] | None = None
        self._check_fitted()
        if check:
            warn_of_collapse(self._pipeline, self.method, self.model_name)

    def encode_document(self, texts: str | Iterable[str], *, show_progress: bool | None = None) -> Floats:
        """Return vectors of documents.

        Args:
            texts: One text or several.
            show_progress: Show a bar; None: as the embedder was set.

        Returns:
            float32, shape (dimension,) for one text, (texts, dimension) for several, in their order.

        Raises:
            InvalidText: A text is blank, no string, or not valid Unicode.
            TextTooLong: A text exceeds the window and overflow is "error".
            NotFinite, ZeroVector: The model gave NaN or infinity, or zeros.
        """
        return self._encode(texts, "document", show_progress)

    encode = encode_document  # the name in sentence-transformers

    def encode_query(self, texts: str | Iterable[str], *, show_progress: bool | None = None) -> Floats:
        """Return vectors of queries: as `encode_document`, with the query's wording and instruction."""
        return self._encode(texts, "query", show_progress)

    @overload
    def encode_long(
        self,
        texts: str,
        *,
        passage_size: int = PASSAGE_SIZE,
        passage_unit: PassageUnit = "tokens",
        late: bool | None = None,
        parts: Collection[Part] = PARTS,
        headings: bool = True,
        show_progress: bool | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> LongDocument: ...
    @overload
    def encode_long(
        self,
        texts: list[str] | tuple[str, ...],
        *,
        passage_size: int = PASSAGE_SIZE,
        passage_unit: PassageUnit = "tokens",
        late: bool | None = None,
        parts: Collection[Part] = PARTS,
        headings: bool = True,
        show_progress: bool | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> list[LongDocument]: ...
    def encode_long(
        self,
        texts: str | Iterable[str],
        *,
        passage_size: int = PASSAGE_SIZE,
        passage_unit: PassageUnit = "tokens",
        late: bool | None = None,
        parts: Collection[Part] = PARTS,
        headings: bool = True,
        show_progress: bool | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> LongDocument | list[LongDocument]:
        """Return vectors of documents, their passages and their sentences.

        Args:
            texts: One text or several.
            passage_size: Most tokens in a passage, which holds whole sentences, at least one, with their headings.
            passage_unit: "sentences" to count these instead.
            late: Passages and sentences are read out of the pass over the whole document, so that they have context
                (late chunking). False: each passage is embedded by itself, sentences are read out of its pass if the
                method averages, and the document's vector is made of its passages. None: as `reads_late`.
            parts: Which vectors are wanted: "document", "passages", "sentences". Others cost nothing.
            headings: Whether lines may be headings, which stay with what follows and are read ahead of passages below.
            show_progress: Show a bar; None: as the embedder was set.
            progress: Called with the number of windows done, their total, and "embed".

        Returns:
            A document for each text.

        Raises:
            IncompatibleMethods: `late`, and the method does not average.
            InvalidParameter: There is no such part.
            InvalidText: A text is blank, no string, or not valid Unicode.
            TextTooLong: A text exceeds the window and overflow is "error".
            NotFinite, ZeroVector: The model gave NaN or infinity, or zeros.
        """
        check_count("passage_size", passage_size)
        check_choice("passage_unit", passage_unit, get_args(PassageUnit))
        check_parts(parts)
        late = self.reads_late if late is None else late
        if late and not self.can_embed_spans:
            raise IncompatibleMethods(
                f"{self.method} gives no vectors for parts of a text; use late=False, or a method such as htp:pool=mean"
            )
        checked = checked_texts(texts)
        with self._bar(show_progress, progress) as bar:
            options = (passage_size, late, bar, parts, passage_unit, headings)
            documents = list(self._calibrated.documents(checked, *options))
        return documents[0] if isinstance(texts, str) else documents

    @overload
    def encode_words(self, text: str, spans: Iterable[tuple[int, int]]) -> Floats: ...
    @overload
    def encode_words(self, text: list[str], spans: Iterable[Iterable[tuple[int, int]]]) -> list[Floats]: ...
    def encode_words(self, text: str | list[str], spans: Any) -> Floats | list[Floats]:
        """Return vectors of words in their text: for each, the mean over the tokens that overlap its characters.

        It averages states at the method's exit layer, in the copy that it reads; for reba, e of the first copy.

        Args:
            text: The text, with the document's wording and instruction, or a list of texts.
            spans: Start and end of each word, in characters; they may overlap. Of several texts, a list for each.

        Returns:
            float32, shape (spans, dimension), in their order; of several texts, a list.

        Raises:
            IncompatibleMethods: The method does not average.
            InvalidParameter: A span lies outside the text, or holds no token.
            InvalidText: The text is blank, no string, or not valid Unicode.
            TextTooLong: The text exceeds the window and overflow is "error".
        """
        if not self.can_embed_words:
            why = "reads one token, and gives no vectors for words; use one that averages, such as plain:pool=mean"
            raise IncompatibleMethods(f"{self.method} {why}, or reba")
        if isinstance(text, str):
            return self.encode_words([text], [spans])[0]
        texts = checked_texts(text)
        pairs = zip(texts, spans, strict=True)
        return self._calibrated.words(texts, [checked_spans(text, some) for text, some in pairs])

    def fit(
        self,
        texts: Iterable[str],
        queries: Iterable[str] | None = None,
        *,
        show_progress: bool | None = None,
    ) -> Fitted:
        """Fit the method's post-processing on texts of yours, in place of its calibration on general text.

        Args:
            texts: The library, or a sample of it: its passages, each embedded by itself; a hundred are enough for
                `standardise` and `centre`, thousands for `whiten`.
            queries: Typical questions, a few dozen or more, which lose their own mean instead of the passages'. None:
                the general ones that Eddy ships.
            show_progress: Show a bar; None: as the embedder was set.

        Returns:
            What was learned; its `save` writes a file for `fitted=`.

        Raises:
            InvalidParameter: The method has no post-processing, or the texts have fewer than two passages.
        """
        post = self.method.post
        if post is None or not post.learns:
            raise InvalidParameter(
                f"{self.method} has no post-processing to fit; join one, as in '{self.method}+standardise'"
            )
        questions = calibration_text().questions if queries is None else checked_texts(queries)
        with self._bar(show_progress) as bar:
            passages = self._pipeline.passages(checked_texts(texts), PASSAGE_SIZE)
            fitted = replace(fitted_on(self._pipeline, post, passages, questions, bar), made_by=self.made_by)
        self._pipeline.finish = replace(self._pipeline.finish, fitted=fitted)
        self._settings = None
        return fitted

    def with_post(self, fitted: Fitted | None) -> Embedder:
        """Return the same embedder with other post-processing, or with none; it shares the loaded model.

        Args:
            fitted: What was learned, None for no post-processing.

        Raises:
            FingerprintMismatch: It was learned with another model, method or setting.
        """
        if fitted is not None:
            fitted.check_made_by(self.made_by)
        method = methods.with_post(self.method, None if fitted is None else fitted.post)
        other = self._copy(finish=finish_for(method, self.width, fitted, self._pipeline.finish))
        other.method = method
        return other

    def with_instructions(self, *, query: str | None = None, text: str | None = None) -> Embedder:
        """Return the same embedder with other instructions; it shares the loaded model.

        Args:
            query: Before queries; "" for none, None for the present one.
            text: Before documents; likewise.

        Raises:
            InvalidText: One is not valid Unicode.
            FingerprintMismatch: There is post-processing that was fitted with the old ones.
        """
        _check_instructions(query, text)
        roles: dict[TextRole, str | None] = {"query": query, "document": text}
        new = {role: instruction for role, instruction in roles.items() if instruction is not None}
        planner = self._pipeline.planner
        instructions, attached = {**planner.instructions, **new}, planner.attached - new.keys()
        finish = self._pipeline.finish if self.is_fitted else replace(self._pipeline.finish, fitted=None)
        other = self._copy(planner=replace(planner, instructions=instructions, attached=attached), finish=finish)
        other._check_fitted()
        return other

    @overload
    def count_tokens(self, texts: str, *, role: TextRole | None = None) -> int: ...
    @overload
    def count_tokens(self, texts: list[str] | tuple[str, ...], *, role: TextRole | None = None) -> list[int]: ...
    def count_tokens(self, texts: str | Iterable[str], *, role: TextRole | None = None) -> int | list[int]:
        """Return number of tokens of texts; the model does not run.

        Args:
            texts: One text or several.
            role: None: of the text alone, as `passage_size` is measured; it may be blank. "document" or "query": of
                its sequence, with prompt, instruction, placeholders and specials, in its longest wording. A text of
                more than `max_length` is read in windows, refused or cut.

        Returns:
            A number for one text, a list for several.

        Raises:
            InvalidParameter: No such role.
            InvalidText: A text is no string, not valid Unicode, or, for a role, blank.
        """
        checked = checked_texts(texts, blank=role is None)
        planner = self._pipeline.planner
        if role is None:
            sizes = [len(planner.tokenizer.places(text)[0]) for text in checked]
        else:
            check_choice("role", role, get_args(TextRole))
            sizes = [size for _, chunk in chunks(checked) for size in planner.lengths(chunk, role)]
        return sizes[0] if isinstance(texts, str) else sizes

    def explain(self, text: str, *, role: TextRole = "document") -> Explanation:
        """Explain how a text becomes a vector: tokens, placeholders, copies, layers, pooling, kernels and cost.

        Raises:
            InvalidParameter: No such role.
            InvalidText: The text is blank, no string, or not valid Unicode.
        """
        check_choice("role", role, get_args(TextRole))
        (plan,) = self._pipeline.planner.plan(checked_texts([text]), role)
        return explain(self._pipeline, plan, self.method, role)

    @property
    def width(self) -> int:
        """Width of the vectors before any post-processing."""
        head = self._pipeline.finish.head
        return self.backbone.hidden if head is None else head.width(self.backbone.hidden)

    @property
    def dimension(self) -> int:
        """Width of the vectors."""
        post = self.method.post
        return self.width if post is None else post.dimension(self.width)

    @property
    def can_embed_spans(self) -> bool:
        """Whether parts of a text can be read out of a pass over the whole, since the method averages positions."""
        return self.method.can_embed_spans

    @property
    def can_embed_words(self) -> bool:
        """Whether words have vectors, since the method averages positions, or weighs states for each token."""
        return self.method.can_embed_words

    @property
    def counts(self) -> Counts:
        """What was read, windowed and cut so far."""
        return self._pipeline.counts

    @property
    def device(self) -> str:
        """Device of the model's input, such as "cpu" or "cuda:0"."""
        return str(self._pipeline.open_runner.host.device)

    @property
    def dtype(self) -> str:
        """Type of the model's numbers, such as "float32"."""
        return self._pipeline.open_runner.host.dtype_name

    @property
    def batch_tokens(self) -> int:
        """Most tokens in a pass."""
        return self._pipeline.open_runner.batch_tokens

    @property
    def normalize(self) -> bool:
        """Whether vectors have length 1."""
        return self._pipeline.finish.normalize

    @property
    def reads_late(self) -> bool:
        """Whether `encode_long` reads passages out of the pass over their document if nobody says.

        Only where no layer runs: token embeddings have no context, and one pass gives what several would. Read out of
        a long pass, states lose or tie against passages read by themselves (docs/long-documents.md).
        """
        return self.can_embed_spans and self.method.exit_layer == 0

    @property
    def post(self) -> Fitted | None:
        """What the post-processing learned, of general text if it was not fitted otherwise; None if there is none."""
        return self._calibrated.finish.fitted

    @property
    def is_fitted(self) -> bool:
        """Whether post-processing was fitted on a user's texts, by `fit` or as given."""
        fitted = self._pipeline.finish.fitted
        return fitted is not None and not fitted.general

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides a vector, as plain values."""
        if self._settings is None:
            self._settings = settings_of(self._pipeline, self.backbone, self.method)
        return self._settings

    @property
    def made_by(self) -> dict[str, Any]:
        """What decides the vectors that post-processing is fitted on and applied to, as plain values."""
        return made_by(self.settings)

    @property
    def fingerprint(self) -> str:
        """Hash of `settings`: vectors of equal fingerprint may be compared, others may not."""
        return digest(self.settings)

    def close(self) -> None:
        """Release the model; a shared one stays with its owner."""
        self._pipeline.runner = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def __repr__(self) -> str:
        runner, name = self._pipeline.runner, type(self).__name__
        runs = "closed" if runner is None else f"device={self.device!r}, dtype={self.dtype!r}"
        if runner is not None and runner.host.packed:
            runs += ", weights='packed'"
        return f"{name}({self.model_name!r}, method={str(self.method)!r}, dimension={self.dimension}, {runs})"

    def __enter__(self) -> Embedder:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    @property
    def _calibrated(self) -> Encoder:
        """The pipeline, its post-processing calibrated on general text if it was not fitted otherwise."""
        finish = self._pipeline.finish
        if finish.post is not None and finish.post.learns and finish.fitted is None:
            with Progress(self.show_progress or sys.stderr.isatty(), stage="calibrate") as bar:
                fitted = calibrated(self._pipeline, finish.post, self.made_by, self.dtype, bar)
            self._pipeline.finish = replace(finish, fitted=fitted)
        return self._pipeline

    def _check_fitted(self) -> None:
        if self.is_fitted and self.post is not None:
            self.post.check_made_by(self.made_by)

    def _copy(self, **changes: Any) -> Embedder:
        """Return the same embedder with another planner or finish in its pipeline, and its own counts."""
        other = copy.copy(self)
        other._pipeline = replace(self._pipeline, counts=Counts(), **changes)
        other._settings = None
        return other

    def _bar(
        self, show: bool | None, callback: Callable[[int, int, str], None] | None = None
    ) -> AbstractContextManager[Progress | None]:
        show = self.show_progress if show is None else show
        return Progress(show, callback) if show or callback is not None else nullcontext()

    def _encode(self, texts: str | Iterable[str], role: TextRole, show_progress: bool | None) -> Floats:
        checked = checked_texts(texts)
        vectors = np.empty((len(checked), self.dimension), np.float32)
        with self._bar(show_progress) as bar:
            for index, vector in self._calibrated.vectors(checked, role, bar):
                vectors[index] = vector
        return cast("Floats", vectors[0]) if isinstance(texts, str) else vectors


def _check_instructions(query: str | None, text: str | None) -> None:
    for name, instruction in (("query_instruction", query), ("text_instruction", text)):
        raise_on_surrogates(instruction or "", name)
