"""What is run for a text: a sequence, and the tokens that it answers for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddy_embed.text.sequence import Ints, Sequence


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

    @property
    def length(self) -> int:
        """Tokens of its sequence."""
        return len(self.sequence)

    @property
    def count(self) -> int:
        """Text tokens that it answers for."""
        return len(self.counted)

    def laid(self) -> Job:
        """The job itself."""
        return self


@dataclass(frozen=True, eq=False)
class Later:
    """A job that is laid out when it is run: all windows of a long text at once would take memory as it grows.

    Attributes:
        length: Tokens of its sequence.
        count: Text tokens that it answers for.
        lay: Gives its sequence and the positions of those.
        share: Its weight among the sequences of the text.
    """

    length: int
    count: int
    lay: Callable[[], tuple[Sequence, Ints]]
    share: float = 1.0

    @property
    def sequence(self) -> Sequence:
        """Its tokens, laid out anew."""
        return self.lay()[0]

    @property
    def counted(self) -> Ints:
        """Positions of the text tokens that it answers for, laid out anew."""
        return self.lay()[1]

    def laid(self) -> Job:
        """The same with its sequence."""
        return Job(*self.lay(), self.share)
