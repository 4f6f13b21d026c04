"""Attention by blocks of queries, over packed sequences in groups of like length.

It serves layers with capped logits, which no fused kernel has, or with a sliding window, and is what the other
kernels are compared with. None builds an n x n matrix; scores are in float32 (float64 for float64 queries).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from eddy_embed.model.devices import to_device
from eddy_embed.utils.arrays import Ints


@dataclass(frozen=True)
class AttentionSpec:
    """What a layer does inside its attention, as the layer itself declared it on a first pass.

    Attributes:
        scale: Factor on the logits.
        cap: Soft cap c of c * tanh(logit / c), None for none.
        window: Sliding window: keys that a query sees, itself included, None for all.
        sinks: Whether each head has a sink, a further logit that takes a share of every row and gives nothing.
        causal: Whether a query sees no later keys. If it does, a sliding window of w hides keys w or more tokens before
            or after it.
        bias: Whether a bias by the distance of query and key is added to the logits, before any temperature.
    """

    scale: float
    cap: float | None
    window: int | None
    sinks: bool = False
    causal: bool = True
    bias: bool = False

    @property
    def stated(self) -> dict[str, object]:
        """As plain values; `bias`, which few layers have, for those alone."""
        values = asdict(self)
        return values if self.bias else {name: value for name, value in values.items() if name != "bias"}


GROUP_WASTE = 1.25
"""Sequences share a fused call while the longest is at most this many times the shortest."""
ALONE = 32
"""Tokens for each thread beyond which a sequence is a group of its own on a processor: one call is work enough for its
threads, and nothing is gathered or padded."""
PAIRS = 2**23
"""Pairs of tokens in one sequence from which a call of its own, by a kernel that is twice as fast, costs less than its
launches; on average over the groups. Measured on an H200, with 28 layers of 16 heads and 32 layers of 32."""
VIEWED = ("cpu", "cuda")
"""Kinds of device whose kernels take views of several packed sequences. Apple's read the queries of all but the first
wrongly in some versions of torch (its issue 181133)."""


@dataclass(frozen=True, eq=False)
class Group:
    """Sequences of like length that share one call.

    Attributes:
        rows: Index of each sequence's tokens, its last token repeated up to the longest, shape (sequences, longest).
        real: Index into the flattened rows of the tokens that are not repetitions, shape (tokens,).
        tokens: Index of the same tokens among the packed ones, shape (tokens,).
        run: First packed token and the one after the last, for one sequence, or several of equal length that follow one
            another: then nothing is gathered or repeated.
        factor: On the logits, after scale and cap.
        last: Column of each sequence's last token, shape (sequences,).
        longest: Tokens of the longest sequence.
        bounds: If the group's one row holds several sequences behind each other: the first token of each and the total,
            shape (sequences + 1,), int32.
    """

    rows: torch.Tensor
    real: torch.Tensor
    tokens: torch.Tensor
    run: tuple[int, int] | None
    factor: float
    last: torch.Tensor
    longest: int
    bounds: torch.Tensor | None = None

    def to(self, device: torch.device) -> Group:
        """Return the same group with its indices on a device."""
        if self.rows.device == device:
            return self
        return replace(
            self,
            rows=to_device(self.rows, device),
            real=to_device(self.real, device),
            tokens=to_device(self.tokens, device),
            last=to_device(self.last, device),
            bounds=None if self.bounds is None else to_device(self.bounds, device),
        )

    def take(self, states: torch.Tensor) -> torch.Tensor:
        """Return states of shape (1, heads, packed tokens, head width) as (sequences, heads, longest, head width)."""
        if self.run is not None:
            taken = states[0, :, slice(*self.run)]
        else:
            taken = states[0].index_select(1, self.rows.reshape(-1))
        return taken.view(taken.shape[0], *self.rows.shape, -1).transpose(0, 1)

    def put(self, states: torch.Tensor, out: torch.Tensor) -> None:
        """Write states of shape (sequences, heads, longest, head width) into (packed tokens, heads, head width)."""
        flat = states.transpose(1, 2).flatten(0, 1)
        if self.run is not None:
            out[slice(*self.run)] = flat
        else:
            out.index_copy_(0, self.tokens, flat.index_select(0, self.real))


def group(
    offsets: Ints,
    factors: Sequence[float] | None = None,
    windows: Sequence[int] = (),
    even: bool = False,
    device: torch.device | None = None,
    one_row: bool = False,
) -> list[Group]:
    """Return groups of sequences whose lengths differ little.

    Causality makes a mask needless: the repetitions come after every real token, and no real query sees them.

    Args:
        offsets: First token of every sequence and the total, shape (sequences + 1,).
        factors: Factor on the logits of each sequence, None for 1; a group shares one.
        windows: Sizes of sliding windows: either all sequences of a group fit one, or none, so that the kernel of a
            sequence does not depend on the others.
        even: Whether sequences of a group must have equal length, since no causality would hide repetitions.
        device: Where attention runs over the groups, None if rows of like length are wanted for something else.
        one_row: Whether a kernel takes sequences behind each other in one call; all of them are one group where that
            costs less.
    """
    most = ALONE * torch.get_num_threads() if device is not None and device.type == "cpu" else int(offsets[-1])
    lengths = np.diff(offsets)
    waste = 1.0 if even else GROUP_WASTE
    factor_of = np.ones(len(lengths)) if factors is None else np.asarray(factors, np.float64)
    fits = np.searchsorted(np.sort(np.asarray(windows, np.int64)), lengths)
    order = np.lexsort((lengths, factor_of))
    groups: list[Group] = []
    start = 0
    for end in range(1, len(order) + 1):
        if end < len(order):
            head, this = order[start], order[end]
            alike = (factor_of[this], fits[this]) == (factor_of[head], fits[head])
            if alike and lengths[this] <= min(waste * lengths[head], most):
                continue
        members = order[start:end]
        longest = int(lengths[members].max())
        columns = np.arange(longest)
        rows = offsets[members][:, None] + np.minimum(columns, lengths[members][:, None] - 1)
        real = np.flatnonzero(columns < lengths[members][:, None])
        first, last = int(members[0]), int(members[-1])
        # Sequences of equal length are in the order in which they are packed.
        adjacent = lengths[first] == longest and last - first == len(members) - 1
        viewed = len(members) == 1 or device is None or device.type in VIEWED
        made = Group(
            rows=torch.from_numpy(rows),
            real=torch.from_numpy(real),
            tokens=torch.from_numpy(rows.reshape(-1)[real]),
            run=(int(offsets[first]), int(offsets[last + 1])) if adjacent and viewed else None,
            factor=float(factor_of[first]),
            last=torch.from_numpy(lengths[members] - 1),
            longest=longest,
        )
        groups.append(made)
        start = end
    one_factor = len({members.factor for members in groups}) == 1
    if one_row and one_factor and len(groups) > 1 and (lengths**2).sum() < PAIRS * len(groups):
        groups = [_in_one_row(offsets, groups[0].factor)]
    return groups if device is None else [members.to(device) for members in groups]


def _in_one_row(offsets: Ints, factor: float) -> Group:
    """Return all packed sequences as one row."""
    tokens = torch.arange(int(offsets[-1]))
    return Group(
        rows=tokens[None],
        real=tokens,
        tokens=tokens,
        run=(0, len(tokens)),
        factor=factor,
        last=torch.from_numpy(offsets[1:] - 1),
        longest=int(np.diff(offsets).max()),
        bounds=torch.from_numpy(offsets.astype(np.int32)),
    )


SCORES = 2**24
"""Scores that the blocked kernel holds at once."""
ROWS = 128
"""Most queries in a block: the smaller, the fewer keys are scored that causality or a sliding window hides."""


def blocked(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    spec: AttentionSpec,
    factor: float,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return attention and its rows' log-sum-exp, shape (batch, heads, tokens); bias as in `between`."""
    dtype = torch.promote_types(query.dtype, torch.float32)
    batch, heads, length, width = query.shape
    shared = key.shape[1]
    q = query.reshape(batch, shared, heads // shared, length, width).to(dtype) * spec.scale
    k, v = (states.unsqueeze(2).to(dtype) for states in (key, value))
    out = query.new_empty(batch, heads, length, value.shape[3])
    lse = query.new_empty(batch, heads, length, dtype=dtype)
    positions = torch.arange(length, device=query.device)
    block = max(1, min(length, ROWS, SCORES // (batch * heads * length)))
    for first in range(0, length, block):
        end = min(first + block, length)
        seen = 0 if spec.window is None else max(0, first - spec.window + 1)
        last = end if spec.causal else length if spec.window is None else min(length, end - 1 + spec.window)
        scores = capped(q[..., first:end, :] @ k[..., seen:last, :].transpose(-1, -2), spec)
        if bias is not None:
            scores += between(bias, first, end, seen, last).to(dtype).reshape(scores.shape[1:])
        scores = scores * factor
        distance = positions[first:end, None] - positions[None, seen:last]
        scores = scores.masked_fill(unseen(distance, spec), float("-inf"))
        lse[:, :, first:end] = scores.logsumexp(-1).flatten(1, 2)
        out[:, :, first:end] = (scores.softmax(-1) @ v[..., seen:last, :]).flatten(1, 2).to(query.dtype)
    return out, lse


def unseen(distance: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
    """Return which keys causality or a sliding window hides; `distance`: query minus key positions."""
    hidden = (distance < 0) & spec.causal
    return hidden if spec.window is None else hidden | (distance.abs() >= spec.window)


def capped(scores: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
    """Return scaled logits after the layer's soft cap."""
    return scores if spec.cap is None else torch.tanh(scores / spec.cap) * spec.cap


def between(bias: torch.Tensor, first: int, end: int, seen: int, last: int) -> torch.Tensor:
    """Return the bias of queries `first` .. `end` - 1 and keys `seen` .. `last` - 1, shape (heads, queries, keys).

    `bias` is by distance, for keys from n - 1 tokens before their query to n - 1 after it, shape (heads, 2n - 1).
    """
    same = bias.shape[1] // 2
    # Rows of neighbouring queries are the same numbers, moved by one: the last query's begin furthest to the left.
    needed = bias[:, same + seen - end + 1 : same + last - first]
    return needed.unfold(1, last - seen, 1).flip(1)
