"""Reranker: how likely a language model finds a question after each of some texts, to sort the texts by."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from string import Formatter
from typing import Any, NoReturn

import numpy as np
import torch

from eddy_embed import methods
from eddy_embed.encoding.build import budget, host_for, open_model
from eddy_embed.encoding.likelihood import Likelihood, Prompt
from eddy_embed.encoding.validation import (
    check_count,
    check_one,
    check_options,
    check_seconds,
    checked_texts,
    refuse_unknown,
    torch_name,
)
from eddy_embed.errors import InvalidParameter, InvalidText, UnsupportedModel
from eddy_embed.model.head import Head
from eddy_embed.text.tokenizer import Tokenizer
from eddy_embed.utils.arrays import Doubles, Floats
from eddy_embed.utils.progress import Progress

PROMPT = "Passage: {passage}\nPlease write a question based on this passage.\nQuestion: {question}"
"""The wording of UPR (Sachan et al. 2022, section 2.2)."""
LIKELIHOOD = 0.75
"""Weight of the likelihood beside a search's score, both in standard deviations over the texts that are judged; chosen
on manuals and two sets of abstracts."""


class Reranker:
    """Judges which texts answer a question, with a causal language model as it is.

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
        **_unknown: NoReturn,
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
            InvalidParameter: A value is outside its range, or there is no such parameter.
        """
        refuse_unknown("Reranker", _unknown, locals().keys() - {"self", "_unknown"})
        named = {"device": torch_name(device), "dtype": torch_name(dtype)}
        check_options({**locals(), **named})
        wording = _wording(prompt)
        opened = open_model(
            model,
            methods.parse("plain:exit=-1"),
            tokenizer,
            **named,
            revision=revision,
            cache_folder=cache_folder,
            trust_remote_code=trust_remote_code,
            local_files_only=local_files_only,
            model_kwargs=dict(model_kwargs or {}),
            show_progress=show_progress,
            head=True,
        )
        host = host_for(opened)
        if host.bidirectional:
            raise UnsupportedModel(
                f"{opened.name} reads in both directions, so it gives no probability of a question after a text; name "
                "a causal language model, such as smollm2"
            )
        head = Head(opened.model, host)
        own = Tokenizer(opened.tokenizer, private=opened.private)
        window = min(opened.backbone.window - host.first_position, own.max_length)
        if max_length is not None and max_length > window:
            raise InvalidParameter(f"max_length={max_length} exceeds the model's window of {window} tokens")
        self.model_name, self.prompt, self.show_progress = opened.name, prompt, show_progress
        self.max_length = max_length or window
        self._likelihood = Likelihood(
            *(host, head, own, own.starting("auto", auto=True), wording, self.max_length),
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
            progress: Called with the number of windows done, their total, and "judge"; what it raises ends the work.

        Returns:
            Mean log-probability of the question's tokens after each text, in nats: float32, shape (texts,), negative;
            NaN for texts that `seconds` left unread.

        Raises:
            InvalidText: The question or a text is blank, no string, or not valid Unicode.
            InvalidParameter: `seconds` is no positive number.
            TextTooLong: The question leaves no room for a text in the model's window.
            NotFinite: The model gives NaN or infinity.
        """
        question, given = _checked(query, texts)
        check_options({"progress": progress})
        check_seconds("seconds", seconds)
        with Progress(self.show_progress if show_progress is None else show_progress, progress, "judge") as bar:
            return self._likelihood.of(question, given, seconds, bar)

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
        check_count("top_k", top_k, optional=True)
        texts = checked_texts(documents)
        scores = self.scores(query, texts)
        order = np.argsort(-scores, kind="stable")[:top_k].tolist()
        shown = [{"text": texts[at]} if return_documents else {} for at in order]
        shares = self.rerank_scores(scores)
        return [{"corpus_id": at, "score": float(shares[at]), **more} for at, more in zip(order, shown, strict=True)]

    @staticmethod
    def rerank_scores(scores: Floats) -> Floats:
        """Return `scores` as hits and frameworks show them: geometric means of the tokens' probabilities, 0 to 1."""
        return np.exp(scores)

    @staticmethod
    def joined(scores: Doubles, likelihoods: Floats) -> Doubles:
        """Sort by a search and by the model: add both, in standard deviations over the texts that were to be judged.

        Args:
            scores: Of the search, best first, shape (texts,).
            likelihoods: Of the first of these texts, as `Reranker.scores` gives them, shape (judged,). NaN counts as
                the mean, and so does what was not to be judged.

        Returns:
            Scores by both, shape (texts,).
        """
        found = np.full(len(scores), np.nan)
        found[: len(likelihoods)] = likelihoods
        told = np.nan_to_num(_standardised(found, found))
        return _standardised(scores, scores[: len(likelihoods)]) + LIKELIHOOD * told

    def count_tokens(self, query: str, texts: str | Iterable[str]) -> list[int]:
        """Count the tokens that the model reads to score each text: text, question and wording, in all windows.

        Raises:
            InvalidText, TextTooLong: As for `scores`.
        """
        question, given = _checked(query, texts)
        return [sum(len(ids) for ids, _ in self._likelihood.windows(question, text)) for text in given]

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
        check_count("max_tokens", max_tokens, optional=query is not None)
        if query is None:
            return [self._likelihood.tokenizer.first(text, max_tokens or 0) for text in checked_texts(texts)]
        question, given = _checked(query, texts)
        return [self._likelihood.first(question, text, max_tokens) for text in given]

    def __repr__(self) -> str:
        host = self._likelihood.host
        return f"Reranker({self.model_name!r}, device={str(host.device)!r}, dtype={host.dtype_name!r})"


def _checked(query: str, texts: str | Iterable[str]) -> tuple[str, list[str]]:
    check_one(query)
    if not query.strip():
        raise InvalidText(f"the question is blank ({query!r:.20}); ask something")
    (question,) = checked_texts([query])
    return question, checked_texts(texts)


def _wording(prompt: str) -> Prompt:
    """The parts of a wording around the text and ahead of the question."""
    try:
        parts = [(before, field) for before, field, *_ in Formatter().parse(prompt)]
    except ValueError as error:
        raise InvalidParameter(f"prompt={prompt!r} cannot be read: {error}; write a brace as {{{{ or }}}}") from None
    literals, fields = "", list[tuple[str, str]]()
    for before, name in parts:
        literals += before
        if name is not None:
            fields.append((name, literals))
            literals = ""
    if [name for name, _ in fields] != ["passage", "question"] or literals or not fields[1][1]:
        raise InvalidParameter(
            f"prompt={prompt!r} must name {{passage}} and then, after some wording, {{question}}, once each, and end "
            "with the latter"
        )
    return Prompt(fields[0][1], fields[1][1])


def _standardised(values: Doubles, sample: Doubles) -> Doubles:
    """Values in standard deviations of a sample from its mean, zeros if that is all alike; NaN where they are."""
    deviation = float(np.nanstd(sample))
    return (values - np.nanmean(sample)) / deviation if deviation > 0 else values - values
