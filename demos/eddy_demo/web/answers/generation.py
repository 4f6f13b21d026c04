"""The library's own model as the writer of answers: the same weights, loaded once."""

from __future__ import annotations

import re
import threading
from collections import abc
from collections.abc import Iterable, Iterator, Sequence
from queue import Empty
from typing import TYPE_CHECKING, Any

from eddy_demo.errors import DemoError
from eddy_embed.loading import best_device, chosen_dtype, locate

if TYPE_CHECKING:
    import torch

    from eddy_embed import Embedder

MOST_TOKENS = 256
"""Of an answer."""
_PATIENCE = 0.2
_CITATION = re.compile(r"\[(\d{1,2})\]")
_OPEN = re.compile(r"\[\d{0,2}$")
_ASKED = (
    "Answer the question from the numbered sentences alone, in at most three sentences. Put the number of the sentence "
    "that says it in square brackets behind each statement, as in [1]. If they do not answer it, say so."
)
_CONTINUES = "This model follows no instructions, it only continues texts: read what it wrote with that in mind."
Event = tuple[str, dict[str, Any]]


class CannotGenerate(DemoError):
    """The library's model cannot write."""


class Generator:
    """A causal language model with its head, which embedders share.

    Attributes:
        model: The model.
        tokenizer: Its tokenizer.
    """

    def __init__(self, model: torch.nn.Module, tokenizer: Any) -> None:
        """Take a loaded model.

        Args:
            model: A causal language model of transformers, with its head.
            tokenizer: Its tokenizer.
        """
        self.model, self.tokenizer = model, tokenizer

    @classmethod
    def load(cls, name: str, device: str | None) -> Generator:
        """Load all of a model: every layer and the head.

        Raises:
            CannotGenerate: It is no causal language model, or cannot be had.
        """
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        device = device or best_device()
        try:
            where = locate(name)
            config = AutoConfig.from_pretrained(where)
            quantised = getattr(config, "quantization_config", None) is not None
            dtype = chosen_dtype("auto", device, config, quantised)  # as an embedder of this name would be loaded
            loaded: Any = AutoModelForCausalLM.from_pretrained(where, dtype=dtype, output_loading_info=True)
            model, read = loaded
            if read["missing_keys"]:  # transformers would make the head of an encoder up
                raise ValueError(f"it has no weights for {', '.join(sorted(read['missing_keys']))}.")
            model = model.eval().to(device=device)
            tokenizer = AutoTokenizer.from_pretrained(where)
        except (OSError, ValueError) as error:
            line = str(error).strip().splitlines()[0]
            raise CannotGenerate(
                f"{name} cannot write answers: {line:.300} Name a causal language model with its head, or leave out "
                "--generate"
            ) from None
        return cls(model, tokenizer)

    @property
    def follows(self) -> bool:
        """Whether it was made to follow instructions."""
        return bool(getattr(self.tokenizer, "chat_template", None))

    @property
    def bytes(self) -> int:
        """Bytes of its weights."""
        return sum(each.numel() * each.element_size() for each in self.model.parameters())

    def shared(self, embedder: Embedder) -> int:
        """Bytes of weights that an embedder uses and that are not loaded a second time."""
        return embedder.explain("a").bytes

    def write(self, question: str, sentences: Sequence[dict[str, Any]]) -> abc.Generator[Event, None, None]:
        """Events of an answer: `writing`, then `text` and `cite` as they come. Only one may be written at a time.

        Args:
            question: The question.
            sentences: What it may use, as `answers.extract` gave it, each with its number.
        """
        yield "writing", {"note": "" if self.follows else _CONTINUES}
        told = {each["n"]: each for each in sentences}
        for text, number in citations(self._pieces(question, list(sentences))):
            if text:
                yield "text", {"text": text}
            elif number in told:
                yield "cite", {"n": number, "link": told[number]["link"], "text": told[number]["text"]}
            else:  # a number that it made up is no citation
                yield "text", {"text": f"[{number}]"}

    def prompt(self, question: str, sentences: Sequence[dict[str, Any]]) -> list[int]:
        """Tokens of what the model is asked; sentences from the end are left out until they fit its window."""
        window = int(getattr(self.model.config, "max_position_embeddings", 0) or 2**20)
        left = list(sentences)
        while True:
            ids = self._ids(question, left)
            if len(ids) + MOST_TOKENS <= window or not left:
                return ids
            left.pop()

    def _ids(self, question: str, sentences: Sequence[dict[str, Any]]) -> list[int]:
        lines = "\n".join(f"[{each['n']}] {each['text']}" for each in sentences)
        if self.follows:
            asked = f"{_ASKED}\n\n{lines}\n\nQuestion: {question}"
            told = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": asked}], add_generation_prompt=True, tokenize=False
            )
            return list(self.tokenizer(told, add_special_tokens=False)["input_ids"])
        # A model that follows no instructions goes on with a text that ends where an answer begins.
        return list(self.tokenizer(f"{lines}\n\nQuestion: {question}\nAnswer:")["input_ids"])

    def _pieces(self, question: str, sentences: Sequence[dict[str, Any]]) -> Iterator[str]:
        """The text as it is generated, greedily; whoever stops listening stops the model."""
        import torch
        from transformers import StoppingCriteria, StoppingCriteriaList, TextIteratorStreamer

        ids = torch.tensor([self.prompt(question, sentences)], device=next(self.model.parameters()).device)
        streamer = TextIteratorStreamer(self.tokenizer, skip_prompt=True, timeout=_PATIENCE, skip_special_tokens=True)
        ended, failure = threading.Event(), list[BaseException]()

        class Ended(StoppingCriteria):
            def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
                return torch.full((len(input_ids),), ended.is_set(), device=input_ids.device)

        def generate() -> None:
            try:
                self.model.generate(  # type: ignore[operator]  # of transformers' class
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=MOST_TOKENS,
                    do_sample=False,
                    streamer=streamer,
                    stopping_criteria=StoppingCriteriaList([Ended()]),
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
            ended.set()
            worker.join()
        if failure:
            raise CannotGenerate(f"the model could not write: {failure[0]}")


def citations(pieces: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Text and citations in the order in which they come: `("text", 0)` or `("", number)`.

    A citation may be cut in pieces anywhere, as in "[", "1", "]".
    """
    held = ""
    for piece in pieces:
        held += piece
        open_ = _OPEN.search(held)
        ready, held = (held[: open_.start()], held[open_.start() :]) if open_ else (held, "")
        yield from _split(ready)
    yield from _split(held)


def _split(text: str) -> Iterator[tuple[str, int]]:
    at = 0
    for match in _CITATION.finditer(text):
        if match.start() > at:
            yield text[at : match.start()], 0
        yield "", int(match[1])
        at = match.end()
    if at < len(text):
        yield text[at:], 0
