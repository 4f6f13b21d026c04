"""Token sequences as flat arrays: what a pass reads, where each token comes from, and which states are copied."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from eddy_embed.utils.arrays import Ints

PLACEHOLDER_ID = -1
"""Id of a position whose embedding is a placeholder's value and not a row of the vocabulary."""


class Role(IntEnum):
    """What a token is: the tokenizer's special, prompt (or instruction), text, or one of two kinds of placeholder.

    PST is before the text or before its block; B-PSTs, one for each block, are before the first block.
    """

    SPECIAL = 0
    PROMPT = 1
    TEXT = 2
    PST = 3
    BPST = 4


@dataclass(frozen=True, eq=False)
class TokenSequence:
    """One sequence of n tokens.

    Attributes:
        ids: Vocabulary ids, shape (n,); `PLACEHOLDER_ID` at placeholders.
        roles: `Role` of each token, shape (n,).
        starts: Character where the token begins in the source text, shape (n,); -1 where the token is not text.
        ends: Character after the token's last, shape (n,); -1 where the token is not text.
        copies: Which copy of the text the token belongs to, shape (n,); -1 where the token is not text.
        edges: Rows (destination, source) of states to copy between layers, shape (edges, 2).
        first: Whether the first copy of the text is read instead of the last.
    """

    ids: Ints
    roles: Ints
    starts: Ints
    ends: Ints
    copies: Ints
    edges: Ints
    first: bool = False

    def __len__(self) -> int:
        """Return number of tokens, placeholders and specials included."""
        return len(self.ids)

    @property
    def text(self) -> Ints:
        """Positions of the text's tokens, in the copy that is read if there are several."""
        if self.copies.size == 0:
            return np.empty(0, np.int64)
        read = 0 if self.first else self.copies.max()
        return np.flatnonzero((self.roles == Role.TEXT) & (self.copies == read))


@dataclass(frozen=True, eq=False)
class Window:
    """A sequence to run, the positions of the text tokens it accounts for, and its share of those in the text."""

    sequence: TokenSequence
    counted: Ints
    share: float = 1.0

    @property
    def length(self) -> int:
        """Tokens of its sequence."""
        return len(self.sequence)

    @property
    def count(self) -> int:
        """Text tokens that it accounts for."""
        return len(self.counted)

    def materialize(self) -> Window:
        """Return the window itself."""
        return self


@dataclass(frozen=True, eq=False)
class LazyWindow:
    """A window that `lay` lays out when it is run, so that memory does not grow with the text."""

    length: int
    count: int
    lay: Callable[[], tuple[TokenSequence, Ints]]
    share: float = 1.0

    @property
    def sequence(self) -> TokenSequence:
        """Its tokens, laid out anew."""
        return self.lay()[0]

    @property
    def counted(self) -> Ints:
        """Positions of the text tokens that it accounts for, laid out anew."""
        return self.lay()[1]

    def materialize(self) -> Window:
        """Return the same with its sequence."""
        return Window(*self.lay(), self.share)


@dataclass(frozen=True, eq=False)
class Packed:
    """Sequences one after another, without padding: token i of sequence b is at `offsets[b] + i`.

    Attributes:
        ids: Vocabulary ids, shape (tokens,); 0 at placeholders.
        positions: Position of each token in its own sequence, shape (tokens,).
        offsets: First token of every sequence and the total, shape (sequences + 1,).
        edges: Rows (destination, source), indices into the packed tokens, shape (edges, 2).
        placeholders: Rows (index, kind), kind 0 for PST and 1 for B-PST, shape (placeholders, 2).
    """

    ids: Ints
    positions: Ints
    offsets: Ints
    edges: Ints
    placeholders: Ints


def pack(sequences: Seq[TokenSequence]) -> Packed:
    """Concatenate sequences."""
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    ids = np.concatenate([sequence.ids for sequence in sequences])
    roles = np.concatenate([sequence.roles for sequence in sequences])
    positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    edges = np.concatenate([s.edges + first for s, first in zip(sequences, offsets[:-1], strict=True)])
    index = np.flatnonzero(ids == PLACEHOLDER_ID)
    placeholders = np.stack([index, (roles[index] == Role.BPST).astype(np.int64)], axis=1)
    return Packed(np.where(ids == PLACEHOLDER_ID, 0, ids), positions, offsets, edges, placeholders)


def passes(lengths: Seq[int], batch_tokens: int, batch_size: int | None) -> list[list[int]]:
    """Return the sequences of each pass, longest first, so that memory runs out at the start or not at all."""
    # Sequences of similar length come together, which is what attention wants; nothing is padded.
    batches: list[list[int]] = []
    total = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        full = batch_size is not None and bool(batches) and len(batches[-1]) >= batch_size
        if not batches or full or total + lengths[index] > batch_tokens:
            batches.append([])
            total = 0
        batches[-1].append(index)
        total += lengths[index]
    return batches


def without_placeholders(ids: Ints) -> TokenSequence:
    """Return a sequence of text tokens alone, shape (tokens,)."""
    none = np.full(len(ids), -1, np.int64)
    return TokenSequence(ids, np.full(len(ids), int(Role.TEXT), np.int64), none, none, none, np.empty((0, 2), np.int64))


def padded_rows(packed: Packed, rows: Ints) -> Packed:
    """Pad some packed sequences to one length; `rows` index their tokens, shape (sequences, longest)."""
    flat = rows.reshape(-1)
    new_index = np.full(packed.offsets[-1], -1, np.int64)
    new_index[flat[::-1]] = np.arange(len(flat))[::-1]  # the first one of a token that is repeated
    edges = new_index[packed.edges]
    placeholders = np.stack([new_index[packed.placeholders[:, 0]], packed.placeholders[:, 1]], axis=1)
    return Packed(
        ids=packed.ids[flat],
        positions=packed.positions[flat],
        offsets=np.arange(len(rows) + 1) * rows.shape[1],
        edges=edges[(edges >= 0).all(axis=1)],
        placeholders=placeholders[placeholders[:, 0] >= 0],
    )


def owners(starts: Ints, ends: Ints, spans: Ints) -> Ints:
    """Return index of the first span whose characters each token overlaps, -1 for none, shape (tokens,).

    Spans are ordered and disjoint, so a token across a border belongs to the left one. A token of no width counts as
    one character.
    """
    if len(spans) == 0:
        return np.full(len(starts), -1, np.int64)
    first = np.searchsorted(spans[:, 1], starts, side="right")
    inside = np.minimum(first, len(spans) - 1)
    overlaps = (first < len(spans)) & (spans[inside, 0] < np.maximum(ends, starts + 1))
    return np.where(overlaps, inside, -1)


def last_overlapping(starts: Ints, ends: Ints, spans: Ints) -> Ints:
    """Return the last token that overlaps each span, or -1, shape (spans,); starts do not decrease."""
    last = np.searchsorted(starts, spans[:, 1], side="left") - 1
    clipped = np.maximum(last, 0)
    overlaps = (last >= 0) & (np.maximum(ends, starts + 1)[clipped] > spans[:, 0])
    return np.where(overlaps, last, -1)


@dataclass(frozen=True, eq=False)
class TokenOffsets:
    """Offsets of the text's tokens as the whole text is tokenized, one character at least, each of shape (tokens,)."""

    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, starts: Ints, ends: Ints) -> TokenOffsets:
        """Return offsets of tokens of which some may have no width."""
        return cls(starts, np.maximum(ends, starts + 1))

    def count_before(self, end: int) -> int:
        """Return tokens that end at a character or before."""
        # By the tokens' ends: one that includes the blank before a sentence is that sentence's.
        return int(np.searchsorted(self.ends, end, side="right"))

    def begin(self, token: int) -> int:
        """Return the first token of the character at which a token begins."""
        return self.count_before(int(self.starts[token]))

    def sizes(self, spans: Ints) -> Ints:
        """Return tokens of each span, shape (spans,)."""
        owner = owners(self.starts, self.ends, spans)
        return np.bincount(owner[owner >= 0], minlength=len(spans)).astype(np.int64)
