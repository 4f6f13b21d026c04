"""Attention within packed sequences: each group of them through the kernel of its layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddy_embed.model.attention.blocked import blocked
from eddy_embed.model.attention.extra_entries import with_entries
from eddy_embed.model.attention.fused import efficient, flash, fused
from eddy_embed.model.attention.sinks import with_sinks

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from eddy_embed.model.attention.extra_entries import Angles
    from eddy_embed.model.attention.groups import Group
    from eddy_embed.model.attention.kernel_choice import KernelChoice
    from eddy_embed.model.attention.traits import AttentionSpec
    from eddy_embed.model.attention.watcher import AttentionWatcher
    from eddy_embed.parts.attention import ExtraKeyValues


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    groups: Sequence[Group],
    traits: AttentionSpec,
    kernels: KernelChoice,
    reroute: ExtraKeyValues | None = None,
    watching: AttentionWatcher | None = None,
    angles: Angles | None = None,
    bias: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention within each of the packed sequences; 0 in rows behind the last of them.

    Args:
        query: Shape (1, heads, tokens, head width).
        key: Shape (1, key-value heads, tokens, head width); the heads divide evenly among them.
        value: Shape (1, key-value heads, tokens, head width).
        groups: The sequences.
        traits: What the layer does to its logits.
        kernels: What computes it.
        reroute: Further entries, None for none.
        watching: Told of every group's attention, None for nobody.
        angles: Those of the layer's keys, where entries are re-based; None: they stay where they are.
        bias: On the logits by distance, shape (heads, 2n - 1) as in `between`, in layers whose traits say so.
        sinks: A further logit for each head, shape (heads,), in layers whose traits say so.

    Returns:
        Shape (1, tokens, heads, head width), in the queries' dtype.
    """

    def one(number: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        members = groups[number]
        done, mass, paid = _group(q, k, v, members, traits, kernels, reroute, angles, bias, sinks)
        if watching is not None and mass is not None:
            watching.see(number, q, k, mass, members, traits, bias, paid)
        return done

    tokens = query.shape[2]
    if groups[0].run == (0, tokens):
        return one(0, *map(groups[0].take, (query, key, value))).transpose(1, 2).flatten(0, 1).unsqueeze(0)
    out = query.new_empty(tokens, query.shape[1], value.shape[3])
    for number, members in enumerate(groups):
        members.put(one(number, *map(members.take, (query, key, value))), out)
    held = sum(len(members.tokens) for members in groups)
    if held < tokens:
        out[held:] = 0  # in place of whatever stood there
    return out.unsqueeze(0)


def _group(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    members: Group,
    traits: AttentionSpec,
    kernels: KernelChoice,
    reroute: ExtraKeyValues | None,
    angles: Angles | None,
    bias: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    kernel = kernels.at(q.shape[2])
    if kernel == "fused":
        return fused(q, k, v, traits, members.factor, bias), None, None
    if kernel == "blocked":
        out, mass = blocked(q, k, v, traits, members.factor, bias)
    else:
        out, mass = {"flash": flash, "efficient": efficient}[kernel](q, k, v, traits, members.factor)
    if sinks is not None:
        out, mass = with_sinks(out, mass, sinks)
    return (out, mass, None) if reroute is None else with_entries(q, k, v, out, mass, angles, members, traits, reroute)
