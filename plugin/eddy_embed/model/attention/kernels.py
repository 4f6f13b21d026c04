"""Attention within packed sequences: which kernel computes a layer, and each group of sequences through it.

The choice is a pure function of what is known when the model is loaded. Torch's kernels for NVIDIA devices have not
been run by this project's tests, which have no such device: there the processor's stand in for them. When a model is
loaded on one, they are compared with the blocked kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.nn import functional

from eddy_embed.model.attention.blocked import SCORES, between, blocked
from eddy_embed.model.attention.extra_entries import Angles, with_entries
from eddy_embed.model.attention.groups import Group
from eddy_embed.model.attention.traits import AttentionSpec
from eddy_embed.model.attention.watcher import AttentionWatcher
from eddy_embed.parts.attention import ExtraKeyValues

Kernel = Literal["fused", "flash", "efficient", "blocked", "own"]
"""`fused`: torch's scaled_dot_product_attention. `flash` and `efficient`: two of its kernels by name, because they also
give the logarithm of the softmax's denominator. `blocked`: ours. `own`: the model's, out of our reach."""


@dataclass(frozen=True)
class KernelChoice:
    """The kernels of a layer.

    Attributes:
        within: For sequences that fit the layer's window, where no key is hidden from a later query: a window of w
            hides what stands w or more tokens back, and in w tokens or fewer nothing does.
        beyond: For longer ones.
        window: The window, None for none.
    """

    within: Kernel
    beyond: Kernel
    window: int | None = None

    def at(self, length: int) -> Kernel:
        """The kernel for sequences of so many tokens."""
        return self.within if self.window is None or length <= self.window else self.beyond


BLOCKED = KernelChoice("blocked", "blocked")
"""What every other kernel is compared with."""


OWN = KernelChoice("own", "own")
"""Where a model computes its attention itself."""


@dataclass(frozen=True)
class DeviceInfo:
    """Where and in what a layer computes.

    Attributes:
        device: Kind of device, such as "cpu".
        dtype: Kind of number, such as "float32".
        width: Of a query's and a key's head.
        value_width: Of a value's head.
        capability: Of an NVIDIA device, None for others.
    """

    device: str
    dtype: str
    width: int
    value_width: int
    capability: tuple[int, int] | None = None

    @classmethod
    def of(cls, query: torch.Tensor, value: torch.Tensor) -> DeviceInfo:
        """Where these states are."""
        nvidia = query.device.type == "cuda" and torch.version.hip is None
        capability = torch.cuda.get_device_capability(query.device) if nvidia else None
        dtype = str(query.dtype).removeprefix("torch.")
        return cls(query.device.type, dtype, query.shape[-1], value.shape[-1], capability)


def choose(traits: AttentionSpec, place: DeviceInfo, mass: bool) -> KernelChoice:
    """The kernels that compute a layer exactly.

    Args:
        traits: What the layer does to its logits.
        place: Where and in what it computes.
        mass: Whether the logarithm of the softmax's denominator is needed, for further entries or a watch;
            sinks need it always.
    """
    masses = mass or traits.sinks
    whole: Kernel = "blocked" if traits.cap is not None or (traits.bias and masses) else _whole(place, masses)
    return KernelChoice(whole, whole if traits.window is None else "blocked", traits.window)


def _whole(place: DeviceInfo, mass: bool) -> Kernel:
    if not mass:
        return "fused"
    if place.width != place.value_width:
        return "blocked"
    if place.device == "cpu":
        return "flash"
    if place.capability is None:
        return "blocked"
    half, recent = place.dtype in ("float16", "bfloat16"), place.capability >= (8, 0)
    if half and recent and place.width % 8 == 0 and place.width <= 256:
        return "flash"
    aligned = place.width % (8 if half else 4) == 0
    known = place.dtype in ("float32", "float16") or (place.dtype == "bfloat16" and recent)
    return "efficient" if known and aligned else "blocked"


def fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    traits: AttentionSpec,
    factor: float,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention, shape as the queries; with a bias as in `between`, where nothing is hidden, by blocks of queries."""
    more: dict[str, Any] = {"scale": traits.scale * factor, "enable_gqa": key.shape[1] != query.shape[1]}
    if bias is None:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=traits.causal, **more)
    length, parts = query.shape[2], []
    block = max(1, min(length, SCORES // (bias.shape[0] * length)))
    for first in range(0, length, block):
        end = min(first + block, length)
        mask = (between(bias, first, end, 0, length) * factor).to(query.dtype)
        q = query[:, :, first:end]
        parts.append(functional.scaled_dot_product_attention(q, key, value, attn_mask=mask, **more))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, traits: AttentionSpec, factor: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention, and the logarithm of the softmax's denominator, shape (batch, heads, tokens)."""
    scale = traits.scale * factor
    if query.device.type == "cpu":
        cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, mass = cpu(query, key, value, 0.0, traits.causal, attn_mask=None, scale=scale)
        return out, mass
    out, mass, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, 0.0, traits.causal, scale=scale
    )
    return out, mass


def efficient(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, traits: AttentionSpec, factor: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `flash`, by the kernel that also takes float32; it wants as many key-value heads as heads."""
    share = query.shape[1] // key.shape[1]
    k, v = (states.repeat_interleave(share, dim=1) if share > 1 else states for states in (key, value))
    out, mass, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, k, v, None, True, 0.0, traits.causal, scale=traits.scale * factor
    )
    # Its rows are filled up to whole blocks.
    return out, mass[..., : query.shape[2]]


def with_sinks(out: torch.Tensor, mass: torch.Tensor, sinks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Let each head's sink take its share of every row: one more logit, without a value of its own.

    A sink is a logit as the model learnt it, which no temperature divides.

    Args:
        out: Attention without sinks, shape (batch, heads, tokens, head width).
        mass: Logarithm of each row's denominator, shape (batch, heads, tokens).
        sinks: Logits, shape (heads,).

    Returns:
        Attention and mass with the sinks.
    """
    whole = torch.logaddexp(mass, sinks.to(mass.dtype)[:, None])
    return (out.to(mass.dtype) * torch.exp(mass - whole).unsqueeze(-1)).to(out.dtype), whole


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
