"""The steps of a forward pass that a method may change, as hooks on a view of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from eddy_embed.errors import InterventionDidNotRun, UnsupportedModel
from eddy_embed.model.attention.blocked import AttentionSpec, Group
from eddy_embed.model.attention.kernels import Angles, DeviceInfo, KernelChoice, attend, choose, entry_keys
from eddy_embed.model.attention.watcher import AttentionRecorder
from eddy_embed.model.view import DECODER
from eddy_embed.parts.attention import ExtraKeyValues
from eddy_embed.parts.copy_edges import copy_states
from eddy_embed.utils.extras import quiet_imports

# All that makes vectors imports this file, and nothing before it what transformers looks for beside itself.
with quiet_imports():
    from transformers import AttentionInterface, AttentionMaskInterface

ATTENTION = "eddy"
"""Name under which transformers' models find our attention; only views use it."""


RUNS = ("embedding", "copy", "attention", "re-routing", "watch", "softmax")
"""Interventions whose runs are counted."""


class PassEnded(Exception):
    """A pass has all that was wanted of it."""


@dataclass(eq=False)
class PassState:
    """One forward pass: what each hook has to do, and what the hooks did.

    `tokens` rows belong to sequences; rows after them are padding that nobody reads. `placeholders` are the indices and
    values of embeddings to replace, `edges` the copies made on the inputs of the `rewired` layers. `specs` are the
    attention specs that the layers declared at load. Without `kernels`, each layer's kernel is chosen and added to
    `chosen_kernels`; with `needs_lse`, all of them give the log-sum-exp of logits. With `probed_keys`, the keys of
    extra entries are stored there by layer instead of entering attention. `captured` holds the states of the `captures`
    layers, all or those at `rows`; a pass ends behind its `last` layer, 0 for none, or runs whole. `factor` multiplies
    the softmax input of models that compute attention themselves. `ran` counts the runs of each hook.
    """

    groups: list[Group]
    tokens: int = 0
    placeholders: tuple[torch.Tensor, torch.Tensor] | None = None
    edges: torch.Tensor | None = None
    rewired: range = range(0)
    reroute: ExtraKeyValues | None = None
    watcher: AttentionRecorder | None = None
    specs: tuple[AttentionSpec, ...] | None = None
    kernels: tuple[KernelChoice, ...] | None = None
    needs_lse: bool = False
    probed_keys: dict[int, torch.Tensor] | None = None
    captures: frozenset[int] = frozenset()
    last: int | None = None
    rows: torch.Tensor | None = None
    factor: float | None = None
    captured: dict[int, torch.Tensor] = field(default_factory=dict)
    declared_specs: list[AttentionSpec] = field(default_factory=list)
    chosen_kernels: list[KernelChoice] = field(default_factory=list)
    mask_windows: set[int] = field(default_factory=set)
    computed_angles: list[Angles] = field(default_factory=list)
    layer_angles: Angles | None = None
    ran: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RUNS, 0))

    def watches(self, layer: int) -> bool:
        """Return whether the watcher is shown a layer's attention."""
        return self.watcher is not None and (not self.watcher.last_layer_only or layer == len(self.specs or ()))

    def capture(self, layer: int, states: torch.Tensor) -> None:
        """Keep a layer's states, shape (.., tokens, width), if they are wanted."""
        if layer in self.captures:
            states = states.flatten(0, -2)[: self.tokens]
            self.captured[layer] = states if self.rows is None else states[self.rows.to(states.device)]

    def leave(self, layer: int, states: torch.Tensor) -> None:
        """Keep a layer's states if they are wanted, and end the pass behind its last layer."""
        self.capture(layer, states)
        if layer == self.last:
            raise PassEnded

    def side_by_side(self, layers: tuple[int, ...]) -> torch.Tensor:
        """Return states of some layers, shape (tokens, layers * width)."""
        states = [self.captured[layer] for layer in layers]
        return states[0] if len(states) == 1 else torch.cat([h.to(states[0].device) for h in states], dim=-1)


# Not a keyword argument of forward: embedding modules receive none, and some architectures drop those they do not know.
# A context variable reaches every hook of the pass, in its own thread only.
current: ContextVar[PassState | None] = ContextVar("eddy_pass", default=None)


def install(embedding: nn.Module, layers: nn.ModuleList, rotary: list[nn.Module]) -> None:
    """Put hooks on a view's token embedding, layers and rotary embeddings. They do nothing outside a pass."""
    for module in rotary:
        module.register_forward_pre_hook(_add_negative_positions, with_kwargs=True)
        module.register_forward_hook(_split_angles)
    embedding.register_forward_hook(_embed)
    for index, layer in enumerate(layers):
        layer.register_forward_pre_hook(_enter(index), with_kwargs=True)
        layer.register_forward_hook(_leave(index + 1))


def register() -> None:
    """Make our attention known to transformers, under a name that only our views use."""
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, _no_mask)


def _no_mask(*_: Any, local_size: int | None = None, **__: Any) -> None:
    """Make no mask, since our attention knows the sequences itself; note sliding windows that only a mask would set."""
    call = current.get()
    if call is not None and local_size is not None:
        call.mask_windows.add(local_size)


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
    if call is None:
        raise InterventionDidNotRun(f"attention {ATTENTION!r} works inside Eddy's own passes only; use sdpa instead")
    scale = float(scaling if scaling is not None else query.shape[-1] ** -0.5)
    causal = bool(getattr(module, "is_causal", True)) if is_causal is None else is_causal
    bias = None if position_bias is None else _checked_bias(module, position_bias, call.groups, causal)
    spec = AttentionSpec(scale, softcap, sliding_window, s_aux is not None, causal, bias is not None)
    groups = [members.to(query.device) for members in call.groups]
    layer, kernels, extra, angles = _next_layer(call, type(module).__name__, spec, DeviceInfo.of(query, value))
    if extra is not None and call.probed_keys is not None:
        call.probed_keys[layer] = entry_keys(key, groups[0], extra.entries, angles)[0]
        extra = None
    watcher = call.watcher if call.watches(layer) else None
    return attend(query, key, value, groups, spec, kernels, extra, watcher, angles, bias, s_aux), None


def _next_layer(
    call: PassState, name: str, spec: AttentionSpec, device: DeviceInfo
) -> tuple[int, KernelChoice, ExtraKeyValues | None, Angles | None]:
    """Return number, kernels, extra entries and rotary angles of the layer whose attention comes next in a pass."""
    layer = len(call.declared_specs) + 1
    if call.specs is not None and (layer > len(call.specs) or call.specs[layer - 1] != spec):
        raise InterventionDidNotRun(f"attention {layer} of {name} is not as it was at load")
    call.declared_specs.append(spec)
    extra = call.reroute if call.reroute is not None and layer in call.reroute.known else None
    call.ran["attention"] += 1
    call.ran["re-routing"] += extra is not None
    call.ran["watch"] += call.watches(layer)
    angles = call.layer_angles if extra is not None and extra.rebase else None
    if extra is not None and extra.rebase and angles is None and call.probed_keys is None:
        raise InterventionDidNotRun(f"attention {layer} of {name} was given no rotary angles")
    if call.kernels is not None:
        return layer, call.kernels[layer - 1], extra, angles
    needs_lse = call.needs_lse or (extra is not None and call.probed_keys is None)
    call.chosen_kernels.append(choose(spec, device, needs_lse))
    return layer, call.chosen_kernels[-1], extra, angles


def _longest(groups: list[Group]) -> int:
    """Return tokens of the longest sequence."""
    return max(members.longest for members in groups)


def _checked_bias(module: nn.Module, bias: torch.Tensor, groups: list[Group], causal: bool) -> torch.Tensor:
    """Return a bias by distance (`by_distance`), shape (heads, 2n - 1) for the n tokens of the longest sequence."""
    longest = _longest(groups)
    if causal or tuple(bias.shape[:1] + bias.shape[2:]) != (1, 1, 2 * longest - 1):
        raise UnsupportedModel(
            f"{type(module).__name__} uses a position bias of shape {tuple(bias.shape)}, not one by distance for both "
            f"directions, which is not supported; {DECODER}"
        )
    return bias[0, :, 0]


def _rebased_entries() -> int:
    """Return how many entries the current pass moves to positions -1, -2 ..."""
    call = current.get()
    return 0 if call is None or call.reroute is None or not call.reroute.rebase else call.reroute.entries


def _add_negative_positions(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Have the model compute the angles of positions -1, -2 .. together with those of the tokens."""
    entries = _rebased_entries()
    if not entries:
        return None
    positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
    back = -1 - torch.arange(entries, device=positions.device)
    both = torch.cat([positions, back.expand(*positions.shape[:-1], -1)], dim=-1)
    if "position_ids" in kwargs:
        return args, {**kwargs, "position_ids": both}
    return (args[0], both, *args[2:]), kwargs


def _split_angles(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
    call, entries = current.get(), _rebased_entries()
    if call is None or not entries:
        return None
    (cos, back_cos), (sin, back_sin) = ((angle[..., :-entries, :], angle[..., -entries:, :]) for angle in output)
    call.computed_angles.append(Angles(cos, sin, back_cos, back_sin))
    return cos, sin


def _embed(_: nn.Module, __: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
    call = current.get()
    if call is None:
        return output
    call.ran["embedding"] += 1
    if call.placeholders is not None:
        index, values = call.placeholders
        flat = output.flatten(0, -2).index_copy(0, index.to(output.device), values.to(output.device, output.dtype))
        output = flat.view_as(output)
    return output


def _enter(index: int) -> Any:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = current.get()
        if call is None:
            return None
        hidden = hidden_of(args, kwargs)
        call.layer_angles = _given(call, kwargs.get("position_embeddings"))
        if index == 0:
            call.leave(0, hidden)
        if call.edges is None or index not in call.rewired:
            return None
        call.ran["copy"] += 1
        edited = copy_states(hidden.flatten(0, -2), call.edges.to(hidden.device)).view_as(hidden)
        return ((edited, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": edited})

    return hook


def hidden_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Return the states that a layer is called with."""
    hidden: torch.Tensor = args[0] if args else kwargs["hidden_states"]
    return hidden


def _given(call: PassState, embeddings: Any) -> Angles | None:
    """Return the angles that a layer was given, among those computed in this pass: a model may have several kinds."""
    for angles in call.computed_angles if isinstance(embeddings, tuple) else ():
        if angles.cos is embeddings[0]:
            return Angles(*(x.flatten(0, -2) for x in (angles.cos, angles.sin, angles.back_cos, angles.back_sin)))
    return None


def _leave(layer: int) -> Any:
    def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        call = current.get()
        if call is not None:
            call.leave(layer, output[0] if isinstance(output, tuple) else output)

    return hook


def by_distance(view: nn.Module) -> None:
    """Have a view's modules compute their position bias by distance, not for all queries and keys of a packed row."""
    for module in view.modules():
        compute_bias = getattr(module, "compute_bias", None)
        if callable(compute_bias) and isinstance(getattr(module, "relative_attention_bias", None), torch.nn.Embedding):
            module.compute_bias = _bias_by_distance(compute_bias)  # type: ignore[assignment]


def _bias_by_distance(compute_bias: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def compute(*lengths: int, device: Any = None, **more: Any) -> torch.Tensor:
        """Return the bias for n tokens, shape (1, heads, 1, 2n - 1), keys before their query first."""
        call = current.get()
        if call is None:
            return compute_bias(*lengths, device=device, **more)
        longest = _longest(call.groups)
        before = compute_bias(longest, 1, device=device).transpose(2, 3).flip(3)  # of one key, seen from all queries
        after = compute_bias(1, longest, device=device)
        return torch.cat([before[..., :-1], after], dim=-1)

    return compute


_SOFTMAX = (functional.softmax, torch.softmax, torch.Tensor.softmax)
_FUSED = (functional.scaled_dot_product_attention,)


class SoftmaxTemperatureMode(TorchFunctionMode):
    """Multiplies the input of attention's softmax by a factor, and counts; for torch calls of its own thread only.

    The softmax of attention is the one over all keys of all queries of all heads: no other has that shape. Fused
    attention computes softmax(query x key x scale + mask), so there the query and the mask are multiplied.
    """

    def __init__(self, call: PassState, shape: Sequence[int], config: Any) -> None:
        """Prepare for a pass whose tokens have this shape, (rows, length), of a model with this configuration."""
        super().__init__()
        self._call, self._factor = call, 1.0 if call.factor is None else call.factor
        self._matrices = int(shape[0]) * int(getattr(config, "num_attention_heads", None) or 0)
        self._length = int(shape[1])

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _SOFTMAX and args and self._of_attention(args[0]):
            args = (self._times(args[0]), *args[1:])
            self._call.ran["softmax"] += 1
        elif func in _FUSED and len(args) >= 3 and self._between_all(args[0], args[1]):
            args = (self._times(args[0]), *args[1:3], *(self._times(mask) for mask in args[3:4]), *args[4:])
            if "attn_mask" in kwargs:
                kwargs = {**kwargs, "attn_mask": self._times(kwargs["attn_mask"])}
            self._call.ran["softmax"] += 1
        return func(*args, **kwargs)

    def _times(self, states: torch.Tensor | None) -> torch.Tensor | None:
        return states if states is None or states.dtype == torch.bool else states * self._factor

    def _of_attention(self, scores: torch.Tensor) -> bool:
        side = self._length
        return tuple(scores.shape[-2:]) == (side, side) and scores.numel() == self._matrices * side * side

    def _between_all(self, query: torch.Tensor, key: torch.Tensor) -> bool:
        whole = query.shape[-2] == key.shape[-2] == self._length
        return whole and query.numel() == self._matrices * self._length * query.shape[-1]
