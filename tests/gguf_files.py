"""Tiny GGUF files of every architecture that Eddy opens, and the models that they hold.

The files are written as llama.cpp's `convert_hf_to_gguf.py` writes them. The model that a file holds is put together
from transformers' own classes and from weights that the package `gguf` reads back from the quantised blocks.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFEndian, GGUFValueType, GGUFWriter, get_tensor_name_map
from gguf.quants import dequantize, quantize
from tests.families import LAYERS, MULTIPLIERS, SLIDING, _byte_level, _shape, metaspace_tokenizer
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of tokens, as llama.cpp numbers them."""

# --- vocabularies

SPLITS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
SPLITS["smollm"] = SPLITS["gpt-2"]
"""How the models' own tokenizers split text, under llama.cpp's names."""


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, and what a file says of it, without `tokenizer.ggml.` in front."""

    tokenizer: PreTrainedTokenizerFast
    metadata: dict[str, Any]


def _fast(backend: Tokenizer, start: bool, **special: str) -> PreTrainedTokenizerFast:
    token = special["bos_token"]
    backend.post_processor = processors.TemplateProcessing(
        single=[token, "$A"] if start else ["$A"], special_tokens=[(token, backend.token_to_id(token))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False, **special)


@cache
def byte_level(pre: str) -> Vocabulary:
    """Byte-level BPE as of SmolLM2, Qwen or Llama 3."""
    special, whole = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<think>", "  "]
    backend = _byte_level(560, special)
    steps = [pre_tokenizers.Digits(individual_digits=True)] if pre == "smollm" else []
    steps.append(pre_tokenizers.Split(Regex(SPLITS[pre]), behavior="isolated"))
    backend.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(False, use_regex=False)])
    learned = json.loads(backend.to_str())["model"]
    for token in ("Ġwhole", *whole):  # a word that no merges lead to
        learned["vocab"][token] = len(learned["vocab"])
    merges = [tuple(merge) for merge in learned["merges"]]
    backend.model = models.BPE(learned["vocab"], merges, ignore_merges=pre == "llama-bpe")
    backend.add_tokens([AddedToken(token, normalized=False) for token in whole])
    tokens = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    kinds = {**dict.fromkeys(special, CONTROL), **dict.fromkeys(whole, USER_DEFINED)}
    start = tokens.index(special[0])
    metadata = {"model": "gpt2", "pre": pre, "bos_token_id": start, "eos_token_id": start + 2, "tokens": tokens}
    metadata |= {"token_type": [kinds.get(token, NORMAL) for token in tokens], "merges": [*map(" ".join, merges)]}
    return Vocabulary(_fast(backend, pre == "llama-bpe", bos_token=special[0], eos_token=special[2]), metadata)


def _pieces(special: list[str], further: list[str]) -> tuple[list[str], list[float]]:
    """Pieces of a SentencePiece vocabulary and their scores: the earlier a piece was learned, the higher."""
    known = metaspace_tokenizer().get_vocab()
    vocabulary = [piece for piece in sorted(known, key=known.__getitem__) if piece[:1] != "<" or len(piece) == 1]
    front = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = [piece for piece in vocabulary if len(piece) == 1]
    pieces = [*front, *(piece for piece in vocabulary if len(piece) > 1), *further, *letters]
    scores = [0.0] * len(front) + [-float(rank) for rank in range(len(pieces) - len(front))]
    return pieces, scores


def _merges(pieces: list[str], scores: list[float]) -> list[tuple[str, str]]:
    """SentencePiece joins the two neighbours whose joint piece scores highest."""
    known = dict(zip(pieces, scores, strict=True))
    pairs = [(piece[:cut], piece[cut:]) for piece in pieces for cut in range(1, len(piece))]
    found = [pair for pair in pairs if pair[0] in known and pair[1] in known]
    return sorted(found, key=lambda pair: -known["".join(pair)])


@cache
def sentencepiece(kind: str) -> Vocabulary:
    """Pieces over `▁` with bytes for what they lack, as of Llama 2 and Phi 3 ("llama"), or of Gemma.

    Files of "gemma4" list the merges, which do not cross the ends of lines; those of "gemma" do not.
    """
    gemma = kind.startswith("gemma")
    special = ["<pad>", "<eos>", "<bos>", "<unk>"] if gemma else ["<unk>", "<s>", "</s>"]
    whole = ["  ", "   ", "\n", "\n\n", "<b>"] if gemma else ["<|user|>"]
    pieces, scores = _pieces([*special, *whole], [] if gemma else ["▁▁", "▁▁▁▁", "▁▁▁"])
    numbers = {piece: number for number, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(numbers, _merges(pieces, scores), unk_token="<unk>", byte_fallback=True))
    prefix = [] if gemma else [normalizers.Prepend("▁")]
    backend.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    backend.add_tokens([AddedToken(token, normalized=False) for token in whole])
    names = {"bos": special[2 if gemma else 1], "eos": special[1 if gemma else 2], "unknown": "<unk>"}
    metadata: dict[str, Any] = {"model": "llama", "pre": "default"}
    if kind == "gemma4":
        metadata = {"model": "gemma4"}
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n+"), behavior="isolated")
    metadata |= {f"{name}_token_id": numbers[token] for name, token in names.items()}
    if gemma:
        metadata |= {"padding_token_id": 0, "add_space_prefix": False}
    known = {**dict.fromkeys(special, CONTROL), "<unk>": UNKNOWN, **dict.fromkeys(whole, USER_DEFINED)}
    kinds = [BYTE if re.fullmatch("<0x..>", piece) else known.get(piece, NORMAL) for piece in pieces]
    metadata |= {"tokens": pieces, "token_type": kinds, "scores": scores}
    if kind == "gemma4":
        metadata["merges"] = [*map(" ".join, _merges(pieces, scores))]
    tokenizer = _fast(backend, True, bos_token=names["bos"], eos_token=names["eos"], unk_token="<unk>")
    return Vocabulary(tokenizer, metadata)


def vocabulary(name: str) -> Vocabulary:
    """By the name of a pre-tokenizer, or "llama" or "gemma" for those of SentencePiece."""
    return byte_level(name) if name in SPLITS else sentencepiece(name)


# --- models


def _rope(kind: str, theta: float = 10_000.0, **more: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": theta, **more}


def _gemma3_rope(kind: str = "default", **more: Any) -> dict[str, Any]:
    return {"sliding_attention": _rope("default"), "full_attention": _rope(kind, 1e6, **more)}


_HEADS = {"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": SLIDING}
_TURNS = ["sliding_attention", "full_attention"] * (LAYERS // 2)
_GEMMA2 = {**_HEADS, "layer_types": _TURNS, "attn_logit_softcapping": 8.0}
_GEMMA3 = {**_HEADS, "layer_types": ["sliding_attention"] * (LAYERS - 1) + ["full_attention"], "num_key_value_heads": 1}
_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 256}


@dataclass(frozen=True)
class Recipe:
    """How to make a file.

    Attributes:
        architecture: GGUF's name.
        model: The model's configuration in transformers, without `Config`.
        shape: What that configuration is made of.
        words: Name of the vocabulary.
        settings: Metadata beside those that follow from a plain configuration; None leaves one out.
        tensors: Tensors beside the weights.
        query_gain: Factor on the query weights: soft caps only bite on large scores.
    """

    architecture: str
    model: str
    shape: dict[str, Any]
    words: str
    settings: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, list[float]] = field(default_factory=dict)
    query_gain: float = 1.0

    def config(self) -> PreTrainedConfig:
        made: PreTrainedConfig = getattr(transformers, f"{self.model}Config")(**copy.deepcopy(self.shape))
        return made


def llama3_factors(head_dim: int, theta: float = 500_000.0) -> list[float]:
    """What Llama 3.1 divides its angles by, by the formula of Meta's code."""
    factor, low, high, old = _LLAMA3.values()
    factors = []
    for pair in range(head_dim // 2):
        wave = 2 * np.pi * theta ** (2 * pair / head_dim)
        smooth = np.clip((old / wave - low) / (high - low), 0.0, 1.0)
        factors.append(float(1 / ((1 - smooth) / factor + smooth)))
    return factors


_LONG = {"short_factor": [1.0 + 0.05 * i for i in range(8)], "long_factor": [1.5 + 0.5 * i for i in range(8)]}
_GEMMA4 = {
    **{"head_dim": 16, "global_head_dim": 32, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0},
    **{"layer_types": _TURNS, "sliding_window": SLIDING},
}
_GEMMA4_SAID = {
    **{"attention.key_length": 32, "attention.value_length": 32, "rope.dimension_count": 32, "rope.freq_base": 1e6},
    **{"attention.key_length_swa": 16, "attention.value_length_swa": 16, "rope.dimension_count_swa": 16},
    **{"attention.sliding_window": SLIDING, "attention.sliding_window_pattern": [True, False] * (LAYERS // 2)},
    **{"attention.shared_kv_layers": 0, "embedding_length_per_layer_input": 0, "rope.freq_base_swa": 10_000.0},
}
_GEMMA4_TENSORS = {"rope_freqs.weight": [1.0] * 4 + [1e30] * 12}
_BETAS = {"factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16.0, "beta_slow": 2.0}
_MINISTRAL = _BETAS | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
_YARN = {
    **{"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64},
    **{"rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0},
}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "norm_topk_prob": True}
_GPT_OSS = {
    **{"head_dim": 32, "num_local_experts": 6, "num_experts_per_tok": 3, "sliding_window": SLIDING},
    **{"tie_word_embeddings": False, "rope_parameters": _rope("yarn", 150_000.0, **_BETAS, truncate=False)},
}
_PARTLY = _rope("default", partial_rotary_factor=0.5)

FAMILIES: dict[str, Recipe] = {
    "llama": Recipe("llama", "Llama", _shape(), "llama"),
    "qwen2": Recipe("qwen2", "Qwen2", _shape(), "qwen2"),
    "qwen3": Recipe("qwen3", "Qwen3", _shape(head_dim=32), "qwen2"),
    "gemma2": Recipe(
        *("gemma2", "Gemma2", _shape(**_GEMMA2), "gemma"),
        {"attn_logit_softcapping": 8.0, "final_logit_softcapping": 30.0},
        query_gain=4.0,
    ),
    "gemma3": Recipe("gemma3", "Gemma3Text", _shape(**_GEMMA3, rope_parameters=_gemma3_rope()), "gemma"),
    "phi3": Recipe("phi3", "Phi3", _shape(), "llama"),
    "qwen3moe": Recipe("qwen3moe", "Qwen3Moe", _shape(head_dim=32, **_EXPERTS), "qwen2"),
    "granite": Recipe(
        *("granite", "Granite", _shape(**MULTIPLIERS), "smollm"),
        {"attention.scale": 0.4, "embedding_scale": 3.0, "residual_scale": 0.7, "logit_scale": 2.0},
    ),
    "smollm3": Recipe("smollm3", "SmolLM3", _shape(), "llama-bpe"),
    "olmo2": Recipe("olmo2", "Olmo2", _shape(tie_word_embeddings=False), "gpt-2"),
    "glm4": Recipe("glm4", "Glm4", _shape(head_dim=16, attention_bias=True, rope_parameters=_PARTLY), "llama-bpe"),
    "mistral3": Recipe(
        *("mistral3", "Ministral3", _shape(head_dim=32, rope_parameters=_rope("yarn", 1e6, **_MINISTRAL)), "llama-bpe"),
        {**_YARN, "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.1},
    ),
    "gpt-oss": Recipe("gpt-oss", "GptOss", _shape(**_GPT_OSS), "llama-bpe", _YARN),
    "command-r": Recipe(
        *("command-r", "Cohere", _shape(logit_scale=0.5, layer_norm_eps=1e-4), "gpt-2"),
        {"logit_scale": 0.5, "attention.layer_norm_epsilon": 1e-4},
    ),
}
"""One of each architecture."""

VARIANTS: dict[str, Recipe] = {
    "gemma4": Recipe(
        *("gemma4", "Gemma4Text", _shape(**_GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=1), "gemma4"),
        {**_GEMMA4_SAID, "attention.head_count_kv": [2, 1] * (LAYERS // 2)},
        _GEMMA4_TENSORS,
    ),
    "gemma4, experts": Recipe(
        *("gemma4", "Gemma4Text"),
        _shape(**_GEMMA4, enable_moe_block=True, num_experts=6, top_k_experts=3, moe_intermediate_size=32),
        "gemma4",
        {**_GEMMA4_SAID, "expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 32},
        _GEMMA4_TENSORS,
    ),
    "mistral3, small": Recipe("mistral3", "Mistral", _shape(head_dim=32, sliding_window=None), "llama"),
    "command-r, normed keys": Recipe(
        *("command-r", "Cohere", _shape(use_qk_norm=True), "gpt-2"),
        {"logit_scale": 0.0625, "attention.layer_norm_epsilon": 1e-5},
    ),
    "llama, biases": Recipe("llama", "Llama", _shape(attention_bias=True, mlp_bias=True), "llama"),
    "llama 3.1": Recipe(
        *("llama", "Llama", _shape(rope_parameters=_rope("llama3", 500_000.0, **_LLAMA3)), "llama-bpe"),
        tensors={"rope_freqs.weight": llama3_factors(16)},
    ),
    "qwen2, yarn": Recipe(
        *("qwen2", "Qwen2"),
        _shape(rope_parameters=_rope("yarn", 1e6, factor=4.0, original_max_position_embeddings=64)),
        "qwen2",
        {**_YARN, "rope.scaling.yarn_beta_fast": None, "rope.scaling.yarn_beta_slow": None},
    ),
    "gemma2, defaults unsaid": Recipe(
        *("gemma2", "Gemma2", _shape(**_GEMMA2 | {"sliding_window": 4096, "attn_logit_softcapping": 50.0}), "gemma"),
        {"attention.sliding_window": None},
        query_gain=16.0,
    ),
    "gemma3, linear, each third": Recipe(
        *("gemma3", "Gemma3Text"),
        _shape(
            **_GEMMA3 | {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2},
            rope_parameters=_gemma3_rope("linear", factor=8.0),
        ),
        "gemma",
        {
            **{"attention.sliding_window_pattern": [True, True, False] * 2, "rope.freq_base_swa": 10_000.0},
            **{"rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
        },
    ),
    "phi3, long": Recipe(
        *("phi3", "Phi3"),
        _shape(rope_parameters=_rope("longrope", **_LONG), original_max_position_embeddings=256),
        "llama",
        {"rope.scaling.original_context_length": 256, "rope.scaling.attn_factor": (1 + np.log(4) / np.log(256)) ** 0.5},
        {"rope_factors_short.weight": _LONG["short_factor"], "rope_factors_long.weight": _LONG["long_factor"]},
    ),
}
"""What the settings of a file can further ask for."""

# --- names

_UNMAPPED = {
    "self_attn.sinks": "attn_sinks.weight",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "router.scale": "ffn_gate_inp.scale",
    "layer_scalar": "layer_output_scale.weight",
}
"""Parameters that are no weight or bias of a module."""
_PAIRED = ("llama", "granite", "smollm3", "mistral3")
"""Architectures whose queries and keys llama.cpp sorts for angles that turn neighbours."""


def name_of(parameter: str, architecture: str) -> str:
    """GGUF's name of a parameter of transformers."""
    layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", parameter)
    if layer and layer[2] in _UNMAPPED:
        return f"blk.{layer[1]}.{_UNMAPPED[layer[2]]}"
    number = next(number for number, name in MODEL_ARCH_NAMES.items() if name == architecture)
    name = get_tensor_name_map(number, LAYERS).get_name(parameter, (".weight", ".bias"))
    assert name is not None, parameter
    return name


# --- quantised blocks


def decode(blocks: np.ndarray, kind: str) -> np.ndarray:
    """Return the values of quantised rows: bytes of shape (rows, bytes) to (rows, values)."""
    return dequantize(blocks, GGMLQuantizationType[kind]).astype(np.float32)


def encode(weight: np.ndarray, kind: str, random: np.random.Generator) -> np.ndarray:
    """Quantised rows; those of Q4_K, which no Python package makes, are random blocks of the same spread."""
    if kind == "F16":
        return weight.astype(np.float16).view(np.uint8)
    if kind != "Q4_K":
        return quantize(weight, GGMLQuantizationType[kind])
    rows, width = weight.shape
    blocks = random.integers(0, 256, (rows * width // 256, 144), dtype=np.uint8)
    scale = weight.std() / 300 * random.uniform(0.7, 1.4, (len(blocks), 1)) * np.array([[1.0, 7.5]])
    blocks[:, :4] = scale.astype(np.float16).view(np.uint8)
    return blocks.reshape(rows, -1)


# --- files


def settings_of(recipe: Recipe, config: Any) -> dict[str, Any]:
    """The metadata of a file's architecture, without its name in front."""
    config = copy.deepcopy(config)
    config.allow_global_per_layer_attribute_access = True  # what differs between layers is the recipe's to say
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    settings = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": getattr(config, "rms_norm_eps", None),
        "rope.dimension_count": int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        "rope.freq_base": rope.get("rope_theta"),
    }
    if (
        recipe.architecture in ("qwen3", "qwen3moe", "gemma2", "gemma3")
        or head_dim * config.num_attention_heads != config.hidden_size
    ):
        settings |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    if recipe.architecture in ("qwen3moe", "gpt-oss"):
        settings |= {"expert_count": config.num_experts, "expert_used_count": config.num_experts_per_tok}
        inner = config.moe_intermediate_size if recipe.architecture == "qwen3moe" else config.intermediate_size
        settings |= {"expert_feed_forward_length": inner}
    if getattr(config, "sliding_window", None) and recipe.architecture in ("gemma2", "gemma3", "phi3", "gpt-oss"):
        settings |= {"attention.sliding_window": config.sliding_window}
    return {key: value for key, value in (settings | recipe.settings).items() if value is not None}


def _scalars(model: PreTrainedModel) -> list[tuple[str, torch.Tensor]]:
    """Buffers that are stored as weights are."""
    return [(name, buffer) for name, buffer in model.named_buffers() if name.endswith("layer_scalar")]


def model_of(recipe: Recipe) -> PreTrainedModel:
    """A model with random weights (float32, evaluation mode), every one of which shows in the result."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(77)
        model = AutoModelForCausalLM.from_config(recipe.config(), dtype=torch.float32)
        with torch.no_grad():
            for name, weight in [*model.named_parameters(), *_scalars(model)]:
                if weight.ndim == 1:
                    weight.add_(0.1 * torch.randn_like(weight))
                elif "q_proj" in name:
                    weight *= recipe.query_gain
    return model.eval()


def _turned(weight: np.ndarray, heads: int, apart: bool = False) -> np.ndarray:
    """Rows of queries or keys as llama.cpp turns them: pairs of neighbours, not of halves; `apart` undoes it."""
    pairs = (heads, -1, 2) if apart else (heads, 2, -1)
    return weight.reshape(*pairs, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _write_experts(
    tensors: dict[str, tuple[np.ndarray, str]],
    parameter: str,
    weight: torch.Tensor,
    kind: str,
    random: np.random.Generator,
    architecture: str,
) -> None:
    """Stacked matrices of experts, or their biases, of which the model joins two kinds and the file none."""
    kinds, layer = ("gate", "up") if "gate_up_proj" in parameter else ("down",), parameter.split(".")[2]
    if architecture == "gemma4" and len(kinds) == 2 and int(layer) % 2:  # as the model has them
        kinds = ("gate_up",)
    if architecture == "gpt-oss":  # rows of two kinds in turn, and matrices on the other side of their product
        weight = weight.transpose(1, -1)
        parts = [weight[:, start :: len(kinds)] for start in range(len(kinds))]
    else:
        parts = [*weight.chunk(len(kinds), dim=1)]
    for part, values in zip(kinds, parts, strict=True):
        if values.ndim == 2:
            tensors[f"blk.{layer}.ffn_{part}_exps.bias"] = (values.numpy().copy(), "F32")
            continue
        rows = values.numpy().reshape(-1, values.shape[-1])
        stored = rows if kind == "F32" else encode(rows, kind, random)
        held = stored if kind == "F32" else decode(stored, kind)
        tensors[f"blk.{layer}.ffn_{part}_exps.weight"] = (stored.reshape(*values.shape[:2], -1), kind)
        values.copy_(torch.from_numpy(held).view(values.shape))


@torch.no_grad()
def write(path: Path, recipe: Recipe, kind: str = "F16", **own: Any) -> PreTrainedModel:
    """Write a file, and return the model that it holds, with the weights that were rounded to `kind`.

    Args:
        path: The file.
        recipe: What it holds.
        kind: F32, F16, Q8_0, Q4_1, MXFP4 or Q4_K, of all matrices; Q4_K needs rows of multiples of 256.
        own: `metadata` by whole key, None for a key to leave out; `tensors` to add, None for one to leave out;
            `endianess` for files of other processors; `count` of parts.
    """
    model = model_of(recipe)
    config: Any = model.config
    random = np.random.default_rng(len(kind))
    tensors: dict[str, tuple[np.ndarray, str]] = {}
    for parameter, weight in [*model.named_parameters(), *_scalars(model)]:
        if ".experts." in parameter:
            _write_experts(tensors, parameter, weight, kind, random, recipe.architecture)
            continue
        name = name_of(parameter, recipe.architecture)
        values = weight.numpy()
        turned = None
        if recipe.architecture in _PAIRED:
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
            turned = heads.get(name.split(".")[-2])
        stored = _turned(values, turned) if turned else values
        if weight.ndim == 1 or name.endswith("norm.weight") or kind == "F32":
            offset = np.float32(recipe.architecture in ("gemma2", "gemma3") and name.endswith("norm.weight"))
            tensors[name] = (stored + offset, "F32")
            held = stored + offset - offset
        else:
            tensors[name] = (encode(stored, kind, random), kind)
            held = decode(tensors[name][0], kind)
        weight.copy_(torch.from_numpy(_turned(held, turned, apart=True) if turned else held))
    tensors |= {name: (np.array(values, np.float32), "F32") for name, values in recipe.tensors.items()}
    metadata = {f"{recipe.architecture}.{key}": value for key, value in settings_of(recipe, config).items()}
    write_parts(path, recipe.architecture, metadata | tokens_of(recipe.words, config.vocab_size), tensors, **own)
    return model


def tokens_of(words: str, rows: int) -> dict[str, Any]:
    """The metadata of a vocabulary, filled up to the rows of the embedding matrix as llama.cpp's converter does."""
    metadata = dict(vocabulary(words).metadata)
    spare = range(len(metadata["tokens"]), rows)
    fills = {"tokens": [f"[PAD{number}]" for number in spare], "token_type": [UNUSED for _ in spare]}
    fills["scores"] = [-10_000.0 for _ in spare]
    metadata |= {key: metadata[key] + fill for key, fill in fills.items() if key in metadata}
    return {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}


def write_parts(
    path: Path,
    architecture: str,
    metadata: dict[str, Any],
    tensors: dict[str, tuple[np.ndarray, str]],
    own_metadata: dict[str, Any] | None = None,
    own_tensors: dict[str, np.ndarray | None] | None = None,
    endianess: GGUFEndian = GGUFEndian.LITTLE,
    count: int = 1,
) -> None:
    """Write metadata and tensors; own ones replace others, None leaves one out.

    Several parts are as `llama-gguf-split` writes them: all metadata in the first.
    """
    metadata = {key: value for key, value in (metadata | (own_metadata or {})).items() if value is not None}
    added = {name: None if each is None else (each, "F32") for name, each in (own_tensors or {}).items()}
    stored = [(name, *tensor) for name, tensor in (tensors | added).items() if tensor is not None]
    for number in range(count):
        part = path if count == 1 else path.with_name(f"{path.stem}-{number + 1:05}-of-{count:05}.gguf")
        writer = GGUFWriter(part, "" if number else architecture, endianess=endianess)
        for key, value in metadata.items() if number == 0 else ():
            writer.add_key_value(
                key, value, GGUFValueType.UINT32 if type(value) is int else GGUFValueType.get_type(value)
            )
        if count > 1:
            writer.add_uint16("split.count", count)
        for name, values, kind in stored[number::count]:
            writer.add_tensor(name, values, raw_dtype=GGMLQuantizationType[kind])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def wide(recipe: Recipe) -> Recipe:
    """The same with rows of 256, as Q4_K asks for, and fewer layers."""
    shape = recipe.shape | {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 2, "head_dim": 64}
    further = {"moe_intermediate_size": 256, "query_pre_attn_scalar": 64}
    shape |= {name: size for name, size in further.items() if name in shape}
    if "layer_types" in shape:
        shape["layer_types"] = shape["layer_types"][:2]
    return replace(recipe, shape=shape)
