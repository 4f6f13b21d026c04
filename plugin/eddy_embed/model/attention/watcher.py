"""Record attention while a pass runs, and refine states by it (ReBA, Duan et al. 2025, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch

from eddy_embed.errors import InterventionDidNotRun
from eddy_embed.model.attention.blocked import SCORES, AttentionSpec, Group, capped, unseen
from eddy_embed.parts.attention import BackwardAttention
from eddy_embed.parts.layout import Repetition, pieces
from eddy_embed.text.sequence import TokenSequence, passes
from eddy_embed.utils.arrays import Ints

CACHED = 2**19
"""Scores that are held at once on a processor: more of them leave its caches, and every one is touched three times."""


class AttentionRecorder:
    """Records a rectangle of each sequence's attention: from a first row on, columns of shape (sequences, 2)."""

    def __init__(self, first_rows: Ints, columns: Ints, last_layer_only: bool = False) -> None:
        self.first_rows, self.columns, self.last_layer_only = first_rows, columns, last_layer_only
        self._groups: list[_Rectangles] = []
        self._index: dict[int, tuple[int, int]] = {}  # of a sequence: its group, and its index there

    def begin(self, groups: Seq[Group], offsets: Ints) -> None:
        """Begin a pass over groups of packed sequences, with these offsets, shape (sequences + 1,)."""
        lengths = np.diff(offsets)
        self._groups, self._index = [], {}
        sides = np.column_stack([self.first_rows, lengths, self.columns])
        for number, members in enumerate(groups):
            sequences = np.searchsorted(offsets, members.rows[:, 0].cpu().numpy())
            self._groups.append(_Rectangles.over(sides[sequences], members.rows.device))
            self._index.update({int(sequence): (number, index) for index, sequence in enumerate(sequences)})
        if len(self._index) != len(lengths):
            raise InterventionDidNotRun(f"the pass has {len(lengths)} sequences, its groups {len(self._index)}")

    def on_attention(
        self,
        number: int,
        query: torch.Tensor,
        key: torch.Tensor,
        lse: torch.Tensor,
        members: Group,
        spec: AttentionSpec,
    ) -> None:
        """Record one layer's attention of one group.

        Args:
            number: Which group; a layer shows all groups before the next layer shows its first.
            query: Shape (sequences, heads, tokens, head width).
            key: Shape (sequences, key-value heads, tokens, head width).
            lse: Log-sum-exp of each row's logits, extra entries included, shape (sequences, heads, tokens).
            members: The group.
            spec: What the layer does to its logits.
        """
        self._groups[number].record(query, key, lse, members, spec)

    def weights(self, sequence: int, earlier: bool) -> tuple[int, torch.Tensor]:
        """Return first row, and A[column, row] of the recorded tokens of a sequence, shape (rows, columns).

        With `earlier`, tokens before a recorded one count too.
        """
        number, index = self._index[sequence]
        recorded = self._groups[number]
        if recorded.largest is None:
            raise InterventionDidNotRun("attention was to be watched, but no layer ran")
        first, bottom, left, right = recorded.bounds[index].tolist()
        rows, columns = bottom - first, right - left
        weights = recorded.largest[index, :rows, :columns]
        own = torch.arange(max(first, left), min(first + rows, left + columns), device=weights.device)
        # Symmetrised, an entry off the diagonal is half of one attention: the other half is what no token may see.
        weights /= 2
        weights[own - first, own - left] *= 2
        if not earlier:
            return first, weights
        count = columns - (first - left)
        both = weights.new_zeros(first + rows, count)
        both[first:] = weights[:, first - left :]
        before = weights[:count].clone()
        before[own - first, own - left] = 0
        both[left : left + columns] += before.T
        return 0, both


@dataclass(eq=False)
class _Rectangles:
    """The rectangles of one group, padded to the largest by repetition of the last row and column."""

    bounds: Ints
    """Rows (first row, end row, first column, end column), shape (sequences, 4)."""
    rows: torch.Tensor
    columns: torch.Tensor
    largest: torch.Tensor | None = None

    @classmethod
    def over(cls, bounds: Ints, device: torch.device) -> _Rectangles:
        def padded(first: Ints, end: Ints) -> torch.Tensor:
            steps = np.arange(int((end - first).max()))
            return torch.from_numpy(np.minimum(first[:, None] + steps, end[:, None] - 1)).to(device)

        return cls(bounds, padded(bounds[:, 0], bounds[:, 1]), padded(bounds[:, 2], bounds[:, 3]))

    def record(
        self, query: torch.Tensor, key: torch.Tensor, lse: torch.Tensor, members: Group, spec: AttentionSpec
    ) -> None:
        batch, heads, _, width = query.shape
        shared = key.shape[1]
        first_row, _, first_column, end_column = self.bounds.T
        rows, columns = self.rows.to(query.device), self.columns.to(query.device)
        count = columns.shape[1]
        if self.largest is None:
            self.largest = lse.new_zeros(batch, rows.shape[1], count)
        self.largest = self.largest.to(query.device)
        k = key.gather(2, columns[:, None, :, None].expand(-1, shared, -1, width)).to(lse.dtype).transpose(-1, -2)
        step = max(1, (CACHED if query.device.type == "cpu" else SCORES) // (batch * heads * count))
        for start in range(0, rows.shape[1], step):
            if spec.window is not None and (first_row + start - end_column).min() + 1 >= spec.window:
                break
            block = rows[:, start : start + step]
            # No row of the block sees a later column than its own.
            reach = min(count, int((first_row + start + block.shape[1] - first_column).max()))
            q = query.gather(2, block[:, None, :, None].expand(-1, heads, -1, width)).to(lse.dtype) * spec.scale
            # Heads that share keys are rows of one product, for which the keys need not be repeated.
            scores = capped(q.view(batch, shared, -1, width) @ k[..., :reach], spec).view(batch, heads, -1, reach)
            if members.factor != 1:
                scores *= members.factor
            scores -= lse.gather(2, block[:, None].expand(-1, heads, -1)).unsqueeze(-1)
            distance = block[:, :, None] - columns[:, None, :reach]
            largest = scores.amax(1).masked_fill(unseen(distance, spec), float("-inf")).exp()
            recorded = self.largest[:, start : start + step, :reach]
            torch.maximum(recorded, largest, out=recorded)


Span = tuple[int, int]
Run = Callable[[list[TokenSequence], AttentionRecorder], object]
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
        """Return the recorder of a pass of which these positions of each sequence are read."""
        columns = np.array(spans, np.int64)
        rows = columns[:, 0].copy()
        if self.watch.earlier:
            columns[:, 0] = 0
        return AttentionRecorder(rows, columns, self.watch.last_layer_only)

    def recorded(self, recorder: AttentionRecorder, count: int) -> list[list[StateMix]]:
        """Return what the tokens of each of so many sequences are made of, after a recorded pass."""
        return [[recorder.weights(number, self.watch.earlier)] for number in range(count)]

    def piecewise(self, sequences: Seq[TokenSequence], spans: list[Span], run: Run) -> list[list[StateMix]]:
        """Return the mixes of sequences whose pieces `run` runs by themselves (Duan et al. 2025, section 6)."""
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
        """Return refined states of the positions read, and the index in them of each sequence's position 0.

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
        """Return sums over refined states; their weights add up to `totals` if the method normalizes them."""
        return rows[:, :-1] / rows[:, -1:] * totals.unsqueeze(1) if self.watch.share else rows
