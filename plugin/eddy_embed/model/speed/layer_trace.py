"""A layer traced once, and compiled for any number of tokens, for all layers like it.

Products and attention are operators that the trace does not look into: what runs there is what runs without.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch._guards import detect_fake_mode
from torch.utils import _pytree as pytree

from eddy_embed.encoding.batching import out_of_memory
from eddy_embed.errors import InterventionDidNotRun, InvalidParameter, UnsupportedModel
from eddy_embed.model.attention import Traits
from eddy_embed.model.hooks import attended, hidden_of
from eddy_embed.model.speed import onednn_linear

if TYPE_CHECKING:
    from torch.fx import GraphModule

TRACED = 37
"""Tokens of the text that a layer is traced with: no width is 37, so nothing else is taken for them."""
REMEDY = "leave compile=True out"

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""What a layer is called with."""
Path = tuple[int | str, ...]
"""Where something stands in a call: (0, 0) is its first argument."""


@dataclass(frozen=True, eq=False)
class Kernels:
    """What a trace made.

    Attributes:
        run: The kernels.
        inputs: What they take: names of the layer's own tensors, or where a call has them (None: the number of tokens).
        several: How many things the layer gives, states and nothing else among them; 0: the states alone.
        reach: Whether they are right for a number of tokens.
    """

    run: Callable[..., Sequence[torch.Tensor]]
    inputs: tuple[str | Path | None, ...]
    several: int
    reach: Callable[[int], bool]

    def of(self, layer: nn.Module) -> Bound:
        """The kernels for a layer."""
        own = tensors_of(layer)
        inputs = [own[each] if isinstance(each, str) else None for each in self.inputs]
        holes = tuple((at, each) for at, each in enumerate(self.inputs) if not isinstance(each, str))
        return Bound(self, inputs, holes, [(each, each.dtype) for each in inputs if each is not None])


@dataclass(frozen=True, eq=False)
class Bound:
    """A layer's kernels with its weights: they take `inputs`, the missing ones of them out of a call."""

    kernels: Kernels
    inputs: list[Any]
    holes: tuple[tuple[int, Path | None], ...]
    dtypes: list[tuple[torch.Tensor, torch.dtype]]

    def fit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the kernels can do a call: without gradients, for so many tokens, with weights as they were."""
        plain = not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        kept = plain and all(each.dtype is dtype for each, dtype in self.dtypes)
        return kept and self.kernels.reach(hidden_of(args, kwargs).shape[1])

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the layer gives for a call."""
        inputs = self.inputs.copy()
        for at, path in self.holes:
            inputs[at] = hidden_of(args, kwargs).shape[1] if path is None else _at(path, (args, kwargs)).contiguous()
        states = self.kernels.run(*inputs)[0]
        return (states, *[None] * (self.kernels.several - 1)) if self.kernels.several else states


class _Stopped(Exception):
    """A traced layer was about to run; `args` are the inputs that its kernels take."""


def traced(name: str, layer: nn.Module, call: Call, output: Any) -> Kernels:
    """Trace a layer with a call, and compile it for any number of tokens.

    The kernels are called without the code that torch puts around them to see whether a trace still fits, which takes
    as long as a layer of a short query. What it would see to is seen to in `Bound.fit`.

    Raises:
        InvalidParameter: Torch is told to compile nothing.
        UnsupportedModel: The layer cannot be compiled.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    if hidden_of(*call).shape[:-1] != (1, TRACED):
        raise UnsupportedModel(f"{name}: its layers take other states than of tokens in a row; {REMEDY}")
    made: list[tuple[Callable[..., Sequence[torch.Tensor]], int, Callable[[int], bool]]] = []

    def backend(graph: GraphModule, examples: list[torch.Tensor]) -> Callable[..., None]:
        outputs = cast("Sequence[object]", graph.graph.output_node().args[0])
        # Checks of tensors' memory do not go with weights that only oneDNN can read. Threads are counted in each pass:
        # a process that was forked off may have one alone.
        checks: dict[str, Any] = dict.fromkeys(("size_asserts", "alignment_asserts", "scalar_asserts"), False)
        with config.patch({**checks, "cpp.dynamic_threads": True}):
            run = compile_fx(graph, examples)
        made.append((cast("Callable[..., Any]", run), len(outputs), _reach(examples)))
        return _stop

    # The kernels know tensors' memory from the trace, and are handed contiguous ones.
    call = pytree.tree_map_only(torch.Tensor, torch.Tensor.contiguous, call)
    # Torch keeps traces with the code that was traced, and only a few for each.
    alone = FunctionType(_run.__code__.replace(), _run.__globals__)
    inputs: tuple[Any, ...] = ()
    try:
        # Numbers and widths stay what they are, whatever other layers had in their place.
        fixed = torch._dynamo.config.patch(specialize_float=True, automatic_dynamic_shapes=False)
        with _unpacked(layer), torch.inference_mode(), fixed:
            for _, each in _given(call):
                for dimension in (at for at, size in enumerate(each.shape) if size == TRACED):
                    torch._dynamo.mark_dynamic(each, dimension)
            places: dict[int, str | Path] = {id(each): path for path, each in _given(call)}
            places |= {id(each): own for own, each in tensors_of(layer).items()}
            try:
                torch.compile(alone, fullgraph=True, backend=backend)(layer, *call)
            except _Stopped as stopped:
                inputs = stopped.args
    except InterventionDidNotRun:
        raise InvalidParameter(
            "compile=True: torch is told to compile nothing (TORCH_COMPILE_DISABLE, TORCHDYNAMO_DISABLE, or "
            "torch.compiler.set_stance); take that back, or leave it out"
        ) from None
    except Exception as error:
        inner = getattr(error, "inner_exception", error)
        if out_of_memory(inner):
            raise inner from None
        said = " ".join(str(inner).split())
        raise UnsupportedModel(
            f"{name}: its layers cannot be compiled ({type(inner).__name__}: {said:.300}); {REMEDY}"
        ) from error
    found = [None if isinstance(each, int) and each == TRACED else places.get(id(each), ()) for each in inputs]
    several = len(output) if isinstance(output, tuple) else 0
    if not made or made[0][1] != 1 or any(each is not None for each in (output[1:] if several else ())) or () in found:
        raise UnsupportedModel(
            f"{name}: its layers read or give more than states, so they cannot be compiled; {REMEDY}"
        )
    run, _, reach = made[0]
    return Kernels(run, tuple(found), several, reach)


def _reach(examples: list[torch.Tensor]) -> Callable[[int], bool]:
    """Whether a trace is right for a number of tokens, by the conditions that were noted while it was made."""
    shapes = cast("Any", detect_fake_mode(examples)).shape_env
    conditions = [guard.expr for guard in shapes.guards]

    @functools.cache
    def reach(tokens: int) -> bool:
        return tokens > 1 and all(bool(each.subs(dict.fromkeys(each.free_symbols, tokens))) for each in conditions)

    return reach


def _run(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return layer.forward(*args, **kwargs)


def _stop(*inputs: Any) -> None:
    raise _Stopped(*inputs)


@contextmanager
def _unpacked(layer: nn.Module) -> Iterator[None]:
    """Weights that only oneDNN can read replaced by empty ones of their shape, which is all that a trace asks for."""
    laid = [(module, module.weight) for module in onednn_linear.packed(layer)]
    try:
        for module, weight in laid:
            module.weight = nn.Parameter(torch.empty(weight.shape, dtype=weight.dtype), requires_grad=False)
        yield
    finally:
        for module, weight in laid:
            module.weight = weight


def check_compiler() -> None:
    """Hold that there is a C++ compiler.

    Raises:
        InvalidParameter: There is none.
    """
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        cpp_builder.get_cpp_compiler()
    except InvalidCxxCompiler:
        raise InvalidParameter(
            "compile=True: there is no C++ compiler (g++, or the one that CXX names); install one, or leave it out"
        ) from None


@functools.cache
def operators() -> torch.library.Library:
    """Products and attention as operators that a trace does not look into."""
    from torch._inductor import lowering

    library = torch.library.Library("eddy_embed", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("product(Tensor states, Tensor weight, Tensor? bias) -> Tensor")  # type: ignore[no-untyped-call]
    library.impl("product", onednn_linear.product, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake("eddy_embed::product", _product_alike, lib=library)
    library.define(  # type: ignore[no-untyped-call]
        "attention(Tensor query, Tensor key, Tensor value, float scale, float? cap, int? window, bool causal, "
        "Tensor? sinks) -> Tensor"
    )
    library.impl("attention", _attention, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake("eddy_embed::attention", _attention_alike, lib=library)
    if not onednn_linear.available():
        return library
    operator = onednn_linear.operator()
    call = lowering.fallback_handler(operator, add_to_fallback_set=False)  # type: ignore[no-untyped-call]
    lowering.register_lowering(torch.ops.eddy_embed.product.default, type_promotion_kind=None)(
        lambda states, weight, bias: call(states, weight, bias, *onednn_linear.ALONE)
    )
    return library


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    cap: float | None,
    window: int | None,
    causal: bool,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    traits = Traits(scale, cap, window, sinks is not None, causal)
    return attended("a compiled layer", query, key, value, traits, None, sinks).contiguous()


def _attention_alike(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any) -> torch.Tensor:
    return query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])


def _product_alike(states: torch.Tensor, weight: torch.Tensor, _: torch.Tensor | None) -> torch.Tensor:
    return states.new_empty(*states.shape[:-1], weight.shape[0])


def _at(path: Path, call: Any) -> Any:
    return functools.reduce(lambda inside, key: inside[key], path, call)


def tensors_of(layer: nn.Module) -> dict[str, torch.Tensor]:
    """A layer's own tensors, under each of their names."""
    return dict([*layer.named_parameters(remove_duplicate=False), *layer.named_buffers(remove_duplicate=False)])


def _given(inside: Any, path: Path = ()) -> Iterator[tuple[Path, torch.Tensor]]:
    """The tensors of a call, and where they stand."""
    if isinstance(inside, torch.Tensor):
        yield path, inside
    elif isinstance(inside, tuple | list | dict):
        for key, value in inside.items() if isinstance(inside, dict) else enumerate(inside):
            yield from _given(value, (*path, key))
