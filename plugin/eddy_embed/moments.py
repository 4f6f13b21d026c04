"""The moments of a forward pass that a method may touch, as hooks on a view of the model."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from eddy_embed.attention import Group, Reroute, Traits, Watching, attend
from eddy_embed.errors import InterventionDidNotRun, UnsupportedModel
from eddy_embed.rewire import copy_states

if TYPE_CHECKING:
    from torch import nn

ATTENTION = "eddy"
"""Name under which transformers' models find our attention; only views use it."""


@dataclass(eq=False)
class Pass:
    """One forward pass under way: what to do at each moment, and what was done."""

    groups: list[Group]
    placeholders: tuple[torch.Tensor, torch.Tensor] | None = None
    edges: torch.Tensor | None = None
    rewired: range = range(0)
    reroute: Reroute | None = None
    watching: Watching | None = None
    traits: tuple[Traits, ...] | None = None
    captures: frozenset[int] = frozenset()
    rows: torch.Tensor | None = None
    captured: dict[int, torch.Tensor] = field(default_factory=dict)
    seen: list[Traits] = field(default_factory=list)
    local: set[int] = field(default_factory=set)
    embedded: int = 0
    copies: int = 0
    rerouted: int = 0
    watched: int = 0

    def capture(self, layer: int, states: torch.Tensor) -> None:
        """Keep the states of all tokens, or of those named in `rows`, if this layer's are wanted."""
        if layer in self.captures:
            self.captured[layer] = states if self.rows is None else states[self.rows.to(states.device)]


# Not a keyword argument of forward: embedding modules receive none, and some architectures drop those they do not know.
# A context variable reaches every moment of the pass in its own thread only.
current: ContextVar[Pass | None] = ContextVar("eddy_pass", default=None)


def install(embedding: nn.Module, layers: nn.ModuleList) -> None:
    """Put hooks on a view's modules. They do nothing outside a pass.

    Args:
        embedding: The module that looks tokens up.
        layers: The layers, in order.
    """
    embedding.register_forward_hook(_embed)
    for index, layer in enumerate(layers):
        layer.register_forward_pre_hook(_enter(index), with_kwargs=True)
        layer.register_forward_hook(_leave(index + 1))


def register() -> None:
    """Make our attention known to transformers, under a name that only our views use."""
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, _no_mask)


def _no_mask(*_: Any, local_size: int | None = None, **__: Any) -> None:
    """No mask: our attention knows the sequences itself. Windows that only a mask would hold are noted."""
    call = current.get()
    if call is not None and local_size is not None:
        call.local.add(local_size)


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    call = current.get()
    if call is None:
        raise InterventionDidNotRun(f"attention {ATTENTION!r} works inside Eddy's own passes only; use sdpa instead")
    refused = {
        "attention sinks": s_aux is not None,
        "a position bias": position_bias is not None,
        "bidirectional attention": not getattr(module, "is_causal", True),
    }
    if any(refused.values()):
        what = ", ".join(name for name, used in refused.items() if used)
        raise UnsupportedModel(f"{type(module).__name__} uses {what}, which is not supported")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    traits = Traits(float(scale), softcap, sliding_window)
    index = len(call.seen)
    if call.traits is not None and (index >= len(call.traits) or call.traits[index] != traits):
        raise InterventionDidNotRun(f"attention {index + 1} of {type(module).__name__} is not as it was at load")
    call.seen.append(traits)
    groups = [members.to(query.device) for members in call.groups]
    extra = call.reroute if call.reroute is not None and index + 1 in (call.reroute.layers or ()) else None
    call.rerouted += extra is not None
    call.watched += call.watching is not None
    return attend(query, key, value, groups, traits, extra, call.watching), None


def _embed(_: nn.Module, __: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
    call = current.get()
    if call is None:
        return output
    call.embedded += 1
    if call.placeholders is None:
        return output
    at, values = call.placeholders
    return output.index_copy(1, at.to(output.device), values.to(output.device, output.dtype).unsqueeze(0))


def _enter(index: int) -> Any:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = current.get()
        if call is None:
            return None
        hidden = args[0] if args else kwargs["hidden_states"]
        if index == 0:
            call.capture(0, hidden[0])
        if call.edges is None or index not in call.rewired:
            return None
        call.copies += 1
        edited = copy_states(hidden[0], call.edges.to(hidden.device)).unsqueeze(0)
        return ((edited, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": edited})

    return hook


def _leave(layer: int) -> Any:
    def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        call = current.get()
        if call is not None:
            call.capture(layer, (output[0] if isinstance(output, tuple) else output)[0])

    return hook
