"""How probable a question is after each of some texts: laid out, run in passes, summed over the question's tokens."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
import torch

from eddy_embed.encoding.runner import run_halving
from eddy_embed.errors import InvalidText, NotFinite, TextTooLong
from eddy_embed.model.head import Head
from eddy_embed.model.host import Host
from eddy_embed.text.sequence import pack, without_placeholders
from eddy_embed.text.tokenizer import Tokenizer
from eddy_embed.utils.arrays import Floats, Ints
from eddy_embed.utils.progress import Progress

FEWEST = 16
"""Tokens of a text that a window must have room for, beside the question and the wording."""
SHARED = 8
"""Two windows of a text share a part in so many of its tokens."""


@dataclass(frozen=True)
class Prompt:
    """Wording ahead of a text, and between it and the question, which ends the sequence."""

    before: str
    between: str


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Mean log-probability of a question's tokens after a text, by one language model."""

    host: Host
    head: Head
    tokenizer: Tokenizer
    prefix: Ints
    prompt: Prompt
    max_length: int
    batch_tokens: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, question: str, texts: Seq[str], seconds: float | None, bar: Progress) -> Floats:
        """Means for each text, in nats, shape (texts,); of a text read in several windows, the highest.

        Passes take the texts in their order. With `seconds`, none begins that would likely end later; texts that were
        not read until then have NaN.

        Raises:
            TextTooLong: The question leaves no room for a text.
            InvalidText: The tokenizer makes no token of the question.
            NotFinite: The model gives NaN or infinity.
        """
        laid = [(owner, *window) for owner, text in enumerate(texts) for window in self.windows(question, text)]
        bar.expect(len(laid))
        found = np.full(len(texts), np.nan, np.float32)
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
                found[owner] = np.fmax(found[owner], mean)
            bar.advance(last - first)
            read, first = read + total, last
        return found

    def windows(self, question: str, text: str) -> list[tuple[Ints, int]]:
        """Ids of each window of a text, and the number of the question's tokens at its end."""
        ids, count = self._laid(question, text)
        if len(ids) <= self.max_length:
            return [(ids, count)]
        (own,) = self.tokenizer([text])
        half, lap = len(own.ids) // 2, len(own.ids) // SHARED // 2
        if half < FEWEST:
            raise _no_room(question, len(ids) - len(own.ids), self.max_length)
        first, second = text[: own.starts[half + lap]], text[own.starts[half - lap] :]
        return [*self.windows(question, first), *self.windows(question, second)]

    def first(self, question: str, text: str, most: int | None) -> str:
        """The beginning of a text that has so many tokens with the question; None: that one pass takes beside it.

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
            told = self.head.log_probabilities(states, torch.from_numpy(packed.ids[rows])).double().cpu().numpy()
        return [float(part.mean()) for part in np.split(told, np.cumsum([count for _, count in laid])[:-1])]


def _no_room(question: str, taken: int, most: int) -> TextTooLong:
    return TextTooLong(
        f"the question takes {taken} tokens with what stands around it, which leaves no room for a text among {most}; "
        f"shorten the question {question!r:.60}"
    )
