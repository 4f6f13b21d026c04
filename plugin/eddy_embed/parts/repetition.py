"""Several copies of the text's tokens, of which the first is read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eddy_embed.errors import InvalidParameter
from eddy_embed.text.sequence import Role, Sequence
from eddy_embed.utils.arrays import Ints


@dataclass(frozen=True)
class Repetition:
    """Number and form of the copies, before which there are only the tokenizer's specials and an instruction.

    Attributes:
        times: Number of copies of the text.
        joiner: String between the copies, which are then tokenized together; None: the ids of the tokenized text are
            repeated.
        piece: Tokens of a piece: the text is read once, and each piece is repeated by itself, in a sequence of its own;
            None: the whole text is repeated.
        cut: Whether truncation, if chosen, cuts the end of the last copy instead of the text itself.

    Raises:
        InvalidParameter: A number is below 1, or pieces are to be joined by a string.
    """

    times: int = 2
    joiner: str | None = None
    piece: int | None = None
    cut: bool = False

    def __post_init__(self) -> None:
        if self.times < 1:
            raise InvalidParameter(f"k={self.times} must be at least 1")
        if self.piece is not None and self.piece < 1:
            raise InvalidParameter(f"piece={self.piece} must be at least 1 token")
        if self.piece is not None and self.joiner is not None:
            raise InvalidParameter(
                f"piece={self.piece} repeats the ids of a piece, which joiner={self.joiner!r} would change; "
                "leave one out"
            )

    @property
    def template(self) -> str:
        """The wording that is tokenized."""
        if self.joiner is None:
            return "{text}"
        return self.joiner.replace("{", "{{").replace("}", "}}").join(["{text}"] * self.times)

    def apply(self, sequence: Sequence) -> Sequence:
        """The sequence with its text's tokens repeated, marked so that the first copy is read."""
        if self.joiner is None and self.piece is None:
            own = sequence.text
            after = np.arange(own[-1] + 1, len(sequence))
            order = np.concatenate([np.arange(own[-1] + 1), *[own] * (self.times - 1), after])
            copies = sequence.copies[order]
            copies[own[0] : own[0] + self.times * len(own)] = np.repeat(np.arange(self.times), len(own))
            sequence = _picked(sequence, order, copies)
        return replace(sequence, first=True)


def shortened(sequence: Sequence, length: int) -> Sequence:
    """The first `length` tokens of a sequence without edges."""
    return _picked(sequence, np.arange(length), sequence.copies[:length])


@dataclass(frozen=True, eq=False)
class RepeatedPiece:
    """A piece of a text: a sequence of `front` specials and the copies, where it starts in the text's own, its size."""

    sequence: Sequence
    start: int
    size: int
    front: int


def pieces(sequence: Sequence, repetition: Repetition) -> list[RepeatedPiece]:
    """The pieces of a text's own sequence, in order, each after the specials that precede the text."""
    size = repetition.piece or len(sequence)
    front = np.flatnonzero(sequence.roles == Role.SPECIAL)
    own = sequence.text
    repeated = []
    for first in range(0, len(own), size):
        run = own[first : first + size]
        order = np.concatenate([front, *[run] * repetition.times])
        copies = np.concatenate([np.full(len(front), -1, np.int64), np.repeat(np.arange(repetition.times), len(run))])
        repeated.append(RepeatedPiece(_picked(sequence, order, copies), int(run[0]), len(run), len(front)))
    return repeated


def _picked(sequence: Sequence, order: Ints, copies: Ints) -> Sequence:
    return replace(
        sequence,
        ids=sequence.ids[order],
        roles=sequence.roles[order],
        starts=sequence.starts[order],
        ends=sequence.ends[order],
        copies=copies,
    )
