"""Attention watched beside its kernel: for chosen columns, the largest that any layer and head paid, row by row.

Nothing of the size of a layer's attention is ever held. A kernel leaves the logarithm of each row's softmax
denominator; with it, any entry of the attention can be computed again from its query and its key alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from eddy_embed.errors import InterventionDidNotRun
from eddy_embed.model.attention.blocked import SCORES, capped, unseen
from eddy_embed.model.attention.groups import Group
from eddy_embed.model.attention.traits import AttentionSpec
from eddy_embed.text.sequence import Ints

CACHED = 2**19
"""Scores that are held at once on a processor: more of them leave its caches, and every one is touched three times."""


class AttentionWatcher(Protocol):
    """Is told of every layer's attention in a pass."""

    def begin(self, groups: Sequence[Group], offsets: Ints) -> None:
        """A pass begins, over groups of packed sequences; see `AttentionRecorder`."""

    def see(
        self,
        number: int,
        query: torch.Tensor,
        key: torch.Tensor,
        mass: torch.Tensor,
        members: Group,
        traits: AttentionSpec,
        bias: torch.Tensor | None,
        paid: torch.Tensor | None,
    ) -> None:
        """One layer's attention of one group.

        Args:
            number: Which group; a layer shows all groups before the next layer shows its first.
            query: Shape (sequences, heads, tokens, head width).
            key: Shape (sequences, key-value heads, tokens, head width).
            mass: Logarithm of each row's denominator, further entries included, shape (sequences, heads, tokens).
            members: The group.
            traits: What the layer does to its logits.
            bias: On its logits, as in `between`, None for none.
            paid: What each row pays to further entries, shape (sequences, heads, tokens); None where there are none.
        """


class AttentionRecorder:
    """One pass's watch over a rectangle of each sequence's attention: rows from one on, to the end, and some columns.

    Attributes:
        first_rows: First row of each rectangle, shape (sequences,).
        columns: First column and the one after the last, shape (sequences, 2).
    """

    def __init__(self, first_rows: Ints, columns: Ints) -> None:
        """Nothing seen yet."""
        self.first_rows, self.columns = first_rows, columns
        self._groups: list[_Rectangles] = []
        self._places: dict[int, tuple[int, int]] = {}

    def begin(self, groups: Sequence[Group], offsets: Ints) -> None:
        """Make room for a pass over groups of packed sequences.

        Args:
            groups: The sequences, as the kernels will have them.
            offsets: First token of every sequence and the total, shape (sequences + 1,).

        Raises:
            InterventionDidNotRun: The groups hold other sequences.
        """
        lengths = np.diff(offsets)
        self._groups, self._places = [], {}
        for number, members in enumerate(groups):
            sequences = np.searchsorted(offsets, members.rows[:, 0].cpu().numpy())
            sides = (self.first_rows, lengths, self.columns[:, 0], self.columns[:, 1])
            bounds = np.stack([side[sequences] for side in sides], axis=1)
            self._groups.append(_Rectangles.over(bounds, members.rows.device))
            self._places.update({int(s): (number, at) for at, s in enumerate(sequences)})
        if len(self._places) != len(lengths):
            raise InterventionDidNotRun(f"the pass has {len(lengths)} sequences, its groups {len(self._places)}")

    def see(
        self,
        number: int,
        query: torch.Tensor,
        key: torch.Tensor,
        mass: torch.Tensor,
        members: Group,
        traits: AttentionSpec,
        bias: torch.Tensor | None = None,
        paid: torch.Tensor | None = None,
    ) -> None:
        """Watch one layer's attention of one group; see `AttentionWatcher` for the arguments."""
        self._groups[number].see(query, key, mass, members, traits)

    def weights(self, sequence: int, earlier: bool) -> tuple[int, torch.Tensor]:
        """What the watched tokens' states are made of.

        Args:
            sequence: Which sequence.
            earlier: Whether tokens before a watched one count too.

        Returns:
            First row, and A[column, row], shape (rows, columns).
        """
        number, at = self._places[sequence]
        held = self._groups[number]
        if held.largest is None:
            raise InterventionDidNotRun("attention was to be watched, but no layer ran")
        first, bottom, left, right = held.bounds[at].tolist()
        rows, columns = bottom - first, right - left
        seen = held.largest[at, :rows, :columns]
        own = torch.arange(max(first, left), min(first + rows, left + columns), device=seen.device)
        # Symmetrised, an entry off the diagonal is half of one attention: the other half is what no token may see.
        seen /= 2
        seen[own - first, own - left] *= 2
        if not earlier:
            return first, seen
        watched = columns - (first - left)
        whole = seen.new_zeros(first + rows, watched)
        whole[first:] = seen[:, first - left :]
        before = seen[:watched].clone()
        before[own - first, own - left] = 0
        whole[left : left + columns] += before.T
        return 0, whole


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

    def see(
        self, query: torch.Tensor, key: torch.Tensor, mass: torch.Tensor, members: Group, traits: AttentionSpec
    ) -> None:
        batch, heads, _, width = query.shape
        shared = key.shape[1]
        first_row, _, first_column, end_column = self.bounds.T
        rows, columns = self.rows.to(query.device), self.columns.to(query.device)
        count = columns.shape[1]
        if self.largest is None:
            self.largest = mass.new_zeros(batch, rows.shape[1], count)
        self.largest = self.largest.to(query.device)
        k = key.gather(2, columns[:, None, :, None].expand(-1, shared, -1, width)).to(mass.dtype).transpose(-1, -2)
        step = max(1, (CACHED if query.device.type == "cpu" else SCORES) // (batch * heads * count))
        for start in range(0, rows.shape[1], step):
            if traits.window is not None and (first_row + start - end_column).min() + 1 >= traits.window:
                break
            at = rows[:, start : start + step]
            # No row of the block sees a column behind its own.
            reach = min(count, int((first_row + start + at.shape[1] - first_column).max()))
            q = query.gather(2, at[:, None, :, None].expand(-1, heads, -1, width)).to(mass.dtype) * traits.scale
            # Heads that share keys are rows of one product, for which the keys need not be repeated.
            scores = capped(q.view(batch, shared, -1, width) @ k[..., :reach], traits).view(batch, heads, -1, reach)
            if members.factor != 1:
                scores *= members.factor
            scores -= mass.gather(2, at[:, None].expand(-1, heads, -1)).unsqueeze(-1)
            distance = at[:, :, None] - columns[:, None, :reach]
            paid = scores.amax(1).masked_fill(unseen(distance, traits), float("-inf")).exp()
            held = self.largest[:, start : start + step, :reach]
            torch.maximum(held, paid, out=held)
