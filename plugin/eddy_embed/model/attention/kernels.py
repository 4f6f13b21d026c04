"""Attention kernels: fused, in bfloat16 products, blocked; extra entries; and which kernel a layer takes.

Whole sequences go through torch's fused attention, a long one in bfloat16 on a processor through matrix products.
A layer's kernel is chosen when the model is loaded (`choose`), and never changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import torch
from torch.nn import functional

from eddy_embed.model.attention.blocked import SCORES, AttentionSpec, Group, between, blocked, capped, group, unseen
from eddy_embed.model.attention.watcher import AttentionRecorder
from eddy_embed.model.products import multiplies_bfloat16
from eddy_embed.parts.attention import ExtraKeyValues
from eddy_embed.utils.arrays import Ints


@dataclass(frozen=True, eq=False)
class Angles:
    """Cosines and sines by which a layer turns its keys, as the model itself computed them, scaling included.

    Attributes:
        cos: At the packed tokens' positions, shape (tokens, rotary width); the two halves are alike.
        sin: The same of the sines.
        back_cos: At positions -1, -2 .., shape (entries, rotary width).
        back_sin: The same of the sines.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    back_cos: torch.Tensor
    back_sin: torch.Tensor

    def rebased(self, key: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return keys, shape (sequences, key-value heads, entries, head width), turned to positions -1, -2 ..

        `tokens` are their indices among the packed tokens, shape (sequences, entries). Dividing by cos^2 + sin^2 undoes
        the model's own rotation up to its rounding, whatever it scales by.
        """
        half = self.cos.shape[-1] // 2
        cos, sin = (angle.to(key)[tokens][:, None, :, :half] for angle in (self.cos, self.sin))
        back_cos, back_sin = (angle.to(key)[:, :half] for angle in (self.back_cos, self.back_sin))
        one, other, rest = key[..., :half], key[..., half : 2 * half], key[..., 2 * half :]
        norm = cos * cos + sin * sin
        one, other = (one * cos + other * sin) / norm, (other * cos - one * sin) / norm
        turned = (one * back_cos - other * back_sin, other * back_cos + one * back_sin, rest)
        return torch.cat(turned, dim=-1)


def entry_keys(
    key: torch.Tensor, members: Group, entries: int, angles: Angles | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys of each sequence's last tokens, turned by `angles` if given, and their columns, the last token first.

    Shapes (sequences, key-value heads, entries, head width) and (sequences, entries). Columns are negative where a
    sequence is too short.
    """
    columns = members.last[:, None] - torch.arange(entries, device=key.device)
    index = columns.clamp(min=0)
    keys = key.gather(2, index[:, None, :, None].expand(-1, key.shape[1], -1, key.shape[3]))
    if angles is not None:
        keys = angles.rebased(keys.to(torch.promote_types(key.dtype, torch.float32)), members.rows.gather(1, index))
    return keys, columns


def with_entries(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    angles: Angles | None,
    members: Group,
    spec: AttentionSpec,
    reroute: ExtraKeyValues,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge the entries of each sequence's last tokens into finished attention, exactly.

    A softmax over more entries is the old one and the new entries, each weighted by its share of the whole denominator;
    no mask, and no longer matrix, is needed (KV-Embedding, equations 1 and 2).

    Returns:
        Attention, and its log-sum-exp, shape (sequences, heads, tokens).
    """
    batch, heads, length, width = query.shape
    shared = key.shape[1]
    k, columns = entry_keys(key, members, reroute.entries, angles)
    k = k.unsqueeze(2).to(lse.dtype) * spec.scale
    index = columns.clamp(min=0)[:, None, :, None]
    v = value.gather(2, index.expand(-1, shared, -1, value.shape[3])).unsqueeze(2).to(lse.dtype)
    q = query.reshape(batch, shared, heads // shared, length, width).to(lse.dtype)
    scores = capped(q @ k.transpose(-1, -2), spec) * members.factor + reroute.bias
    # Sequences with fewer tokens than entries have an entry for each token.
    scores = scores.masked_fill((columns < 0)[:, None, None, None, :], float("-inf")).flatten(1, 2)
    whole = torch.logaddexp(lse, scores.logsumexp(-1))
    shares = torch.exp(scores - whole.unsqueeze(-1))
    if reroute.entries == 1:  # the shares of old and new add up to 1, and one pass over the states merges them
        single = v.expand(-1, -1, heads // shared, -1, -1).flatten(1, 2)
        return torch.lerp(out.to(lse.dtype), single, shares).to(query.dtype), whole
    share = torch.exp(lse - whole).unsqueeze(-1)
    added = (shares.view(batch, shared, heads // shared, length, -1) @ v).flatten(1, 2)
    return (out.to(lse.dtype) * share + added).to(query.dtype), whole


LONG = 256
"""Tokens from which on this takes less time than torch's kernel."""
QUERIES = 128
"""Queries in a block."""
STEP = 32
"""Queries and keys of a block are a multiple of this: oneDNN keeps kernels for every shape that it multiplies."""


def by_products(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, spec: AttentionSpec, factor: float
) -> torch.Tensor:
    """Return causal attention of one sequence, shaped as the queries, without cap or bias."""
    _, heads, length, width = query.shape
    shared = key.shape[1]
    padding = -length % STEP
    # Multiplied into the queries, a power of two rounds nothing.
    exponent = math.floor(math.log2(spec.scale * factor))
    rest = spec.scale * factor / 2.0**exponent
    q = query.new_zeros(shared, heads // shared, length + padding, width + 2)
    torch.mul(query.view(shared, -1, length, width), 2.0**exponent, out=q[:, :, :length, :width])
    k = key.new_zeros(shared, length + padding, width + 2)
    k[:, :length, :width] = key[0]
    k[..., width] = 1
    v = torch.nn.functional.pad(value[0], (0, 0, 0, padding))
    out = query.new_empty(shared, heads // shared, length + padding, v.shape[2])
    for first in range(0, length, QUERIES):
        end = min(first + QUERIES, length + padding)
        seen = 0 if spec.window is None else max(0, first - spec.window + 1) // STEP * STEP
        edge = first if spec.window is None else seen
        hide = _hide(end - first, end - edge, first - edge, spec)
        rows = q[:, :, first:end].flatten(1, 2)
        keys = k[:, seen:end].transpose(1, 2)
        scores = rows.new_empty(shared, rows.shape[1], end - seen)
        edge_scores = scores.view(shared, -1, end - first, end - seen)[..., edge - seen :]
        torch.bmm(rows, keys, out=scores)
        edge_scores += hide
        rows[..., width] = -scores.amax(-1)
        torch.bmm(rows, keys, out=scores)
        edge_scores += hide
        if rest != 1:
            scores *= rest
        out[:, :, first:end] = torch.bmm(scores.softmax(-1), v[:, seen:end]).view(shared, -1, end - first, v.shape[2])
    return out.view(1, heads, length + padding, -1)[:, :, :length]


@lru_cache(maxsize=16)
def _hide(queries: int, keys: int, before: int, spec: AttentionSpec) -> torch.Tensor:
    """Return what hides keys from queries when it is added to scores, which takes less time than filling them.

    Shape (queries, keys): 0, or -inf where causality or the window hides a key; the first query has the position of the
    key at `before`.
    """
    distance = torch.arange(before, before + queries, device="cpu")[:, None] - torch.arange(keys, device="cpu")
    mask = torch.zeros(queries, keys, dtype=torch.bfloat16, device="cpu")
    return mask.masked_fill_(unseen(distance, spec), float("-inf"))


Kernel = Literal["fused", "varlen", "flash", "efficient", "products", "blocked", "own"]
"""`fused`: torch's scaled_dot_product_attention. `varlen`, `flash` and `efficient`: kernels of torch by name. `varlen`,
because it takes packed sequences of any lengths in one call, and sliding windows; the others, because they give the
log-sum-exp of the logits for each sequence. `products`: ours, for a long sequence in bfloat16 on a processor; `fused`
or `blocked` takes the others. `blocked`: ours, for everything. `own`: the model's, out of our reach."""


@dataclass(frozen=True)
class KernelChoice:
    """The kernels of a layer.

    Attributes:
        within: For sequences that fit the layer's sliding window, which hides no key from a later query there: a window
            of w hides keys w or more tokens back.
        beyond: For longer ones.
        window: The sliding window, None for none.
        in_one_row: Whether `varlen` computes the same for sequences of any lengths together, in place of both.
    """

    within: Kernel
    beyond: Kernel
    window: int | None = None
    in_one_row: bool = False

    def at(self, length: int, sequences: int = 1) -> Kernel:
        """Return the kernel for so many sequences of this length in one call."""
        fits = self.window is None or length <= self.window
        kernel = self.within if fits else self.beyond
        if kernel == "products" and (length < LONG or sequences > 1):
            return "fused" if fits else "blocked"
        return kernel


BLOCKED = KernelChoice("blocked", "blocked")
"""What every other kernel is compared with."""
OWN = KernelChoice("own", "own")
"""Of a model that computes its attention itself."""


@dataclass(frozen=True)
class DeviceInfo:
    """Device, dtype, head widths and, for NVIDIA devices, compute capability with which a layer computes.

    `products`: whether it is a processor that multiplies matrices of this dtype itself, and the dtype is bfloat16.
    """

    device: str
    dtype: str
    width: int
    value_width: int
    capability: tuple[int, int] | None = None
    products: bool = False

    @classmethod
    def of(cls, query: torch.Tensor, value: torch.Tensor) -> DeviceInfo:
        """Return device and dtype of these states."""
        nvidia = query.device.type == "cuda" and torch.version.hip is None
        capability = torch.cuda.get_device_capability(query.device) if nvidia else None
        dtype = str(query.dtype).removeprefix("torch.")
        products = query.device.type == "cpu" and query.dtype == torch.bfloat16 and multiplies_bfloat16()
        return cls(query.device.type, dtype, query.shape[-1], value.shape[-1], capability, products)

    @property
    def flash(self) -> bool:
        """Whether it is an NVIDIA device on which torch's flash kernels take these states."""
        half = self.dtype in ("float16", "bfloat16") and self.width == self.value_width
        return half and (self.capability or (0, 0)) >= (8, 0) and self.width % 8 == 0 and self.width <= 256


def choose(spec: AttentionSpec, device: DeviceInfo, needs_lse: bool) -> KernelChoice:
    """Return kernels that compute a layer exactly; extra entries, a watcher and sinks need the log-sum-exp."""
    in_one_row = device.flash and spec.cap is None and not (spec.bias or needs_lse)
    needs_lse = needs_lse or spec.sinks
    if device.products and spec.causal and spec.cap is None and not (spec.bias or needs_lse):
        return KernelChoice("products", "products", spec.window)
    within: Kernel = "blocked" if spec.cap is not None or (spec.bias and needs_lse) else _full(device, needs_lse)
    beyond: Kernel = within if spec.window is None else "varlen" if in_one_row else "blocked"
    return KernelChoice(within, beyond, spec.window, in_one_row)


def group_for(
    kernels: Sequence[KernelChoice], offsets: Ints, factors: Sequence[float] | None, even: bool, device: torch.device
) -> list[Group]:
    """Return groups of packed sequences that suit the kernels of all layers; arguments as for `group`."""
    windows = [choice.window for choice in kernels if choice.window is not None]
    return group(offsets, factors, windows, even, device, all(choice.in_one_row for choice in kernels))


def _full(device: DeviceInfo, needs_lse: bool) -> Kernel:
    """Return the kernel for attention without cap or sliding window."""
    if not needs_lse:
        return "fused"
    if device.width != device.value_width:
        return "blocked"
    if device.device == "cpu":
        return "flash"
    if device.capability is None:
        return "blocked"
    if device.flash:
        return "flash"
    aligned = device.width % (4 if device.dtype == "float32" else 8) == 0
    recent = device.capability >= (8, 0)
    known = device.dtype in ("float32", "float16") or (device.dtype == "bfloat16" and recent)
    return "efficient" if known and aligned else "blocked"


def fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    spec: AttentionSpec,
    factor: float,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return attention, shaped as the queries; with a bias as in `between`, by blocks of queries."""
    more: dict[str, Any] = {"scale": spec.scale * factor, "enable_gqa": key.shape[1] != query.shape[1]}
    if bias is None:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=spec.causal, **more)
    length, parts = query.shape[2], []
    block = max(1, min(length, SCORES // (bias.shape[0] * length)))
    for first in range(0, length, block):
        end = min(first + block, length)
        mask = (between(bias, first, end, 0, length) * factor).to(query.dtype)
        q = query[:, :, first:end]
        parts.append(functional.scaled_dot_product_attention(q, key, value, attn_mask=mask, **more))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, spec: AttentionSpec, members: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return attention, and the log-sum-exp of each row's logits, shape (batch, heads, tokens)."""
    aten, cpu = torch.ops.aten, query.device.type == "cpu"
    kernel = aten._scaled_dot_product_flash_attention_for_cpu if cpu else aten._scaled_dot_product_flash_attention
    out, lse, *_ = kernel(query, key, value, 0.0, spec.causal, scale=spec.scale * members.factor)
    return out, lse


def varlen(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, spec: AttentionSpec, members: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `flash` does, for sequences that may share a row, and with sliding windows."""
    batch, _, length, _ = query.shape
    bounds, longest = members.bounds, members.longest
    if bounds is None:
        bounds = torch.arange(0, (batch + 1) * length, length, dtype=torch.int32, device=query.device)
    rows = (states.transpose(1, 2).flatten(0, 1) for states in (query, key, value))
    reach = -1 if spec.window is None else spec.window - 1
    out, lse, *_ = torch.ops.aten._flash_attention_forward(
        *rows,
        *(bounds, bounds, longest, longest, 0.0, spec.causal, False),
        scale=spec.scale * members.factor,
        window_size_left=reach,
        window_size_right=0 if spec.causal else reach,
    )
    return out.unflatten(0, (batch, length)).transpose(1, 2), lse.unflatten(1, (batch, length)).transpose(0, 1)


def efficient(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, spec: AttentionSpec, members: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `flash` does, by the kernel that takes float32 and as many key-value heads as heads."""
    share = query.shape[1] // key.shape[1]
    k, v = (states.repeat_interleave(share, dim=1) if share > 1 else states for states in (key, value))
    out, lse, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, k, v, None, True, 0.0, spec.causal, scale=spec.scale * members.factor
    )
    # Its rows are padded to whole blocks.
    return out, lse[..., : query.shape[2]]


def with_sinks(out: torch.Tensor, lse: torch.Tensor, sinks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Add each head's sink, a logit without a value, which no temperature divides.

    Shapes of `out` (batch, heads, tokens, head width), of `lse` (batch, heads, tokens), of `sinks` (heads,).
    """
    whole = torch.logaddexp(lse, sinks.to(lse.dtype)[:, None])
    return (out.to(lse.dtype) * torch.exp(lse - whole).unsqueeze(-1)).to(out.dtype), whole


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    groups: Sequence[Group],
    spec: AttentionSpec,
    kernels: KernelChoice,
    reroute: ExtraKeyValues | None = None,
    watcher: AttentionRecorder | None = None,
    angles: Angles | None = None,
    bias: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return attention within each of the packed sequences; 0 in rows after the last of them.

    Args:
        query: Shape (1, heads, tokens, head width).
        key: Shape (1, key-value heads, tokens, head width); the heads divide evenly among them.
        value: Shape (1, key-value heads, tokens, head width).
        groups: The sequences.
        spec: What the layer does to its logits.
        kernels: What computes it.
        reroute: Extra entries, None for none.
        watcher: Is shown every group's attention.
        angles: Those of the layer's keys, if entries are re-based; None: they stay where they are.
        bias: On the logits by distance, shape (heads, 2n - 1) as in `between`, if the spec has one.
        sinks: One more logit for each head, shape (heads,), if the spec has them.

    Returns:
        Shape (1, tokens, heads, head width), in the queries' dtype.
    """

    def one(number: int, members: Group) -> torch.Tensor:
        q, k, v = map(members.take, (query, key, value))
        kernel = kernels.at(q.shape[2], len(q)) if members.bounds is None else "varlen"
        without_lse: dict[str, Callable[..., torch.Tensor]] = {
            "fused": partial(fused, bias=bias),
            "products": by_products,
        }
        if kernel in without_lse:
            return without_lse[kernel](q, k, v, spec, members.factor)
        if kernel == "blocked":
            out, lse = blocked(q, k, v, spec, members.factor, bias)
        else:
            out, lse = {"flash": flash, "efficient": efficient, "varlen": varlen}[kernel](q, k, v, spec, members)
        if sinks is not None:
            out, lse = with_sinks(out, lse, sinks)
        if reroute is not None:
            out, lse = with_entries(q, k, v, out, lse, angles, members, spec, reroute)
        if watcher is not None:
            watcher.on_attention(number, q, k, lse, members, spec)
        return out

    tokens = query.shape[2]
    if groups[0].run == (0, tokens):
        return one(0, groups[0]).transpose(1, 2).flatten(0, 1).unsqueeze(0)
    out = query.new_empty(tokens, query.shape[1], value.shape[3])
    for number, members in enumerate(groups):
        members.put(one(number, members), out)
    filled = sum(len(members.tokens) for members in groups)
    if filled < tokens:
        out[filled:] = 0  # in place of uninitialised memory
    return out.unsqueeze(0)
