"""Placeholders: before which token they are inserted, and whose state they get."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from eddy_embed.errors import InvalidParameter
from eddy_embed.parts.released import block_sources
from eddy_embed.text.sequence import Role, last_overlapping, owners
from eddy_embed.text.tokenizer import Tokens
from eddy_embed.utils.arrays import Ints

BlockSource = Literal["end", "released"]


@dataclass(frozen=True, eq=False)
class PlaceholderPositions:
    """Placeholders to insert: before which token, as what, and the token whose state they get; shape (inserts,)."""

    before: Ints
    roles: Ints
    sources: Ints

    @classmethod
    def none(cls) -> PlaceholderPositions:
        """Nothing to insert."""
        return cls(*(np.empty(0, np.int64) for _ in range(3)))

    @classmethod
    def of_text(cls, count: int, before: int, source: int) -> PlaceholderPositions:
        """Adjacent placeholders that all get one state."""
        return cls(*(np.full(count, value, np.int64) for value in (before, int(Role.PST), source)))


@dataclass(frozen=True)
class Blocks:
    """Placeholders of Hierarchical Token Prepending: K consecutive sentences, or N consecutive tokens, are a block.

    Attributes:
        sentences: K, the sentences of a block.
        every: N, the tokens of a block instead; "auto" for a text's tokens divided by its sentences, at least 1.
        local: Whether there is a PST before every block.
        summary: Whether the B-PSTs of all blocks come before the first block.
        source: The state that a block's placeholders get: "end", of the last token that overlaps its characters, or
            "released" (`released.block_sources`).

    Raises:
        InvalidParameter: K or N is below 1, both are given, neither kind of placeholder is wanted, or the source is
            unknown.
    """

    sentences: int = 1
    every: int | Literal["auto"] | None = None
    local: bool = True
    summary: bool = True
    source: BlockSource = "end"

    def __post_init__(self) -> None:
        if self.sentences < 1:
            raise InvalidParameter(f"k={self.sentences} must be at least 1")
        if isinstance(self.every, str) and self.every != "auto":
            raise InvalidParameter(f"every={self.every!r} must be a number of tokens, or auto")
        if isinstance(self.every, int) and self.every < 1:
            raise InvalidParameter(f"every={self.every} must be at least 1")
        if self.every is not None and self.sentences != 1:
            raise InvalidParameter(f"k={self.sentences} and every={self.every}: blocks are of sentences or of tokens")
        if not (self.local or self.summary):
            raise InvalidParameter("blocks need PST, B-PST or both; local_only and global_only exclude each other")
        if self.source not in get_args(BlockSource):
            raise InvalidParameter(
                f"source={self.source!r} is unknown; choose one of {', '.join(get_args(BlockSource))}"
            )

    @property
    def needs_sentences(self) -> bool:
        """Whether blocks depend on the text's sentences."""
        return not isinstance(self.every, int)

    def settled(self, tokens: int, sentences: int) -> Blocks:
        """The same blocks with "auto" replaced by tokens for each block of such a text."""
        return replace(self, every=max(1, tokens // max(sentences, 1))) if self.every == "auto" else self

    def count(self, tokens: int, sentences: int) -> int:
        """Placeholders of a text of so many tokens and sentences."""
        every = self.settled(tokens, sentences).every
        blocks = -(-tokens // every) if isinstance(every, int) else -(-sentences // self.sentences)
        return blocks * (int(self.local) + int(self.summary))

    def room(self, budget: int) -> int:
        """Most tokens of one sentence that fit in a budget with its placeholders; for settled blocks."""
        own = self.count(1, 1)
        return (budget - own) * self.every // (self.every + own) if isinstance(self.every, int) else budget - own

    def inserts(self, tokens: Tokens, own: Ints, sentences: Ints | None, length: int) -> PlaceholderPositions:
        """The placeholders of a sequence of this length, by the text's `own` tokens and its sentences in the prompt."""
        if self.needs_sentences and sentences is None:
            raise InvalidParameter("a layout with blocks needs the text's sentences")
        every = self.settled(len(own), 0 if sentences is None else len(sentences)).every
        if isinstance(every, int):
            before, sources = own[::every], np.append(own[every - 1 :: every], own[-1:])[: -(-len(own) // every)]
        else:
            before, sources = self._by_sentence(tokens, np.zeros((0, 2), np.int64) if sentences is None else sentences)
        if self.source == "released" and len(before):
            sources = block_sources(before, own, length)
        first = np.full(len(before), own[0] if len(own) else len(tokens.ids), np.int64)
        kinds = [(first, Role.BPST)] * self.summary + [(before, Role.PST)] * self.local
        return PlaceholderPositions(
            before=np.concatenate([index for index, _ in kinds]),
            roles=np.repeat([int(role) for _, role in kinds], len(before)),
            sources=np.tile(sources, len(kinds)),
        )

    def _by_sentence(self, tokens: Tokens, sentences: Ints) -> tuple[Ints, Ints]:
        """First and last token of each block."""
        firsts = sentences[:: self.sentences, 0]
        lasts = np.append(sentences[self.sentences - 1 :: self.sentences, 1], sentences[-1:, 1])[: len(firsts)]
        spans = np.stack([firsts, lasts], axis=1)
        sources = last_overlapping(tokens.starts, tokens.ends, spans)
        owner = owners(tokens.starts, tokens.ends, spans)
        owned, begins = np.unique(owner[owner >= 0], return_index=True)
        before = sources.copy() + 1
        before[owned] = np.flatnonzero(owner >= 0)[begins]
        kept = sources >= 0
        return before[kept], sources[kept]
