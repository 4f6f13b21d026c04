"""Inside attention: temperature, re-routed entries, and two kernels, neither of which builds an n x n matrix.

`fused` hands whole sequences to torch's fused causal attention. `blocked` walks over blocks of queries, for layers
whose logits are capped, which no fused kernel does, or whose window hides distant keys; scores in float32 (float64 for
float64 queries). The kernel of a layer is chosen when the model is loaded, and never changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from eddy_embed.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from eddy_embed.sequence import Ints

Kernel = Literal["fused", "blocked"]

SCORES = 2**24
"""Scores that the blocked kernel holds at once."""
GROUP_WASTE = 1.25
"""Sequences share a fused call while the longest is at most this many times the shortest."""


@dataclass(frozen=True)
class Temperature:
    """What divides the logits of every layer before the softmax (TempScale, Zhou et al. 2025, equation 8).

    Attributes:
        tau: Temperature, above 0 and at most 1; lower is sharper.
        query_tau: Temperature for queries, None for the same.
        rule: "fixed": divide by tau. "log": multiply by ln n instead. "rate": multiply by 1 + rate * ln n instead;
            n is the number of tokens of the sequence. The last two are the paper's comparison rows.
        rate: The rate of that rule.
    """

    tau: float = 0.8
    query_tau: float | None = None
    rule: Literal["fixed", "log", "rate"] = "fixed"
    rate: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values outside their range.

        Raises:
            InvalidParameter: With the value.
        """
        for name, value in (("tau", self.tau), ("query_tau", self.query_tau)):
            if value is not None and not 0 < value <= 1:
                raise InvalidParameter(f"tempscale: {name}={value} must be above 0 and at most 1")
        if self.rule not in ("fixed", "log", "rate"):
            raise InvalidParameter(f"tempscale: rule={self.rule!r} is unknown; choose fixed, log or rate")
        if not 0 <= self.rate < float("inf"):
            raise InvalidParameter(f"tempscale: rate={self.rate} must not be negative")
        if self.rate and self.rule != "rate":
            raise InvalidParameter(f"tempscale: rate={self.rate} has no effect with rule={self.rule}; add rule=rate")

    def factor(self, length: int, query: bool) -> float:
        """The factor on the logits of a sequence of so many tokens."""
        if self.rule == "log":
            return math.log(length)
        if self.rule == "rate":
            return 1 + self.rate * math.log(length)
        return 1 / (self.query_tau if query and self.query_tau is not None else self.tau)


@dataclass(frozen=True)
class Reroute:
    """Keys and values of the last tokens, as further entries that every query may attend to (KV-Embedding).

    Attributes:
        layers: Layers whose attention gets the entries, counted from 1; None: the backbone's default, filled in
            before anything runs.
        bias: Added to the logits of the entries, after everything else; minus infinity switches them off.
        entries: How many of the last tokens.
    """

    layers: tuple[int, ...] | None
    bias: float = 1.0
    entries: int = 1

    def __post_init__(self) -> None:
        """Refuse values outside their range.

        Raises:
            InvalidParameter: With the value.
        """
        if any(layer < 1 for layer in self.layers or ()):
            raise InvalidParameter(f"kv: layers={self.layers} are counted from 1")
        if math.isnan(self.bias) or self.bias == math.inf:
            raise InvalidParameter(f"kv: bias={self.bias} must be a number, or -inf for none")
        if self.entries < 1:
            raise InvalidParameter(f"kv: n={self.entries} must be at least 1")


@dataclass(frozen=True)
class Traits:
    """What a layer does inside its attention, as the layer itself declared it on a first pass.

    Attributes:
        scale: Factor on the logits.
        cap: Soft cap c of c * tanh(logit / c), None for none.
        window: Keys that a query sees, itself included, None for all.
    """

    scale: float
    cap: float | None
    window: int | None

    @property
    def kernel(self) -> Kernel:
        """The kernel that computes this layer exactly."""
        return "fused" if self.cap is None and self.window is None else "blocked"


@dataclass(frozen=True, eq=False)
class Group:
    """Sequences of like length that share one call.

    Attributes:
        rows: Index of each sequence's tokens, its last token repeated up to the longest, shape (sequences, longest).
        real: Index into the flattened rows of the tokens that are not repetitions, shape (tokens,).
        tokens: Index of the same tokens among the packed ones, shape (tokens,).
        run: First packed token and the one after the last, where the group is one sequence.
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
        moved = {name: getattr(self, name).to(device) for name in ("rows", "real", "tokens", "last")}
        return replace(self, **moved)


def group(offsets: Ints, factors: Sequence[float] | None = None) -> list[Group]:
    """Groups of sequences whose lengths differ little.

    Causality makes a mask needless: the repetitions stand behind every real token, and no real query sees them.

    Args:
        offsets: First token of every sequence and the total, shape (sequences + 1,).
        factors: Factor on the logits of each sequence, None for 1; a group shares one.
    """
    import torch

    lengths = np.diff(offsets)
    given = np.ones(len(lengths)) if factors is None else np.asarray(factors, np.float64)
    order = np.lexsort((lengths, given))
    groups: list[Group] = []
    start = 0
    for at in range(1, len(order) + 1):
        if at < len(order) and given[order[at]] == given[order[start]]:
            if lengths[order[at]] <= GROUP_WASTE * lengths[order[start]]:
                continue
        members = order[start:at]
        longest = int(lengths[members].max())
        columns = np.arange(longest)
        rows = offsets[members][:, None] + np.minimum(columns, lengths[members][:, None] - 1)
        real = np.flatnonzero(columns < lengths[members][:, None])
        run = (int(offsets[members[0]]), int(offsets[members[0] + 1])) if len(members) == 1 else None
        tokens = torch.from_numpy(rows.reshape(-1)[real])
        factor = float(given[members[0]])
        last = torch.from_numpy(lengths[members] - 1)
        groups.append(Group(torch.from_numpy(rows), torch.from_numpy(real), tokens, run, factor, last))
        start = at
    return groups


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    groups: Sequence[Group],
    traits: Traits,
    reroute: Reroute | None = None,
) -> torch.Tensor:
    """Causal attention within each of the packed sequences.

    Args:
        query: Shape (1, heads, tokens, head width).
        key: Shape (1, key-value heads, tokens, head width); the heads divide evenly among them.
        value: Shape (1, key-value heads, tokens, head width).
        groups: The sequences.
        traits: What the layer does to its logits.
        reroute: Further entries, None for none.

    Returns:
        Shape (1, tokens, heads, head width), in the queries' dtype.
    """
    out = query.new_empty(query.shape[2], query.shape[1], value.shape[3])
    for members in groups:
        if members.run is not None:
            first, end = members.run
            q, k, v = (states[:, :, first:end] for states in (query, key, value))
            out[first:end] = _group(q, k, v, members, traits, reroute)[0].transpose(0, 1)
            continue
        q, k, v = (states[0].index_select(1, members.rows.reshape(-1)) for states in (query, key, value))
        shape = members.rows.shape
        q, k, v = (states.view(states.shape[0], *shape, -1).transpose(0, 1) for states in (q, k, v))
        result = _group(q, k, v, members, traits, reroute).transpose(1, 2).flatten(0, 1)
        out.index_copy_(0, members.tokens, result.index_select(0, members.real))
    return out.unsqueeze(0)


def _group(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, members: Group, traits: Traits, reroute: Reroute | None
) -> torch.Tensor:
    fused = traits.kernel == "fused"
    if reroute is None:
        return _fused(q, k, v, traits, members.factor) if fused else _blocked(q, k, v, traits, members.factor)[0]
    if fused and q.device.type == "cpu":
        out, mass = _fused_with_mass(q, k, v, traits, members.factor)
    else:
        out, mass = _blocked(q, k, v, traits, members.factor)
    return _with_entries(q, k, v, out, mass, members, traits, reroute)


def _fused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, traits: Traits, factor: float) -> torch.Tensor:
    from torch.nn import functional

    grouped = key.shape[1] != query.shape[1]
    return functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=traits.scale * factor, enable_gqa=grouped
    )


def _fused_with_mass(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, traits: Traits, factor: float
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    out, mass = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, True, attn_mask=None, scale=traits.scale * factor
    )
    return out, mass


def _blocked(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, traits: Traits, factor: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention, and the logarithm of the softmax's denominator, shape (batch, heads, tokens)."""
    import torch

    exact = torch.float64 if query.dtype == torch.float64 else torch.float32
    batch, heads, length, width = query.shape
    shared = key.shape[1]
    q = query.reshape(batch, shared, heads // shared, length, width).to(exact) * traits.scale
    k, v = (states.unsqueeze(2).to(exact) for states in (key, value))
    out = query.new_empty(batch, heads, length, value.shape[3])
    mass = query.new_empty(batch, heads, length, dtype=exact)
    positions = torch.arange(length, device=query.device)
    block = max(1, min(length, SCORES // (batch * heads * length)))
    for first in range(0, length, block):
        end = min(first + block, length)
        seen = 0 if traits.window is None else max(0, first - traits.window + 1)
        scores = _capped(q[..., first:end, :] @ k[..., seen:end, :].transpose(-1, -2), traits) * factor
        distance = positions[first:end, None] - positions[None, seen:end]
        hidden = distance < 0 if traits.window is None else (distance < 0) | (distance >= traits.window)
        scores = scores.masked_fill(hidden, float("-inf"))
        mass[:, :, first:end] = scores.logsumexp(-1).flatten(1, 2)
        out[:, :, first:end] = (scores.softmax(-1) @ v[..., seen:end, :]).flatten(1, 2).to(query.dtype)
    return out, mass


def _capped(scores: torch.Tensor, traits: Traits) -> torch.Tensor:
    import torch

    return scores if traits.cap is None else torch.tanh(scores / traits.cap) * traits.cap


def _with_entries(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    mass: torch.Tensor,
    members: Group,
    traits: Traits,
    reroute: Reroute,
) -> torch.Tensor:
    """Merge the entries of each sequence's last tokens into finished attention, exactly.

    A softmax over more entries is the old one and the new entries, each weighted by its share of the whole mass; no
    mask, and no longer matrix, is needed (KV-Embedding, equations 1 and 2).
    """
    import torch

    exact = mass.dtype
    batch, heads, length, width = query.shape
    shared = key.shape[1]
    back = torch.arange(reroute.entries, device=query.device)
    columns = members.last[:, None] - back
    at = columns.clamp(min=0)[:, None, :, None]
    k = key.gather(2, at.expand(-1, shared, -1, key.shape[3])).unsqueeze(2).to(exact)
    v = value.gather(2, at.expand(-1, shared, -1, value.shape[3])).unsqueeze(2).to(exact)
    q = query.reshape(batch, shared, heads // shared, length, width).to(exact) * traits.scale
    scores = _capped(q @ k.transpose(-1, -2), traits) * members.factor + reroute.bias
    # Sequences with fewer tokens than entries bring as many as they have.
    scores = scores.masked_fill((columns < 0)[:, None, None, None, :], float("-inf")).flatten(1, 2)
    whole = torch.logaddexp(mass, scores.logsumexp(-1))
    kept = torch.exp(mass - whole).unsqueeze(-1)
    shares = torch.exp(scores - whole.unsqueeze(-1)).view(batch, shared, heads // shared, length, -1)
    return (out.to(exact) * kept + (shares @ v).flatten(1, 2)).to(query.dtype)
