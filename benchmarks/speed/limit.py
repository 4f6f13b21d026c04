"""Eddy against what the machine can do: the model's linear layers and attention by the fastest kernels, nothing else.

Where oneDNN multiplies faster than what torch takes by itself, or by weights laid out for it, that is what the machine
can do. In int8 the states are rounded beforehand, and the products are not scaled.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from eddy_embed import Embedder
from eddy_embed.encoding.build import budget
from eddy_embed.model.attention.bfloat16 import LONG, by_products
from eddy_embed.model.attention.spec import AttentionSpec
from eddy_embed.model.speed import onednn_linear
from eddy_embed.model.speed.int8_linear import Int8Linear, quantised
from eddy_embed.text.sequence import passes
from speed.timing import ratio

if TYPE_CHECKING:
    from collections.abc import Callable


def row(model: Any, tokenizer: Any, texts: list[str], rounds: int, dtype: str) -> dict[str, Any]:
    """Time for texts, from strings to vectors, over that of the same matrix products and attention.

    Args:
        model: Whose layers run, each with its own weights.
        tokenizer: Its tokenizer.
        texts: The texts.
        rounds: Pairs.
        dtype: "int8", or that of the model's weights.
    """
    window = model.config.max_position_embeddings
    embedder = Embedder(model, tokenizer=tokenizer, method="plain:exit=-1", max_length=window, dtype=dtype)
    lengths = [embedder.explain(text).sequence_tokens for text in texts]
    alone = least(model, lengths, int8=dtype == "int8")
    found = ratio(lambda: embedder.encode_document(texts), alone, rounds)
    goal = 1.25 if dtype == "int8" else 1.15
    return {"texts": len(texts), "tokens": sum(lengths), "goal": goal, "time": found.row()}


def least(model: Any, lengths: list[int], batch_tokens: int | None = None, *, int8: bool = False) -> Callable[[], None]:
    """Runs every linear layer over every token, and causal attention over every sequence, in as many passes.

    Args:
        model: Of whose layers the shapes and weights are taken.
        lengths: Tokens of each sequence.
        batch_tokens: Most tokens in a pass; None: Eddy's own.
        int8: Whether the layers are multiplied in int8.
    """
    config, base = model.config, model.base_model
    linears = [module for module in base.modules() if isinstance(module, nn.Linear)]
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    sample = linears[0].weight
    products = [(each.in_features, in_int8(each) if int8 else fastest(each.weight)) for each in linears]
    empty = partial(torch.empty, dtype=sample.dtype, device=sample.device)
    made = []
    for members in passes(lengths, budget(batch_tokens, sample.device), None):
        tokens = sum(lengths[index] for index in members)
        # States of each width that a layer takes in, made once: where they come from is not what is measured.
        states = {inputs: empty(tokens, inputs).normal_() for inputs, _ in products}
        if int8:
            states = {inputs: quantised(each)[0] for inputs, each in states.items()}
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
                for inputs, product in products:
                    product(states[inputs])
                for _ in range(config.num_hidden_layers):
                    for each in heads:
                        attention(*each)

    return run


def fastest(weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """What multiplies by a weight in the least time here."""
    in_mkl = onednn_linear.slower_in_mkl() and weight.dtype == torch.float32 and weight.device.type == "cpu"
    multiply = onednn_linear.product if in_mkl or weight.is_mkldnn else functional.linear
    return lambda states: multiply(states, weight)


def in_int8(linear: nn.Linear) -> Callable[[torch.Tensor], torch.Tensor]:
    """The product alone, of codes."""
    layer = Int8Linear(linear)
    return lambda codes: layer.multiply(codes, linear.weight.dtype)


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Causal attention of one sequence by the faster kernel of its length."""
    scale = query.shape[-1] ** -0.5
    if query.dtype == torch.bfloat16 and query.device.type == "cpu" and query.shape[2] >= LONG:
        return by_products(query, key, value, AttentionSpec(scale, None, None), 1.0)
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
