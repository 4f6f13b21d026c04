"""What the library's model writes below the quotes, and which of its sentences a quote supports."""

from __future__ import annotations

import logging
import re
import threading
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from queue import Empty, Queue
from typing import Any, TypeVar

import torch

from chroma_eddy import TermAnalyzer
from eddy_demo.ask import COLONS
from eddy_demo.errors import DemoError
from eddy_demo.web.http import Event
from eddy_embed.encoding.build import open_generator
from eddy_embed.errors import ModelNotFound, UnsupportedModel
from eddy_embed.model.loading.pretrained import read_generator
from eddy_embed.text.sentences import Segmenter

T = TypeVar("T")
MAX_NEW_TOKENS = 256
"""Maximum number of tokens of an answer."""
LEAST_PARAMETERS = 300_000_000
"""Smaller models write only if asked: less of what they write holds (docs/web.md has the numbers)."""
_POLL_SECONDS = 0.2
_CITATION = re.compile(r"\s*\[\d[\d, ]*\]")
_INSTRUCTIONS = (
    "Answer the question from the sentences alone, in one or two short sentences. If they do not answer it, say so."
)
_CONTINUATION_NOTE = (
    "This model follows no instructions, it only continues texts: read what it wrote with that in mind."
)
_LANGUAGE = "en"  # as libraries of the demo have it
_SUPPORTED = 0.9
"""Least share of a written sentence's words, without stop words, in one sentence of the library."""
_IN_ORDER = 0.75
"""Least share of them that stand there in the same order."""
_TOLD = 0.2
"""Least share of them that the question does not have, or the sentence only restates it."""
_NEGATION = re.compile(r"\b(?:no|not|never|none|nothing|nobody|neither|nor|without|cannot)\b|n['’]t\b", re.IGNORECASE)
"""English words that deny, which are stop words."""
_NUMBER = re.compile(r"[-−]?\d+(?:[.,]\d+)*")
_LOOP = 6
"""Number of words that a model repeats in order only when it goes round in circles."""


class CannotGenerate(DemoError):
    """The library's model cannot generate text."""


class Generator:
    """A causal language model with its head; embedders share its weights."""

    def __init__(self, model: torch.nn.Module, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def choose(cls, name: str, device: str | None, asked: bool | None) -> Generator | None:
        """Load a generator if one is `asked` for, or, if that is None, if the model is one that writes well and can.

        That is one that follows instructions and has `LEAST_PARAMETERS`.
        """
        if asked is not None:
            return cls.load(name, device) if asked else None
        try:
            instructed, parameters = read_generator(name)
            if instructed and parameters >= LEAST_PARAMETERS:
                return cls.load(name, device)
        except Exception as error:  # such as an adapter, or more than the memory holds: what embeds may still run
            logging.getLogger(__name__).warning("the page only quotes: %s", error)
        return None

    @classmethod
    def load(cls, name: str, device: str | None) -> Generator:
        """Load every layer of a model and its head."""
        try:
            return cls(*open_generator(name, device))
        except (ModelNotFound, UnsupportedModel) as error:
            raise CannotGenerate(f"{name} cannot write answers: {error}; or pass --no-generate") from None

    @property
    def follows_instructions(self) -> bool:
        """Whether the model was trained to follow instructions."""
        return bool(getattr(self.tokenizer, "chat_template", None))

    def write(self, question: str, sentences: Sequence[dict[str, Any]]) -> abc.Generator[Event, None, None]:
        """Yield the events of an answer, one answer at a time: `writing`, then `text` and `cite` for each sentence.

        A sentence that no sentence given supports, or that repeats one, is left out; `written` at the end says how many
        there were. The citations are those of the sentences that support it, whatever the model itself cites.
        """
        yield "writing", {"note": "" if self.follows_instructions else _CONTINUATION_NOTE}
        evidence = Evidence(question, sentences)
        numbered = {sentence["n"]: sentence for sentence in sentences}
        left_out = 0
        with closing(self._pieces(question, list(sentences))) as pieces:
            for written in evidence.complete_sentences(pieces):
                text = _CITATION.sub("", written)
                number = evidence.supporting(text) if text else None
                if number is None or evidence.repeats(text):
                    left_out += bool(text)
                    yield "text", {"text": ""}  # a client that has left is noticed
                else:
                    yield "text", {"text": text}
                    yield "cite", {"n": number, "link": numbered[number]["link"], "text": numbered[number]["text"]}
        yield "written", {"left_out": left_out}

    def prompt(self, question: str, sentences: Sequence[dict[str, Any]]) -> list[int]:
        """Return the token ids of the prompt, without the last sentences if they do not fit the window."""
        window = int(getattr(self.model.config, "max_position_embeddings", 0) or 2**20)
        fitting = list(sentences)
        while True:
            ids = self._prompt_ids(question, fitting)
            if len(ids) + MAX_NEW_TOKENS <= window or not fitting:
                return ids
            fitting.pop()

    def _prompt_ids(self, question: str, sentences: Sequence[dict[str, Any]]) -> list[int]:
        lines = "\n".join(sentence["text"] for sentence in sentences)
        if self.follows_instructions:
            message = {"role": "user", "content": f"{_INSTRUCTIONS}\n\n{lines}\n\nQuestion: {question}"}
            chat = self.tokenizer.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
            return list(self.tokenizer(chat, add_special_tokens=False)["input_ids"])
        # Other models continue a text, so the text ends where an answer begins.
        return list(self.tokenizer(f"{lines}\n\nQuestion: {question}\nAnswer:")["input_ids"])

    def _pieces(self, question: str, sentences: Sequence[dict[str, Any]]) -> abc.Generator[str, None, None]:
        """Yield the text while the model generates it greedily; closing this generator stops the model."""
        from transformers import TextStreamer

        ids = torch.tensor([self.prompt(question, sentences)], device=next(self.model.parameters()).device)

        def generate(hand: Callable[[str], None]) -> None:
            streamer: Any = TextStreamer(self.tokenizer, skip_prompt=True, skip_special_tokens=True)
            streamer.on_finalized_text = lambda text, stream_end=False: hand(text)
            model: Any = self.model
            options = {"max_new_tokens": MAX_NEW_TOKENS, "do_sample": False, "streamer": streamer}
            try:
                model.generate(ids, attention_mask=torch.ones_like(ids), **options)
            except Exception as error:
                raise CannotGenerate(f"the model could not write: {error}") from error

        with closing(from_thread(generate)) as pieces:
            yield from (piece or "" for piece in pieces)


class _Left(BaseException):
    """Nobody waits for the work any more."""


def from_thread(work: Callable[[Callable[[T], None]], None]) -> abc.Generator[T | None, None, None]:
    """Yield what `work`, in a thread, hands to the function that it is given, and None while there is nothing.

    Closing this generator stops the work when it next hands something over, and waits until then.
    """
    queue, left, failure = Queue[T](), threading.Event(), list[Exception]()

    def hand(item: T) -> None:
        if left.is_set():
            raise _Left
        queue.put(item)

    def run() -> None:
        try:
            work(hand)
        except _Left:
            pass
        except Exception as error:
            failure.append(error)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    try:
        while worker.is_alive() or not queue.empty():
            try:
                yield queue.get(timeout=_POLL_SECONDS)
            except Empty:
                yield None
    finally:
        left.set()
        worker.join()
    if failure:
        raise failure[0]


class Evidence:
    """The sentences found for a question, as grounds of what a model writes."""

    def __init__(self, question: str, sentences: Sequence[dict[str, Any]]) -> None:
        """`sentences` have a number `n` and a `text`."""
        self._segmenter, self._analyzer = Segmenter(_LANGUAGE), TermAnalyzer(_LANGUAGE)
        self._question = set(self._analyzer.of_question(question))
        self._texts = {each["n"]: str(each["text"]) for each in sentences}
        self._terms = {number: [term.text for term in self._analyzer(text)] for number, text in self._texts.items()}

    def supporting(self, written: str) -> int | None:
        """The number of the sentence that supports a written one best; None if none does, or it says nothing new.

        An announcement ("The answer is:") says nothing. Numbers must be the sentence's own, and a sentence that denies
        something supports none that does not.
        """
        if written.rstrip().endswith(COLONS):
            return None
        terms = self._analyzer.of_question(written)
        if not terms or sum(term not in self._question for term in terms) < _TOLD * len(terms):
            return None
        shared = {number: sum(term in own for term in terms) for number, own in self._terms.items()}
        numbers, denies = set(_NUMBER.findall(written)), bool(_NEGATION.search(written))
        supporting = [
            number
            for number, text in self._texts.items()
            if shared[number] >= _SUPPORTED * len(terms)
            and _in_order(terms, self._terms[number]) >= _IN_ORDER * len(terms)
            and numbers <= set(_NUMBER.findall(text))
            and bool(_NEGATION.search(text)) == denies
        ]
        return max(supporting, key=lambda number: shared[number], default=None)

    def repeats(self, written: str) -> bool:
        """Whether a written sentence has the same words as a sentence of the library, all in the same order."""
        return [term.text for term in self._analyzer(written)] in self._terms.values()

    def complete_sentences(self, pieces: Iterable[str]) -> Iterator[str]:
        """Yield the sentences of a text as its pieces complete them, and "" for each piece that completes none.

        Ends where the text goes round in circles.
        """
        written: set[str] = set()
        text = ""
        for piece in pieces:
            text += piece
            sentences = self._segmenter.sentences(text)
            complete = sentences[:-1]
            for sentence in complete:
                if sentence.text in written:
                    return
                written.add(sentence.text)
                yield sentence.text
            if sentences:
                text = text[sentences[-1].start :]
            if _loops(text.split()):
                return
            if not complete:
                yield ""
        if text.strip() and text.strip() not in written:
            yield text.strip()


def _in_order(terms: Sequence[str], others: Sequence[str]) -> int:
    """The most terms that others have too, in the same order: the length of their longest common subsequence."""
    lengths = [0] * (len(others) + 1)
    for term in terms:
        before = list(lengths)
        for at, other in enumerate(others, start=1):
            lengths[at] = before[at - 1] + 1 if term == other else max(before[at], lengths[at - 1])
    return lengths[-1]


def _loops(words: Sequence[str]) -> bool:
    """Whether the last words stand in the same order before."""
    last = words[-_LOOP:]
    return any(words[at : at + _LOOP] == last for at in range(len(words) - _LOOP))
