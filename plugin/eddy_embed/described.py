"""What an embedder says of itself and of texts, without embedding any."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast, overload

from eddy_embed.encoding.explain import Explanation, explain
from eddy_embed.encoding.pipeline import Counts
from eddy_embed.encoding.validation import check_one, checked_role, checked_texts, chunks
from eddy_embed.errors import IncompatibleMethods
from eddy_embed.model.fingerprint import digest, weights_digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eddy_embed.encoding.pipeline import Pipeline
    from eddy_embed.methods.method import Method
    from eddy_embed.model.backbone import Backbone
    from eddy_embed.parts.layout import TextRole
    from eddy_embed.parts.postprocess import Fitted

_MAKER = (
    *("architecture", "config", "weights", "tokenizer", "text_instruction", "query_instruction"),
    *("head", "query_attached", "text_attached"),  # of embedding models alone
)


class Described:
    """The base of `Embedder`."""

    method: Method
    backbone: Backbone
    max_length: int
    _pipeline: Pipeline
    _settings: dict[str, Any] | None

    @property
    def width(self) -> int:
        """Width of the vectors before any post-processing."""
        head = self._pipeline.finish.head
        return self.backbone.hidden if head is None else head.width or self.backbone.hidden

    @property
    def dimension(self) -> int:
        """Width of the vectors."""
        if self._pipeline.finish.fitted is not None:
            return self._pipeline.finish.fitted.dimension
        post = self.method.post
        return self.width if post is None else post.dimension(self.width)

    @property
    def reads_spans(self) -> bool:
        """Whether parts of a text can be read out of a pass over the whole: where the method averages positions."""
        return self.method.reads_spans

    @property
    def reads_words(self) -> bool:
        """Whether words have vectors: where the method averages positions, or weighs states for each token."""
        return self.method.reads_words

    @property
    def counts(self) -> Counts:
        """What was read, windowed and cut so far."""
        return self._pipeline.counts

    @property
    def device(self) -> str:
        """Where texts enter the model, such as "cpu" or "cuda:0"."""
        return str(self._pipeline.open_runner.host.device)

    @property
    def dtype(self) -> str:
        """Type of the model's numbers, such as "float32"."""
        return str(self._pipeline.open_runner.host.dtype).removeprefix("torch.")

    @property
    def batch_tokens(self) -> int:
        """Most tokens in a pass."""
        return self._pipeline.open_runner.batch_tokens

    @property
    def normalize(self) -> bool:
        """Whether vectors have length 1."""
        return self._pipeline.finish.normalize

    @property
    def post(self) -> Fitted | None:
        """What the post-processing learned, None where there is none or it has not been fitted."""
        return self._pipeline.finish.fitted

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides a vector, as plain values."""
        if self._settings is None:
            self._settings = {
                "format": 1,
                "architecture": self.backbone.architecture,
                "config": self._pipeline.open_runner.host.settings,
                "weights": weights_digest(self._pipeline.open_runner.host.tensors()),
                "tokenizer": self._pipeline.planner.tokenizer.digest,
                "method": self.method.settings,
                "segmenter": self._pipeline.planner.segmenter.fingerprint,
                "max_length": self.max_length,
                "overflow": self._pipeline.planner.overflow,
                "query_instruction": self._pipeline.planner.instructions["query"],
                "text_instruction": self._pipeline.planner.instructions["document"],
                "normalize": self.normalize,
                "post": None if self.post is None else self.post.digest,
            }
            if self.backbone.pooling is not None:
                head, attached = self._pipeline.finish.head, self._pipeline.planner.attached
                self._settings["head"] = None if head is None else head.digest
                self._settings |= {"query_attached": "query" in attached, "text_attached": "document" in attached}
        return self._settings

    @property
    def maker(self) -> dict[str, Any]:
        """What decides the vectors that post-processing is fitted on and applied to, as plain values."""
        method = {part: value for part, value in self.settings["method"].items() if part != "post"}
        told = {name: self.settings[name] for name in _MAKER if name in self.settings}
        return cast("dict[str, Any]", json.loads(json.dumps({**told, "method": method})))

    @property
    def fingerprint(self) -> str:
        """Hash of `settings`: vectors of equal fingerprint may be compared, others may not."""
        return digest(self.settings)

    def _check_late(self, late: bool) -> None:
        """Refuse parts out of a pass over the whole where the method reads one token.

        Raises:
            IncompatibleMethods: With what to do instead.
        """
        if late and not self.reads_spans:
            raise IncompatibleMethods(
                f"{self.method} gives no vectors for parts of a text; use late=False, or a method such as htp:pool=mean"
            )

    def _check_words(self) -> None:
        """Refuse words where the method reads one token.

        Raises:
            IncompatibleMethods: With what to do instead.
        """
        if not self.reads_words:
            raise IncompatibleMethods(
                f"{self.method} reads one token, for the whole text, and gives no vectors for words; use one that "
                "averages, such as plain:pool=mean, or reba"
            )

    @overload
    def count_tokens(self, texts: str, *, role: TextRole | None = None) -> int: ...
    @overload
    def count_tokens(self, texts: list[str] | tuple[str, ...], *, role: TextRole | None = None) -> list[int]: ...
    def count_tokens(self, texts: str | Iterable[str], *, role: TextRole | None = None) -> int | list[int]:
        """Tokens of texts; the model does not run.

        Args:
            texts: One text or several.
            role: None: of the text alone, as `passage_size` is measured; blank texts may be counted too. "document" or
                "query": of the sequence that it becomes, with prompt, instruction, placeholders and specials, and its
                longest wording. A text of more than `max_length` is read in windows, refused or cut.

        Returns:
            A number for one text, a list for several.

        Raises:
            InvalidParameter: No such role.
            InvalidText: A text is no string, not valid Unicode, or, for a role, blank.
        """
        given = checked_texts(texts, blank=role is None)
        planner = self._pipeline.planner
        sizes: list[int] = []
        for _, chunk in chunks(given):
            if role is None:
                sizes += [len(planner.tokenizer.places(text)[0]) for text in chunk]
            else:
                sizes += planner.lengths(chunk, checked_role(role))
        return sizes[0] if isinstance(texts, str) else sizes

    def text_of(self, ids: Iterable[int]) -> str:
        """The text that token ids of this model's tokenizer stand for, as some clients send it.

        Args:
            ids: Of the text alone, or with the specials that the tokenizer puts around it.

        Raises:
            InvalidText: The tokenizer makes no such ids of any text: they may be those of another tokenizer.
        """
        return self._pipeline.planner.tokenizer.text(list(ids))

    def explain(self, text: str, *, role: TextRole = "document") -> Explanation:
        """What happens to a text: its tokens, placeholders, copies, layers, pooled positions, kernels and cost.

        Raises:
            InvalidParameter: No such role.
            InvalidText: The text is blank, no string, or not valid Unicode.
        """
        check_one(text)
        planner, host = self._pipeline.planner, self._pipeline.open_runner.host
        (plan,) = planner.plan(checked_texts(text), checked_role(role))
        own = self.backbone.pooling
        return explain(plan, method=self.method, host=host, tokenizer=planner.tokenizer, role=role, trained=own)
