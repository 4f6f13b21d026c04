"""One decoder layer of each family: where queries, keys and values come from, and where the norms stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import torch

from .attention import attend, by_distance, rotate, scale_of
from .double import apply

ENCODERS = ("bert", "roberta", "xlm-roberta", "distilbert", "modernbert", "mpnet", "t5", "mt5", "umt5")
"""Families whose tokens see later ones."""
BERTS = ("bert", "roberta", "xlm-roberta")
T5S = ("t5", "mt5", "umt5")

Angles = tuple[torch.Tensor, torch.Tensor]


def trunk(base: Any) -> Any:
    """What holds the layers, the embeddings and the final norm."""
    names = {"opt": "decoder", "distilbert": "transformer", **dict.fromkeys((*BERTS, *T5S, "mpnet"), "encoder")}
    return getattr(base, names[base.config.model_type]) if base.config.model_type in names else base


def layers_of(base: Any) -> Any:
    return next(getattr(trunk(base), name) for name in ("h", "layer", "layers", "block") if hasattr(trunk(base), name))


def final_norm(base: Any) -> Any:
    if base.config.model_type in (*BERTS, "distilbert", "mpnet"):  # each layer ends with a norm
        return torch.nn.Identity()
    names = {"gpt_neox": "final_layer_norm", "opt": "final_layer_norm", "phi": "final_layernorm"}
    names |= {"modernbert": "final_norm", **dict.fromkeys(T5S, "final_layer_norm")}
    name = "ln_f" if hasattr(base, "ln_f") else names.get(base.config.model_type, "norm")
    return getattr(trunk(base), name)


def first_state(base: Any, x: torch.Tensor) -> torch.Tensor:
    """What enters the first layer, from the output x (tokens, hidden) of the embedding module."""
    kind, positions = base.config.model_type, torch.arange(len(x))
    if kind in ("gpt2", "gpt_neo"):
        return x + apply(base.wpe, positions)
    if kind == "bloom":
        return apply(base.word_embeddings_layernorm, x)
    if kind == "opt":  # the first two rows of the table stand for no position
        return x + base.decoder.embed_positions.weight.detach()[positions + 2]
    if kind in (*BERTS, "distilbert", "mpnet"):
        table = base.embeddings
        if kind in ("roberta", "xlm-roberta", "mpnet"):  # positions begin behind that of padding
            positions = positions + (1 if kind == "mpnet" else base.config.pad_token_id) + 1
        x = x + apply(table.position_embeddings, positions)
        if kind in BERTS:
            x = x + table.token_type_embeddings.weight.detach()[0]
        return apply(table.LayerNorm, x)
    if kind == "modernbert":
        return apply(base.embeddings.norm, x)
    if kind == "granite":
        return x * base.config.embedding_multiplier
    return x


def window_of(config: Any, index: int) -> int | None:
    """Sliding window of layer `index` (0-based) in tokens."""
    if config.model_type == "gpt_neo":
        return config.window_size if config.attention_layers[index] == "local" else None
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and kinds[index] != "sliding_attention":
        return None
    if config.model_type == "modernbert":  # says how far to either side
        return config.sliding_window + 1
    return getattr(config, "sliding_window", None)


def added(base: Any, index: int, tokens: int) -> torch.Tensor | None:
    """What a layer adds to the scores by distance, shape (heads, tokens, tokens); None for nothing."""
    if base.config.model_type == "mpnet":
        return by_distance(base.encoder.relative_attention_bias.weight.detach(), tokens, 128)
    if base.config.model_type in T5S:  # the first layer's serves all, but in umt5
        layer = base.encoder.block[index if base.config.model_type == "umt5" else 0].layer[0].SelfAttention
        most = base.config.relative_attention_max_distance
        return by_distance(layer.relative_attention_bias.weight.detach(), tokens, most)
    return None


def angles(base: Any, index: int, x: torch.Tensor, first: int = 0) -> Angles | None:
    """Rotary cosines and sines of a layer from position `first` on, each (tokens, rotary size).

    None where positions are embedded, or where a layer knows none.
    """
    config = base.config
    if config.model_type in ("gpt2", "opt", "bloom", "gpt_neo", "distilbert", "mpnet", *BERTS, *T5S):
        return None
    if config.model_type == "smollm3" and not config.no_rope_layers[index]:
        return None
    positions = torch.arange(first, first + x.shape[0])[None]
    if config.model_type == "gptj":  # a table, in the precision in which the model was made
        sin, cos = base.h[index].attn.embed_positions[positions[0]].chunk(2, dim=-1)
        return cos.repeat(1, 2), sin.repeat(1, 2)
    kind = [config.layer_types[index]] if config.model_type in ("gemma3_text", "modernbert") else []
    cos, sin = apply(base.rotary_emb, x[None], positions, *kind)
    if config.model_type == "gpt_oss":  # gives each angle once
        cos, sin = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
    return cos[0], sin[0]


def _encoder_projected(config: Any, attention: Any, x: torch.Tensor) -> Any:
    if config.model_type == "modernbert":
        return apply(attention.Wqkv, x).split(config.hidden_size, dim=-1)
    if config.model_type in T5S:
        return [apply(m, x) for m in (attention.q, attention.k, attention.v)]
    if config.model_type == "mpnet":
        return [apply(m, x) for m in (attention.attn.q, attention.attn.k, attention.attn.v)]
    if config.model_type == "distilbert":
        return [apply(m, x) for m in (attention.q_lin, attention.k_lin, attention.v_lin)]
    return [apply(m, x) for m in (attention.self.query, attention.self.key, attention.self.value)]


def _project(config: Any, attention: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values before the rotary embedding, each (tokens, heads or kv heads, size)."""
    n, heads = x.shape[0], config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv = getattr(config, "num_key_value_heads", None) or heads
    if config.model_type == "falcon":
        kv = config.num_kv_heads
    if config.model_type == "gpt2":
        q, k, v = apply(attention.c_attn, x).split(config.hidden_size, dim=-1)
    elif config.model_type == "falcon":  # the queries that share a key, their key, their value
        joined = apply(attention.query_key_value, x).reshape(n, config.num_kv_heads, -1, size)
        q, k, v = joined[:, :, :-2], joined[:, :, -2], joined[:, :, -1]
    elif config.model_type in ("gpt_neox", "bloom"):  # q, k and v of a head lie side by side
        q, k, v = apply(attention.query_key_value, x).reshape(n, heads, 3, size).unbind(2)
    elif config.model_type in ENCODERS:
        q, k, v = _encoder_projected(config, attention, x)
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


def slopes(heads: int) -> torch.Tensor:
    """How fast each head's scores fall with the distance (ALiBi): 2^(-8/heads), its square .., for powers of two."""
    return 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1, dtype=torch.float64))


def neighbours_apart(x: torch.Tensor, size: int) -> torch.Tensor:
    """x (tokens, heads, size) with the even ones of its first entries before the odd ones: scores know no order."""
    return torch.cat([x[..., 0:size:2], x[..., 1:size:2], x[..., size:]], dim=-1)


def _attention(
    config: Any, attention: Any, index: int, x: torch.Tensor, turn: Angles | None, inside: Mapping[str, Any]
) -> torch.Tensor:
    q, k, v = _project(config, attention, x)
    inside = dict(inside)
    if back := inside.pop("back", None):
        inside["moved"] = rotate(k, *back)
    if turn is not None:
        if config.model_type == "gptj":  # turns neighbours, and not halves
            q, k = (neighbours_apart(each, config.rotary_dim) for each in (q, k))
        q, k = rotate(q, *turn), rotate(k, *turn)
    shape = {
        "scale": scale_of(config, q.shape[-1]),
        "cap": getattr(config, "attn_logit_softcapping", None),
        "window": window_of(config, index),
        "slopes": slopes(q.shape[1]) if config.model_type == "bloom" else None,
        "both": config.model_type in ENCODERS,
        "sinks": attention.sinks.detach() if config.model_type == "gpt_oss" else None,
    }
    out = attend(q, k, v, **shape, **inside)
    names = {"gpt2": "c_proj", "gpt_neox": "dense", "phi": "dense", "opt": "out_proj"}
    names |= {"falcon": "dense", "bloom": "dense", "gptj": "out_proj", "gpt_neo": "out_proj"}
    names |= {
        "distilbert": "out_lin",
        "modernbert": "Wo",
        "mpnet": "attn.o",
        **dict.fromkeys(T5S, "o"),
        **dict.fromkeys(BERTS, "output.dense"),
    }
    output = names.get(config.model_type, "o_proj")
    return apply(attrgetter(output)(attention), out.reshape(x.shape[0], -1))


# --- where the norms and the sums stand; x (tokens, hidden) goes into a layer, `attend` is its attention

Attend = Callable[[Any, torch.Tensor], torch.Tensor]


def _usual(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
    more = getattr(config, "residual_multiplier", 1.0)
    x = x + more * attend(layer.self_attn, apply(layer.input_layernorm, x))
    return x + more * apply(layer.mlp, apply(layer.post_attention_layernorm, x))


def _experts(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
    x = x + attend(layer.self_attn, apply(layer.input_layernorm, x))
    mixed = apply(layer.mlp, apply(layer.post_attention_layernorm, x)[None])
    return x + (mixed[0] if isinstance(mixed, tuple) else mixed)[0]


def _norms_in_front_and_behind(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
    attended = attend(layer.self_attn, apply(layer.input_layernorm, x))
    x = x + apply(layer.post_attention_layernorm, attended)
    inner = apply(layer.mlp, apply(layer.pre_feedforward_layernorm, x))
    return x + apply(layer.post_feedforward_layernorm, inner)


def _norms_behind(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
    x = x + apply(layer.post_attention_layernorm, attend(layer.self_attn, x))
    return x + apply(layer.post_feedforward_layernorm, apply(layer.mlp, x))


def _gpt2(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
    x = x + attend(getattr(layer.attn, "attention", layer.attn), apply(layer.ln_1, x))
    return x + apply(layer.mlp, apply(layer.ln_2, x))


def _opt(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
    x = x + attend(layer.self_attn, apply(layer.self_attn_layer_norm, x))
    return x + apply(layer.fc2, torch.relu(apply(layer.fc1, apply(layer.final_layer_norm, x))))


def _bloom(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
    x = x + attend(layer.self_attention, apply(layer.input_layernorm, x))
    # Its MLP adds what it is given.
    return apply(layer.mlp, apply(layer.post_attention_layernorm, x)[None], x[None])[0]


def _bert(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
    x = apply(layer.attention.output.LayerNorm, x + attend(layer.attention, x))
    inner = torch.nn.functional.gelu(apply(layer.intermediate.dense, x))
    return apply(layer.output.LayerNorm, x + apply(layer.output.dense, inner))


def _t5(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
    first, last = layer.layer[0], layer.layer[-1]
    x = x + attend(first.SelfAttention, apply(first.layer_norm, x))
    return x + apply(last.DenseReluDense, apply(last.layer_norm, x))


def _mpnet(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
    x = apply(layer.attention.LayerNorm, x + attend(layer.attention, x))
    inner = torch.nn.functional.gelu(apply(layer.intermediate.dense, x))
    return apply(layer.output.LayerNorm, x + apply(layer.output.dense, inner))


def _distilbert(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
    x = apply(layer.sa_layer_norm, x + attend(layer.attention, x))
    return apply(layer.output_layer_norm, x + apply(layer.ffn, x))


def _modernbert(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
    x = x + attend(layer.attn, apply(layer.attn_norm, x))
    return x + apply(layer.mlp, apply(layer.mlp_norm, x))


def _beside(attention: str, norm: str, other: str) -> Callable[..., torch.Tensor]:
    """Attention and MLP beside each other, behind one norm or two."""

    def run(config: Any, layer: Any, attend: Attend, x: torch.Tensor) -> torch.Tensor:
        attended = attend(getattr(layer, attention), apply(getattr(layer, norm), x))
        return x + attended + apply(layer.mlp, apply(getattr(layer, other), x))

    return run


BLOCKS: dict[str, Callable[..., torch.Tensor]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "phi3", "smollm3", "stablelm", "granite"), _usual),
    **dict.fromkeys(("mixtral", "qwen3_moe", "gpt_oss"), _experts),
    **dict.fromkeys(("gemma2", "gemma3_text"), _norms_in_front_and_behind),
    **dict.fromkeys(("gpt2", "gpt_neo"), _gpt2),
    "olmo2": _norms_behind,
    **dict.fromkeys(BERTS, _bert),
    "distilbert": _distilbert,
    "mpnet": _mpnet,
    **dict.fromkeys(T5S, _t5),
    "modernbert": _modernbert,
    "opt": _opt,
    "bloom": _bloom,
    "gpt_neox": _beside("attention", "input_layernorm", "post_attention_layernorm"),
    "phi": _beside("self_attn", "input_layernorm", "input_layernorm"),
    "gptj": _beside("attn", "ln_1", "ln_1"),
    "falcon": _beside("self_attention", "ln_attn", "ln_mlp"),
}


def block(
    config: Any, layer: Any, index: int, x: torch.Tensor, turn: Angles | None, inside: Mapping[str, Any]
) -> torch.Tensor:
    """Output of layer `index` (0-based) for its input x (tokens, hidden); `inside` goes to `attend`."""

    def attend(attention: Any, inner: torch.Tensor) -> torch.Tensor:
        return _attention(config, attention, index, inner, turn, inside)

    return BLOCKS[config.model_type](config, layer, attend, x)
