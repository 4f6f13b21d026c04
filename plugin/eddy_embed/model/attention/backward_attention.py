"""States refined by recorded attention: each token's state becomes a weighted sum of those that attended to it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch

from eddy_embed.model.attention.watcher import AttentionRecorder
from eddy_embed.parts.attention import BackwardAttention
from eddy_embed.parts.repetition import Repetition, pieces
from eddy_embed.text.sequence import Sequence, passes
from eddy_embed.utils.arrays import Ints

Span = tuple[int, int]
Run = Callable[[list[Sequence], AttentionRecorder], object]
StateMix = tuple[int, torch.Tensor]
"""Position of the first of consecutive states, and their weights in consecutive tokens, shape (states, tokens)."""


@dataclass(frozen=True)
class Refiner:
    """Refines the states that a readout reads; attention is recorded in passes over pieces, if there are any."""

    watch: BackwardAttention
    repetition: Repetition | None
    batch_tokens: int

    @property
    def by_pieces(self) -> bool:
        """Whether attention is recorded in passes over pieces."""
        return self.repetition is not None and self.repetition.piece is not None

    def recorder(self, spans: Seq[Span]) -> AttentionRecorder:
        """The recorder of a pass of which these positions of each sequence are read."""
        columns = np.array(spans, np.int64)
        rows = columns[:, 0].copy()
        if self.watch.earlier:
            columns[:, 0] = 0
        return AttentionRecorder(rows, columns, self.watch.last_layer_only)

    def recorded(self, recorder: AttentionRecorder, count: int) -> list[list[StateMix]]:
        """What the tokens of each of so many sequences are made of, after a recorded pass."""
        return [[recorder.weights(number, self.watch.earlier)] for number in range(count)]

    def piecewise(self, sequences: Seq[Sequence], spans: list[Span], run: Run) -> list[list[StateMix]]:
        """The same for sequences whose pieces `run` runs, recorded by themselves (Duan et al. 2025, section 6)."""
        repetition = self.repetition or Repetition()
        read = [
            (owner, piece, (max(low, piece.start), min(high, piece.start + piece.size)))
            for owner, (sequence, (low, high)) in enumerate(zip(sequences, spans, strict=True))
            for piece in pieces(sequence, repetition)
            if piece.start < high and low < piece.start + piece.size
        ]
        mixes: list[dict[int, StateMix]] = [{} for _ in sequences]
        for batch in passes([len(piece.sequence) for _, piece, _ in read], self.batch_tokens, None):
            members = [read[index] for index in batch]
            fronts = np.array([piece.front for _, piece, _ in members])
            starts = np.array([piece.start for _, piece, _ in members])
            columns = np.array([span for _, _, span in members]) + (fronts - starts)[:, None]
            recorder = AttentionRecorder(fronts, columns, self.watch.last_layer_only)
            run([piece.sequence for _, piece, _ in members], recorder)
            for number, (owner, piece, (low, _)) in enumerate(members):
                # The states of a token's copies are its own.
                _, weights = recorder.weights(number, earlier=False)
                mixes[owner][low] = piece.start, weights.view(-1, piece.size, weights.shape[1]).sum(0)
        return [[parts[low] for low in sorted(parts)] for parts in mixes]

    def states(
        self, hidden: torch.Tensor, offsets: Ints, spans: Seq[Span], mixes: list[list[StateMix]]
    ) -> tuple[torch.Tensor, Ints]:
        """The refined states of the positions that are read, and the index in them of each sequence's position 0.

        Shape (read, width), with one more column for the sum of the weights if these are to be normalized.
        """
        refined = []
        for first, parts in zip(offsets.tolist(), mixes, strict=False):
            for row, recorded in parts:
                weights = recorded.to(hidden.device)
                mixed = weights.T @ hidden[first + row : first + row + len(weights)].to(weights.dtype)
                if self.watch.share:
                    mixed = torch.cat([mixed, weights.sum(0).unsqueeze(1)], dim=1)
                refined.append(mixed)
        bounds = np.array(spans, np.int64)
        sizes = bounds[:, 1] - bounds[:, 0]
        return torch.cat(refined), np.cumsum(sizes) - sizes - bounds[:, 0]

    def normalized(self, rows: torch.Tensor, totals: torch.Tensor) -> torch.Tensor:
        """Sums over refined states; their weights add up to `totals` if the method normalizes them."""
        return rows[:, :-1] / rows[:, -1:] * totals.unsqueeze(1) if self.watch.share else rows
