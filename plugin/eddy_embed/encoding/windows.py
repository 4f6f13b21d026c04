"""A text longer than the model's window: which sentences each window reads, and which tokens it accounts for."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial

import numpy as np

from eddy_embed.errors import TextTooLong
from eddy_embed.text.sequence import LazyWindow, Sequence, TokenOffsets, Window
from eddy_embed.utils.arrays import Ints

OVERLAP = 8
"""Consecutive windows share at most 1/OVERLAP of the budget."""


@dataclass(frozen=True)
class WindowRange:
    """Units `first` .. `last`, both included, read in one pass."""

    first: int
    last: int


def plan_windows(costs: Seq[int], budget: int) -> list[WindowRange]:
    """Ranges of whole units, of these costs in tokens, that fit the budget; consecutive ones overlap by whole units.

    Each begins and ends later than the one before it, and no unit is in more than two.
    """
    for unit, cost in enumerate(costs):
        if cost > budget:
            raise TextTooLong(f"unit {unit} takes {cost} tokens, more than the {budget} that fit in a window")
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
    """Spans of sentences, those over the budget of tokens cut between tokens, after white space if there is any."""
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


def count_once(
    lay: Callable[[int], Sequence], ranges: Seq[tuple[int, int]], text: str, keep: bool
) -> list[Window | LazyWindow]:
    """Assign tokens to windows, each token of an overlap where it is further from the border; leave out empty windows.

    `lay` lays out the window of a number, `ranges` are the characters that each window reads. No more than two windows
    are laid out at a time; with `keep`, they are kept, otherwise each is laid out again when it is run.
    """
    windows: list[Window | LazyWindow] = []
    low, sequence = 0, lay(0)
    begins = _begins(sequence, text)
    for number, (_, end) in enumerate(ranges):
        this, own, high = sequence, begins, len(text) + 1
        if number + 1 < len(ranges):
            sequence = lay(number + 1)
            begins = _begins(sequence, text)
            high = _border(own, begins, ranges[number + 1][0], end)
        counted = _counted(this, own, low, high)
        if len(counted):
            lazy = LazyWindow(len(this), len(counted), partial(_laid, lay, number, low, high, text))
            windows.append(Window(this, counted) if keep else lazy)
        low = high
    return windows


def _laid(lay: Callable[[int], Sequence], number: int, low: int, high: int, text: str) -> tuple[Sequence, Ints]:
    sequence = lay(number)
    return sequence, _counted(sequence, _begins(sequence, text), low, high)


def _counted(sequence: Sequence, begins: Ints, low: int, high: int) -> Ints:
    return sequence.text[(begins >= low) & (begins < high)]


def _begins(sequence: Sequence, text: str) -> Ints:
    """First visible character of each text token, its first character if it has none, shape (tokens,)."""
    starts, ends = sequence.starts[sequence.text], sequence.ends[sequence.text]
    if len(starts) == 0:
        return starts
    low = int(starts[0])
    part = text[low : int(ends.max()) + 1]
    visible = np.array([len(text) if character.isspace() else i for i, character in enumerate(part, start=low)])
    following = np.minimum.accumulate(np.append(visible, len(text))[::-1])[::-1][starts - low]
    return np.where(following < ends, following, starts)


def _border(left: Ints, right: Ints, begin: int, end: int) -> int:
    """The border of two windows that share characters begin .. end: both begin a token there, near the middle."""
    inside = right[(right >= begin) & (right < end)]
    middle = int(inside[(len(inside) + 1) // 2]) if len(inside) > 1 else end
    both = np.append(np.intersect1d(left, inside), end)
    return int(both[np.argmin(np.abs(both - middle))])
