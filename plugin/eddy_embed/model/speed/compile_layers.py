"""Layers by torch.compile: what stands between a layer's products and its attention, in a few kernels.

One layer is traced, and every layer like it runs the same kernels with weights of its own. Products and attention stay
in the trace as they are, so hooks around layers, and whatever a method asks of attention, work as without.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.model.hooks import hidden_of
from eddy_embed.model.self_check import allowed
from eddy_embed.model.speed.layer_trace import (
    REMEDY,
    TRACED,
    Bound,
    Call,
    Kernels,
    check_compiler,
    operators,
    tensors_of,
    traced,
)

if TYPE_CHECKING:
    from eddy_embed.model.attention import Traits

TRIED = 23
"""Tokens of the text that compiled layers are tried with: others than they are traced with."""
_USUAL = frozenset(vars(nn.Module())) | {"_is_hf_initialized", "layer_idx"}
"""Attributes that every module has, and the number by which layers know themselves."""
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
"""The same number in names of modules, as adapters keep them."""
_lock = threading.Lock()
"""Held while layers are compiled: operators are made once, and settings of torch are changed for as long."""
_PLAIN = (bool, int, float, bytes, type, type(None), torch.dtype, torch.device)


def compile_layers(
    name: str, layers: Sequence[nn.Module], run: Callable[[int], object], traits: Sequence[Traits], coarse: bool
) -> None:
    """Have a view's layers run as compiled wherever no gradient is taken.

    Args:
        name: The model's.
        layers: Its layers.
        run: Runs a text of so many tokens through them.
        traits: What each does inside its attention, none where that is the model's own.
        coarse: Whether the model computes in half precision, or with codes.

    Raises:
        InvalidParameter: There is no C++ compiler, or the layers are not on a processor.
        UnsupportedModel: A layer cannot be compiled, or gives something else then.
    """
    if any(each.device.type != "cpu" for layer in layers for each in layer.parameters()):
        raise InvalidParameter(f"compile=True is for processors, and {name} is elsewhere; {REMEDY}")
    # A bias by distance is made by the layer for the sequences of a pass.
    reached = traits and not any(each.bias for each in traits)
    if not reached or any("forward" in vars(layer) for layer in layers):
        raise UnsupportedModel(f"{name} has attention or a forward of its own, which cannot be compiled; {REMEDY}")
    check_compiler()
    with _lock:
        _compile(name, layers, run, coarse)


def _compile(name: str, layers: Sequence[nn.Module], run: Callable[[int], object], coarse: bool) -> None:
    operators()
    kernels: dict[object, Kernels] = {}
    made = []
    for layer, (call, output) in zip(layers, _watched(name, layers, run, TRACED), strict=True):
        kind = _kind(layer, call)
        if kind not in kernels:
            kernels[kind] = traced(name, layer, call, output)
        made.append(kernels[kind].of(layer))
    expected = _watched(name, layers, run, TRIED)
    for layer, bound in zip(layers, made, strict=True):
        layer.compiled = bound  # type: ignore[assignment]
        layer.__class__ = _class(type(layer))  # type: ignore[arg-type]
    given = _watched(name, layers, run, TRIED, [call for call, _ in expected])
    for number, ((call, own), (_, found)) in enumerate(zip(expected, given, strict=True), start=1):
        difference = _apart(found, own, hidden_of(*call), coarse)
        if not difference <= allowed(coarse):
            raise UnsupportedModel(
                f"{name}: layer {number} gives something else compiled: what it adds to its states differs by "
                f"{difference:.2g} (allowed {allowed(coarse):.0e}); {REMEDY}"
            )


@functools.cache
def _class(kind: type[nn.Module]) -> type[nn.Module]:
    """A class of layers that run as compiled."""

    class Compiled(kind):  # type: ignore[misc,valid-type]
        compiled: Bound

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.compiled(args, kwargs) if self.compiled.fit(args, kwargs) else super().forward(*args, **kwargs)

    Compiled.__name__ = Compiled.__qualname__ = kind.__name__
    return Compiled


def _kind(layer: nn.Module, call: Call) -> object:
    """What layers that one trace fits have in common: all but their weights' values and their number."""
    modules = [
        (
            path,
            type(module),
            tuple((key, _worth(each, module)) for key, each in vars(module).items() if key not in _USUAL),
        )
        for path, module in layer.named_modules()
    ]
    own = tensors_of(layer)
    first: dict[int, str] = {}
    tensors = [
        (name, first.setdefault(id(each), name), type(each), each.shape, each.dtype, each.is_mkldnn or each.stride())
        for name, each in own.items()
    ]
    return tuple(modules), tuple(tensors), str(pytree.tree_map(type, call))


def _worth(value: Any, module: nn.Module) -> object:
    """Equal for values that do the same: plain ones that are equal, and others that are one and the same object."""
    if isinstance(value, tuple | list):
        return type(value), tuple(_worth(each, module) for each in value)
    if isinstance(value, dict):
        return type(value), tuple((key, _worth(each, module)) for key, each in value.items())
    if isinstance(value, functools.partial):
        return value.func, _worth(value.args, module), _worth(value.keywords, module)
    if isinstance(value, MethodType) and value.__self__ is module:
        return value.__func__
    if isinstance(value, set | frozenset):
        return type(value), frozenset(value)
    if isinstance(value, str):
        return _NUMBER.sub("", value)
    return (type(value), value) if isinstance(value, _PLAIN) else id(value)


def _watched(
    name: str, layers: Sequence[nn.Module], run: Callable[[int], object], tokens: int, calls: Sequence[Call] = ()
) -> list[tuple[Call, Any]]:
    """What each layer is called with in a pass, and what it gives.

    Args:
        name: The model's.
        layers: Its layers.
        run: Runs a text of so many tokens.
        tokens: How many.
        calls: What each layer is called with instead, if anything.
    """
    seen: list[tuple[Call, Any]] = []

    def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        seen.append(((args, kwargs), output))

    handles = [layer.register_forward_hook(note, with_kwargs=True) for layer in layers]
    for layer, call in zip(layers, calls, strict=False):
        handles.append(layer.register_forward_pre_hook(functools.partial(_instead, call), with_kwargs=True))
    try:
        run(tokens)
    finally:
        for handle in handles:
            handle.remove()
    if len(seen) != len(layers):
        raise UnsupportedModel(f"{name} runs its {len(layers)} layers {len(seen)} times in a pass; {REMEDY}")
    return seen


def _instead(call: Call, *_: Any) -> Call:
    return call


def _apart(found: Any, own: Any, hidden: torch.Tensor, coarse: bool) -> float:
    """Difference of what a layer adds to its states, relative, beyond what rounding the states makes of it.

    As in `trial`, that of the median token in half precision, where experts may be all but equally good for a token.
    """
    ours, theirs = (each[0] if isinstance(each, tuple) else each for each in (found, own))
    rounding = 2 * torch.finfo(theirs.dtype).eps * theirs.double().norm(dim=-1)
    apart = ((ours.double() - theirs.double()).norm(dim=-1) - rounding).clamp(min=0)
    share = torch.where(apart == 0, 0.0, apart / (theirs.double() - hidden.double()).norm(dim=-1))
    return float(share.median() if coarse else share.max())
