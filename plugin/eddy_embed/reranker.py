"""Rerank texts by how likely a language model finds the question after each."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from eddy_embed import methods
from eddy_embed.encoding.build import budget, host_for, open_model
from eddy_embed.encoding.runner import run_halving
from eddy_embed.encoding.validation import check_seconds, checked_texts
from eddy_embed.errors import InvalidParameter, InvalidText, NotFinite, TextTooLong, UnsupportedModel
from eddy_embed.model.head import LanguageModelHead
from eddy_embed.model.host import ModelView
from eddy_embed.parts.layout import template_fields
from eddy_embed.text.sequence import pack, without_placeholders
from eddy_embed.text.tokenizer import Tokenizer
from eddy_embed.utils.arrays import Doubles, Floats, Ints
from eddy_embed.utils.checks import check_count
from eddy_embed.utils.progress import Progress

FEWEST = 16
"""Tokens of a text that a window must have room for, beside the question and the wording."""
SHARED = 8
"""Two windows of a text share a part in so many of its tokens."""


@dataclass(frozen=True)
class LikelihoodPrompt:
    """Wording ahead of a text, and between it and the question, which ends the sequence."""

    before: str
    between: str


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Mean log-probability of a question's tokens after a text, by one language model."""

    host: ModelView
    head: LanguageModelHead
    tokenizer: Tokenizer
    prefix: Ints
    prompt: LikelihoodPrompt
    max_length: int
    batch_tokens: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, question: str, texts: Seq[str], seconds: float | None, bar: Progress) -> Floats:
        """Return means for each text, in nats, shape (texts,); of a text read in several windows, the highest.

        Passes take the texts in their order. With `seconds`, none begins that would likely end later; texts that were
        not read until then have NaN.

        Raises:
            TextTooLong: The question leaves no room for a text.
            InvalidText: The tokenizer makes no token of the question.
            NotFinite: The model gives NaN or infinity.
        """
        laid = [(owner, *window) for owner, text in enumerate(texts) for window in self.windows(question, text)]
        bar.expect(len(laid))
        scores = np.full(len(texts), np.nan, np.float32)
        began, read, first = time.monotonic(), 0, 0
        while first < len(laid):
            last, total = first, 0
            while last < len(laid) and (last == first or total + len(laid[last][1]) <= self.batch_tokens):
                total += len(laid[last][1])
                last += 1
            spent = time.monotonic() - began
            if seconds is not None and read and spent * (read + total) / read > seconds:
                break
            with self._lock:
                means = run_halving(self._pass, [(ids, count) for _, ids, count in laid[first:last]])
            for (owner, _, _), mean in zip(laid[first:last], means, strict=True):
                if not np.isfinite(mean):
                    raise NotFinite(
                        f"text {owner}: the model gave NaN or infinity; load it with dtype='float32' or 'bfloat16'"
                    )
                scores[owner] = np.fmax(scores[owner], mean)
            bar.advance(last - first)
            read, first = read + total, last
        return scores

    def windows(self, question: str, text: str) -> list[tuple[Ints, int]]:
        """Return ids of each window of a text, and the number of the question's tokens at its end."""
        ids, count = self._laid(question, text)
        if len(ids) <= self.max_length:
            return [(ids, count)]
        (tokens,) = self.tokenizer([text])
        half, lap = len(tokens.ids) // 2, len(tokens.ids) // SHARED // 2
        if half < FEWEST:
            raise _no_room(question, len(ids) - len(tokens.ids), self.max_length)
        first, second = text[: tokens.starts[half + lap]], text[tokens.starts[half - lap] :]
        return [*self.windows(question, first), *self.windows(question, second)]

    def first(self, question: str, text: str, most: int | None) -> str:
        """Return the beginning of a text that has so many tokens with the question; None: as one pass takes.

        Raises:
            TextTooLong: The question leaves no room for it.
        """
        if most is not None:
            taken = len(self.tokenizer([question])[0].ids)
            if taken >= most:
                raise _no_room(question, taken, most)
            return self.tokenizer.first(text, most - taken)

        def length(size: int) -> int:
            return len(self._laid(question, self.tokenizer.first(start, size))[0])

        start = self.tokenizer.first(text, self.max_length)
        size = bisect_right(range(1, self.max_length + 1), self.max_length, key=length)
        if size == 0:
            raise _no_room(question, length(1) - 1, self.max_length)
        return self.tokenizer.first(start, size)

    def _laid(self, question: str, text: str) -> tuple[Ints, int]:
        (tokens,) = self.tokenizer([f"{self.prompt.before}{text}{self.prompt.between}{question}"])
        begin = len(self.prompt.before) + len(text) + len(self.prompt.between)
        ids, count = np.concatenate([self.prefix, tokens.ids]), int((tokens.ends > begin).sum())
        if not 0 < count < len(ids):
            raise InvalidText(f"the tokenizer makes no token of the question {question!r:.60} by itself; reword it")
        return ids, count

    def _pass(self, laid: list[tuple[Ints, int]]) -> list[float]:
        packed = pack([without_placeholders(ids) for ids, _ in laid])
        rows = np.concatenate(
            [end - count + np.arange(count) for (_, count), end in zip(laid, packed.offsets[1:], strict=True)]
        )
        with torch.inference_mode():
            states = self.host.run(packed, range(0), None, rows=torch.from_numpy(rows - 1))
            logs = self.head.log_probabilities(states, torch.from_numpy(packed.ids[rows])).double().cpu().numpy()
        return [float(part.mean()) for part in np.split(logs, np.cumsum([count for _, count in laid])[:-1])]


def _no_room(question: str, taken: int, most: int) -> TextTooLong:
    return TextTooLong(
        f"the question takes {taken} tokens with what stands around it, which leaves no room for a text among {most}; "
        f"shorten the question {question!r:.60}"
    )


PROMPT = "Passage: {passage}\nPlease write a question based on this passage.\nQuestion: {question}"
"""The wording of UPR (Sachan et al. 2022, section 2.2)."""
LIKELIHOOD = 0.75
"""Weight of the likelihood beside a search's score, both in standard deviations over the texts that are reranked.

Chosen on manuals and two sets of abstracts.
"""


class Reranker:
    """Scores which texts answer a question, with a causal language model as it is.

    The score of a text is the mean log-probability of the question's tokens after the text and a request to write a
    question about it (UPR, Sachan et al. 2022, arXiv 2204.07496). Thread-safe. A score does not depend on other texts,
    up to rounding.

    Attributes:
        model_name: Name of the model, or its class.
        prompt: Wording around a text and the question.
        max_length: Most tokens in a pass over one text.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | torch.nn.Module,
        *,
        tokenizer: Any | None = None,
        prompt: str = PROMPT,
        max_length: int | None = None,
        batch_tokens: int | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype = "auto",
        revision: str | None = None,
        cache_folder: str | os.PathLike[str] | None = None,
        trust_remote_code: bool = False,
        local_files_only: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        show_progress: bool = False,
    ) -> None:
        """Load a model with its language-model head, or share a loaded one.

        Args:
            model: As for `Embedder`: a name, a folder, a file, or a loaded model, such as the one that generates
                answers or that an embedder shares; it must have its head (`AutoModelForCausalLM`).
            tokenizer: The tokenizer of a loaded model (a fast one).
            prompt: Wording with `{passage}` and then `{question}`, which ends it.
            max_length: Most tokens in a pass over one text, wording and question included; None: the model's window.
                A longer text is read in overlapping windows, of which the best counts.
            batch_tokens: Most tokens in a pass; None: as for `Embedder`.
            device: As for `Embedder`, like the arguments that follow.
            dtype: See there.
            revision: See there.
            cache_folder: See there.
            trust_remote_code: See there.
            local_files_only: See there.
            model_kwargs: See there.
            show_progress: Show a bar on long work.

        Raises:
            ModelNotFound: No usable model there.
            UnsupportedModel: The model has no head, is no causal language model, or cannot be run exactly.
            InvalidParameter: A value is outside its range.
        """
        check_count("max_length", max_length)
        check_count("batch_tokens", batch_tokens)
        wording = _wording(prompt)
        opened = open_model(
            model,
            methods.plain(exit=-1),
            tokenizer,
            device=device,
            dtype=dtype,
            revision=revision,
            cache_folder=cache_folder,
            trust_remote_code=trust_remote_code,
            local_files_only=local_files_only,
            model_kwargs=model_kwargs,
            show_progress=show_progress,
            head=True,
        )
        host = host_for(opened)
        if host.bidirectional:
            raise UnsupportedModel(
                f"{opened.name} reads in both directions, so it gives no probability of a question after a text; name "
                "a causal language model, such as smollm2"
            )
        head = LanguageModelHead(opened.model, host)
        reading = Tokenizer(opened.tokenizer, private=opened.private)
        window = min(opened.backbone.window - host.first_position, reading.max_length)
        if max_length is not None and max_length > window:
            raise InvalidParameter(f"max_length={max_length} exceeds the model's window of {window} tokens")
        self.model_name, self.prompt, self.show_progress = opened.name, prompt, show_progress
        self.max_length = max_length or window
        self._likelihood = Likelihood(
            *(host, head, reading, reading.starting("auto", auto=True), wording, self.max_length),
            batch_tokens=budget(batch_tokens, host.device),
        )

    def scores(
        self,
        query: str,
        texts: str | Iterable[str],
        *,
        seconds: float | None = None,
        show_progress: bool | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> Floats:
        """Score texts for a question; higher is better.

        Args:
            query: The question.
            texts: The texts, the most promising first: passes take them in this order.
            seconds: Begin no pass that would likely end later than this; the first pass always runs.
            show_progress: Show a bar; None: as the reranker was set.
            progress: Called with the number of windows done, their total, and "rerank"; what it raises ends the work.

        Returns:
            Mean log-probability of the question's tokens after each text, in nats: float32, shape (texts,), negative;
            NaN for texts that `seconds` left unread.

        Raises:
            InvalidText: The question or a text is blank, no string, or not valid Unicode.
            InvalidParameter: `seconds` is no positive number.
            TextTooLong: The question leaves no room for a text in the model's window.
            NotFinite: The model gives NaN or infinity.
        """
        question, checked = _checked(query, texts)
        check_seconds("seconds", seconds)
        with Progress(self.show_progress if show_progress is None else show_progress, progress, "rerank") as bar:
            return self._likelihood.of(question, checked, seconds, bar)

    def rank(
        self, query: str, documents: Iterable[str], top_k: int | None = None, *, return_documents: bool = False
    ) -> list[dict[str, Any]]:
        """Sort documents by how well they answer a question, with the form of sentence-transformers' `CrossEncoder`.

        Args:
            query: The question.
            documents: The documents' texts.
            top_k: Return so many; None: all.
            return_documents: Add each document's text, as "text".

        Returns:
            The best first: "corpus_id", the document's position, and "score", from 0 to 1.
        """
        check_count("top_k", top_k)
        texts = checked_texts(documents)
        scores = self.scores(query, texts)
        order = np.argsort(-scores, kind="stable")[:top_k].tolist()
        shown = [{"text": texts[at]} if return_documents else {} for at in order]
        shares = self.rerank_scores(scores)
        return [{"corpus_id": at, "score": float(shares[at]), **more} for at, more in zip(order, shown, strict=True)]

    @staticmethod
    def rerank_scores(scores: NDArray[Any]) -> NDArray[Any]:
        """Return `scores` as hits and frameworks show them: geometric means of the tokens' probabilities, 0 to 1."""
        return np.asarray(np.exp(scores))

    @staticmethod
    def joined(scores: Doubles, likelihoods: Floats) -> Doubles:
        """Sort by a search and by the model: add both, in standard deviations over the texts that were to be reranked.

        Args:
            scores: Of the search, best first, shape (texts,).
            likelihoods: Of the first of these texts, as `Reranker.scores` gives them, shape (reranked,). NaN counts as
                the mean, and so does what was not to be reranked.

        Returns:
            Scores by both, shape (texts,).
        """
        scored = np.full(len(scores), np.nan)
        scored[: len(likelihoods)] = likelihoods
        standardised = np.nan_to_num(_standardised(scored, scored))
        return _standardised(scores, scores[: len(likelihoods)]) + LIKELIHOOD * standardised

    def count_tokens(self, query: str, texts: str | Iterable[str]) -> list[int]:
        """Count the tokens that the model reads to score each text: text, question and wording, in all windows.

        Raises:
            InvalidText, TextTooLong: As for `scores`.
        """
        question, checked = _checked(query, texts)
        return [sum(len(ids) for ids, _ in self._likelihood.windows(question, text)) for text in checked]

    def truncate(
        self, texts: str | Iterable[str], max_tokens: int | None = None, *, query: str | None = None
    ) -> list[str]:
        """Cut each text after so many of its tokens.

        Args:
            texts: The texts.
            max_tokens: Most tokens of a text, and of the question if there is one; None: what one pass takes beside it.
            query: The question.

        Raises:
            InvalidText: The question or a text is blank, no string, or not valid Unicode.
            InvalidParameter: `max_tokens` is no positive integer, or None without a question.
            TextTooLong: The question leaves no room for a text.
        """
        check_count("max_tokens", max_tokens)
        if query is None:
            if max_tokens is None:
                raise InvalidParameter("truncate needs max_tokens, or the question to leave room for")
            return [self._likelihood.tokenizer.first(text, max_tokens) for text in checked_texts(texts)]
        question, checked = _checked(query, texts)
        return [self._likelihood.first(question, text, max_tokens) for text in checked]

    def __repr__(self) -> str:
        host = self._likelihood.host
        return f"Reranker({self.model_name!r}, device={str(host.device)!r}, dtype={host.dtype_name!r})"


def _checked(query: str, texts: str | Iterable[str]) -> tuple[str, list[str]]:
    (question,) = checked_texts([query])
    return question, checked_texts(texts)


def _wording(prompt: str) -> LikelihoodPrompt:
    """Return the parts of a wording around the text and ahead of the question."""
    wording, fields = "", list[tuple[str, str]]()
    for before, name in template_fields(prompt):
        wording += before
        if name:
            fields.append((name, wording))
            wording = ""
    if [name for name, _ in fields] != ["passage", "question"] or wording or not fields[1][1]:
        raise InvalidParameter(
            f"prompt={prompt!r} must name {{passage}} and then, after some wording, {{question}}, once each, and end "
            "with the latter"
        )
    return LikelihoodPrompt(fields[0][1], fields[1][1])


def _standardised(values: Doubles, sample: Doubles) -> Doubles:
    """Return values in standard deviations of a sample from its mean; zeros if it is all alike."""
    deviation = float(np.nanstd(sample))
    return (values - np.nanmean(sample)) / deviation if deviation > 0 else values - values
