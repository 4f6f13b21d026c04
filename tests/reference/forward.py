"""Hidden states of one sequence, with states copied between layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .blocks import added, angles, block, final_norm, first_state, layers_of
from .double import apply, double


def exit_layer(model: Any, index: int) -> int:
    """Turns an index into h[0..L], which may count from the end, into 0..L."""
    return range(model.config.num_hidden_layers + 1)[index]


def embed_ids(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """Output of the embedding module, shape (tokens, hidden)."""
    return apply(double(model).get_input_embeddings(), torch.tensor([list(ids)]))[0]


def copied(h: torch.Tensor, edges: Sequence[tuple[int, int]]) -> torch.Tensor:
    """h with row `dst` replaced by what row `src` was before any copy, for each edge (dst, src)."""
    after = h.clone()
    for dst, src in edges:
        after[dst] = h[src]
    return after


def forward(
    model: Any,
    ids: Sequence[int],
    placeholders: Mapping[int, torch.Tensor] | None = None,
    edges: Sequence[tuple[int, int]] = (),
    rewire: tuple[int, int] | None = None,
    upto: int | None = None,
    tau: float = 1.0,
    reroute: tuple[Sequence[int], float, int, bool] | None = None,
    seen: list[torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """h[0] .. h[upto] of one sequence.

    Args:
        model: A causal language model of transformers, in any precision.
        ids: Token ids, shape (tokens,); what stands at a placeholder does not matter, but must be in the vocabulary.
        placeholders: Position -> vector (hidden,) that replaces the output of the embedding module there.
        edges: (destination, source) positions.
        rewire: (s, e): the copy happens on h[s] .. h[e-1], as they enter layers s+1 .. e. None or s = e: never.
        upto: Last state wanted, 0..L; None: L.
        tau: Temperature of every layer's softmax.
        reroute: Layers (1..L), bias and number of the last tokens that every token sees once more there; whether it
            sees them where they would stand if the sequence ended at position -1.

        seen: Gets the attention of every layer that runs, (heads, tokens, tokens) each.

    Returns:
        Tensors of shape (tokens, hidden), as they leave their layer and so before any copy; h[L] after the final norm.
    """
    base = double(model).base_model
    config = base.config
    start, end = rewire or (0, 0)
    last = config.num_hidden_layers if upto is None else upto
    x = embed_ids(model, ids).clone()
    for position, vector in (placeholders or {}).items():
        x[position] = torch.as_tensor(vector, dtype=torch.float64)
    x = first_state(base, x)
    states = [x]
    for index, layer in enumerate(layers_of(base)):
        if index == last:
            break
        if start <= index <= end - 1:
            x = copied(x, edges)
        inside: dict[str, Any] = {"tau": tau, "seen": seen, "added": added(base, index, len(ids))}
        if reroute is not None and index + 1 in reroute[0]:
            inside.update(bias=reroute[1], entries=reroute[2])
            if reroute[3]:
                inside["back"] = angles(base, index, x, -len(ids))
        x = block(config, layer, index, x, angles(base, index, x), inside)
        states.append(x)
    if last == config.num_hidden_layers:
        states[-1] = apply(final_norm(base), x)
    return states
