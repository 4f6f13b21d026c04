"""The architectures that Eddy opens from GGUF: names of their settings, and how llama.cpp stores their weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NUMBER = (int, float)
YARN = {"yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
"""Settings of `rope.scaling`, and what transformers calls them."""


@dataclass(frozen=True)
class Architecture:
    """What belongs to one architecture.

    Attributes:
        config: Its configuration in transformers, by the name of the class.
        carried: Settings of GGUF's that an entry of the configuration stands for: type, and name of the entry.
        settings: Further settings of GGUF's, which code reads, and their types.
        fixed: Entries of the configuration that llama.cpp takes for granted.
        pairs: Whether the rows of queries and keys are sorted for angles that turn neighbours.
        partial: Whether angles may turn a part of each head alone.
        norm_offset: What norms have more in the file than in the model.
        names: Tensors of a layer that `gguf` has no names for, by those of transformers.
    """

    config: str
    carried: dict[str, tuple[Any, str]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    pairs: bool = False
    partial: bool = False
    norm_offset: float = 0.0
    names: dict[str, str] = field(default_factory=dict)

    @property
    def known(self) -> dict[str, Any]:
        """The types of all settings that are not those of every architecture."""
        return self.settings | {key: kind for key, (kind, _) in self.carried.items()}


_WINDOW = {"attention.sliding_window": int}
_GEMMA = _WINDOW | {"attention.sliding_window_pattern": (int, list), "final_logit_softcapping": NUMBER}
ARCHITECTURES = {
    "llama": Architecture("LlamaConfig", pairs=True),  # Mistral's and SmolLM's files say llama too
    "qwen2": Architecture("Qwen2Config"),
    "qwen3": Architecture("Qwen3Config"),
    "qwen3moe": Architecture(
        "Qwen3MoeConfig",
        carried={
            "expert_count": (int, "num_experts"),
            "expert_used_count": (int, "num_experts_per_tok"),
            "expert_feed_forward_length": (int, "moe_intermediate_size"),
        },
        fixed={"norm_topk_prob": True},
    ),
    "gemma2": Architecture("Gemma2Config", settings=_GEMMA | {"attn_logit_softcapping": NUMBER}, norm_offset=1.0),
    "gemma3": Architecture("Gemma3TextConfig", settings=_GEMMA | {"rope.freq_base_swa": NUMBER}, norm_offset=1.0),
    "phi3": Architecture("Phi3Config", settings=_WINDOW, partial=True),
    "granite": Architecture(
        "GraniteConfig",
        carried={
            "attention.scale": (NUMBER, "attention_multiplier"),
            "embedding_scale": (NUMBER, "embedding_multiplier"),
            "residual_scale": (NUMBER, "residual_multiplier"),
            "logit_scale": (NUMBER, "logits_scaling"),
        },
        pairs=True,
    ),
    "smollm3": Architecture("SmolLM3Config", fixed={"no_rope_layer_interval": 4}, pairs=True),
    "olmo2": Architecture("Olmo2Config"),
    "glm4": Architecture("Glm4Config", partial=True),
    "gemma4": Architecture(
        "Gemma4TextConfig",
        carried={
            "expert_count": (int, "num_experts"),
            "expert_used_count": (int, "top_k_experts"),
            "expert_feed_forward_length": (int, "moe_intermediate_size"),
            "final_logit_softcapping": (NUMBER, "final_logit_softcapping"),
            "attention.sliding_window": (int, "sliding_window"),
        },
        settings={
            "attention.head_count_kv": (int, list),
            "attention.sliding_window_pattern": (int, list),
            "rope.freq_base_swa": NUMBER,
            **dict.fromkeys(
                ("attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"), int
            ),
            **dict.fromkeys(("embedding_length_per_layer_input", "attention.shared_kv_layers"), int),
        },
        names={"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"},
    ),
    "mistral3": Architecture(
        "Ministral3Config",
        settings={"attention.temperature_scale": NUMBER, "rope.scaling.yarn_log_multiplier": NUMBER},
        pairs=True,
    ),
    "gpt-oss": Architecture(
        "GptOssConfig",
        carried={
            "attention.sliding_window": (int, "sliding_window"),
            "expert_count": (int, "num_local_experts"),
            "expert_used_count": (int, "num_experts_per_tok"),
            "expert_feed_forward_length": (int, "intermediate_size"),
        },
    ),
    "command-r": Architecture(
        "CohereConfig",
        carried={"logit_scale": (NUMBER, "logit_scale"), "attention.layer_norm_epsilon": (NUMBER, "layer_norm_eps")},
    ),
}
"""By GGUF's names."""
_RUNS_ON = "which would run on from one text of a pass into the next"
REFUSED = {
    "llama4": "its layers hide keys beyond 8192 tokens by a mask that they do not announce",
    "gemma3n": "its layers hand on four streams of states (AltUp), of which none is the token's state",
    **dict.fromkeys(("qwen35", "qwen35moe", "qwen3next"), f"most of its layers are linear attention, {_RUNS_ON}"),
    **dict.fromkeys(("lfm2", "lfm2moe"), f"most of its layers are convolutions, {_RUNS_ON}"),
}
"""Architectures that the engine does not run exactly, by GGUF's names, and why."""
