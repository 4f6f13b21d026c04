"""Attention observed while kernels compute it: in chosen columns, the largest that any layer and head paid in each row.

Nothing of the size of a layer's attention is ever held. From the log-sum-exp that a kernel gives for each row, any
entry of the attention can be recomputed from its query and its key alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from eddy_embed.errors import InterventionDidNotRun
from eddy_embed.model.attention.blocked import SCORES, capped, unseen
from eddy_embed.model.attention.groups import Group
from eddy_embed.model.attention.spec import AttentionSpec
from eddy_embed.utils.arrays import Ints

CACHED = 2**19
"""Scores that are held at once on a processor: more of them leave its caches, and every one is touched three times."""


class AttentionRecorder:
    """Records a rectangle of each sequence's attention: from a first row on, columns of shape (sequences, 2)."""

    def __init__(self, first_rows: Ints, columns: Ints, last_layer_only: bool = False) -> None:
        self.first_rows, self.columns, self.last_layer_only = first_rows, columns, last_layer_only
        self._groups: list[_Rectangles] = []
        self._index: dict[int, tuple[int, int]] = {}  # of a sequence: its group, and its index there

    def begin(self, groups: Sequence[Group], offsets: Ints) -> None:
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
        """First row, and A[column, row] of the recorded tokens of a sequence, shape (rows, columns).

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
