"""The library's model as a generator of answers: the embedder shares its weights."""

from __future__ import annotations

import logging
import re
import threading
from collections import abc
from collections.abc import Sequence
from contextlib import closing
from queue import Empty
from typing import Any

import torch

from eddy_demo.display_text import model_label
from eddy_demo.errors import DemoError
from eddy_demo.web.answers.evidence import Evidence
from eddy_demo.web.http.events import Event
from eddy_embed.encoding.build import open_generator
from eddy_embed.errors import ModelNotFound, UnsupportedModel
from eddy_embed.model.loading.pretrained import read_generator

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
        log = logging.getLogger(__name__)
        try:
            instructed, parameters = read_generator(name)
            if instructed and parameters >= LEAST_PARAMETERS:
                return cls.load(name, device)
        except Exception as error:  # such as an adapter, or more than the memory holds: what embeds may still run
            log.warning("the page only quotes: %s", error)
            return None
        if instructed:
            log.warning(
                "the page only quotes: %s has %d million parameters, and models under %d million write little that "
                "holds; --generate lets it write",
                model_label(name),
                parameters // 10**6,
                LEAST_PARAMETERS // 10**6,
            )
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
        of each there were. The citations are those of the sentences that support it, whatever the model itself cites.
        """
        yield "writing", {"note": "" if self.follows_instructions else _CONTINUATION_NOTE}
        evidence = Evidence(question, sentences)
        numbered = {sentence["n"]: sentence for sentence in sentences}
        left_out = repeated = 0
        with closing(self._pieces(question, list(sentences))) as pieces:
            for written in evidence.complete_sentences(pieces):
                text = _CITATION.sub("", written)
                number = evidence.supporting(text) if text else None
                if number is None:
                    left_out += bool(text)
                elif evidence.repeats(text):
                    repeated += 1
                else:
                    yield "text", {"text": text}
                    yield "cite", {"n": number, "link": numbered[number]["link"], "text": numbered[number]["text"]}
                    continue
                yield "text", {"text": ""}  # a client that has left is noticed
        yield "written", {"left_out": left_out, "repeated": repeated}

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
        from transformers import StoppingCriteria, StoppingCriteriaList, TextIteratorStreamer

        ids = torch.tensor([self.prompt(question, sentences)], device=next(self.model.parameters()).device)
        streamer = TextIteratorStreamer(
            self.tokenizer, skip_prompt=True, timeout=_POLL_SECONDS, skip_special_tokens=True
        )
        closed, failure = threading.Event(), list[BaseException]()

        class Closed(StoppingCriteria):
            def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
                return torch.full((len(input_ids),), closed.is_set(), device=input_ids.device)

        def generate() -> None:
            try:
                self.model.generate(  # type: ignore[operator]  # of transformers' class
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=MAX_NEW_TOKENS,
                    do_sample=False,
                    streamer=streamer,
                    stopping_criteria=StoppingCriteriaList([Closed()]),
                )
            except BaseException as error:
                failure.append(error)
                streamer.end()  # type: ignore[no-untyped-call]

        worker = threading.Thread(target=generate, daemon=True)
        worker.start()
        try:
            while True:
                try:
                    yield next(streamer)
                except Empty:
                    yield ""
                except StopIteration:
                    break
        finally:
            closed.set()
            worker.join()
        if failure:
            raise CannotGenerate(f"the model could not write: {failure[0]}")
