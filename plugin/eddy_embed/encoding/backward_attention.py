"""States refined by watched attention: each token's state becomes a weighted sum of those that attended to it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch

from eddy_embed.encoding.batching import passes
from eddy_embed.model.attention import AttentionRecorder
from eddy_embed.parts.attention import BackwardAttention
from eddy_embed.parts.repetition import RepeatedPiece, Repetition, pieces
from eddy_embed.text.sequence import Ints, Sequence

Span = tuple[int, int]
Run = Callable[[list[Sequence], AttentionRecorder], object]


@dataclass(frozen=True, eq=False)
class StateMix:
    """What consecutive tokens of a sequence are made of.

    Attributes:
        row: Position of the first state.
        weights: Weight of each state in each token, shape (states, tokens).
    """

    row: int
    weights: torch.Tensor


@dataclass(frozen=True)
class Refiner:
    """Refines the states that a readout reads.

    Attributes:
        watch: The method's.
        repetition: Its layout's; with a length of piece, attention is watched in passes over the pieces.
        batch_tokens: Most tokens in one of these passes.
    """

    watch: BackwardAttention
    repetition: Repetition | None
    batch_tokens: int

    @property
    def by_pieces(self) -> bool:
        """Whether attention is watched in passes of their own."""
        return self.repetition is not None and self.repetition.piece is not None

    def watching(self, spans: Seq[Span]) -> AttentionRecorder:
        """The watch over a pass, of which these positions of each sequence are read."""
        columns = np.array(spans, np.int64)
        rows = columns[:, 0].copy()
        if self.watch.earlier:
            columns[:, 0] = 0
        return AttentionRecorder(rows, columns)

    def watched(self, watching: AttentionRecorder, count: int) -> list[list[StateMix]]:
        """The blocks of a watched pass over so many sequences."""
        return [[StateMix(*watching.weights(at, self.watch.earlier))] for at in range(count)]

    def pieced(self, sequences: Seq[Sequence], spans: list[Span], run: Run) -> list[list[StateMix]]:
        """The blocks of sequences whose pieces are watched alone (Duan et al. 2025, section 6).

        Args:
            sequences: The texts' own sequences.
            spans: Positions of each that are read.
            run: Runs sequences under a watch.
        """
        repetition = self.repetition or Repetition()
        cut = [
            (at, piece, (max(low, piece.start), min(high, piece.start + piece.size)))
            for at, (sequence, (low, high)) in enumerate(zip(sequences, spans, strict=True))
            for piece in pieces(sequence, repetition)
            if piece.start < high and low < piece.start + piece.size
        ]
        found: list[list[tuple[int, StateMix]]] = [[] for _ in sequences]
        for batch in passes([len(piece.sequence) for _, piece, _ in cut], self.batch_tokens, None):
            members = [cut[index] for index in batch]
            fronts = np.array([piece.front for _, piece, _ in members])
            starts = np.array([piece.start for _, piece, _ in members])
            watching = AttentionRecorder(
                fronts, np.array([read for _, _, read in members]) + (fronts - starts)[:, None]
            )
            run([piece.sequence for _, piece, _ in members], watching)
            for number, (at, piece, (low, _)) in enumerate(members):
                found[at].append((low, _folded(watching, number, piece)))
        return [[block for _, block in sorted(blocks, key=lambda each: each[0])] for blocks in found]

    def states(
        self, hidden: torch.Tensor, offsets: Ints, spans: Seq[Span], blocks: list[list[StateMix]]
    ) -> tuple[torch.Tensor, Ints]:
        """The refined states of what is read.

        Args:
            hidden: States of the packed sequences, shape (tokens, width).
            offsets: First token of every sequence and the total, shape (sequences + 1,).
            spans: Positions of each sequence that are read.
            blocks: What these are made of, in order.

        Returns:
            Their states, shape (read, width), with a column more for the sum of the weights where shares are wanted;
            and the index in them of each sequence's position 0, shape (sequences,).
        """
        refined = []
        for first, parts in zip(offsets.tolist(), blocks, strict=False):
            for block in parts:
                weights = block.weights.to(hidden.device)
                begin = first + block.row
                mixed = weights.T @ hidden[begin : begin + len(weights)].to(weights.dtype)
                if self.watch.share:
                    mixed = torch.cat([mixed, weights.sum(0).unsqueeze(1)], dim=1)
                refined.append(mixed)
        lows = np.array([low for low, _ in spans], np.int64)
        sizes = np.array([high - low for low, high in spans], np.int64)
        return torch.cat(refined), np.cumsum(sizes) - sizes - lows

    def shared(self, rows: torch.Tensor, totals: torch.Tensor) -> torch.Tensor:
        """Sums read out of refined states, their weights made to add up to these totals where shares are wanted."""
        return rows[:, :-1] / rows[:, -1:] * totals.unsqueeze(1) if self.watch.share else rows


def _folded(watching: AttentionRecorder, number: int, piece: RepeatedPiece) -> StateMix:
    """A piece's weights on its tokens: the states of a token's copies are its own."""
    _, weights = watching.weights(number, earlier=False)
    return StateMix(piece.start, weights.view(-1, piece.size, weights.shape[1]).sum(0))
