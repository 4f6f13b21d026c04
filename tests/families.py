"""Tiny models of every family, built from configs, and offline tokenizers of three kinds.

Nothing is downloaded. Weights are random, seeded and large enough that every layer, bias, norm, soft cap and window
shows in the result: with a library's usual 0.02 a missing soft cap or an edge off by one would drown in rounding.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

LAYERS = 6
HIDDEN = 64
VOCABULARY = 640
"""Rows of the embedding matrix: more than any of the tokenizers has entries, as in many published models."""
WINDOW = 1024
"""Longest sequence."""
SLIDING = 12
"""Sliding window in tokens, shorter than the texts of the tests."""

PROSE = Path(__file__).parent / "fixtures" / "prose.txt"


# --- tokenizers


def _byte_level(size: int, special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train([str(PROSE)], trainer)
    return tokenizer


@cache
def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE without a token in front, as GPT-2's."""
    return PreTrainedTokenizerFast(
        tokenizer_object=_byte_level(512, ["<|endoftext|>"]),
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        unk_token="<|endoftext|>",
    )


@cache
def metaspace_tokenizer() -> PreTrainedTokenizerFast:
    """BPE over `▁` with byte fallback and `<s>` in front, as the tokenizers that come from SentencePiece."""
    special = ["<unk>", "<s>", "</s>"]
    learner = Tokenizer(models.BPE(unk_token="<unk>"))
    learner.normalizer = normalizers.Replace(Regex("\n"), " ")
    learner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=special, show_progress=False)
    learner.train([str(PROSE)], trainer)
    learned = json.loads(learner.to_str())["model"]
    pieces = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += [piece for piece in learned["vocab"] if piece not in special]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges = [tuple(merge) for merge in learned["merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def _bracketed(template: str, special: dict[str, str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE whose template puts specials around every text; `special` gives them in the order of their ids."""
    tokenizer = _byte_level(560, list(special.values()))
    ids = [(token, number) for number, token in enumerate(special.values()) if token in template]
    bracket = processors.TemplateProcessing(single=template, special_tokens=ids)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), bracket])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="right", **special)


@cache
def bracketing_tokenizer() -> PreTrainedTokenizerFast:
    """A token in front of every text, and an end token behind."""
    special = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    return _bracketed("<bos> $A <eos>", special)


@cache
def padding_second_tokenizer() -> PreTrainedTokenizerFast:
    """The same with padding at 1, where MPNet takes it to be, whatever its configuration says."""
    return _bracketed("<s> $A </s>", {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>"})


@cache
def closing_tokenizer() -> PreTrainedTokenizerFast:
    """An end token behind every text and nothing in front, as T5's."""
    return _bracketed("$A </s>", {"pad_token": "<pad>", "eos_token": "</s>"})


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "byte-level": byte_level_tokenizer,
    "metaspace": metaspace_tokenizer,
    "bracketing": bracketing_tokenizer,
}
ENCODERS_TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "padding second": padding_second_tokenizer,
    "closing": closing_tokenizer,
}


# --- models


@dataclass(frozen=True)
class Family:
    """How to build one family.

    Attributes:
        architecture: Its configuration in transformers, without `Config`.
        settings: What the configuration is made of.
        tokenizer: Key of `TOKENIZERS` or `ENCODERS_TOKENIZERS`.
        query_gain: Factor on the query weights: soft caps only bite on large scores.
    """

    architecture: str
    settings: dict[str, Any]
    tokenizer: str
    query_gain: float = 1.0


def _shape(kv_heads: int | None = 2, **more: object) -> dict[str, Any]:
    shape: dict[str, Any] = {
        **{"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 4},
        **{"intermediate_size": 96, "max_position_embeddings": WINDOW, "initializer_range": 0.2},
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
    }
    return shape | ({} if kv_heads is None else {"num_key_value_heads": kv_heads}) | more


_GPT2: dict[str, Any] = {
    **{"vocab_size": VOCABULARY, "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": 4, "n_inner": 96},
    **{"n_positions": WINDOW, "initializer_range": 0.2, "bos_token_id": None, "eos_token_id": None},
}
_GEMMA2 = {"head_dim": 32, "sliding_window": SLIDING, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 8.0}
_GEMMA3 = {
    **{"head_dim": 32, "sliding_window": SLIDING, "query_pre_attn_scalar": 24},
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * (LAYERS // 3),
}
_YARN = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "truncate": False}
_GPT_OSS = {
    **{"head_dim": 32, "sliding_window": SLIDING, "num_local_experts": 4, "num_experts_per_tok": 2},
    **{"attention_bias": True, "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2)},
    "rope_parameters": {**_YARN, "original_max_position_embeddings": WINDOW // 4},
}
_EXPERTS = {"head_dim": 32, "moe_intermediate_size": 48, "num_experts": 6, "num_experts_per_tok": 3}
MULTIPLIERS = {
    **{"embedding_multiplier": 3.0, "attention_multiplier": 0.4, "residual_multiplier": 0.7},
    "logits_scaling": 2.0,
}
"""Of Granite."""


def _partly_rotary(part: float) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": part}}


FAMILIES: dict[str, Family] = {
    "llama": Family("Llama", _shape(), "metaspace"),
    "qwen3": Family("Qwen3", _shape(1, head_dim=32), "byte-level"),
    "gpt2": Family("GPT2", _GPT2, "byte-level"),
    "gemma2": Family("Gemma2", _shape(**_GEMMA2), "bracketing", query_gain=4.0),
}
"""The families that every method is tested on."""

MORE_FAMILIES: dict[str, Family] = {
    "mistral": Family("Mistral", _shape(sliding_window=SLIDING), "metaspace"),
    "qwen2": Family("Qwen2", _shape(), "byte-level"),
    "gemma3": Family("Gemma3Text", _shape(1, **_GEMMA3), "bracketing"),
    "phi3": Family("Phi3", _shape(), "metaspace"),
    "gpt_neox": Family("GPTNeoX", _shape(None, **_partly_rotary(0.5)), "byte-level"),
    "olmo2": Family("Olmo2", _shape(1), "bracketing"),
    "mixtral": Family("Mixtral", _shape(num_local_experts=4, num_experts_per_tok=2, sliding_window=None), "metaspace"),
    "qwen3_moe": Family("Qwen3Moe", _shape(1, **_EXPERTS, mlp_only_layers=[2], norm_topk_prob=True), "byte-level"),
    "phi": Family("Phi", _shape(None, **_partly_rotary(0.5)), "byte-level"),
    "smollm3": Family("SmolLM3", _shape(no_rope_layer_interval=2), "byte-level"),
    "stablelm": Family("StableLm", _shape(use_qkv_bias=True, **_partly_rotary(0.25)), "byte-level"),
    "granite": Family("Granite", _shape(**MULTIPLIERS), "byte-level"),
    "gpt_oss": Family("GptOss", _shape(**_GPT_OSS), "byte-level", query_gain=2.0),
    "opt": Family("OPT", _shape(None, ffn_dim=96, word_embed_proj_dim=HIDDEN, init_std=0.2), "bracketing"),
}
"""Further families, for the tests that are cheap enough to run on all of them."""

_BLOOM = {"n_layer": LAYERS, "n_head": 4, "initializer_range": 0.2}
_GPT_NEO = {
    **{"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_layers": LAYERS, "num_heads": 4, "intermediate_size": 96},
    **{"max_position_embeddings": WINDOW, "window_size": SLIDING, "initializer_range": 0.2},
    **{"attention_types": [[["global", "local"], LAYERS // 2]], "bos_token_id": None, "eos_token_id": None},
}
OWN_ATTENTION: dict[str, Family] = {
    "falcon": Family("Falcon", _shape(None, new_decoder_architecture=True, num_kv_heads=2, bias=True), "byte-level"),
    "bloom": Family("Bloom", {"vocab_size": VOCABULARY, "hidden_size": HIDDEN, **_BLOOM}, "byte-level"),
    "gptj": Family("GPTJ", {**_GPT2, "rotary_dim": 8}, "byte-level"),
    "gpt_neo": Family("GPTNeo", _GPT_NEO, "byte-level"),
}
"""Families that compute their attention past transformers' registry."""

_TYPES = {"type_vocab_size": 2, "pad_token_id": 2}
_MODERN = {
    "local_attention": 2 * SLIDING,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"] * (LAYERS // 3),
    **dict.fromkeys((f"{kind}_token_id" for kind in ("pad", "bos", "eos", "cls", "sep")), 0),
}
_DISTILBERT = {
    **{"vocab_size": VOCABULARY, "dim": HIDDEN, "n_layers": LAYERS, "n_heads": 4, "hidden_dim": 96},
    **{"max_position_embeddings": WINDOW, "initializer_range": 0.2},
}
# Distances beyond the second have a row of the table for several at once.
_T5 = {
    **{"vocab_size": VOCABULARY, "d_model": HIDDEN, "d_kv": 24, "d_ff": 96, "num_layers": LAYERS, "num_heads": 4},
    **{"num_decoder_layers": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20},
    "initializer_factor": 1.5,
}
ENCODERS: dict[str, Family] = {
    "bert": Family("Bert", _shape(None, **_TYPES), "bracketing"),
    "roberta": Family("Roberta", _shape(None, **_TYPES), "bracketing"),
    "xlm_roberta": Family("XLMRoberta", _shape(None, **_TYPES), "bracketing"),
    "distilbert": Family("DistilBert", _DISTILBERT, "bracketing"),
    "modernbert": Family("ModernBert", _shape(None, **_MODERN), "bracketing"),
    "mpnet": Family("MPNet", _shape(None), "padding second"),
    "t5": Family("T5", _T5, "closing"),
    "mt5": Family("MT5", _T5, "closing"),
    "umt5": Family("UMT5", _T5, "closing"),
}
"""Families that read in both directions."""
T5S = ("t5", "mt5", "umt5")
"""Encoders of models that have a decoder too."""


@torch.no_grad()
def _enlarge(model: PreTrainedModel, family: Family) -> None:
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            # Sinks take part in a softmax, where a tenth would hardly show.
            weight.add_((1.0 if name.endswith("sinks") else 0.1) * torch.randn_like(weight))
        elif "relative_attention_bias" in name:
            weight *= 5.0
        elif "q_proj" in name:
            weight *= family.query_gain


@cache
def build(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """The model of a family (float32, CPU, evaluation mode) and its tokenizer.

    The same objects at every call: a test that changes a model copies it first.
    """
    family = (FAMILIES | MORE_FAMILIES | OWN_ATTENTION | ENCODERS)[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20_000 + sum(map(ord, name)))
        config = getattr(transformers, f"{family.architecture}Config")(**copy.deepcopy(family.settings))
        kind = "ForTextEncoding" if name in T5S else "" if name in ENCODERS else "ForCausalLM"
        model = getattr(transformers, f"AutoModel{kind}").from_config(config, dtype=torch.float32)
        _enlarge(model, family)
    return model.eval(), (TOKENIZERS | ENCODERS_TOKENIZERS)[family.tokenizer]()
