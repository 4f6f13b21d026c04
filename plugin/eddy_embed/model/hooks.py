"""The moments of a forward pass that a method may touch, as hooks on a view of the model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface

from eddy_embed.errors import InterventionDidNotRun, UnsupportedModel
from eddy_embed.model.attention import (
    Angles,
    AttentionSpec,
    AttentionWatcher,
    DeviceInfo,
    Group,
    KernelChoice,
    attend,
    choose,
    entry_keys,
)
from eddy_embed.model.view import DECODER
from eddy_embed.parts.attention import ExtraKeyValues
from eddy_embed.parts.copy_edges import copy_states

ATTENTION = "eddy"
"""Name under which transformers' models find our attention; only views use it."""


@dataclass(eq=False)
class PassState:
    """One forward pass under way: what to do at each moment, and what was done.

    Behind its `tokens` there may be further rows, which belong to no sequence, and which nobody reads.
    Where `kernels` is None, they are chosen and noted in `chosen`, `mass` saying whether all have to give masses. With
    a `probe`, the keys of entries go there and not into attention. A `factor` is on what
    enters the softmax of models that compute their attention themselves. Where there are `leaves`, gradients are
    recorded, and the states that enter the model, which they are taken by, are added there.
    """

    groups: list[Group]
    tokens: int = 0
    placeholders: tuple[torch.Tensor, torch.Tensor] | None = None
    edges: torch.Tensor | None = None
    rewired: range = range(0)
    reroute: ExtraKeyValues | None = None
    watching: AttentionWatcher | None = None
    traits: tuple[AttentionSpec, ...] | None = None
    kernels: tuple[KernelChoice, ...] | None = None
    mass: bool = False
    probe: dict[int, torch.Tensor] | None = None
    captures: frozenset[int] = frozenset()
    rows: torch.Tensor | None = None
    factor: float | None = None
    leaves: list[torch.Tensor] | None = None
    captured: dict[int, torch.Tensor] = field(default_factory=dict)
    seen: list[AttentionSpec] = field(default_factory=list)
    chosen: list[KernelChoice] = field(default_factory=list)
    local: set[int] = field(default_factory=set)
    turns: list[Angles] = field(default_factory=list)
    angles: Angles | None = None
    embedded: int = 0
    copies: int = 0
    rerouted: int = 0
    watched: int = 0
    softened: int = 0

    def capture(self, layer: int, states: torch.Tensor) -> None:
        """Keep the states of all tokens, or of those named in `rows`, if this layer's are wanted."""
        if layer in self.captures:
            states = states[: self.tokens]
            self.captured[layer] = states if self.rows is None else states[self.rows.to(states.device)]

    @property
    def mode(self) -> AbstractContextManager[None]:
        """What the pass runs in."""
        return torch.inference_mode() if self.leaves is None else torch.enable_grad()

    def side_by_side(self, layers: tuple[int, ...]) -> torch.Tensor:
        """States of some layers, shape (tokens, layers * width)."""
        found = [self.captured[layer] for layer in layers]
        return found[0] if len(found) == 1 else torch.cat([each.to(found[0].device) for each in found], dim=-1)


# Not a keyword argument of forward: embedding modules receive none, and some architectures drop those they do not know.
# A context variable reaches every moment of the pass in its own thread only.
current: ContextVar[PassState | None] = ContextVar("eddy_pass", default=None)


def install(embedding: nn.Module, layers: nn.ModuleList, rotary: list[nn.Module]) -> None:
    """Put hooks on a view's modules. They do nothing outside a pass.

    Args:
        embedding: The module that looks tokens up.
        layers: The layers, in order.
        rotary: The modules that compute rotary angles.
    """
    for module in rotary:
        module.register_forward_pre_hook(_before_angles, with_kwargs=True)
        module.register_forward_hook(_behind_angles)
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
    is_causal: bool | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    call = current.get()
    name = type(module).__name__
    if call is None:
        raise InterventionDidNotRun(f"attention {ATTENTION!r} works inside Eddy's own passes only; use sdpa instead")
    scale = float(scaling if scaling is not None else query.shape[-1] ** -0.5)
    causal = bool(getattr(module, "is_causal", True)) if is_causal is None else is_causal
    bias = None if position_bias is None else _checked_bias(module, position_bias, call.groups, causal)
    traits = AttentionSpec(scale, softcap, sliding_window, s_aux is not None, causal, bias is not None)
    return _attend_in_pass(call, name, traits, (query, key, value), bias, s_aux), None


def _attend_in_pass(
    call: PassState,
    name: str,
    traits: AttentionSpec,
    states: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    bias: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """The attention of the next layer of a pass; `states` are its query, key and value."""
    query, key, value = states
    index = len(call.seen)
    if call.traits is not None and (index >= len(call.traits) or call.traits[index] != traits):
        raise InterventionDidNotRun(f"attention {index + 1} of {name} is not as it was at load")
    call.seen.append(traits)
    groups = [members.to(query.device) for members in call.groups]
    extra = call.reroute if call.reroute is not None and index + 1 in (call.reroute.layers or ()) else None
    call.rerouted += extra is not None
    call.watched += call.watching is not None
    angles = call.angles if extra is not None and extra.rebase else None
    if extra is not None and call.probe is not None:
        call.probe[index + 1] = entry_keys(key, groups[0], extra.entries, angles)[0]
        extra = None
    elif extra is not None and extra.rebase and angles is None:
        raise InterventionDidNotRun(f"attention {index + 1} of {name} was given no rotary angles")
    if call.kernels is None:
        call.chosen.append(choose(traits, DeviceInfo.of(query, value), call.mass or extra is not None))
    kernels = call.chosen[index] if call.kernels is None else call.kernels[index]
    return attend(query, key, value, groups, traits, kernels, extra, call.watching, angles, bias, sinks)


def _checked_bias(module: nn.Module, bias: torch.Tensor, groups: list[Group], causal: bool) -> torch.Tensor:
    """A bias by distance (`by_distance`), shape (heads, 2n - 1) for the n tokens of the longest sequence."""
    longest = max(int(members.rows.shape[1]) for members in groups)
    if causal or tuple(bias.shape[:1] + bias.shape[2:]) != (1, 1, 2 * longest - 1):
        raise UnsupportedModel(
            f"{type(module).__name__} uses a position bias of shape {tuple(bias.shape)}, not one by distance for both "
            f"directions, which is not supported; {DECODER}"
        )
    return bias[0, :, 0]


def _before_angles(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Have the model compute the angles of positions -1, -2 .. beside those of the tokens, in one go."""
    call = current.get()
    if call is None or call.reroute is None or not call.reroute.rebase:
        return None
    positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
    back = -1 - torch.arange(call.reroute.entries, device=positions.device)
    both = torch.cat([positions, back.expand(*positions.shape[:-1], -1)], dim=-1)
    if "position_ids" in kwargs:
        return args, {**kwargs, "position_ids": both}
    return (args[0], both, *args[2:]), kwargs


def _behind_angles(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
    call = current.get()
    if call is None or call.reroute is None or not call.reroute.rebase:
        return None
    more = call.reroute.entries
    (cos, back_cos), (sin, back_sin) = ((each[..., :-more, :], each[..., -more:, :]) for each in output)
    call.turns.append(Angles(cos, sin, back_cos, back_sin))
    return cos, sin


def _embed(_: nn.Module, __: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
    call = current.get()
    if call is None:
        return output
    call.embedded += 1
    if call.placeholders is not None:
        at, values = call.placeholders
        flat = output.flatten(0, -2).index_copy(0, at.to(output.device), values.to(output.device, output.dtype))
        output = flat.view_as(output)
    if call.leaves is not None:
        output = output.detach().requires_grad_()
        call.leaves.append(output)
    return output


def _enter(index: int) -> Any:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = current.get()
        if call is None:
            return None
        hidden = hidden_of(args, kwargs)
        call.angles = _given(call, kwargs.get("position_embeddings"))
        if index == 0:
            call.capture(0, hidden.flatten(0, -2))
        if call.edges is None or index not in call.rewired:
            return None
        call.copies += 1
        edited = copy_states(hidden.flatten(0, -2), call.edges.to(hidden.device)).view_as(hidden)
        return ((edited, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": edited})

    return hook


def hidden_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """The states that a layer is called with."""
    hidden: torch.Tensor = args[0] if args else kwargs["hidden_states"]
    return hidden


def _given(call: PassState, embeddings: Any) -> Angles | None:
    """The angles that a layer was given, among those computed in this pass: a model may have several kinds."""
    if not isinstance(embeddings, tuple):
        return None
    for turn in call.turns:
        if turn.cos is embeddings[0]:
            return Angles(*(each.flatten(0, -2) for each in (turn.cos, turn.sin, turn.back_cos, turn.back_sin)))
    return None


def _leave(layer: int) -> Any:
    def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        call = current.get()
        if call is not None:
            call.capture(layer, (output[0] if isinstance(output, tuple) else output).flatten(0, -2))

    return hook


def by_distance(view: nn.Module) -> None:
    """Have the modules of a view that compute a bias for all queries and keys of a pass compute it for all distances.

    A pass holds many sequences in one row, and most distances in it lie between tokens that never meet.
    """
    for module in view.modules():
        own = getattr(module, "compute_bias", None)
        if callable(own) and isinstance(getattr(module, "relative_attention_bias", None), torch.nn.Embedding):
            module.compute_bias = _bias_by_distance(own)  # type: ignore[assignment]


def _bias_by_distance(own: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def compute(*lengths: int, device: Any = None, **more: Any) -> torch.Tensor:
        """Shape (1, heads, 1, 2n - 1) for the n tokens of the longest sequence; keys before their query first."""
        call = current.get()
        if call is None:
            return own(*lengths, device=device, **more)
        longest = max(int(members.rows.shape[1]) for members in call.groups)
        before = own(longest, 1, device=device).transpose(2, 3).flip(3)  # of one key, seen from all queries
        behind = own(1, longest, device=device)
        return torch.cat([before[..., :-1], behind], dim=-1)

    return compute
