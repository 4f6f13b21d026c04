"""Eddy against what the machine can do: the model's linear layers and torch's fused attention, and nothing else.

Where oneDNN multiplies faster than what torch takes by itself, or by weights laid out for it, that is what the machine
can do.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from eddy_embed import Embedder
from eddy_embed.encoding.batching import budget, passes
from eddy_embed.model.speed import onednn_linear
from speed.timing import ratio

if TYPE_CHECKING:
    from collections.abc import Callable


def row(model: Any, tokenizer: Any, texts: list[str], rounds: int) -> dict[str, Any]:
    """Time for texts, from strings to vectors, over that of the same matrix products and attention.

    Args:
        model: Whose layers run, each with its own weights.
        tokenizer: Its tokenizer.
        texts: The texts.
        rounds: Pairs.
    """
    window = model.config.max_position_embeddings
    embedder = Embedder(model, tokenizer=tokenizer, method="plain:exit=-1", max_length=window)
    lengths = [embedder.explain(text).sequence_tokens for text in texts]
    alone = least(model, lengths)
    found = ratio(lambda: embedder.encode_document(texts), alone, rounds)
    return {"texts": len(texts), "tokens": sum(lengths), "goal": 1.15, "time": found.row()}


def least(model: Any, lengths: list[int], batch_tokens: int | None = None) -> Callable[[], None]:
    """Runs every linear layer over every token, and causal attention over every sequence, in as many passes.

    Args:
        model: Of whose layers the shapes and weights are taken.
        lengths: Tokens of each sequence.
        batch_tokens: Most tokens in a pass; None: Eddy's own.
    """
    config, base = model.config, model.base_model
    weights = [module.weight for module in base.modules() if isinstance(module, nn.Linear)]
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    sample = weights[0]
    multiplied = [(weight, fastest(weight)) for weight in weights]
    empty = partial(torch.empty, dtype=sample.dtype, device=sample.device)
    made = []
    for members in passes(lengths, budget(batch_tokens, sample.device), None):
        tokens = sum(lengths[index] for index in members)
        # States of each width that a layer takes in, made once: where they come from is not what is measured.
        states = {weight.shape[1]: empty(tokens, weight.shape[1]).normal_() for weight in weights}
        heads = [
            [
                empty(1, count, lengths[index], width).normal_()
                for count in (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
            ]
            for index in members
        ]
        made.append((states, heads))

    def run() -> None:
        with torch.inference_mode():
            for states, heads in made:
                for weight, multiply in multiplied:
                    multiply(states[weight.shape[1]], weight)
                for _ in range(config.num_hidden_layers):
                    for query, key, value in heads:
                        functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)

    return run


def fastest(weight: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """What multiplies by a weight in the least time here."""
    in_mkl = onednn_linear.slower_in_mkl() and weight.dtype == torch.float32 and weight.device.type == "cpu"
    return onednn_linear.product if in_mkl or weight.is_mkldnn else functional.linear
