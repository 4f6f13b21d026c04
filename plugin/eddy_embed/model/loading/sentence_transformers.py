"""Models of sentence-transformers: loaded by that library; their pooling, head and prompts are read here."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eddy_embed.errors import ModelNotFound, UnsupportedModel
from eddy_embed.model.backbone import Pooling
from eddy_embed.model.loading.peft import file_at
from eddy_embed.model.packed import weights_digest
from eddy_embed.parts.layout import TextRole
from eddy_embed.utils.arrays import Doubles

LIBRARY = "sentence_transformers"
_REMEDY = (
    "to read the model inside without it, load that with transformers' AutoModel.from_pretrained and hand it over with "
    "tokenizer="
)
_POOLS: dict[str, Any] = {"cls": "cls", "lasttoken": "last", "mean": "mean", "weightedmean": "weighted"}


class Head:
    """The modules of a SentenceTransformer behind its pooling, copied, in float64."""

    def __init__(self, modules: list[torch.nn.Module], description: str) -> None:
        """Copy modules; `description` holds their names and configurations, which enter the digest."""
        self._modules = copy.deepcopy(torch.nn.ModuleList(modules)).cpu().double().eval()
        self._description = description

    def __call__(self, raw: Doubles) -> Doubles:
        """Return pooled states of shape (.., width) through all modules."""
        features = {"sentence_embedding": torch.from_numpy(np.asarray(raw, np.float64))}
        with torch.inference_mode():
            for module in self._modules:
                features = module(features)
            return np.asarray(features["sentence_embedding"].numpy())

    def width(self, states: int) -> int:
        """Return the width of vectors made of states of a width."""
        return int(self(np.zeros((1, states))).shape[1])

    @property
    def digest(self) -> str:
        """Hash of the modules, their order and their weights."""
        return weights_digest([(self._description, torch.zeros(1)), *self._modules.named_parameters()])


@dataclass(frozen=True, eq=False)
class SentenceTransformerSpec:
    """What an embedding model brings with its weights.

    Attributes:
        pooling: How its states are pooled.
        head: What is done to its pooled states, None for nothing.
        unit: Whether its vectors have length 1.
        similarity: What its vectors are compared by: "cosine", "dot", "euclidean" or "manhattan".
        prompts: Prompt before a text, by role; None for none.
    """

    pooling: Pooling
    head: Head | None = None
    unit: bool = False
    similarity: str = "cosine"
    prompts: dict[TextRole, str | None] = field(default_factory=dict)


def transformer_folder(where: str, options: Mapping[str, Any]) -> str | None:
    """Return the subfolder of the transformers model in a folder or hub repository of sentence-transformers.

    Returns:
        The path inside it, "" for the folder itself; None for models that are not of sentence-transformers.

    Raises:
        ModelNotFound: Its list of modules cannot be read.
        UnsupportedModel: It has modules with code of their own, and that is not to run.
    """
    try:
        path = file_at(where, "modules.json", options)
        if path is None:
            return None
        modules = [(str(entry["path"]), str(entry["type"])) for entry in json.loads(Path(path).read_text("utf-8"))]
        subfolder = modules[0][0]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ModelNotFound(f"{where}: modules.json is no list of modules ({error}); fetch the model again") from None
    if not options.get("trust_remote_code"):
        for _, kind in modules:
            _class(where, kind)
    return subfolder


def unwrapped(model: Any) -> tuple[torch.nn.Module, Any, SentenceTransformerSpec]:
    """Return the model inside a loaded SentenceTransformer, its tokenizer, and its specification.

    Raises:
        UnsupportedModel: It is of another class, or has a module or a setting that cannot be run here.
    """
    name = type(model).__name__
    if name != "SentenceTransformer":
        raise UnsupportedModel(f"{name} is no SentenceTransformer, which gives one vector for a text; {_REMEDY}")
    kinds = [_class(name, f"{type(module).__module__}.{type(module).__qualname__}") for module in model]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise UnsupportedModel(
            f"{name}: its modules are {', '.join(kinds) or 'none'}, and only a Transformer followed by a Pooling is "
            f"read; {_REMEDY}"
        )
    if model.truncate_dim is not None:
        raise UnsupportedModel(
            f"{name}: truncate_dim={model.truncate_dim} is not read from a model; {_REMEDY}, with "
            f"method='...+truncate:dims={model.truncate_dim}'"
        )
    _check_transformer(name, model[0].get_config_dict())
    behind = [(kind, module) for kind, module in zip(kinds[2:], list(model)[2:], strict=True) if kind != "Dropout"]
    unit = bool(behind) and behind[-1][0] == "Normalize"
    spec = SentenceTransformerSpec(
        pooling=_pooling(model[1].get_config_dict()),
        head=_head(name, behind[:-1] if unit else behind),
        unit=unit,
        similarity=str(model.similarity_fn_name or "cosine"),
        prompts={"query": model.prompts.get("query") or None, "document": model.prompts.get("document") or None},
    )
    return model[0].auto_model, model.tokenizer, spec


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
    for key in ("processing_kwargs", "query_expansion", "query_length", "document_length"):
        unsupported[key] = config.get(key)
    for key, value in unsupported.items():
        if value:
            raise UnsupportedModel(f"{name}: {key}={value!r} of its Transformer is not supported; {_REMEDY}")


def _pooling(config: Mapping[str, Any]) -> Pooling:
    modes = config["pooling_mode"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    prompt = bool(config["include_prompt"])
    named = f"pooling_mode {' and '.join(modes)}"
    pool = _POOLS.get(modes[0]) if len(modes) == 1 else None
    if not prompt and pool in ("cls", "weighted"):
        named, pool = f"{named} with include_prompt=false", None
    return Pooling(named, pool, prompt)


def _head(name: str, modules: list[tuple[str, Any]]) -> Head | None:
    configs = [(kind, module.get_config_dict()) for kind, module in modules]
    for kind, config in configs:
        sides = {config.get(f"module_{side}_name") for side in ("input", "output")}
        if kind not in ("Dense", "LayerNorm", "Normalize") or sides - {None, "sentence_embedding"}:
            raise UnsupportedModel(
                f"{name}: its module {kind} cannot be run here behind the pooling; Dense, LayerNorm, Normalize and "
                f"Dropout can; {_REMEDY}"
            )
    description = json.dumps(configs, sort_keys=True, default=str)
    return Head([module for _, module in modules], description) if modules else None
