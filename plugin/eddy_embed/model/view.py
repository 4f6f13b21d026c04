"""A view of a model: its own modules, configuration, hooks and layer list around the very same weights."""

from __future__ import annotations

import copy
import json
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from eddy_embed.errors import EddyError, UnsupportedModel
from eddy_embed.model.backbone import Backbone
from eddy_embed.model.mapped_file import MappedFile
from eddy_embed.utils.memory import out_of_memory

DECODER = "name a decoder, such as a Llama, Qwen, Gemma or GPT-2 checkpoint"
"""What to do where a model is none."""
VALUES_SAMPLED = 4096
"""Rows of a vocabulary from which the spread of its embeddings is measured."""
_MOST = {
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), 512),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "num_heads", "n_head", "n_heads"), 2**14),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim"), 2**18),
    "vocab_size": 2**24,
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 2**31),
}
"""Entries of a configuration whose smallest value is 1, and their largest, far above every published model's."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@contextmanager
def trial(model: nn.Module) -> Iterator[None]:
    """Raise UnsupportedModel in place of whatever a model's own code raises on a trial text."""
    try:
        yield
    except (EddyError, MemoryError):
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if out_of_memory(error):
            raise
        kinds = sorted({str(p.dtype).removeprefix("torch.") for p in model.parameters() if p.is_floating_point()})
        mixed = f"its weights are {' and '.join(kinds)} at once: load it in one of them" if len(kinds) > 1 else DECODER
        said = next(iter(str(error).splitlines()), "")
        raise UnsupportedModel(
            f"{type(model).__name__} fails on a trial text ({type(error).__name__}: {said}); {mixed}"
        ) from error


def describe(config: Any) -> Backbone:
    """Return the shape of a model, from its configuration; refuse what is no causal language model's."""
    try:
        return Backbone(
            architecture=str(config.model_type),
            layers=int(config.num_hidden_layers),
            hidden=int(config.hidden_size),
            vocabulary=int(config.vocab_size),
            window=_window(config),
        )
    except AttributeError as error:
        raise UnsupportedModel(
            f"{type(config).__name__} does not describe a causal language model ({error}); {DECODER}"
        ) from None


def check_sizes(where: str, config: Mapping[str, Any]) -> None:
    """Refuse sizes that no model can have, in a model's `config.json`."""
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        for key, most in _MOST.items():
            if isinstance(value := part.get(key), int) and not 1 <= value <= most:
                raise UnsupportedModel(
                    f"{where!r}: config.json says {key}={value}, and a model has 1 to {most:,}; fetch it again"
                )


def check_size(where: str, subfolder: str, config: Any, kind: Any) -> None:
    """Refuse a configuration of more values than the files of its folder can hold, before memory is set aside.

    Args:
        where: A folder; nothing is checked of a hub id.
        subfolder: Where in the folder the weights are.
        config: The configuration, of the layers that will be loaded.
        kind: The auto class of transformers that will load it.

    Raises:
        UnsupportedModel: The files are too small.
        Exception: Whatever the model's class raises on a configuration that describes no model.
    """
    if not os.path.isdir(where):
        return
    values = count_parameters(config, kind)
    held = sum(file.stat().st_size for file in Path(where, subfolder).iterdir() if file.is_file())
    # Quantised values may take a bit.
    if values > held * (1 if getattr(config, "quantization_config", None) is None else 8):
        raise UnsupportedModel(
            f"{where!r}: a {config.model_type} model as config.json describes it has {values:,} values, and the files "
            f"there have {held:,} bytes; config.json is not that of these weights: fetch the model again"
        )


def count_parameters(config: Any, kind: Any) -> int:
    """Return the number of parameters of a model that a configuration describes, without memory for them.

    Args:
        config: A configuration of transformers.
        kind: The auto class of transformers that would load it.

    Raises:
        Exception: Whatever the model's class raises on a configuration that describes no model.
    """
    with torch.device("meta"):
        model = kind.from_config(config, trust_remote_code=False)
    return sum(parameter.numel() for parameter in model.parameters())


def keep_layers(config: Any, layers: int, kept: int) -> None:
    """Cut a configuration of so many layers down to the first ones."""
    for key, value in vars(config).items():
        if isinstance(value, list) and len(value) == layers:
            setattr(config, key, value[:kept])
    config.num_hidden_layers = kept


_INCIDENTAL = re.compile(
    r"_.*|dtype|torch_dtype|architectures|transformers_version|num_hidden_layers|.*_token_id|use_cache|return_.*|output_.*"
    r"|id2label|label2id|tie_word_embeddings|is_decoder|initializer_range|.*dropout|.*pdrop"
)


def relevant_config(config: Any, kept: int) -> dict[str, Any]:
    """Return the entries of a configuration that decide the states of the `kept` layers that run, as plain values."""
    entries = {key: value for key, value in config.to_dict().items() if not _INCIDENTAL.fullmatch(key)}
    run = {key: value[:kept] if isinstance(value, list) else value for key, value in entries.items()}
    plain: dict[str, Any] = json.loads(json.dumps(run, default=str))
    return plain


def _window(config: Any) -> int:
    """Return the longest sequence whose states do not depend on the lengths of others in the pass, in tokens.

    Models with "longrope" angles switch to others when a pass holds a sequence longer than their original window.
    """
    window = int(getattr(config, "max_position_embeddings", None) or 2**31)
    angles = getattr(config, "rope_parameters", None) or {}
    for rope in [angles, *angles.values()]:
        if isinstance(rope, dict) and rope.get("rope_type") == "longrope":
            window = min(window, int(rope.get("original_max_position_embeddings") or window))
    return window


def text_model(base: Any) -> Any:
    """Return the part of a model that reads text: all of it, or an encoder that shares its word embeddings."""
    encoder: Any = getattr(base, "encoder", None)
    if not hasattr(encoder, "get_input_embeddings"):
        return base
    return encoder if encoder.get_input_embeddings().weight is base.get_input_embeddings().weight else base


def find_layers(base: Any) -> nn.ModuleList:
    """Return the model's stack of layers: the one ModuleList as long as the configuration says."""
    wanted = int(base.config.num_hidden_layers)
    stacks: dict[str, nn.ModuleList] = {}
    for name, module in base.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in stacks)
        if isinstance(module, nn.ModuleList) and len(module) == wanted and not inside:
            stacks[name] = module
    if len(stacks) != 1:
        names = ", ".join(stacks) or "none"
        raise UnsupportedModel(f"{type(base).__name__}: expected one list of {wanted} layers, found {names}")
    return next(iter(stacks.values()))


def modules_after_layers(parent: nn.Module, layers: nn.ModuleList, run: Callable[[], object]) -> set[str]:
    """Return names of a module's children that run after the last of its `layers` when `run` runs a pass."""
    ran: list[str] = []
    handles = [layers[-1].register_forward_hook(lambda *_: ran.append(""))]
    for name, child in parent.named_children():
        if child is not layers:
            handles.append(child.register_forward_pre_hook(lambda *_, name=name: ran.append(name)))
    run()
    for handle in handles:
        handle.remove()
    return set(ran[ran.index("") :]) - {""} if "" in ran else set()


@contextmanager
def rows_of_positions(base: Any) -> Iterator[list[int]]:
    """Return the first row that passes look up in a table of positions; RoBERTa's begin after the padding row."""
    rows, words = getattr(base.config, "max_position_embeddings", None), base.get_input_embeddings()
    tables = [m for m in base.modules() if type(m) is nn.Embedding and m.num_embeddings == rows and m is not words]
    first_rows: list[int] = []
    handles = [m.register_forward_pre_hook(lambda _, args: first_rows.append(int(args[0].min()))) for m in tables]
    try:
        yield first_rows
    finally:
        for handle in handles:
            handle.remove()


def spread_of(embedding: nn.Module, rows: int, device: torch.device) -> float:
    """Return standard deviation of a token embedding's output, over a sample of its rows."""
    ids = torch.from_numpy(np.linspace(0, rows - 1, min(rows, VALUES_SAMPLED)).astype(np.int64))
    with torch.inference_mode():
        return float(embedding(ids.to(device)).double().std(correction=0))


def view_of(base: nn.Module) -> Any:
    """Copy a model's modules around its weights; nothing done to the copy can be seen from the model itself."""
    # Buffers outside the state dict are working memory, which a module may write to in a pass (rotary angles).
    buffers = {id(module._buffers[name]) for module in base.modules() for name in module._non_persistent_buffers_set}
    shared = {id(tensor): tensor for tensor in [*base.parameters(), *base.buffers()] if id(tensor) not in buffers}
    # Parameters that a pass changes are copied too, around the same memory.
    changing = {name for name, tensor in base.named_parameters() if copies_itself(tensor)}
    for name in changing:
        del shared[id(base.get_parameter(name))]
    # Hooks of others stay with their model: they must not fire in our passes, and may not be copyable.
    hooks = {id(getattr(module, kind)): OrderedDict[int, Any]() for module in base.modules() for kind in _HOOKS}
    try:
        with SharedCopies(buffers) if quantised(base) or dispatched(base) else nullcontext():
            view = copy.deepcopy(base, memo={**shared, **hooks})
    except Exception as error:
        raise UnsupportedModel(f"{type(base).__name__} cannot be copied around its weights: {error}") from error
    held = {id(tensor) for tensor in [*view.parameters(), *view.buffers()]}
    moved = any(view.get_parameter(name).data_ptr() != base.get_parameter(name).data_ptr() for name in changing)
    if moved or not set(shared) <= held:
        raise UnsupportedModel(f"{type(base).__name__} copies its weights when it is copied, so it cannot be shared")
    return view


class SharedCopies(TorchFunctionMode):
    """While it is on, a deep copy of a tensor, except those whose ids are in `buffers`, is the tensor itself."""

    def __init__(self, buffers: set[int]) -> None:
        super().__init__()
        self.buffers = buffers

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Intercept copies, and nothing else."""
        if function is torch.Tensor.__deepcopy__ and id(args[0]) not in self.buffers:
            return args[0]
        return function(*args, **(kwargs or {}))


def copies_itself(tensor: torch.Tensor) -> bool:
    """Return whether a parameter copies itself, as bitsandbytes' do, whose modules change them in a pass."""
    plain = (nn.Parameter.__deepcopy__, torch.Tensor.__deepcopy__)
    return type(tensor).__deepcopy__ not in plain and not is_traceable_wrapper_subclass(tensor)


def unpacked(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the usual layout, if oneDNN holds it in its own."""
    return tensor.to_dense() if tensor.is_mkldnn else tensor


def quantised(model: nn.Module) -> bool:
    """Return whether some of a model's weights are stored as codes with separate scales."""
    return getattr(getattr(model, "config", None), "quantization_config", None) is not None or any(
        copies_itself(p) or is_traceable_wrapper_subclass(p) for p in model.parameters()
    )


def hooks_of(module: nn.Module) -> list[Any]:
    """Return the hooks that accelerate put around a module's forward."""
    hook = getattr(module, "_hf_hook", None)
    return [] if hook is None else list(getattr(hook, "hooks", [hook]))


def dispatched(model: nn.Module) -> bool:
    """Return whether parts of a model are on several devices, or are fetched for each pass."""
    return any(hooks_of(module) for module in model.modules())


def device_of(module: nn.Module) -> torch.device:
    """Return the device on which a module computes, wherever its weights are kept."""
    for hook in hooks_of(module):
        if hook.execution_device is not None:
            return torch.empty(0, device=hook.execution_device).device
    return next(chain(module.parameters(), module.buffers())).device


def layer_of(name: str) -> int:
    """Return index of the layer that a tensor or a module belongs to, -1 outside the layers."""
    return next((int(part) for part in name.split(".") if part.isdigit()), -1)


def named_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield names and tensors of a model, each once: quantised ones as codes and scales, offloaded ones fetched.

    Raises:
        ModelNotFound: The file of packed weights has been written to.
    """
    for file in {getattr(module, "file", None) for module in model.modules()}:
        if isinstance(file, MappedFile):
            file.check()
    seen: set[int] = set()
    # Modules that write more into a checkpoint than their parameters and buffers, such as scales.
    saved = {
        name: module
        for name, module in model.named_modules()
        if any(copies_itself(p) for p in module.parameters(recurse=False))
    }
    outside = dict(_outside(model))
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        parent, _, last = name.rpartition(".")
        if id(tensor) in seen or parent in saved:
            continue
        seen.add(id(tensor))
        yield from _parts(name, outside[name][last] if name in outside else tensor)
    for name, module in saved.items():
        # Saving may repack what is saved: let it do that to a copy.
        with SharedCopies(set()):
            alone = copy.deepcopy(module)
        yield from ((f"{name}.{key}", value) for key, value in alone.state_dict().items())


def _parts(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    if not is_traceable_wrapper_subclass(tensor):
        yield name, tensor
        return
    for part in tensor.__tensor_flatten__()[0]:
        yield from _parts(f"{name}.{part}", getattr(tensor, part))


def _outside(model: nn.Module) -> Iterator[tuple[str, Mapping[str, torch.Tensor]]]:
    """Return the names of tensors that are on no device between passes, and the map that holds them."""
    for prefix, module in model.named_modules():
        for hook in (hook for hook in hooks_of(module) if getattr(hook, "offload", False)):
            for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
                if tensor.is_meta:
                    yield f"{prefix}.{name}".lstrip("."), hook.weights_map
