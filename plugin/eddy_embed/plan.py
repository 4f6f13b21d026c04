"""Texts to jobs: which sequence answers for which characters of which text, and what did not fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from eddy_embed import windows
from eddy_embed.errors import InvalidParameter, InvalidText, TextTooLong
from eddy_embed.layout import ended
from eddy_embed.repetition import shortened
from eddy_embed.sequence import owners

if TYPE_CHECKING:
    from collections.abc import Sequence as Seq

    from eddy_embed.layout import Layout, Prompt, TextRole
    from eddy_embed.segment import Segmenter
    from eddy_embed.sequence import Ints, Sequence
    from eddy_embed.tokens import Tokenizer, Tokens

Overflow = Literal["window", "error", "truncate"]

REPLANS = 20
"""Attempts at windows that fit, each with a smaller budget: a slice may take more tokens than it did in the whole."""


@dataclass(frozen=True, eq=False)
class Job:
    """A sequence to run.

    Attributes:
        sequence: Its tokens; offsets count characters of the text.
        counted: Positions of the text tokens that it answers for, in order.
        share: Its weight among the sequences of the text, by the tokens it answers for; they sum to 1.
    """

    sequence: Sequence
    counted: Ints
    share: float = 1.0


@dataclass(frozen=True, eq=False)
class Planned:
    """A text ready to run.

    Attributes:
        jobs: One for each window, and that for each wording where the layout has several.
        windows: Number of windows.
        tokens: Number of the text's tokens.
        truncated: Tokens at its end that no job reads.
        spans: Rows (start, end) of its sentences, None where they were not needed, shape (sentences, 2).
        sizes: Tokens of each sentence, shape (sentences,).
    """

    jobs: list[Job]
    windows: int
    tokens: int
    truncated: int
    spans: Ints | None
    sizes: Ints | None


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
        closed: Whether the specials that the tokenizer puts behind a text stand there, as encoders know it.
    """

    layout: Layout
    tokenizer: Tokenizer
    segmenter: Segmenter
    max_length: int
    overflow: Overflow
    instructions: dict[TextRole, str | None]
    closed: bool = False

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

    def plan(self, texts: Seq[str], role: TextRole, *, first: int = 0, sentences: bool = False) -> list[Planned]:
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
        spans = [self._spans(text) if sentences or self.layout.needs_sentences else None for text in texts]
        first_wording, *others = [
            replace(self, layout=layout)._plan_wording(texts, role, first, spans, sentences)
            for layout in self.layout.wordings
        ]
        return [_shared([main, *more]) for main, *more in zip(first_wording, *others, strict=True)]

    def lengths(self, texts: Seq[str], role: TextRole) -> list[int]:
        """Tokens of the sequence that each text would be if no length were too long, in its longest wording.

        Args:
            texts: Not blank, valid Unicode.
            role: Whether they are documents or queries.
        """
        spans = [self._spans(text) if self.layout.needs_sentences else None for text in texts]
        wordings = [replace(self, layout=layout) for layout in self.layout.wordings]
        return [
            max(len(wording._lay(text, role, own)) for wording in wordings)
            for text, own in zip(texts, spans, strict=True)
        ]

    def _plan_wording(
        self, texts: Seq[str], role: TextRole, first: int, spans: Seq[Ints | None], sentences: bool
    ) -> list[Planned]:
        prompts = [
            self.layout.fill(text, role, self.instructions[role], own) for text, own in zip(texts, spans, strict=True)
        ]
        planned = []
        for at, tokens in enumerate(self.tokenizer([prompt.string for prompt in prompts])):
            sequence = self._arrange(prompts[at], tokens)
            planned.append(self._fit(texts[at], role, first + at, sequence, spans[at], sentences))
        return planned

    def _arrange(self, prompt: Prompt, tokens: Tokens) -> Sequence:
        end = self.tokenizer.end if self.layout.may_end else None
        sequence = self.layout.arrange(prompt, tokens, self.tokenizer.prefix, end)
        for special in self.tokenizer.suffix.tolist() if self.closed else ():
            sequence = ended(sequence, special)
        return sequence

    def _fit(
        self, text: str, role: TextRole, number: int, sequence: Sequence, spans: Ints | None, sentences: bool
    ) -> Planned:
        own = sequence.text
        if len(own) == 0:
            raise InvalidText(f"text {number} ({text[:40]!r}) has no tokens in this model's vocabulary; drop it")
        count = len(own)
        whole = _Whole(sequence.starts[own], np.maximum(sequence.ends[own], sequence.starts[own] + 1))
        kept = text
        if len(sequence) <= self.max_length:
            jobs = [Job(sequence, own)]
        elif self.overflow == "error":
            raise TextTooLong(
                f"text {number} ({text[:40]!r}) takes {len(sequence)} tokens, {len(sequence) - self.max_length} more "
                f"than max_length={self.max_length}; use overflow='window' to read all of it, or split it"
            )
        elif self.overflow == "truncate":
            sequence, kept = self._truncate(text, role, number, sequence, whole)
            jobs = [Job(sequence, sequence.text)]
        else:
            spans = self._spans(text) if spans is None else spans
            copies = int(sequence.copies.max()) + 1
            blocks = self.layout.blocks and self.layout.blocks.settled(count, len(spans))
            overhead = len(sequence) - count * copies - (blocks.count(count, len(spans)) if blocks else 0)
            settled = replace(self, layout=replace(self.layout, blocks=blocks))
            jobs = settled._windows(text, role, number, whole, spans, (self.max_length - overhead) // copies, copies)
        read = whole.count_before(len(kept))
        wanted = spans if sentences else None
        if wanted is not None:
            wanted = np.minimum(wanted[wanted[:, 0] < len(kept)], len(kept))
        return Planned(jobs, len(jobs), count, count - read, wanted, None if wanted is None else whole.sizes(wanted))

    def _spans(self, text: str) -> Ints:
        found = self.segmenter.sentences(text)
        return np.array([(sentence.start, sentence.end) for sentence in found], np.int64).reshape(-1, 2)

    def _lay(self, text: str, role: TextRole, spans: Ints | None, begin: int = 0) -> Sequence:
        prompt = self.layout.fill(text, role, self.instructions[role], spans)
        sequence = self._arrange(prompt, self.tokenizer([prompt.string])[0])
        moved = sequence.starts >= 0
        return replace(sequence, starts=sequence.starts + begin * moved, ends=sequence.ends + begin * moved)

    def _truncate(
        self, text: str, role: TextRole, number: int, sequence: Sequence, whole: _Whole
    ) -> tuple[Sequence, str]:
        if self.layout.repetition is not None and self.layout.repetition.cut:
            sequence = shortened(sequence, self.max_length)
            if len(sequence.text) == 0:
                raise self._no_room(number)
            return sequence, text[: int(sequence.ends[sequence.text[-1]])]
        keep = min(len(whole.starts), self.max_length)
        while keep >= 1:
            kept = text[: int(whole.ends[keep - 1])]
            sequence = self._lay(kept, role, self._spans(kept) if self.layout.needs_sentences else None)
            excess = len(sequence) - self.max_length
            if excess <= 0:
                return sequence, kept
            keep -= max(1, excess // (int(sequence.copies.max()) + 1))
        raise self._no_room(number)

    def _windows(
        self, text: str, role: TextRole, number: int, whole: _Whole, spans: Ints, budget: int, copies: int
    ) -> list[Job]:
        for _ in range(REPLANS):
            blocks = self.layout.blocks
            room = blocks.room(budget) if blocks else budget
            if room < 1:
                break
            units = _split(spans, whole, text, room)
            begins = np.append(units[:, 0], len(text))
            begins[0] = 0
            sizes = [whole.count(a, b) for a, b in pairwise(begins.tolist())]
            costs = [size + (blocks.count(size, 1) if blocks else 0) for size in sizes]
            if max(costs) > budget:
                break
            chosen = windows.plan(costs, budget)
            sequences = [
                self._lay(
                    text[begins[w.first] : begins[w.last + 1]],
                    role,
                    units[w.first : w.last + 1] - begins[w.first],
                    int(begins[w.first]),
                )
                for w in chosen
            ]
            excess = max(len(sequence) for sequence in sequences) - self.max_length
            if excess <= 0:
                return _count_once(sequences, [(begins[w.first], begins[w.last + 1]) for w in chosen], text)
            budget -= -(-excess // copies)
        raise self._no_room(number)

    def _no_room(self, number: int) -> TextTooLong:
        return TextTooLong(
            f"text {number}: max_length={self.max_length} leaves no room for the text beside its prompt and "
            "placeholders; raise max_length or shorten the instruction"
        )


@dataclass(frozen=True, eq=False)
class _Whole:
    """Offsets of the text's tokens as the whole text is tokenized, one character at least, each of shape (tokens,)."""

    starts: Ints
    ends: Ints

    def count_before(self, end: int) -> int:
        # By the tokens' ends: one that brings the blank before a sentence along is that sentence's.
        return int(np.searchsorted(self.ends, end, side="right"))

    def count(self, start: int, end: int) -> int:
        return self.count_before(end) - self.count_before(start)

    def begin(self, token: int) -> int:
        """The first token of the character at which a token begins."""
        return self.count_before(int(self.starts[token]))

    def sizes(self, spans: Ints) -> Ints:
        found = owners(self.starts, self.ends, spans)
        return np.bincount(found[found >= 0], minlength=len(spans)).astype(np.int64)


def _shared(wordings: list[Planned]) -> Planned:
    """One plan out of those of several wordings, each of which has the same weight."""
    jobs = []
    for plan in wordings:
        total = sum(len(job.counted) for job in plan.jobs) * len(wordings)
        jobs += [replace(job, share=len(job.counted) / total) for job in plan.jobs]
    shortest = max(wordings, key=lambda plan: plan.truncated)
    return replace(shortest, jobs=jobs, windows=max(plan.windows for plan in wordings))


def _split(spans: Ints, whole: _Whole, text: str, budget: int) -> Ints:
    """Sentences, those of more tokens than the budget cut between tokens, after white space where there is any."""
    units: list[tuple[int, int]] = []
    nexts = np.append(spans[1:, 0], len(text))
    for at, (start, end) in enumerate(spans.tolist()):
        # The gap behind a sentence is read with it; the one before the first sentence too.
        begin = 0 if at == 0 else start
        first, last = whole.count_before(begin), whole.count_before(int(nexts[at]))
        while last - first > budget:
            # A character's tokens stay together: only the first of them may begin a unit.
            latest = whole.begin(first + budget)
            near = (c for c in range(latest, latest - budget // 4, -1) if _after_space(text, int(whole.starts[c])))
            cut = next((c for c in map(whole.begin, near) if c > first), latest)
            if cut <= first:  # One character takes more than the budget, which its cost will show.
                break
            units.append((start, int(whole.starts[cut])))
            start, first = int(whole.starts[cut]), cut
        units.append((start, max(end, start + 1)))
    return np.array(units, np.int64)


def _after_space(text: str, at: int) -> bool:
    return text[at].isspace() or text[at - 1].isspace()


def _count_once(sequences: list[Sequence], ranges: list[tuple[int, int]], text: str) -> list[Job]:
    """Share the text among its windows: a token that stands in two counts where it is further from the border."""
    begins = [_begins(sequence, text) for sequence in sequences]
    shared = zip(pairwise(begins), pairwise(ranges), strict=True)
    borders = [0, *(_border(left, right, int(begin), int(end)) for (left, right), ((_, end), (begin, _)) in shared)]
    jobs = []
    for sequence, own, (low, high) in zip(sequences, begins, pairwise([*borders, len(text) + 1]), strict=True):
        inside = (own >= low) & (own < high)
        if inside.any():
            jobs.append(Job(sequence, sequence.text[inside]))
    return jobs


def _begins(sequence: Sequence, text: str) -> Ints:
    """First character of each text token that is not blank; a token's first where all are, shape (tokens,)."""
    starts, ends = sequence.starts[sequence.text], sequence.ends[sequence.text]
    if len(starts) == 0:
        return starts
    low = int(starts[0])
    part = text[low : int(ends.max()) + 1]
    visible = np.array([len(text) if character.isspace() else at for at, character in enumerate(part, start=low)])
    following = np.minimum.accumulate(np.append(visible, len(text))[::-1])[::-1][starts - low]
    return np.where(following < ends, following, starts)


def _border(left: Ints, right: Ints, begin: int, end: int) -> int:
    """Where two windows that share the characters begin .. end part: as near the middle as both begin a token."""
    inside = right[(right >= begin) & (right < end)]
    middle = int(inside[(len(inside) + 1) // 2]) if len(inside) > 1 else end
    both = np.append(np.intersect1d(left, inside), end)
    return int(both[np.argmin(np.abs(both - middle))])
