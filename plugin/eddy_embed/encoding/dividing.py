"""A text and its tokens: counted, divided into units that windows are made of, and shared among the windows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from eddy_embed.encoding.job import Job, Later
from eddy_embed.text.sequence import owners

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Sequence as Seq

    from eddy_embed.text.sequence import Ints, Sequence


@dataclass(frozen=True, eq=False)
class Whole:
    """Offsets of the text's tokens as the whole text is tokenized, one character at least, each of shape (tokens,)."""

    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, starts: Ints, ends: Ints) -> Whole:
        """Tokens of which some may have no width."""
        return cls(starts, np.maximum(ends, starts + 1))

    def count_before(self, end: int) -> int:
        """Tokens that end at a character or before."""
        # By the tokens' ends: one that brings the blank before a sentence along is that sentence's.
        return int(np.searchsorted(self.ends, end, side="right"))

    def count(self, start: int, end: int) -> int:
        """Tokens that end behind one character, and at another or before."""
        return self.count_before(end) - self.count_before(start)

    def begin(self, token: int) -> int:
        """The first token of the character at which a token begins."""
        return self.count_before(int(self.starts[token]))

    def sizes(self, spans: Ints) -> Ints:
        """Tokens of each span, shape (spans,)."""
        found = owners(self.starts, self.ends, spans)
        return np.bincount(found[found >= 0], minlength=len(spans)).astype(np.int64)


def split(spans: Ints, whole: Whole, text: str, budget: int) -> Ints:
    """Sentences, those of more tokens than the budget cut between tokens, after white space where there is any.

    Args:
        spans: Rows (start, end) of the sentences, shape (sentences, 2).
        whole: The text's tokens.
        text: The text.
        budget: Most tokens in a unit.
    """
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


def count_once(
    lay: Callable[[int], Sequence], ranges: Seq[tuple[int, int]], text: str, keep: bool
) -> list[Job | Later]:
    """Share the text among its windows: a token that stands in two counts where it is further from the border.

    No more than two windows are laid out at a time.

    Args:
        lay: Lays the window of a number out.
        ranges: The characters that each window reads, in order.
        text: The whole text.
        keep: Whether the windows stay as they are laid out here.

    Returns:
        The windows that answer for any token.
    """
    found: list[Job | Later] = []
    low, sequence = 0, lay(0)
    begins = _begins(sequence, text)
    for at, (_, end) in enumerate(ranges):
        this, own, high = sequence, begins, len(text) + 1
        if at + 1 < len(ranges):
            sequence = lay(at + 1)
            begins = _begins(sequence, text)
            high = _border(own, begins, ranges[at + 1][0], end)
        counted = _counted(this, own, low, high)
        if len(counted):
            later = Later(len(this), len(counted), partial(_laid, lay, at, low, high, text))
            found.append(Job(this, counted) if keep else later)
        low = high
    return found


def _laid(lay: Callable[[int], Sequence], at: int, low: int, high: int, text: str) -> tuple[Sequence, Ints]:
    sequence = lay(at)
    return sequence, _counted(sequence, _begins(sequence, text), low, high)


def _counted(sequence: Sequence, begins: Ints, low: int, high: int) -> Ints:
    return sequence.text[(begins >= low) & (begins < high)]


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
