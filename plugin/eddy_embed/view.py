"""A view of a model: its own modules, configuration, hooks and layer list around the very same tensors."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from eddy_embed.backbone import Backbone
from eddy_embed.errors import UnsupportedModel


def describe(config: Any) -> Backbone:
    """The shape of a model, from its configuration.

    Raises:
        UnsupportedModel: It is no causal language model's configuration.
    """
    try:
        return Backbone(
            architecture=str(config.model_type),
            layers=int(config.num_hidden_layers),
            hidden=int(config.hidden_size),
            vocabulary=int(config.vocab_size),
            window=int(getattr(config, "max_position_embeddings", None) or 2**31),
        )
    except AttributeError as error:
        raise UnsupportedModel(
            f"{type(config).__name__} does not describe a causal language model ({error}); name a decoder such as "
            "a Llama, Qwen, Gemma or GPT-2 checkpoint"
        ) from None


def find_layers(base: Any) -> nn.ModuleList:
    """The model's stack of layers: the one ModuleList as long as the configuration says.

    Raises:
        UnsupportedModel: There is none, or more than one.
    """
    wanted = int(base.config.num_hidden_layers)
    found: dict[str, nn.ModuleList] = {}
    for name, module in base.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if isinstance(module, nn.ModuleList) and len(module) == wanted and not inside:
            found[name] = module
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise UnsupportedModel(f"{type(base).__name__}: expected one list of {wanted} layers, found {names}")
    return next(iter(found.values()))


def view_of(base: nn.Module) -> Any:
    """Copy a model's modules around its tensors.

    Nothing that is done to the copy can be seen from the model itself, at any moment, from any thread.

    Raises:
        UnsupportedModel: The model copies its tensors too.
    """
    shared = {id(tensor): tensor for tensor in [*base.parameters(), *base.buffers()]}
    try:
        view = copy.deepcopy(base, memo=dict(shared))
    except Exception as error:
        raise UnsupportedModel(f"{type(base).__name__} cannot be copied around its weights: {error}") from error
    if {id(tensor) for tensor in [*view.parameters(), *view.buffers()]} != set(shared):
        raise UnsupportedModel(f"{type(base).__name__} copies its weights when it is copied, so it cannot be shared")
    for module in view.modules():
        # Other people's hooks belong to their model: they must not fire on our passes.
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    return view
