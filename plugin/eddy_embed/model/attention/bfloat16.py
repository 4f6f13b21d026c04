"""Attention in bfloat16 on a processor, by matrix products over blocks of queries.

Torch's fused kernel multiplies in float32 there, and scores keys that causality hides. Products in bfloat16 take a
quarter of the time, but round each logit to 8 bits, which is too coarse for large ones. So a block is scored twice: the
first product gives the largest logit of each row, and the second subtracts it before anything is rounded, by one more
column of queries and keys. What it rounds is a logit's distance to the largest: the coarser, the smaller its weight.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from eddy_embed.model.attention.blocked import unseen
from eddy_embed.model.attention.spec import AttentionSpec

LONG = 256
"""Tokens from which on this takes less time than torch's kernel (docs/performance.md)."""
ROWS = 128
"""Queries in a block."""
STEP = 32
"""Queries and keys of a block are a multiple of this: oneDNN keeps kernels for every shape that it multiplies."""


def by_products(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, spec: AttentionSpec, factor: float
) -> torch.Tensor:
    """Attention of one sequence, shaped as the queries; causal, without cap or bias, with or without a window."""
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
    for first in range(0, length, ROWS):
        end = min(first + ROWS, length + padding)
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
    """What hides keys from queries when it is added to scores, which takes less time than filling them.

    Shape (queries, keys): 0, or -inf where causality or the window hides a key; the first query has the position of the
    key at `before`.
    """
    distance = torch.arange(before, before + queries, device="cpu")[:, None] - torch.arange(keys, device="cpu")
    mask = torch.zeros(queries, keys, dtype=torch.bfloat16, device="cpu")
    return mask.masked_fill_(unseen(distance, spec), float("-inf"))
