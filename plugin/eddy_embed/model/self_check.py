"""Checks on tiny texts: whether a model runs exactly here, and whether a method's kernels and moved keys do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from eddy_embed.errors import NotFinite, UnsupportedModel
from eddy_embed.model.attention.blocked import AttentionSpec, group
from eddy_embed.model.attention.kernels import BLOCKED, KernelChoice
from eddy_embed.model.hooks import PassState
from eddy_embed.parts.attention import ExtraKeyValues
from eddy_embed.text.sequence import Packed

AHEAD = 1e-3
"""Largest relative difference that rounding alone may make to states when later tokens change."""
FLOAT32, HALF = 1e-4, 5e-2
"""Tolerances: the largest relative difference of states that are the same, in float32, and in half
precision or with quantised weights."""
_NUMBERS = ("layer_idx", "layer_id", "layer_number", "training")
"""Attributes of modules that say which layer they are in."""


@dataclass(frozen=True, eq=False)
class SelfCheck:
    """A tiny text, a model to run it, and the largest difference of its states that rounding may make."""

    name: str
    forward: Callable[[Packed, PassState], object]
    packed: Packed
    specs: tuple[AttentionSpec, ...]
    exit_layer: int
    tolerance: float

    def kernels(self, reroute: ExtraKeyValues | None, watched: bool) -> tuple[KernelChoice, ...]:
        """Choose kernels, and refuse a model where those that give a log-sum-exp differ from the blocked one."""
        if reroute is not None and reroute.rebase and reroute.layers:
            self._check_rebase(reroute)
        chosen = self._pass(reroute=reroute, needs_lse=watched)
        kernels = tuple(chosen.chosen_kernels)
        if watched or (reroute is not None and reroute.layers):
            blocked = self._pass(reroute=reroute, kernels=(BLOCKED,) * len(kernels))
            states, expected = (call.captured[self.exit_layer] for call in (chosen, blocked))
            difference = state_difference(states, expected, self.tolerance)
            if not difference <= self.tolerance:
                names = sorted({kernel.within for kernel in kernels})
                raise UnsupportedModel(
                    f"{self.name}: attention by {', '.join(names)} differs here from the blocked kernel by "
                    f"{difference:.2g} (allowed {self.tolerance:.0e}); use another device or dtype"
                )
        return kernels

    def _pass(self, packed: Packed | None = None, **settings: object) -> PassState:
        packed = self.packed if packed is None else packed
        call = PassState(group(packed.offsets), specs=self.specs, captures=frozenset({self.exit_layer}), **settings)  # type: ignore[arg-type]
        self.forward(packed, call)
        return call

    def _check_rebase(self, reroute: ExtraKeyValues) -> None:
        """Compare keys moved to -1, -2 .. with those of the same text run at positions that end there.

        Rotary embeddings only know distances, so no state depends on the position where the text begins.
        """
        moved = self._pass(reroute=reroute, probed_keys={})
        if not moved.computed_angles:
            raise UnsupportedModel(
                f"{self.name} has no rotary positions (they are learned, or there are none), so a key that stands at "
                "one cannot be moved to position -1; leave rebase out"
            )
        positions = self.packed.positions - len(self.packed.positions)
        unmoved = replace(reroute, rebase=False)
        shifted = self._pass(replace(self.packed, positions=positions), reroute=unmoved, probed_keys={})
        count = min(reroute.entries, len(positions))
        for layer, keys in (moved.probed_keys or {}).items():
            expected = (shifted.probed_keys or {})[layer][:, :, :count]
            if not _difference(keys[:, :, :count], expected) <= self.tolerance:
                raise UnsupportedModel(
                    f"{self.name}: keys of layer {layer} are not turned by their position in the usual way, so they "
                    "cannot be moved to position -1; leave rebase out, or name layers with rotary positions"
                )


def check_reached(name: str, reached: int, layers: int) -> None:
    """Refuse a model some of whose layers' attention is out of reach, but not all of it."""
    if 0 < reached < layers:
        raise UnsupportedModel(
            f"{name}: {reached} of {layers} layers run their attention through transformers' registry, so it cannot "
            "be computed exactly here; use a model whose class supports attention_interface"
        )


def check_windows(name: str, specs: tuple[AttentionSpec, ...], kinds: list[str], mask_windows: set[int]) -> None:
    """Refuse sliding windows that masks were asked for and no layer declares, which a short trial text cannot show.

    `kinds` is what the configuration calls each layer, empty where it says nothing.
    """
    if not specs or (kinds and all(kind == "full_attention" for kind in kinds)):
        return
    # A mask for both directions is given the largest distance seen, one less than the window.
    unknown = mask_windows - {spec.window and spec.window - (not spec.causal) for spec in specs}
    if unknown:
        raise UnsupportedModel(
            f"{name}: its attention hides keys beyond {min(unknown)} tokens by a mask that its layers do not "
            "announce, so longer texts would be read wrongly; it is not supported"
        )


def looks_ahead(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether states of the same first tokens, shape (tokens, width), depend on the tokens that follow."""
    # The passes have one shape and make the same roundings, in any dtype.
    return bool(torch.isfinite(one).all()) and not _difference(one, other) <= AHEAD


def by_sdpa(view: Any, run: Callable[[], torch.Tensor], eager: torch.Tensor) -> torch.Tensor:
    """Return the model's own states by its sdpa attention, or those by its eager one where it has no other.

    Eager attention rounds its logits, sdpa does not: in bfloat16 the two are 0.063 apart on Qwen2.5 0.5B.
    """
    if not getattr(view, "_supports_sdpa", False):
        return eager
    ours = view.config._attn_implementation
    view.set_attn_implementation("sdpa")
    states = run()
    view.set_attn_implementation(ours)
    return states


def depth_of_kinds(layers: nn.ModuleList, config: Any) -> int:
    """Return how many layers have to run, two or more, until one of every kind has.

    Layers are of one kind if they are made of the same modules with the same settings, such as a window, wherever they
    stand.
    """
    named = list(getattr(config, "layer_types", None) or [])
    kinds = [
        (named[index : index + 1], [(name, type(module), _settings(module)) for name, module in layer.named_modules()])
        for index, layer in enumerate(layers)
    ]
    first = [index for index, kind in enumerate(kinds) if kind not in kinds[:index]]
    return min(max(first[-1] + 1, 2), len(layers))


def _settings(module: nn.Module) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if name not in _NUMBERS and isinstance(value, (bool, int, float, str, type(None)))
    }


@contextmanager
def without_products(layers: nn.ModuleList) -> Iterator[None]:
    """Let products with packed weights be zeros for now: a pass shows its course, and takes no time."""
    packed: list[Any] = [module for module in layers.modules() if hasattr(module, "left_out")]
    for module in packed:
        module.left_out = True
    try:
        yield
    finally:
        for module in packed:
            module.left_out = False


def check_sound(name: str, states: torch.Tensor, width: int) -> None:
    """Refuse a model whose states at the exit are NaN, constant, or not of its width, shape (tokens, width)."""
    if states.shape[1] != width:
        raise UnsupportedModel(f"{name}: hidden states have shape {tuple(states.shape)}, not width {width}")
    if not torch.isfinite(states).all():
        raise NotFinite(f"{name} gives NaN or infinity in {states.dtype}; its weights are damaged, or overflow there")
    if bool((states == states[0]).all()):
        raise UnsupportedModel(
            f"{name} gives every token the same state; its weights are damaged, such as all zeros: fetch it again"
        )


def check_states_equal(name: str, ours: torch.Tensor, own: torch.Tensor, tolerance: float) -> None:
    """Refuse a model whose states of packed sequences are not its own, each shape (tokens, width)."""
    difference = state_difference(ours, own, tolerance)
    if not difference <= tolerance:
        raise UnsupportedModel(
            f"{name}: hidden states of packed sequences differ from the model's own by {difference:.2g} (allowed "
            f"{tolerance:.1e}); its layers mix tokens in a way that is not supported"
        )


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm())


def state_difference(one: torch.Tensor, other: torch.Tensor, tolerance: float) -> float:
    """Return relative difference of states, each shape (tokens, width); the median token's unless they are float32's.

    Such rounding may choose another of two experts that are all but equally good for a token, or another of two
    neighbouring codes, and that token's state jumps. A fault shows in most tokens.
    """
    if tolerance <= FLOAT32:
        return _difference(one, other)
    distance = (one.double() - other.double()).norm(dim=1)
    # The embedding of the padding token may be zeros, and so may all of its states.
    return float(torch.where(distance == 0, 0.0, distance / other.double().norm(dim=1)).median())
