"""Texts to windows: which sequence answers for which characters of which text, and what did not fit."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Literal, cast

import numpy as np

from eddy_embed.encoding.windows import LazyWindow, TokenOffsets, Window, WindowRange, count_once, plan_windows, split
from eddy_embed.errors import InvalidParameter, InvalidText, TextTooLong
from eddy_embed.parts.layout import Layout, Prompt, TextRole
from eddy_embed.parts.repetition import shortened
from eddy_embed.text.sentences import Segmenter
from eddy_embed.text.sequence import Ints, Sequence
from eddy_embed.text.tokenizer import Tokenizer, Tokens

Overflow = Literal["window", "error", "truncate"]

ATTACHED = "{instruction}{prompt}"
"""The wording around an instruction that brings its own blank, if it wants one."""
REPLANS = 20
"""Attempts at windows that fit, each with a smaller budget: a slice may take more tokens than it did in the whole."""

LONG = 2**16
"""Characters of a text that is counted before it is laid out: laid out as a whole it would take memory as it grows."""

SAMPLE = 64
"""Tokens of such a text that are laid out to learn what stands around it."""


@dataclass(frozen=True, eq=False)
class TextPlan:
    """A text ready to run.

    Attributes:
        windows: One for each window, and that for each wording where the layout has several.
        window_count: Windows of the text, counted once where there are several wordings.
        tokens: Number of the text's tokens.
        truncated: Tokens at its end that no window reads.
        spans: Rows (start, end) of its sentences, None where they were not needed, shape (sentences, 2).
        sizes: Tokens of each sentence, shape (sentences,).
        levels: Level of each sentence as a heading, 0 where it is none, shape (sentences,).
    """

    windows: list[Window | LazyWindow]
    window_count: int
    tokens: int
    truncated: int
    spans: Ints | None
    sizes: Ints | None
    levels: Ints | None = None


@dataclass(frozen=True)
class Planner:
    """Lays texts out, and divides those that exceed the window.

    Attributes:
        layout: The method's layout.
        tokenizer: The model's.
        segmenter: Finds sentences, where blocks or windows need them.
        max_length: Most tokens in a sequence.
        overflow: What happens to longer texts.
        instructions: Instruction for each role, None for none.
        closed: Whether the specials that the tokenizer puts behind a text stand there, as encoders and fine-tuned
            embedders know it; never behind a repeated text.
        attached: Roles whose instruction and prompt have nothing between them.
    """

    layout: Layout
    tokenizer: Tokenizer
    segmenter: Segmenter
    max_length: int
    overflow: Overflow
    instructions: dict[TextRole, str | None]
    closed: bool = False
    attached: frozenset[TextRole] = frozenset()

    def __post_init__(self) -> None:
        """Refuse pieces that would not fit.

        Raises:
            InvalidParameter: A repeated piece is longer than a sequence may be.
        """
        repetition = self.layout.repetition
        if repetition is not None and repetition.piece is not None:
            tokens = len(self.tokenizer.prefix) + repetition.times * repetition.piece
            if tokens > self.max_length:
                raise InvalidParameter(
                    f"piece={repetition.piece}, {repetition.times} times, takes {tokens} tokens, more than "
                    f"max_length={self.max_length}; choose a smaller piece"
                )

    def plan(self, texts: Seq[str], role: TextRole, *, first: int = 0, sentences: bool = False) -> list[TextPlan]:
        """Plan texts.

        Args:
            texts: Not blank, valid Unicode.
            role: Whether they are documents or queries.
            first: Index of the first text, for messages.
            sentences: Whether sentences are wanted even where the layout does without.

        Raises:
            InvalidText: A text has no tokens.
            TextTooLong: A text exceeds the window and `overflow` is "error", or the prompt alone exceeds it.
        """
        found = [self._sentences(text) if sentences or self.layout.needs_sentences else None for text in texts]
        spans = [None if each is None else each[0] for each in found]
        wholes = [self._beyond(text) for text in texts]
        first_wording, *others = [
            self._worded(layout)._plan_wording(texts, role, first, spans, wholes, sentences)
            for layout in self.layout.wordings
        ]
        planned = [_shared([main, *more]) for main, *more in zip(first_wording, *others, strict=True)]
        if not sentences:
            return planned
        # A text that is cut has the first of its sentences.
        return [
            replace(plan, levels=levels[: len(cast("Ints", plan.spans))])
            for plan, (_, levels) in zip(planned, cast("list[tuple[Ints, Ints]]", found), strict=True)
        ]

    def lengths(self, texts: Seq[str], role: TextRole) -> list[int]:
        """Tokens of the sequence that each text would be if no length were too long, in its longest wording.

        Args:
            texts: Not blank, valid Unicode.
            role: Whether they are documents or queries.
        """
        spans = [self._sentences(text)[0] if self.layout.needs_sentences else None for text in texts]
        wordings = [self._worded(layout) for layout in self.layout.wordings]
        return [
            max(len(wording._lay(text, role, own)) for wording in wordings)
            for text, own in zip(texts, spans, strict=True)
        ]

    def _plan_wording(
        self,
        texts: Seq[str],
        role: TextRole,
        first: int,
        spans: Seq[Ints | None],
        wholes: Seq[TokenOffsets | None],
        sentences: bool,
    ) -> list[TextPlan]:
        usual = [at for at, whole in enumerate(wholes) if whole is None]
        prompts = [self._fill(texts[at], role, spans[at]) for at in usual]
        tokens = self.tokenizer([prompt.string for prompt in prompts])
        arranged = {at: self._arrange(prompt, own) for at, prompt, own in zip(usual, prompts, tokens, strict=True)}
        return [
            self._fit(text, role, first + at, arranged.get(at), wholes[at], spans[at], sentences)
            for at, text in enumerate(texts)
        ]

    def _worded(self, layout: Layout) -> Planner:
        return self if layout is self.layout else replace(self, layout=layout)

    def _beyond(self, text: str) -> TokenOffsets | None:
        """The tokens of a text that is far too long for a pass, which is then not laid out as a whole; else nothing."""
        if len(text) <= LONG or self.overflow == "error":
            return None
        whole = TokenOffsets.of(*self.tokenizer.places(text))
        return whole if len(whole.starts) > self.max_length else None

    def _fill(self, text: str, role: TextRole, spans: Ints | None) -> Prompt:
        layout = replace(self.layout, instructed=ATTACHED) if role in self.attached else self.layout
        return layout.fill(text, role, self.instructions[role], spans)

    def _arrange(self, prompt: Prompt, tokens: Tokens) -> Sequence:
        suffix = self.tokenizer.suffix.tolist() if self.closed and self.layout.repetition is None else []
        end = self.tokenizer.end if self.layout.may_end and not suffix else None
        return self.layout.arrange(prompt, tokens, self.tokenizer.prefix, end, suffix)

    def _fit(
        self,
        text: str,
        role: TextRole,
        number: int,
        sequence: Sequence | None,
        whole: TokenOffsets | None,
        spans: Ints | None,
        sentences: bool,
    ) -> TextPlan:
        """Plan a text by the sequence that it would be, or by its tokens where that would be far too long."""
        if sequence is not None and not sentences and 0 < len(sequence.text) <= len(sequence) <= self.max_length:
            return TextPlan([Window(sequence, sequence.text)], 1, len(sequence.text), 0, None, None)
        if sequence is not None:
            own = sequence.text
            whole = TokenOffsets.of(sequence.starts[own], sequence.ends[own])
        if whole is None or (count := len(whole.starts)) == 0:
            raise InvalidText(f"text {number} ({text[:40]!r}) has no tokens in this model's vocabulary; drop it")
        kept = text
        windows: list[Window | LazyWindow]
        if sequence is not None and len(sequence) <= self.max_length:
            windows = [Window(sequence, sequence.text)]
        elif self.overflow == "error":
            tokens = len(cast("Sequence", sequence))
            raise TextTooLong(
                f"text {number} ({text[:40]!r}) takes {tokens} tokens, {tokens - self.max_length} more than "
                f"max_length={self.max_length}; use overflow='window' to read all of it, or split it"
            )
        elif self.overflow == "truncate":
            sequence, kept = self._truncate(text, role, number, whole)
            windows = [Window(sequence, sequence.text)]
        else:
            spans = self._sentences(text)[0] if spans is None else spans
            blocks = self.layout.blocks and self.layout.blocks.settled(count, len(spans))
            settled = replace(self, layout=replace(self.layout, blocks=blocks))
            budget, copies = settled._budget(text, role, sequence, whole, spans)
            windows = settled._windows(text, role, number, whole, spans, budget, copies)
        read = whole.count_before(len(kept))
        wanted = spans if sentences else None
        if wanted is not None:
            wanted = _within(wanted, len(kept))
        return TextPlan(
            windows, len(windows), count, count - read, wanted, None if wanted is None else whole.sizes(wanted)
        )

    def _budget(
        self, text: str, role: TextRole, sequence: Sequence | None, whole: TokenOffsets, spans: Ints
    ) -> tuple[int, int]:
        """Tokens that each copy of the text may take in a window, and the number of copies."""
        sentences = len(spans)
        if sequence is None:
            # What stands around the text stands around its beginning.
            begin = text[: max(int(whole.ends[min(SAMPLE, len(whole.ends)) - 1]), int(spans[0, 1]))]
            first = _within(spans, len(begin))
            sequence, sentences = self._lay(begin, role, first), len(first)
        count, copies, blocks = len(sequence.text), int(sequence.copies.max()) + 1, self.layout.blocks
        around = len(sequence) - count * copies - (blocks.count(count, sentences) if blocks else 0)
        return (self.max_length - around) // copies, copies

    def _sentences(self, text: str) -> tuple[Ints, Ints]:
        """Rows (start, end) of the sentences, shape (sentences, 2), and their levels as headings."""
        found = self.segmenter.sentences(text)
        spans = np.array([(sentence.start, sentence.end) for sentence in found], np.int64).reshape(-1, 2)
        return spans, np.array([sentence.level for sentence in found], np.int64)

    def _lay(self, text: str, role: TextRole, spans: Ints | None, begin: int = 0) -> Sequence:
        prompt = self._fill(text, role, spans)
        sequence = self._arrange(prompt, self.tokenizer([prompt.string])[0])
        moved = sequence.starts >= 0
        return replace(sequence, starts=sequence.starts + begin * moved, ends=sequence.ends + begin * moved)

    def _truncate(self, text: str, role: TextRole, number: int, whole: TokenOffsets) -> tuple[Sequence, str]:
        if self.layout.repetition is not None and self.layout.repetition.cut:
            # More than can stay: the tokens at the end of what is laid out may be others than in the whole text.
            most = int(whole.ends[min(2 * self.max_length + SAMPLE, len(whole.ends)) - 1])
            sequence = shortened(self._lay(text[:most], role, None), self.max_length)
            if len(sequence.text) == 0:
                raise self._no_room(number)
            return sequence, text[: int(sequence.ends[sequence.text[-1]])]
        keep = min(len(whole.starts), self.max_length)
        while keep >= 1:
            kept = text[: int(whole.ends[keep - 1])]
            sequence = self._lay(kept, role, self._sentences(kept)[0] if self.layout.needs_sentences else None)
            excess = len(sequence) - self.max_length
            if excess <= 0:
                return sequence, kept
            keep -= max(1, excess // (int(sequence.copies.max()) + 1))
        raise self._no_room(number)

    def _windows(
        self, text: str, role: TextRole, number: int, whole: TokenOffsets, spans: Ints, budget: int, copies: int
    ) -> list[Window | LazyWindow]:
        for _ in range(REPLANS):
            blocks = self.layout.blocks
            room = blocks.room(budget) if blocks else budget
            if room < 1:
                break
            units = split(spans, whole, text, room)
            begins = np.append(units[:, 0], len(text))
            begins[0] = 0
            sizes = [whole.count(a, b) for a, b in pairwise(begins.tolist())]
            costs = [size + (blocks.count(size, 1) if blocks else 0) for size in sizes]
            if max(costs) > budget:
                break
            chosen = plan_windows(costs, budget)
            lay = partial(self._window, text, role, units, begins, chosen)
            ranges = [(int(begins[w.first]), int(begins[w.last + 1])) for w in chosen]
            windows = count_once(lay, ranges, text, keep=len(text) <= LONG)
            excess = max(window.length for window in windows) - self.max_length
            if excess <= 0:
                return windows
            budget -= -(-excess // copies)
        raise self._no_room(number)

    def _window(
        self, text: str, role: TextRole, units: Ints, begins: Ints, chosen: Seq[WindowRange], number: int
    ) -> Sequence:
        first, last = chosen[number].first, chosen[number].last
        begin, end = int(begins[first]), int(begins[last + 1])
        return self._lay(text[begin:end], role, units[first : last + 1] - begin, begin)

    def _no_room(self, number: int) -> TextTooLong:
        return TextTooLong(
            f"text {number}: max_length={self.max_length} leaves no room for the text beside its prompt and "
            "placeholders; raise max_length or shorten the instruction"
        )


def _shared(wordings: list[TextPlan]) -> TextPlan:
    """One plan out of those of several wordings, each of which has the same weight."""
    windows = []
    for plan in wordings:
        total = sum(window.count for window in plan.windows) * len(wordings)
        windows += [replace(window, share=window.count / total) for window in plan.windows]
    shortest = max(wordings, key=lambda plan: plan.truncated)
    return replace(shortest, windows=windows, window_count=max(plan.window_count for plan in wordings))


def _within(spans: Ints, end: int) -> Ints:
    """The sentences of the text up to a character, the last perhaps in part."""
    return np.minimum(spans[spans[:, 0] < end], end)
