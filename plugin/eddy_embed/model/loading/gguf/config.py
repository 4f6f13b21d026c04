"""The settings of a GGUF file as a configuration of transformers, each carried over or checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import transformers
from transformers import PreTrainedConfig

from eddy_embed.errors import UnsupportedModel
from eddy_embed.model.loading.gguf.header import ARCHITECTURES, YARN, GgufFile

_SQUARE_ATTENTION = {("gemma2", 46), ("gemma3", 62)}
"""Architecture and layers of the Gemma models of 27 B: their scores are scaled by hidden / heads, which GGUF omits."""
ROPE_TENSORS = ("freqs", "factors_short", "factors_long")
"""Tensors that become settings, without the `rope_` in front."""
_NEEDED = (
    *("embedding_length", "feed_forward_length", "block_count", "context_length"),
    *("attention.head_count", "attention.head_count_kv"),
)
"""Settings without which transformers' reader of the weights, or the configuration, would guess."""


def config_of(file: GgufFile) -> PreTrainedConfig:
    """Return the configuration of a file that was checked.

    Raises:
        UnsupportedModel: A setting has a value that the architecture in transformers does not have.
    """
    shapes = {tensor.name: tensor.shape for tensor in file.tensors}
    known = ARCHITECTURES[file.architecture]
    epsilons = [key for key in ("attention.layer_norm_rms_epsilon", *known.carried) if key.endswith("epsilon")]
    if missing := [key for key in (*_NEEDED, epsilons[-1]) if not file.get(key)]:
        raise UnsupportedModel(f"{file.path} lacks {file.architecture}.{missing[0]}; name the model's Hugging Face id")
    if "token_embd.weight" not in shapes:
        raise UnsupportedModel(f"{file.path} lacks the tensor token_embd.weight; fetch the file again")
    layers = len({name.split(".")[1] for name in shapes if name.startswith("blk.")})
    if file.get("block_count") != layers:
        raise UnsupportedModel(f"{file.path} says {file.get('block_count')} layers, and {layers} are there")
    hidden, heads = int(file.get("embedding_length")), int(file.get("attention.head_count"))
    head_dim = int(file.get("attention.key_length", hidden // heads))
    settings: dict[str, Any] = {
        "vocab_size": shapes["token_embd.weight"][0],
        "hidden_size": hidden,
        "intermediate_size": int(file.get("feed_forward_length")),
        "num_hidden_layers": int(file.get("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": file.get("attention.head_count_kv"),
        "max_position_embeddings": int(file.get("context_length")),
        "tie_word_embeddings": "output.weight" not in shapes,
        **{f"{name}_token_id": file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")},
        "pad_token_id": None,
    }
    if not head_dim or int(file.get("attention.value_length", head_dim)) != head_dim:
        raise UnsupportedModel(f"{file.path}: keys and values of different widths; name the model's Hugging Face id")
    specific = _OWN.get(file.architecture, _usual)(file, head_dim)
    kind: type[PreTrainedConfig] = getattr(transformers, specific.pop("config", known.config))
    if epsilon := file.get("attention.layer_norm_rms_epsilon"):
        settings["rms_norm_eps"] = float(epsilon)
    biases = {"attention_bias": "attn_q.bias", "mlp_bias": "ffn_up.bias", "use_qk_norm": "attn_q_norm.weight"}
    settings |= {key: f"blk.0.{name}" in shapes for key, name in biases.items() if hasattr(kind(), key)}
    settings |= {name: file.get(key) for key, (_, name) in known.carried.items() if file.get(key) is not None}
    settings |= known.fixed | specific
    try:
        return kind(**settings)
    except Exception as error:  # also of a class of huggingface_hub's that transformers does not name
        raise UnsupportedModel(f"{file.path}: settings that transformers does not have ({error})") from None


def _usual(file: GgufFile, head_dim: int) -> dict[str, Any]:
    return {"head_dim": head_dim, "rope_parameters": _rope(file, head_dim)}


def _phi(file: GgufFile, head_dim: int) -> dict[str, Any]:
    rope = _rope(file, head_dim)
    original = rope.get("original_max_position_embeddings", int(file.get("context_length")))
    return {"sliding_window": _window(file), "rope_parameters": rope, "original_max_position_embeddings": original}


def _gemma(file: GgufFile, head_dim: int) -> dict[str, Any]:
    layers, kind = int(file.get("block_count")), file.architecture
    square = (kind, layers) in _SQUARE_ATTENTION
    scalar = int(file.get("embedding_length")) // int(file.get("attention.head_count")) if square else head_dim
    # What a file of Gemma 2 leaves out has these values in llama.cpp too.
    attention_cap, final_cap, window = (50.0, 30.0, 4096) if kind == "gemma2" else (None, None, None)
    window = _window(file, window)
    settings = {
        "head_dim": head_dim,
        "query_pre_attn_scalar": scalar,
        "attn_logit_softcapping": file.get("attn_logit_softcapping", attention_cap),
        "final_logit_softcapping": file.get("final_logit_softcapping", final_cap),
        "sliding_window": window or int(file.get("context_length")),
        "layer_types": _layer_types(file, layers, slides=window is not None),
        "rope_parameters": _rope(file, head_dim),
    }
    if kind == "gemma3":
        local = {"rope_type": "default", "rope_theta": float(file.get("rope.freq_base_swa", 10_000.0))}
        settings["rope_parameters"] = {"sliding_attention": local, "full_attention": settings["rope_parameters"]}
    return settings


def _mistral(file: GgufFile, head_dim: int) -> dict[str, Any]:
    """Return Mistral's settings, or those of Ministral 3, whose queries grow with their positions."""
    settings = {**_usual(file, head_dim), "sliding_window": None}
    rope, beta = settings["rope_parameters"], file.get("attention.temperature_scale")
    if not beta:
        return {**settings, "config": "MistralConfig"}
    if "original_max_position_embeddings" not in rope:
        raise UnsupportedModel(f"{file.path}: attention.temperature_scale without rope.scaling's original context")
    if all_dimensions := file.get("rope.scaling.yarn_log_multiplier"):
        rope |= {"mscale": 1.0, "mscale_all_dim": float(all_dimensions)}
    return {**settings, "rope_parameters": rope | {"llama_4_scaling_beta": float(beta)}}


def _gemma4(file: GgufFile, head_dim: int) -> dict[str, Any]:
    """Return layers that see all have wider heads, of which a part turns, and may take their keys for values."""
    if file.get("embedding_length_per_layer_input") or file.get("attention.shared_kv_layers"):
        raise UnsupportedModel(
            f"{file.path}: layers with embeddings of their own, or with the keys of earlier ones, as in Gemma 4 E2B "
            "and E4B, cannot be cut at an exit; name another model"
        )
    layers = int(file.get("block_count"))
    types, heads = _layer_types(file, layers, slides=True), file.get("attention.head_count_kv")
    heads = heads if isinstance(heads, list) else [heads] * layers
    of_kind = {kind: {each for each, own in zip(heads, types, strict=False) if own == kind} for kind in set(types)}
    local = int(file.get("attention.key_length_swa", head_dim))
    angles, local_base = _factors(file, "freqs", head_dim) or [1.0], float(file.get("rope.freq_base_swa", 10_000.0))
    turned = sum(each == 1.0 for each in angles)
    widths = {"attention.value_length_swa": local, "rope.dimension_count": head_dim, "rope.dimension_count_swa": local}
    odd = [f"{key}={file.get(key)}" for key, width in widths.items() if file.get(key, width) != width]
    if len(heads) != layers or any(len(each) > 1 for each in of_kind.values()):
        odd.append(f"attention.head_count_kv={heads}")
    if odd or any(each < 1e20 for each in angles[turned:]):
        raise UnsupportedModel(f"{file.path}: {odd[0] if odd else 'rope_freqs'} is none of Gemma 4's; name its hub id")
    full = [f"blk.{layer}.attn_v.weight" for layer, kind in enumerate(types) if kind == "full_attention"]
    few = of_kind.get("full_attention", set()) | of_kind.get("sliding_attention", set())
    return {
        "head_dim": local,
        "global_head_dim": head_dim,
        "num_key_value_heads": next(iter(of_kind.get("sliding_attention", few))),
        "num_global_key_value_heads": next(iter(of_kind.get("full_attention", few))),
        "attention_k_eq_v": not {each.name for each in file.tensors} & set(full),
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": bool(file.get("expert_count")),
        "layer_types": types,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": local_base},
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": float(file.get("rope.freq_base", 1e6)),
                "partial_rotary_factor": turned / len(angles),
            },
        },
    }


def _gpt_oss(file: GgufFile, head_dim: int) -> dict[str, Any]:
    # Of the model's configuration, and not in the file: llama.cpp rounds the ends of the ramp.
    return {"head_dim": head_dim, "rope_parameters": _rope(file, head_dim) | {"truncate": False}}


_OWN: dict[str, Callable[[GgufFile, int], dict[str, Any]]] = {
    **{"gemma2": _gemma, "gemma3": _gemma, "phi3": _phi, "mistral3": _mistral, "gpt-oss": _gpt_oss},
    "gemma4": _gemma4,
}
"""What gives the settings of architectures that need more than names; `config` names a class other than the table's."""


def _window(file: GgufFile, default: int | None = None) -> int | None:
    window = file.get("attention.sliding_window", default)
    return int(window) if window else None


def _layer_types(file: GgufFile, layers: int, *, slides: bool) -> list[str]:
    """Return which layers see a window alone: as the file says, else each but the second (gemma2) or sixth (gemma3)."""
    pattern = file.get("attention.sliding_window_pattern", 2 if file.architecture == "gemma2" else 6)
    if isinstance(pattern, int) and not isinstance(pattern, bool):
        pattern = [not pattern or bool((layer + 1) % pattern) for layer in range(layers)]
    if not isinstance(pattern, list) or len(pattern) != layers:
        raise UnsupportedModel(f"{file.path}: attention.sliding_window_pattern={pattern!r:.60} for {layers} layers")
    return ["sliding_attention" if slides and slides_here else "full_attention" for slides_here in pattern]


def _rope(file: GgufFile, head_dim: int) -> dict[str, Any]:
    """Return rotary angles: GGUF has settings for some scalings, and factors in tensors for others."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": float(file.get("rope.freq_base", 10_000.0))}
    turned = int(file.get("rope.dimension_count", head_dim))
    if turned != head_dim:
        if not ARCHITECTURES[file.architecture].partial:
            raise UnsupportedModel(f"{file.path}: {turned} of {head_dim} dimensions of a head turn; name its hub id")
        rope["partial_rotary_factor"] = turned / head_dim
    window = int(file.get("context_length"))
    scaling, factor = file.get("rope.scaling.type", "none"), file.get("rope.scaling.factor")
    original = file.get("rope.scaling.original_context_length")
    factors = {name: _factors(file, name, turned) for name in ROPE_TENSORS}
    if factors["factors_long"] is not None and factors["factors_short"] is not None:
        rope |= {"short_factor": factors["factors_short"], "long_factor": factors["factors_long"]}
        rope |= {"rope_type": "longrope", "original_max_position_embeddings": int(original or window)}
        if (attention := file.get("rope.scaling.attn_factor")) is not None:
            rope["attention_factor"] = float(attention)
    elif factors["freqs"] is not None:
        # Llama 3.1's angles, divided by these at any length; "longrope" is the type that takes a factor for each.
        rope |= {"short_factor": factors["freqs"], "long_factor": factors["freqs"], "attention_factor": 1.0}
        rope |= {"rope_type": "longrope", "original_max_position_embeddings": window}
    elif scaling == "linear" and factor:
        rope |= {"rope_type": "linear", "factor": float(factor)}
    elif scaling == "yarn" and factor and original:
        rope |= {"rope_type": "yarn", "factor": float(factor), "original_max_position_embeddings": int(original)}
        rope |= {name: float(told) for key, name in YARN.items() if (told := file.get(f"rope.scaling.{key}"))}
    elif scaling not in ("none", "longrope"):
        raise UnsupportedModel(
            f"{file.path}: rope.scaling.type={scaling!r}, factor {factor}; name the model's Hugging Face id or folder"
        )
    return rope


def _factors(file: GgufFile, name: str, turned: int) -> list[float] | None:
    """Return what the angles are divided by, one for each pair of dimensions; None where the file does not say."""
    for tensor in file.tensors:
        if tensor.name == f"rope_{name}.weight":
            if tensor.kind.name != "F32" or tensor.shape != (turned // 2,):
                raise UnsupportedModel(f"{file.path}: {tensor.name} is {tensor.kind.name} of shape {tensor.shape}")
            factors: list[float] = np.fromfile(tensor.path, np.float32, tensor.values, offset=tensor.start).tolist()
            return factors
    return None
