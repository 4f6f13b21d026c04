"""A device beside the processor, which computes in the same memory and forgives nothing, and a program that uses it.

Tensors there do not mix with the processor's, as on an accelerator: an index, a mask or a weight that was left behind
is an error. Once torch knows a device, all libraries of the process begin to use it, so it has a process of its own.
"""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
import torch
from tests import families
from tests.comparison import TEXTS
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from eddy_embed import Embedder
from eddy_embed.model.attention import blocked
from eddy_embed.model.attention.blocked import Group

ATEN = torch.ops.aten
NAME = "elsewhere"
DEVICE = torch.device("privateuseone", 0)
MOVES = {ATEN._to_copy.default, ATEN.copy_.default}
"""What may be given tensors of both devices."""


class There(torch.Tensor):
    """A tensor on the device; `held` is its memory."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> There:
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class Elsewhere(TorchDispatchMode):
    """Within it, the device can be named; the operators that ran there are noted."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(isinstance(each, There) for each in tree_leaves((args, kwargs))):
            self.ran.add(func.overloadpacket.__name__)
        return run(func, args, kwargs or {})


def run(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator where its tensors are.

    Raises:
        RuntimeError: They are on both devices.
    """
    given = tree_leaves((args, kwargs))
    there = [each for each in given if isinstance(each, There)]
    # Of the processor's, those of a single number go along, as they do with an accelerator.
    here = [each for each in given if isinstance(each, torch.Tensor) and not isinstance(each, There) and each.ndim]
    if there and here and func not in MOVES:
        raise RuntimeError(f"{func} was given tensors on two devices: {_shapes(there)} and {_shapes(here)}")
    named = [each for each in given if isinstance(each, torch.device)]
    at_home = named[0].type != DEVICE.type if named else not there
    if func is ATEN.copy_.default:
        at_home = not isinstance(args[0], There)
    args, kwargs = tree_map_only(There, lambda each: each.held, (args, kwargs))
    args, kwargs = tree_map_only(torch.device, lambda _: torch.device("cpu"), (args, kwargs))
    out = _OWN.get(func, func)(*args, **kwargs)
    if at_home:
        return out
    known = {id(each.held): each for each in there}  # what is changed in place stays the same tensor
    return tree_map_only(torch.Tensor, lambda each: known[id(each)] if id(each) in known else There(each), out)


def _shapes(tensors: list[Any]) -> list[tuple[int, ...]]:
    return [tuple(each.shape) for each in tensors]


def _histc(states: Any, *args: Any, **kwargs: Any) -> Any:
    """Of whole numbers too, which experts are counted by on accelerators; the processor's has none."""
    return ATEN.histc(states.float(), *args, **kwargs).to(states.dtype)


_OWN = {ATEN.histc.default: _histc}


def register() -> None:
    """Make the device known to torch."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    # Inference tensors cannot be views of tensors such as these.
    torch.inference_mode = torch.no_grad  # type: ignore[assignment,misc]
    torch.__future__.set_swap_module_params_on_conversion(True)  # a weight becomes one of another class

    def empty(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> There:
        return There(torch.empty_strided(size, stride, dtype=dtype))

    def copied(source: torch.Tensor, to: There, *_: Any) -> There:
        to.held.copy_(source.held if isinstance(source, There) else source)
        return to

    # For what torch makes beneath the sight of a mode, such as the index of states[[0]].
    _LIBRARY.impl("empty_strided", empty, "PrivateUse1")
    _LIBRARY.impl("_copy_from", copied, "PrivateUse1")


_LIBRARY = torch.library.Library("aten", "IMPL")


def moved(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of a model on the device."""
    copied = copy.deepcopy(model)
    weights = {id(each): torch.nn.Parameter(There(each.detach()), requires_grad=False) for each in copied.parameters()}
    for module in copied.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = weights[id(weight)]
        for name, tensor in module._buffers.items():
            if tensor is not None:
                module._buffers[name] = There(tensor)
    return copied


def computed(model: Any, **options: Any) -> tuple[np.ndarray, str]:
    """All numbers that an embedder gives, of texts and of parts of one, and its device."""
    with Embedder(model, **options) as embedder:
        text = " ".join(TEXTS)
        passages = embedder.encode_long(text, passage_size=20).passages
        vectors = [*embedder.encode_document(TEXTS), *(passage.vector for passage in passages)]
        if embedder.can_embed_spans:
            vectors += [*embedder.encode_words(text, [(0, 5), (30, 47)])]
        return np.concatenate(vectors), embedder.device


def answer(
    family: str, method: str, dtype: str = "float32", folder: str | None = None, forgotten: str | None = None
) -> dict[str, Any]:
    """Compute on the processor and on the device: how far the numbers are apart, and what ran there.

    `rounding` is how far those of the processor are from its own in float32.

    Args:
        family: Of the model.
        method: Its name and parameters.
        dtype: Type of number.
        folder: Where the model is saved, to be opened by name on the device; None: it is handed over.
        forgotten: A method of `Group` that no longer does anything, to see the device refuse what follows.
    """
    model, tokenizer = families.build(family)

    def numbers(there: bool, dtype: str) -> tuple[np.ndarray, str]:
        if folder is not None:
            return computed(folder, method=method, dtype=dtype, device=NAME if there else "cpu")
        here = copy.deepcopy(model).to(getattr(torch, dtype))
        return computed(moved(here) if there else here, method=method, tokenizer=tokenizer)

    expected, exact = (numbers(False, kind)[0] for kind in (dtype, "float32"))
    elsewhere = Elsewhere()
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(blocked, "VIEWED", (NAME, "cpu")))
        if forgotten is not None:
            stack.enter_context(mock.patch.object(Group, forgotten, lambda self, *_: self))
        stack.enter_context(elsewhere)
        got, device = numbers(True, dtype)
    apart, rounding = (float(np.abs(each - expected).max()) for each in (got, exact))
    return {"device": device, "apart": apart, "rounding": rounding, "ran": sorted(elsewhere.ran)}
