"""Plan texts: lay them out as token sequences, in windows where they are longer than the model's."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, cast

import numpy as np

from eddy_embed.errors import InvalidParameter, InvalidText, TextTooLong
from eddy_embed.parts.layout import Layout, PromptLayout, TextRole, shortened
from eddy_embed.text.sentences import Segmenter
from eddy_embed.text.sequence import LazyWindow, TokenOffsets, TokenSequence, Window
from eddy_embed.text.tokenizer import Tokenizer, Tokens
from eddy_embed.utils.arrays import Ints

OVERLAP = 8
"""Consecutive windows share at most 1/OVERLAP of the budget."""


@dataclass(frozen=True)
class WindowRange:
    """Units `first` .. `last`, both included, read in one pass."""

    first: int
    last: int


def plan_windows(costs: Seq[int], budget: int) -> list[WindowRange]:
    """Return ranges of whole units, of these costs in tokens, that fit the budget and overlap by whole units.

    Each begins and ends later than the one before it, and no unit is in more than two.
    """
    windows: list[WindowRange] = []
    first = 0
    while first < len(costs):
        last, total = first, costs[first]
        while last + 1 < len(costs) and total + costs[last + 1] <= budget:
            last += 1
            total += costs[last]
        windows.append(WindowRange(first, last))
        if last + 1 == len(costs):
            break
        # The next window must take in unit last+1, so the overlap shares the budget with it.
        room = min(budget // OVERLAP, budget - costs[last + 1])
        earliest = windows[-2].last + 1 if len(windows) > 1 else 0
        first = last + 1
        while first - 1 > max(windows[-1].first, earliest - 1) and room >= costs[first - 1]:
            first -= 1
            room -= costs[first]
    return windows


def split(spans: Ints, whole: TokenOffsets, text: str, budget: int) -> Ints:
    """Return sentences' spans, those over the budget cut between tokens, after white space if there is any."""
    units: list[tuple[int, int]] = []
    next_starts = np.append(spans[1:, 0], len(text)).tolist()
    for (start, end), next_start in zip(spans.tolist(), next_starts, strict=True):
        # The gap after a sentence is read with it, and the one before the first sentence.
        first, last = whole.count_before(start if units else 0), whole.count_before(next_start)
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


def _after_space(text: str, index: int) -> bool:
    return text[index].isspace() or text[index - 1].isspace()


def assign_overlaps(
    lay: Callable[[int], TokenSequence], ranges: Seq[tuple[int, int]], text: str, keep: bool
) -> list[Window | LazyWindow]:
    """Assign tokens to windows, each token of an overlap where it is further from the border; leave out empty windows.

    `lay` lays out the window of a number, `ranges` are the characters that each window reads. No more than two windows
    are laid out at a time; with `keep`, they are kept, otherwise each is laid out again when it is run.
    """
    windows: list[Window | LazyWindow] = []
    low, sequence = 0, lay(0)
    begins = _begins(sequence, text)
    for number, (_, end) in enumerate(ranges):
        this, own_begins, high = sequence, begins, len(text) + 1
        if number + 1 < len(ranges):
            sequence = lay(number + 1)
            begins = _begins(sequence, text)
            high = _border(own_begins, begins, ranges[number + 1][0], end)
        counted = _counted(this, own_begins, low, high)
        if len(counted):
            lazy = LazyWindow(len(this), len(counted), partial(_laid, lay, number, low, high, text))
            windows.append(Window(this, counted) if keep else lazy)
        low = high
    return windows


def _laid(
    lay: Callable[[int], TokenSequence], number: int, low: int, high: int, text: str
) -> tuple[TokenSequence, Ints]:
    sequence = lay(number)
    return sequence, _counted(sequence, _begins(sequence, text), low, high)


def _counted(sequence: TokenSequence, begins: Ints, low: int, high: int) -> Ints:
    return sequence.text[(begins >= low) & (begins < high)]


def _begins(sequence: TokenSequence, text: str) -> Ints:
    """Return first visible character of each text token, its first character if it has none, shape (tokens,)."""
    starts, ends = sequence.starts[sequence.text], sequence.ends[sequence.text]
    if len(starts) == 0:
        return starts
    low = int(starts[0])
    part = text[low : int(ends.max()) + 1]
    visible = np.array([len(text) if character.isspace() else i for i, character in enumerate(part, start=low)])
    following = np.minimum.accumulate(np.append(visible, len(text))[::-1])[::-1][starts - low]
    return np.where(following < ends, following, starts)


def _border(left: Ints, right: Ints, begin: int, end: int) -> int:
    """Return a border of windows that share characters begin .. end: both begin a token there, near the middle."""
    inside = right[(right >= begin) & (right < end)]
    middle = int(inside[(len(inside) + 1) // 2]) if len(inside) > 1 else end
    both = np.append(np.intersect1d(left, inside), end)
    return int(both[np.argmin(np.abs(both - middle))])


Overflow = Literal["window", "error", "truncate"]

ATTACHED = "{instruction}{prompt}"
"""The wording around an instruction that has its own blank, if it needs one."""
REPLANS = 20
"""Attempts at windows that fit, each with a smaller budget: a slice may have more tokens than it had in the whole."""
LONG = 2**16
"""Characters of a text beyond which it is counted before it is laid out, so that memory does not grow with it."""
SAMPLE = 64
"""Tokens of such a text that are laid out to count those of the wording around it."""


@dataclass(frozen=True, eq=False)
class TextPlan:
    """A text ready to run.

    Attributes:
        windows: Its windows, in each of the layout's wordings.
        window_count: Windows of the text in one wording.
        tokens: Number of the text's tokens.
        truncated: Tokens at its end that no window reads.
        spans: Rows (start, end) of its sentences, None if they were not needed, shape (sentences, 2).
        sizes: Tokens of each sentence, shape (sentences,).
        levels: Level of each sentence as a heading, 0 for none, shape (sentences,).
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
        prefix: Ids of the specials ahead of every sequence: the tokenizer's, or a start token.
        segmenter: Finds sentences, if blocks or windows need them.
        max_length: Most tokens in a sequence.
        overflow: What happens to longer texts.
        instructions: Instruction for each role, None for none.
        closed: Whether the tokenizer's specials follow the text, as encoders and fine-tuned embedders expect; they
            never follow a repeated text.
        attached: Roles whose instruction and prompt have nothing between them.
    """

    layout: Layout
    tokenizer: Tokenizer
    prefix: Ints
    segmenter: Segmenter
    max_length: int
    overflow: Overflow
    instructions: dict[TextRole, str | None]
    closed: bool = False
    attached: frozenset[TextRole] = frozenset()

    def __post_init__(self) -> None:
        repetition = self.layout.repetition
        if repetition is not None and repetition.piece is not None:
            tokens = len(self.prefix) + repetition.times * repetition.piece
            if tokens > self.max_length:
                raise InvalidParameter(
                    f"piece={repetition.piece}, {repetition.times} times, takes {tokens} tokens, more than "
                    f"max_length={self.max_length}; choose a smaller piece"
                )

    def plan(self, texts: Seq[str], role: TextRole, *, first: int = 0, sentences: bool = False) -> list[TextPlan]:
        """Plan texts, not blank and valid Unicode.

        Args:
            texts: The texts.
            role: Whether they are documents or queries.
            first: Index of the first text, for messages.
            sentences: Whether sentences are wanted even if the layout does not need them.

        Raises:
            InvalidText: A text has no tokens.
            TextTooLong: A text exceeds the window and `overflow` is "error", or the prompt alone exceeds it.
        """
        segmented = [self._sentences(text) if sentences or self.layout.needs_sentences else None for text in texts]
        spans = [None if both is None else both[0] for both in segmented]
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
            for plan, (_, levels) in zip(planned, cast("list[tuple[Ints, Ints]]", segmented), strict=True)
        ]

    def lengths(self, texts: Seq[str], role: TextRole) -> list[int]:
        """Return tokens of the sequence that each text would be if no length were too long, in its longest wording."""
        spans = [self._sentences(text)[0] if self.layout.needs_sentences else None for text in texts]
        wordings = [self._worded(layout) for layout in self.layout.wordings]
        return [
            max(len(wording._lay(text, role, rows)) for wording in wordings)
            for text, rows in zip(texts, spans, strict=True)
        ]

    def cuts(self, text: str) -> bool:
        """Return whether the end of a document would be cut."""
        return self.overflow == "truncate" and self.lengths([text], "document")[0] > self.max_length

    def _plan_wording(
        self,
        texts: Seq[str],
        role: TextRole,
        first: int,
        spans: Seq[Ints | None],
        wholes: Seq[TokenOffsets | None],
        sentences: bool,
    ) -> list[TextPlan]:
        usual = [index for index, whole in enumerate(wholes) if whole is None]
        prompts = [self._fill(texts[index], role, spans[index]) for index in usual]
        tokens = self.tokenizer([prompt.string for prompt in prompts])
        arranged = {
            index: self._arrange(prompt, read) for index, prompt, read in zip(usual, prompts, tokens, strict=True)
        }
        return [
            self._fit(text, role, first + index, arranged.get(index), wholes[index], spans[index], sentences)
            for index, text in enumerate(texts)
        ]

    def _worded(self, layout: Layout) -> Planner:
        return self if layout is self.layout else replace(self, layout=layout)

    def _beyond(self, text: str) -> TokenOffsets | None:
        """Return the tokens of a text that is too long to be laid out whole; None for others."""
        if len(text) <= LONG or self.overflow == "error":
            return None
        whole = TokenOffsets.of(*self.tokenizer.places(text))
        return whole if len(whole.starts) > self.max_length else None

    def _fill(self, text: str, role: TextRole, spans: Ints | None) -> PromptLayout:
        layout = replace(self.layout, instructed=ATTACHED) if role in self.attached else self.layout
        return layout.fill(text, role, self.instructions[role], spans)

    def _arrange(self, prompt: PromptLayout, tokens: Tokens) -> TokenSequence:
        suffix = self.tokenizer.suffix.tolist() if self.closed and self.layout.repetition is None else []
        end = self.tokenizer.end if self.layout.may_end and not suffix else None
        return self.layout.arrange(prompt, tokens, self.prefix, end, suffix)

    def _fit(
        self,
        text: str,
        role: TextRole,
        number: int,
        sequence: TokenSequence | None,
        whole: TokenOffsets | None,
        spans: Ints | None,
        sentences: bool,
    ) -> TextPlan:
        """Plan a text from its sequence, or from its tokens if that would be far too long."""
        if sequence is not None:
            text_tokens = sequence.text
            whole = TokenOffsets.of(sequence.starts[text_tokens], sequence.ends[text_tokens])
        if whole is None or not len(whole.starts):
            raise InvalidText(f"text {number} ({text[:40]!r}) has no tokens in this model's vocabulary; drop it")
        text_read, count = text, len(whole.starts)
        windows: list[Window | LazyWindow]
        if sequence is not None and len(sequence) <= self.max_length:
            windows = [Window(sequence, sequence.text)]
        elif self.overflow == "error":
            tokens = len(cast("TokenSequence", sequence))
            raise TextTooLong(
                f"text {number} ({text[:40]!r}) takes {tokens} tokens, {tokens - self.max_length} more than "
                f"max_length={self.max_length}; use overflow='window' to read all of it, or split it"
            )
        elif self.overflow == "truncate":
            sequence, text_read = self._truncate(text, role, number, whole)
            windows = [Window(sequence, sequence.text)]
        else:
            spans = self._sentences(text)[0] if spans is None else spans
            blocks = self.layout.blocks and self.layout.blocks.settled(count, len(spans))
            settled = replace(self, layout=replace(self.layout, blocks=blocks))
            windows = settled._windows(
                text, role, number, whole, spans, *settled._budget(text, role, sequence, whole, spans)
            )
        cut = count - whole.count_before(len(text_read))
        if spans is None or not sentences:
            return TextPlan(windows, len(windows), count, cut, None, None)
        spans = _within(spans, len(text_read))
        return TextPlan(windows, len(windows), count, cut, spans, whole.sizes(spans))

    def _budget(
        self, text: str, role: TextRole, sequence: TokenSequence | None, whole: TokenOffsets, spans: Ints
    ) -> tuple[int, int]:
        """Return tokens that each copy of the text may take in a window, and the number of copies."""
        if sequence is None:
            # The beginning of the text has the same wording around it.
            begin = text[: max(int(whole.ends[min(SAMPLE, len(whole.ends)) - 1]), int(spans[0, 1]))]
            spans = _within(spans, len(begin))
            sequence = self._lay(begin, role, spans)
        count, copies, blocks = len(sequence.text), int(sequence.copies.max()) + 1, self.layout.blocks
        around = len(sequence) - count * copies - (blocks.count(count, len(spans)) if blocks else 0)
        return (self.max_length - around) // copies, copies

    def _sentences(self, text: str) -> tuple[Ints, Ints]:
        """Return rows (start, end) of the sentences, shape (sentences, 2), and their levels as headings."""
        rows = [(sentence.start, sentence.end, sentence.level) for sentence in self.segmenter.sentences(text)]
        columns = np.array(rows, np.int64).reshape(-1, 3)
        return columns[:, :2], columns[:, 2]

    def _lay(self, text: str, role: TextRole, spans: Ints | None, begin: int = 0) -> TokenSequence:
        prompt = self._fill(text, role, spans)
        sequence = self._arrange(prompt, self.tokenizer([prompt.string])[0])
        shift = begin * (sequence.starts >= 0)
        return replace(sequence, starts=sequence.starts + shift, ends=sequence.ends + shift)

    def _truncate(self, text: str, role: TextRole, number: int, whole: TokenOffsets) -> tuple[TokenSequence, str]:
        if self.layout.repetition is not None and self.layout.repetition.cut:
            # More than can stay: tokens at the end of a slice may differ from those in the whole text.
            most = int(whole.ends[min(2 * self.max_length + SAMPLE, len(whole.ends)) - 1])
            sequence = shortened(self._lay(text[:most], role, None), self.max_length)
            if len(sequence.text) == 0:
                raise self._no_room(number)
            return sequence, text[: int(sequence.ends[sequence.text[-1]])]
        keep = min(len(whole.starts), self.max_length)
        while keep >= 1:
            part = text[: int(whole.ends[keep - 1])]
            sequence = self._lay(part, role, self._sentences(part)[0] if self.layout.needs_sentences else None)
            excess = len(sequence) - self.max_length
            if excess <= 0:
                return sequence, part
            keep -= max(1, excess // (int(sequence.copies.max()) + 1))
        raise self._no_room(number)

    def _windows(
        self, text: str, role: TextRole, number: int, whole: TokenOffsets, spans: Ints, budget: int, copies: int
    ) -> list[Window | LazyWindow]:
        blocks = self.layout.blocks
        for _ in range(REPLANS):
            room = blocks.room(budget) if blocks else budget
            if room < 1:
                break
            units = split(spans, whole, text, room)
            begins = [0, *units[1:, 0].tolist(), len(text)]
            sizes = np.diff([whole.count_before(begin) for begin in begins]).tolist()
            costs = [size + (blocks.count(size, 1) if blocks else 0) for size in sizes]
            if max(costs) > budget:
                break
            chosen = plan_windows(costs, budget)
            ranges = [(begins[window.first], begins[window.last + 1]) for window in chosen]
            slices = [units[window.first : window.last + 1] for window in chosen]
            lay = partial(self._window, text, role, ranges, slices)
            windows = assign_overlaps(lay, ranges, text, keep=len(text) <= LONG)
            excess = max(window.length for window in windows) - self.max_length
            if excess <= 0:
                return windows
            budget -= -(-excess // copies)
        raise self._no_room(number)

    def _window(
        self, text: str, role: TextRole, ranges: list[tuple[int, int]], units: list[Ints], number: int
    ) -> TokenSequence:
        begin, end = ranges[number]
        return self._lay(text[begin:end], role, units[number] - begin, begin)

    def _no_room(self, number: int) -> TextTooLong:
        return TextTooLong(
            f"text {number}: max_length={self.max_length} leaves no room for the text beside its prompt and "
            "placeholders; raise max_length or shorten the instruction"
        )


def _shared(wordings: list[TextPlan]) -> TextPlan:
    """Return one plan out of those of several wordings, each of which has the same weight."""
    windows = []
    for plan in wordings:
        total = sum(window.count for window in plan.windows) * len(wordings)
        windows += [replace(window, share=window.count / total) for window in plan.windows]
    shortest = max(wordings, key=lambda plan: plan.truncated)
    return replace(shortest, windows=windows, window_count=max(plan.window_count for plan in wordings))


def _within(spans: Ints, end: int) -> Ints:
    """Return the sentences of the text up to a character, the last perhaps cut."""
    return np.minimum(spans[spans[:, 0] < end], end)
