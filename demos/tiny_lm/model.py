"""The network as it is trained: Llama's computation with its parameter names, arranged for speed.

The forward pass equals that of ``transformers.LlamaForCausalLM`` with the same configuration (a test compares them).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tiny_lm.data import IGNORED

Weights = dict[str, Tensor]
MATRICES = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
NORMS = ("input_layernorm", "post_attention_layernorm")
EMBEDDING, FINAL_NORM = "model.embed_tokens.weight", "model.norm.weight"


@dataclass(frozen=True)
class NetworkShape:
    """Sizes of the network; 10.9 M parameters as given."""

    vocab: int = 8192
    hidden: int = 320
    layers: int = 8
    heads: int = 5
    ffn: int = 640
    window: int = 2048
    theta: float = 10000.0
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.hidden // self.heads

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every parameter, as transformers names them; output and input embeddings are tied."""
        sizes: dict[str, tuple[int, ...]] = {EMBEDDING: (self.vocab, self.hidden)}
        for layer in range(self.layers):
            for name in MATRICES:
                rows = self.ffn if name in ("mlp.gate_proj", "mlp.up_proj") else self.hidden
                columns = self.ffn if name == "mlp.down_proj" else self.hidden
                sizes[f"model.layers.{layer}.{name}.weight"] = (rows, columns)
            for name in NORMS:
                sizes[f"model.layers.{layer}.{name}.weight"] = (self.hidden,)
        sizes[FINAL_NORM] = (self.hidden,)
        return sizes


def initial_weights(shape: NetworkShape, seed: int) -> Weights:
    """Return the initial float32 weights; norms are one.

    Matrices are normal with standard deviation 0.02 (embedding) or 1/sqrt(fan-in), divided by sqrt(2 L) where they
    write to the residual stream (GPT-2).
    """
    generator = torch.Generator().manual_seed(seed)
    weights: Weights = {}
    for name, size in shape.parameters().items():
        if len(size) == 1:
            weights[name] = torch.ones(size)
            continue
        std = 0.02 if name == EMBEDDING else size[1] ** -0.5
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            std /= math.sqrt(2 * shape.layers)
        weights[name] = torch.randn(size, generator=generator) * std
    return weights


def rotary(shape: NetworkShape, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines (B, n, 1, head_dim) of rotary embeddings (Su et al. 2021, equation 34)."""
    steps = torch.arange(0, shape.head_dim, 2, device=positions.device, dtype=torch.float32)
    angles = positions[:, :, None, None].float() * shape.theta ** (-steps / shape.head_dim)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], -1).to(dtype), torch.cat([-sin, sin], -1).to(dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm (Zhang and Sennrich 2019, equation 4), computed in float32."""
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs (i, i + d/2) of channels; the sign sits in the sine."""
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def causal_mask(segments: Tensor | None, length: int, like: Tensor) -> Tensor:
    """Return the additive mask (B or 1, 1, n, n): minus infinity on later positions and other segments."""
    seen = torch.ones(1, 1, length, length, dtype=torch.bool, device=like.device).tril()
    if segments is not None:
        seen = seen & (segments[:, None, :, None] == segments[:, None, None, :])
    return torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill_(~seen, float("-inf"))


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention; without a mask it is causal.

    The fused kernel for CPU is slow in bfloat16: up to 1,024 positions two products and a softmax take a third of its
    time, so there a mask is always given.
    """
    if mask is None or queries.is_cuda:
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, is_causal=mask is None)
    scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
    mixed: Tensor = (scores + mask).softmax(-1) @ values
    return mixed


def self_attention(y: Tensor, w: Weights, cos: Tensor, sin: Tensor, mask: Tensor | None, heads: int) -> Tensor:
    """Attention of normed states (B, n, D), with its output projection."""
    split = (*y.shape[:-1], heads, y.shape[-1] // heads)
    queries, keys, values = (F.linear(y, w[f"self_attn.{name}_proj"]).view(split) for name in "qkv")
    heads_first = (x.transpose(1, 2) for x in (rotate(queries, cos, sin), rotate(keys, cos, sin), values))
    return F.linear(attend(*heads_first, mask).transpose(1, 2).flatten(2), w["self_attn.o_proj"])


def swiglu(y: Tensor, w: Weights) -> Tensor:
    """Feed-forward of normed states (Shazeer 2020, equation 6)."""
    return F.linear(F.silu(F.linear(y, w["mlp.gate_proj"])) * F.linear(y, w["mlp.up_proj"]), w["mlp.down_proj"])


class Network:
    """The forward pass over given weights."""

    def __init__(self, shape: NetworkShape) -> None:
        self.shape = shape

    def hidden(self, weights: Weights, ids: Tensor, positions: Tensor, segments: Tensor | None) -> Tensor:
        """Normed hidden states (B, n, D) of the last layer for (B, n) ids; None for one segment a row."""
        shape = self.shape
        embedding = weights[EMBEDDING]
        # In float32, since its gradient sums over every occurrence of a frequent token.
        x = F.embedding(ids, embedding.float()).to(embedding.dtype)
        cos, sin = rotary(shape, positions, x.dtype)
        short = ids.shape[1] <= 1024 and not ids.is_cuda
        mask = causal_mask(segments, ids.shape[1], x) if short or segments is not None else None
        for layer in range(shape.layers):
            w = {name: weights[f"model.layers.{layer}.{name}.weight"] for name in (*MATRICES, *NORMS)}
            y = rms_norm(x, w["input_layernorm"], shape.eps)
            x = x + self_attention(y, w, cos, sin, mask, shape.heads)
            x = x + swiglu(rms_norm(x, w["post_attention_layernorm"], shape.eps), w)
        return rms_norm(x, weights[FINAL_NORM], shape.eps)


def next_token_loss(hidden: Tensor, embedding: Tensor, targets: Tensor, scale: float, chunk: int) -> Tensor:
    """Summed cross-entropy times ``scale``; see ``ChunkedCrossEntropy.forward`` for the arguments."""
    apply: Callable[..., Tensor] = ChunkedCrossEntropy.apply
    return apply(hidden, embedding, targets, scale, chunk)


class ChunkedCrossEntropy(torch.autograd.Function):
    """Summed next-token loss whose logits exist for one chunk at a time; gradients are made in the forward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, embedding: Tensor, targets: Tensor, scale: float, chunk: int) -> Tensor:
        """Loss times ``scale`` of hidden (T, D) under tied output weights (V, D) for targets (T,)."""
        d_hidden, d_embedding = torch.empty_like(hidden), torch.zeros_like(embedding, dtype=torch.float32)
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for h, t, d in zip(*(torch.split(x, chunk) for x in (hidden, targets, d_hidden)), strict=True):
            probabilities = (h @ embedding.T).softmax(-1)
            safe, counted = t.clamp(min=0)[:, None], t != IGNORED
            right = probabilities.gather(1, safe)
            total -= (right.float().clamp(min=1e-30).log()[:, 0] * counted).sum()
            d_logits = probabilities.scatter_(1, safe, right - 1)  # softmax minus one-hot
            d_logits.index_fill_(0, (~counted).nonzero()[:, 0], 0)
            torch.mm(d_logits, embedding, out=d)
            d_embedding += d_logits.T @ h
        ctx.save_for_backward(d_hidden.mul_(scale), d_embedding.mul_(scale).to(embedding.dtype))
        return total * scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        """The stored gradients; the loss is the end of the graph, so its own gradient is one."""
        d_hidden, d_embedding = ctx.saved_tensors
        return d_hidden * grads[0], d_embedding * grads[0], None, None, None
