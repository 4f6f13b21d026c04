"""Models of sentence-transformers: pooling, head and prompts from their folders, read without running their code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import torch
from safetensors.torch import load_file

from eddy_embed.errors import ModelNotFound, UnsupportedModel
from eddy_embed.model.backbone import Pooling
from eddy_embed.model.loading.dense_head import Dense, Head, Norm, Normalize
from eddy_embed.model.loading.peft import file_at
from eddy_embed.parts.layout import TextRole

LIBRARY = "sentence_transformers"
_REMEDY = (
    "to read the model inside without it, load that with transformers' AutoModel.from_pretrained and hand it over with "
    "tokenizer="
)
_POOLS: dict[str, Any] = {"cls": "cls", "lasttoken": "last", "mean": "mean", "weightedmean": "weighted"}
_OLDER = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_TRANSFORMER_CONFIGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_HARMLESS = {
    *("torch_dtype", "dtype", "attn_implementation", "padding_side", "add_pooling_layer", "low_cpu_mem_usage"),
    *("use_cache", "trust_remote_code", "device_map", "use_safetensors"),
}
_LAYERS = {"Dense": Dense, "LayerNorm": Norm}


@dataclass(frozen=True, eq=False)
class SentenceTransformerSpec:
    """What an embedding model brings with its weights.

    Attributes:
        pooling: How its states are pooled.
        head: What is done to its pooled states, None for nothing.
        unit: Whether its vectors have length 1.
        similarity: What its vectors are compared by: "cosine", "dot", "euclidean" or "manhattan".
        prompts: Prompt before a text, by role; None for none.
        subfolder: Where its weights and its tokenizer are.
        max_length: Most tokens that it was made for, None for the tokenizer's.
        lower: Whether text is put in lower case.
    """

    pooling: Pooling
    head: Head | None = None
    unit: bool = False
    similarity: str = "cosine"
    prompts: dict[TextRole, str | None] = field(default_factory=dict)
    subfolder: str = ""
    max_length: int | None = None
    lower: bool = False


@dataclass(frozen=True, eq=False)
class Module:
    """One module: the path of its class, its configuration, and a function that reads its weights."""

    kind: str
    config: Mapping[str, Any]
    weights: Callable[[], Mapping[str, torch.Tensor]]


def read_embedding_model(where: str, options: Mapping[str, Any]) -> SentenceTransformerSpec | None:
    """What a folder or a hub repository says of its model; None if it is not one of sentence-transformers."""
    listed = _json(where, "modules.json", options)
    if listed is None:
        return None
    modules: list[Module] = []
    if not isinstance(listed, list) or any({"path", "type"} - set(each) for each in listed):
        raise ModelNotFound(f"{where}: modules.json is no list of modules with path and type; fetch the model again")
    for entry in listed:
        path = str(entry["path"])
        if ".." in PurePosixPath(path).parts or PurePosixPath(path).is_absolute():
            raise UnsupportedModel(f"{where}: modules.json names the path {path!r}, which lies outside the folder")
        names = _TRANSFORMER_CONFIGS if not modules else ("config.json",)
        configs = (_json(where, _joined(path, name), options) for name in names)
        config: Mapping[str, Any] = next((config for config in configs if config is not None), {})
        modules.append(Module(str(entry["type"]), config, partial(_weights, where, path, options)))
    settings = _json(where, "config_sentence_transformers.json", options) or {}
    return trained(where, modules, settings, str(listed[0]["path"]) if listed else "")


def unwrapped(model: Any) -> tuple[torch.nn.Module, Any, SentenceTransformerSpec]:
    """The model inside a loaded SentenceTransformer, its tokenizer, and its specification."""
    name = type(model).__name__
    if name != "SentenceTransformer":
        raise UnsupportedModel(f"{name} is no SentenceTransformer; {_REMEDY}")
    modules = []
    for module in model:
        kind = type(module)
        config = module.get_config_dict() if hasattr(module, "get_config_dict") else {}
        modules.append(Module(f"{kind.__module__}.{kind.__qualname__}", config, module.state_dict))
    settings = {name: getattr(model, name) for name in ("prompts", "similarity_fn_name", "truncate_dim")}
    return model[0].auto_model, model.tokenizer, trained(name, modules, settings)


def trained(
    name: str, modules: list[Module], settings: Mapping[str, Any], subfolder: str = ""
) -> SentenceTransformerSpec:
    """The specification of modules, the model itself first, and of settings; refuse what cannot be run here."""
    kinds = [_class(name, module.kind) for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise UnsupportedModel(
            f"{name}: its modules are {', '.join(kinds) or 'none'}, and only a Transformer followed by a Pooling is "
            f"read; {_REMEDY}"
        )
    if settings.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        raise UnsupportedModel(f"{name} is a {settings['model_type']}, which gives no single vector; {_REMEDY}")
    if settings.get("truncate_dim") is not None:
        raise UnsupportedModel(
            f"{name}: truncate_dim={settings['truncate_dim']} is not read from a model; {_REMEDY}, with "
            f"method='...+truncate:dims={settings['truncate_dim']}'"
        )
    config = modules[0].config
    _check_transformer(name, config)
    after = [(kind, module) for kind, module in zip(kinds[2:], modules[2:], strict=True) if kind != "Dropout"]
    unit = bool(after) and after[-1][0] == "Normalize"
    prompts = settings.get("prompts") or {}
    return SentenceTransformerSpec(
        pooling=_pooling(modules[1].config),
        head=_head(name, after[:-1] if unit else after),
        unit=unit,
        similarity=str(settings.get("similarity_fn_name") or "cosine"),
        prompts={"query": prompts.get("query") or None, "document": prompts.get("document") or None},
        subfolder=subfolder,
        max_length=config.get("max_seq_length"),
        lower=bool(config.get("do_lower_case")),
    )


def _class(name: str, path: str) -> str:
    if not path.startswith(f"{LIBRARY}."):
        raise UnsupportedModel(f"{name}: the module {path} is code of the model's own, which is not run; {_REMEDY}")
    return path.rpartition(".")[2]


def _check_transformer(name: str, config: Mapping[str, Any]) -> None:
    """Refuse settings that would change what the model reads or gives."""
    task = config.get("transformer_task", "feature-extraction")
    modalities = set(config.get("modality_config") or ("text",))
    unsupported = {
        "transformer_task": None if task == "feature-extraction" else task,
        "modality_config": None if modalities == {"text"} else ", ".join(sorted(modalities)),
    }
    for key in ("processing_kwargs", "query_expansion", "query_length", "document_length", "tokenizer_name_or_path"):
        unsupported[key] = config.get(key)
    for kind in ("model", "tokenizer", "config", "processor"):
        for name_of in (f"{kind}_args", f"{kind}_kwargs"):
            arguments = config.get(name_of) or {}
            unsupported[name_of] = {key: value for key, value in arguments.items() if key not in _HARMLESS}
    for key, value in unsupported.items():
        if value:
            raise UnsupportedModel(f"{name}: {key}={value!r} of its Transformer is not supported; {_REMEDY}")


def _pooling(config: Mapping[str, Any]) -> Pooling:
    modes = config.get("pooling_mode") or [mode for key, mode in _OLDER.items() if config.get(key)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    prompt = bool(config.get("include_prompt", True))
    named = f"pooling_mode {' and '.join(modes)}"
    pool = _POOLS.get(modes[0]) if len(modes) == 1 else None
    if not prompt and pool in ("cls", "weighted"):
        named, pool = f"{named} with include_prompt=false", None
    return Pooling(named, pool, prompt)


def _head(name: str, modules: list[tuple[str, Module]]) -> Head | None:
    layers: list[torch.nn.Module] = []
    for kind, module in modules:
        sides = {module.config.get(f"module_{side}_name") for side in ("input", "output")}
        if kind not in (*_LAYERS, "Normalize") or sides - {None, "sentence_embedding"}:
            raise UnsupportedModel(
                f"{name}: its module {kind} cannot be run here behind the pooling; Dense, LayerNorm, Normalize and "
                f"Dropout can; {_REMEDY}"
            )
        try:
            layers.append(Normalize() if kind == "Normalize" else _LAYERS[kind](module.config, module.weights()))
        except KeyError as error:
            raise ModelNotFound(
                f"{name}: the config.json of its module {kind} has no {error}; fetch it again"
            ) from None
    description = json.dumps([[kind, dict(module.config)] for kind, module in modules], sort_keys=True, default=str)
    return Head(layers, description) if layers else None


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _json(where: str, name: str, options: Mapping[str, Any]) -> Any:
    path = _file(where, name, options)
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (ValueError, RecursionError) as error:
        raise ModelNotFound(f"{where}: {name} is no JSON ({error}); fetch the model again") from None


def _weights(where: str, path: str, options: Mapping[str, Any]) -> Mapping[str, torch.Tensor]:
    safe = _file(where, _joined(path, "model.safetensors"), options)
    if safe is not None:
        return load_file(safe)
    pickled = _file(where, _joined(path, "pytorch_model.bin"), options)
    if pickled is None:
        raise ModelNotFound(f"{where}: {path} holds no model.safetensors and no pytorch_model.bin; fetch it again")
    weights: Mapping[str, torch.Tensor] = torch.load(pickled, map_location="cpu", weights_only=True)
    return weights


def _file(where: str, name: str, options: Mapping[str, Any]) -> str | None:
    try:
        return file_at(where, name, options)
    except OSError as error:
        raise ModelNotFound(f"model {where!r} could not be opened: {error}") from error
