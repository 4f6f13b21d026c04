"""PEFT adapters: on a loaded model, or in a folder that names the model that they were trained on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn
from transformers.utils.hub import cached_file
from transformers.utils.peft_utils import find_adapter_config_file

from eddy_embed.errors import ModelNotFound, UnsupportedModel

KINDS = ("adalora", "ia3", "loha", "lokr", "lora", "trainable_tokens")
"""Kinds of adapter that change nothing outside the modules that they wrap."""
_REMEDY = "save the merged model (merge_and_unload), where PEFT can merge, and name that"


def base_of(model: Any) -> nn.Module:
    """Return a PeftModel without its head, adapters in place; refuse trained prompts, which stand before the model."""
    prompts = [name for name, config in getattr(model, "peft_config", {}).items() if config.is_prompt_learning]
    if prompts:
        raise UnsupportedModel(
            f"{type(model).__name__}: the adapter {prompts[0]!r} is a trained prompt in front of the model, which "
            "is not supported; hand over get_base_model(), to embed without it"
        )
    whole = model.get_base_model()
    base: nn.Module = getattr(whole, "base_model", whole)
    return base


def adapters(model: nn.Module) -> list[dict[str, Any]]:
    """Return what decides vectors in a model's adapters apart from tensors, as plain values for each wrapped module.

    Raises:
        UnsupportedModel: Adapters may change more than the modules that they wrap, or merged ones were disabled, which
            PEFT takes out of the weights in the next pass.
    """
    states = []
    for name, module in _wrapped(model):
        kind = type(module).__module__.split(".")[2]
        activated = any("ALora" in type(variant).__name__ for variant in getattr(module, "lora_variant", {}).values())
        if type(module).__module__.startswith("peft.tuners.") and (kind not in KINDS or activated):
            raise UnsupportedModel(
                f"{type(model).__name__}: adapters of kind {'alora' if activated else kind} are not supported (those "
                f"that are: {', '.join(KINDS)}); {_REMEDY}"
            )
        disabled, merged = bool(module.disable_adapters), list(getattr(module, "merged_adapters", []))
        if disabled and merged:
            raise UnsupportedModel(
                f"{type(model).__name__}: the adapters {merged} are merged and switched off at once, and PEFT takes "
                "them out of the weights in the next pass; call unmerge_adapter() before"
            )
        active = list(module.active_adapters)
        scaling = getattr(module, "scaling", {})
        scales = {key: scaling[key] for key in active if key in scaling} if isinstance(scaling, dict) else {}
        states.append({"module": name, "active": active, "merged": merged, "disabled": disabled, "scaling": scales})
    return states


def _wrapped(model: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, module in model.named_modules():
        if type(module).__module__.startswith("peft.") and hasattr(module, "active_adapters"):
            yield name, module


def adapter_at(where: str, options: dict[str, Any]) -> dict[str, Any] | None:
    """Return the configuration of the adapter that a folder or a hub id holds, None if it holds none.

    Raises:
        ModelNotFound: It does not name its model, or holds one too.
        UnsupportedModel: PEFT is not installed.
    """
    path = find_adapter_config_file(where, **_hub(options))
    if path is None:
        return None
    config: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    if file_at(where, "config.json", options):
        raise ModelNotFound(
            f"{where!r} holds a model (config.json) and an adapter (adapter_config.json), and which is meant cannot be "
            f"told; give the adapter a folder of its own, or {_REMEDY}"
        )
    if find_spec("peft") is None:
        raise UnsupportedModel(f"{where!r} holds a PEFT adapter; pip install peft, or {_REMEDY}")
    if not config.get("base_model_name_or_path"):
        raise ModelNotFound(f"{where!r} holds an adapter that does not name its model (base_model_name_or_path)")
    return config


def _hub(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of functions that fetch single files."""
    return {key: value for key, value in options.items() if key != "trust_remote_code"}


def file_at(where: str, name: str, options: Mapping[str, Any]) -> str | None:
    """Return path of a file in a folder or of a hub id, None if there is none."""
    quiet = dict.fromkeys((f"_raise_exceptions_for_{e}" for e in ("missing_entries", "connection_errors")), False)
    return cached_file(where, name, **_hub(options), **quiet)


def attach(model: Any, where: str, options: dict[str, Any]) -> Any:
    """Return the PeftModel of a whole model and the adapter at a folder or hub id.

    Raises:
        ModelNotFound: The adapter's weights cannot be read.
        UnsupportedModel: The adapter does not fit the model, tensor by tensor.
    """
    from peft import (
        PeftConfig,
        PeftModel,
        get_peft_model_state_dict,
        load_peft_weights,
        set_peft_model_state_dict,
    )

    try:
        config = PeftConfig.from_pretrained(where, **_hub(options))
        tensors = load_peft_weights(where, device="cpu", **_hub(options))
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelNotFound(f"the adapter's weights in {where!r} could not be read: {error}") from error
    try:
        config.inference_mode = True
        adapted = PeftModel(model, config, autocast_adapter_dtype=False)
        loaded: Any = set_peft_model_state_dict(adapted, tensors)
        # Embeddings are saved whole where tokens were added, and they are not missed where they were not.
        missing = set(get_peft_model_state_dict(adapted, save_embedding_layers=False)) - set(tensors)
        if wrong := sorted({*missing, *loaded.unexpected_keys}):
            raise ValueError(f"{len(wrong)} of its tensors do not fit, such as {wrong[0]}")
    except (RuntimeError, ValueError) as error:
        raise UnsupportedModel(
            f"{where!r}: the adapter does not fit {type(model).__name__}: {error}; {_REMEDY}"
        ) from error
    return adapted
