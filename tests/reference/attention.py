"""Attention of one sequence, all scores at once, in numpy, where a small product costs least."""

from __future__ import annotations

import math

import numpy as np
import torch


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of x (tokens, heads, size) by the angles (tokens, rotary size); the rest of x stays."""
    size = cos.shape[-1]
    cos, sin = cos[:, None], sin[:, None]
    turned, rest = x[..., :size], x[..., size:]
    a, b = turned.chunk(2, dim=-1)
    return torch.cat([turned * cos + torch.cat([-b, a], dim=-1) * sin, rest], dim=-1)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    cap: float | None,
    window: int | None,
    sinks: torch.Tensor | None = None,
    both: bool = False,
    slopes: torch.Tensor | None = None,
    added: torch.Tensor | None = None,
    tau: float = 1.0,
    entries: int = 0,
    bias: float = 0.0,
    moved: torch.Tensor | None = None,
    seen: list[torch.Tensor] | None = None,
) -> torch.Tensor:
    """Attention.

    Args:
        q: Queries, shape (tokens, heads, size).
        k: Keys, shape (tokens, kv heads, size); a run of heads / kv heads neighbouring query heads share one.
        v: Values, shape as k.
        scale: Factor on the scores.
        cap: Soft cap of the scaled scores, cap · tanh(score / cap).
        window: Token i sees i - window + 1 .. i.
        sinks: One further score of each head, shape (heads,), with nothing to its weight.
        both: Whether token i also sees later ones, i + window - 1 at most.
        slopes: Falls of the scores of each head with every token between, shape (heads,).
        added: To the score of query i and key j of each head, shape (heads, tokens, tokens).
        tau: Divides the scores after the cap.
        entries: The last so many tokens are seen by every token once more, whatever comes before what.
        bias: Added to the scores of those.
        moved: What stands in the place of their keys, shape as k.
        seen: Gets the attention of row to column, shape (heads, tokens, tokens), without what those further entries
            take of it.

    Returns:
        Shape (tokens, heads, size).
    """
    tokens, heads, _ = q.shape
    keys, values, again = (
        each.repeat_interleave(heads // each.shape[1], dim=1).numpy().swapaxes(0, 1)
        for each in (k, v, k if moved is None else moved)
    )
    queries = q.numpy().swapaxes(0, 1)  # each of shape (heads, tokens, size), scores of (heads, queries, keys)

    def scored(some: np.ndarray) -> np.ndarray:
        scores = queries @ some.swapaxes(1, 2) * scale
        return scores if cap is None else cap * np.tanh(scores / cap)

    scores, behind = scored(keys), np.arange(tokens)[:, None] - np.arange(tokens)
    if slopes is not None:
        scores = scores - slopes.numpy()[:, None, None] * behind
    if added is not None:
        scores = scores + added.numpy()
    hidden = np.zeros_like(behind, bool) if both else behind < 0
    if window is not None:
        hidden = hidden | (np.abs(behind) >= window)
    columns, among = [np.where(hidden, -np.inf, scores / tau)], [values]
    if sinks is not None:
        columns.append(np.broadcast_to(sinks.numpy()[:, None, None], (heads, tokens, 1)))
        among.append(np.zeros_like(values[:, :1]))
    if entries:
        columns.append(scored(again[:, -entries:]) / tau + bias)
        among.append(values[:, -entries:])
    scores = np.concatenate(columns, axis=2)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    weights = weights / weights.sum(2, keepdims=True)
    if seen is not None:
        seen.append(torch.from_numpy(weights[:, :, :tokens]))
    return torch.from_numpy((weights @ np.concatenate(among, axis=1)).swapaxes(0, 1))


def bucket(distance: int, buckets: int, most: int) -> int:
    """The row of a table of relative positions for a key so far behind its query (T5), in front of it if negative.

    Half of the rows are for keys behind; of each half, one half for the distances one by one, the other for ever wider
    ranges up to `most`, beyond which all are alike.
    """
    half = buckets // 2
    side, steps, singles = (half if distance > 0 else 0), abs(distance), half // 2
    if steps < singles:
        return side + steps
    # Where the logarithm meets a whole number, rounding must not fall short of it.
    share = math.log(steps / singles) / math.log(most / singles)
    return side + min(half - 1, singles + math.floor(share * (half - singles) + 1e-6))


def by_distance(table: torch.Tensor, tokens: int, most: int) -> torch.Tensor:
    """What a table (buckets, heads) adds to the scores, shape (heads, tokens, tokens)."""
    rows = [[bucket(j - i, table.shape[0], most) for j in range(tokens)] for i in range(tokens)]
    return table[torch.tensor(rows)].permute(2, 0, 1)


def scale_of(config: object, size: int) -> float:
    """Factor on the scores: 1/sqrt(head size), or what the configuration says in its place."""
    said: float | None = getattr(config, "attention_multiplier", None)
    if getattr(config, "model_type", "") in ("gpt_neo", "t5", "mt5", "umt5"):  # scale nothing
        return 1.0
    return said or 1 / math.sqrt(getattr(config, "query_pre_attn_scalar", None) or size)
