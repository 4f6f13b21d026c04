"""Sequences of like length, which share one call of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from eddy_embed.text.sequence import Ints

GROUP_WASTE = 1.25
"""Sequences share a fused call while the longest is at most this many times the shortest."""
ALONE = 32
"""Tokens for each thread beyond which a sequence stands alone on a processor: one call is work enough for its threads,
and nothing is gathered or filled up."""
VIEWED = ("cpu", "cuda")
"""Kinds of device whose kernels may be handed several sequences where they stand. Apple's read the queries of all but
the first wrongly in some versions of torch (its issue 181133)."""


@dataclass(frozen=True, eq=False)
class Group:
    """Sequences of like length that share one call.

    Attributes:
        rows: Index of each sequence's tokens, its last token repeated up to the longest, shape (sequences, longest).
        real: Index into the flattened rows of the tokens that are not repetitions, shape (tokens,).
        tokens: Index of the same tokens among the packed ones, shape (tokens,).
        run: First packed token and the one after the last, where there is one sequence, or where they are of one length
            and each follows the other: then nothing is gathered or repeated.
        factor: On the logits, after scale and cap.
        last: Column of each sequence's last token, shape (sequences,).
    """

    rows: torch.Tensor
    real: torch.Tensor
    tokens: torch.Tensor
    run: tuple[int, int] | None
    factor: float
    last: torch.Tensor

    def to(self, device: torch.device) -> Group:
        """The same group with its indices on a device."""
        if self.rows.device == device:
            return self
        moved = {name: getattr(self, name).to(device) for name in ("rows", "real", "tokens", "last")}
        return replace(self, **moved)

    def take(self, states: torch.Tensor) -> torch.Tensor:
        """The sequences' states out of packed ones.

        Args:
            states: Shape (1, heads, packed tokens, head width).

        Returns:
            Shape (sequences, heads, longest, head width).
        """
        if self.run is not None:
            first, end = self.run
            found = states[0, :, first:end]
        else:
            found = states[0].index_select(1, self.rows.reshape(-1))
        return found.view(found.shape[0], *self.rows.shape, -1).transpose(0, 1)

    def put(self, done: torch.Tensor, out: torch.Tensor) -> None:
        """Write the sequences' states where the packed ones are; repetitions are dropped.

        Args:
            done: Shape (sequences, heads, longest, head width).
            out: Shape (packed tokens, heads, head width).
        """
        if self.run is not None:
            first, end = self.run
            out[first:end] = done.transpose(1, 2).flatten(0, 1)
        else:
            out.index_copy_(0, self.tokens, done.transpose(1, 2).flatten(0, 1).index_select(0, self.real))


def group(
    offsets: Ints,
    factors: Sequence[float] | None = None,
    windows: Sequence[int] = (),
    even: bool = False,
    device: torch.device | None = None,
) -> list[Group]:
    """Groups of sequences whose lengths differ little.

    Causality makes a mask needless: the repetitions stand behind every real token, and no real query sees them.

    Args:
        offsets: First token of every sequence and the total, shape (sequences + 1,).
        factors: Factor on the logits of each sequence, None for 1; a group shares one.
        windows: Sizes of sliding windows: either all sequences of a group fit one, or none, so that the kernel of a
            sequence does not depend on its company.
        even: Whether sequences of a group must be of one length, since no causality would hide repetitions.
        device: Where attention runs over the groups, None where rows of like length are wanted for something else.
    """
    most = ALONE * torch.get_num_threads() if device is not None and device.type == "cpu" else int(offsets[-1])
    lengths = np.diff(offsets)
    waste = 1.0 if even else GROUP_WASTE
    given = np.ones(len(lengths)) if factors is None else np.asarray(factors, np.float64)
    fits = np.searchsorted(np.sort(np.asarray(windows, np.int64)), lengths)
    order = np.lexsort((lengths, given))
    groups: list[Group] = []
    start = 0
    for at in range(1, len(order) + 1):
        if at < len(order) and (given[order[at]], fits[order[at]]) == (given[order[start]], fits[order[start]]):
            if lengths[order[at]] <= min(waste * lengths[order[start]], most):
                continue
        members = order[start:at]
        longest = int(lengths[members].max())
        columns = np.arange(longest)
        rows = offsets[members][:, None] + np.minimum(columns, lengths[members][:, None] - 1)
        real = np.flatnonzero(columns < lengths[members][:, None])
        first, last = int(members[0]), int(members[-1])
        # Those of one length are in the order in which they are packed.
        behind = lengths[first] == longest and last - first == len(members) - 1
        viewed = len(members) == 1 or device is None or device.type in VIEWED
        run = (int(offsets[first]), int(offsets[last + 1])) if behind and viewed else None
        tokens = torch.from_numpy(rows.reshape(-1)[real])
        factor = float(given[members[0]])
        ends = torch.from_numpy(lengths[members] - 1)
        found = Group(torch.from_numpy(rows), torch.from_numpy(real), tokens, run, factor, ends)
        groups.append(found if device is None else found.to(device))
        start = at
    return groups
