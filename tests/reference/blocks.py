"""One decoder layer of each family: where queries, keys and values come from, and where the norms stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .attention import attend, rotate, scale_of
from .double import apply

Angles = tuple[torch.Tensor, torch.Tensor]


def trunk(base: Any) -> Any:
    """What holds the layers, the embeddings and the final norm."""
    return base.decoder if base.config.model_type == "opt" else base


def layers_of(base: Any) -> Any:
    return trunk(base).h if hasattr(trunk(base), "h") else trunk(base).layers


def final_norm(base: Any) -> Any:
    names = {"gpt_neox": "final_layer_norm", "opt": "final_layer_norm", "phi": "final_layernorm"}
    name = "ln_f" if hasattr(base, "ln_f") else names.get(base.config.model_type, "norm")
    return getattr(trunk(base), name)


def first_state(base: Any, x: torch.Tensor) -> torch.Tensor:
    """What enters the first layer, from the output x (tokens, hidden) of the embedding module."""
    kind, positions = base.config.model_type, torch.arange(len(x))
    if kind == "gpt2":
        return x + apply(base.wpe, positions)
    if kind == "opt":  # the first two rows of the table stand for no position
        return x + base.decoder.embed_positions.weight.detach()[positions + 2]
    if kind == "granite":
        return x * base.config.embedding_multiplier
    return x


def window_of(config: Any, index: int) -> int | None:
    """Sliding window of layer `index` (0-based) in tokens."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and kinds[index] != "sliding_attention":
        return None
    return getattr(config, "sliding_window", None)


def angles(base: Any, index: int, x: torch.Tensor, first: int = 0) -> Angles | None:
    """Rotary cosines and sines of a layer from position `first` on, each (tokens, rotary size).

    None where positions are embedded, or where a layer knows none.
    """
    config = base.config
    if config.model_type in ("gpt2", "opt"):
        return None
    if config.model_type == "smollm3" and not config.no_rope_layers[index]:
        return None
    positions = torch.arange(first, first + x.shape[0])[None]
    kind = [config.layer_types[index]] if config.model_type == "gemma3_text" else []
    cos, sin = apply(base.rotary_emb, x[None], positions, *kind)
    if config.model_type == "gpt_oss":  # gives each angle once
        cos, sin = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
    return cos[0], sin[0]


def _project(config: Any, attention: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values before the rotary embedding, each (tokens, heads or kv heads, size)."""
    n, heads = x.shape[0], config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv = getattr(config, "num_key_value_heads", None) or heads
    if config.model_type == "gpt2":
        q, k, v = apply(attention.c_attn, x).split(config.hidden_size, dim=-1)
    elif config.model_type == "gpt_neox":  # q, k and v of a head lie side by side
        q, k, v = apply(attention.query_key_value, x).reshape(n, heads, 3, size).unbind(2)
    elif config.model_type == "phi3":
        q, k, v = apply(attention.qkv_proj, x).split([heads * size, kv * size, kv * size], dim=-1)
    else:
        q, k, v = (apply(m, x) for m in (attention.q_proj, attention.k_proj, attention.v_proj))
    if config.model_type == "olmo2":  # normed over all heads at once
        q, k = apply(attention.q_norm, q), apply(attention.k_norm, k)
    q, k, v = q.reshape(n, heads, size), k.reshape(n, kv, size), v.reshape(n, kv, size)
    if config.model_type in ("qwen3", "qwen3_moe", "gemma3_text"):
        q, k = apply(attention.q_norm, q), apply(attention.k_norm, k)
    return q, k, v


def _attention(
    config: Any, attention: Any, index: int, x: torch.Tensor, turn: Angles | None, inside: Mapping[str, Any]
) -> torch.Tensor:
    q, k, v = _project(config, attention, x)
    inside = dict(inside)
    if back := inside.pop("back", None):
        inside["moved"] = rotate(k, *back)
    if turn is not None:
        q, k = rotate(q, *turn), rotate(k, *turn)
    shape = {
        "scale": scale_of(config, q.shape[-1]),
        "cap": getattr(config, "attn_logit_softcapping", None),
        "window": window_of(config, index),
        "sinks": attention.sinks.detach() if config.model_type == "gpt_oss" else None,
    }
    out = attend(q, k, v, **shape, **inside)
    names = {"gpt2": "c_proj", "gpt_neox": "dense", "phi": "dense", "opt": "out_proj"}
    output = names.get(config.model_type, "o_proj")
    return apply(getattr(attention, output), out.reshape(x.shape[0], -1))


def token_by_token(experts: Any, x: torch.Tensor) -> torch.Tensor:
    """Output of a layer of experts, each token of x (tokens, hidden) alone: routing knows no company."""
    rows = [apply(experts, row[None, None]) for row in x]
    return torch.cat([row[0][0] if isinstance(row, tuple) else row[0] for row in rows])


def block(
    config: Any, layer: Any, index: int, x: torch.Tensor, turn: Angles | None, inside: Mapping[str, Any]
) -> torch.Tensor:
    """Output of layer `index` (0-based) for its input x (tokens, hidden); `inside` goes to `attend`."""
    kind = config.model_type
    if kind == "gpt2":
        x = x + _attention(config, layer.attn, index, apply(layer.ln_1, x), turn, inside)
        return x + apply(layer.mlp, apply(layer.ln_2, x))
    if kind == "gpt_neox":  # parallel residual
        attended = _attention(config, layer.attention, index, apply(layer.input_layernorm, x), turn, inside)
        return x + attended + apply(layer.mlp, apply(layer.post_attention_layernorm, x))
    if kind == "phi":  # one norm for both
        inner = apply(layer.input_layernorm, x)
        return x + _attention(config, layer.self_attn, index, inner, turn, inside) + apply(layer.mlp, inner)
    if kind == "opt":
        x = x + _attention(config, layer.self_attn, index, apply(layer.self_attn_layer_norm, x), turn, inside)
        return x + apply(layer.fc2, torch.relu(apply(layer.fc1, apply(layer.final_layer_norm, x))))
    if kind == "olmo2":  # norms behind, none in front
        attended = _attention(config, layer.self_attn, index, x, turn, inside)
        x = x + apply(layer.post_attention_layernorm, attended)
        return x + apply(layer.post_feedforward_layernorm, apply(layer.mlp, x))
    attended = _attention(config, layer.self_attn, index, apply(layer.input_layernorm, x), turn, inside)
    if kind in ("gemma2", "gemma3_text"):  # norms in front and behind
        x = x + apply(layer.post_attention_layernorm, attended)
        inner = apply(layer.mlp, apply(layer.pre_feedforward_layernorm, x))
        return x + apply(layer.post_feedforward_layernorm, inner)
    if kind in ("llama", "mistral", "qwen2", "qwen3", "phi3", "smollm3", "stablelm"):
        x = x + attended
        return x + apply(layer.mlp, apply(layer.post_attention_layernorm, x))
    if kind == "granite":
        x = x + config.residual_multiplier * attended
        return x + config.residual_multiplier * apply(layer.mlp, apply(layer.post_attention_layernorm, x))
    if kind in ("mixtral", "qwen3_moe", "gpt_oss"):
        x = x + attended
        return x + token_by_token(layer.mlp, apply(layer.post_attention_layernorm, x))
    raise NotImplementedError(f"no reference for {kind}")
