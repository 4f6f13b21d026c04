"""Trials on tiny texts, of a model: does it run exactly here? Of a method: do its kernels, can its keys be moved?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from eddy_embed.errors import NotFinite, UnsupportedModel
from eddy_embed.model.attention import BLOCKED, AttentionSpec, KernelChoice, group
from eddy_embed.model.hooks import PassState
from eddy_embed.parts.attention import ExtraKeyValues
from eddy_embed.text.sequence import Packed

AHEAD = 1e-3
"""Largest relative difference that later tokens may make to earlier states, for roundings alone."""


@dataclass(frozen=True, eq=False)
class SelfCheck:
    """A tiny text, and a model to run it.

    Attributes:
        name: The model's.
        forward: Runs a pass.
        packed: The text.
        traits: What each layer does inside its attention.
        exit_layer: The layer that is read.
        coarse: Whether it computes in half precision, or with codes.
    """

    name: str
    forward: Callable[[Packed, PassState], object]
    packed: Packed
    traits: tuple[AttentionSpec, ...]
    exit_layer: int
    coarse: bool

    def kernels(self, reroute: ExtraKeyValues | None, watched: bool) -> tuple[KernelChoice, ...]:
        """Choose kernels, and compare those that give masses with the blocked one.

        Args:
            reroute: Further entries in the attention of some layers, None for none.
            watched: Whether attention is watched.

        Raises:
            UnsupportedModel: They differ, or keys cannot be re-based.
        """
        if reroute is not None and reroute.rebase and reroute.layers:
            self._rebased(reroute)
        chosen = self._pass(reroute=reroute, mass=watched)
        kernels = tuple(chosen.chosen)
        if watched or (reroute is not None and reroute.layers):
            blocked = self._pass(reroute=reroute, kernels=(BLOCKED,) * len(kernels))
            difference = _apart(chosen.captured[self.exit_layer], blocked.captured[self.exit_layer], self.coarse)
            if not difference <= allowed(self.coarse):
                names = sorted({kernel.within for kernel in kernels})
                raise UnsupportedModel(
                    f"{self.name}: attention by {', '.join(names)} differs here from the blocked kernel by "
                    f"{difference:.2g} (allowed {allowed(self.coarse):.0e}); use another device or dtype"
                )
        return kernels

    def _pass(self, packed: Packed | None = None, **settings: object) -> PassState:
        packed = self.packed if packed is None else packed
        call = PassState(group(packed.offsets), traits=self.traits, captures=frozenset({self.exit_layer}), **settings)  # type: ignore[arg-type]
        self.forward(packed, call)
        return call

    def _rebased(self, reroute: ExtraKeyValues) -> None:
        """Compare keys that were moved to -1, -2 .. with those of the same text read at the positions that end there.

        A rotary embedding only knows distances, so that no state depends on where the text begins.
        """
        remedy = "leave rebase out, or name layers with rotary positions"
        moved = self._pass(reroute=reroute, probe={})
        if not moved.turns:
            raise UnsupportedModel(
                f"{self.name} has no rotary positions (they are learned, or there are none), so a key that stands at "
                "one cannot be moved to position -1; leave rebase out"
            )
        positions = self.packed.positions - len(self.packed.positions)
        there = self._pass(replace(self.packed, positions=positions), reroute=replace(reroute, rebase=False), probe={})
        for layer, keys in (moved.probe or {}).items():
            count = min(reroute.entries, len(positions))
            expected = (there.probe or {})[layer][:, :, :count]
            if not _difference(keys[:, :, :count], expected) <= allowed(self.coarse):
                raise UnsupportedModel(
                    f"{self.name}: keys of layer {layer} are not turned by their position in the usual way, so they "
                    f"cannot be moved to position -1; {remedy}"
                )


def allowed(coarse: bool) -> float:
    """Largest relative difference of states that are the same; `coarse`: half precision, or codes."""
    return 5e-2 if coarse else 1e-4


def check_windows(name: str, traits: tuple[AttentionSpec, ...], kinds: list[str], sizes: set[int]) -> None:
    """Hold that no window reaches the layers through a mask alone, which a short trial text cannot show.

    Args:
        name: The model's.
        traits: What each layer said of itself.
        kinds: What the configuration says of each layer, empty for nothing.
        sizes: Windows for which masks were asked.

    Raises:
        UnsupportedModel: One does.
    """
    if not traits or (kinds and all(kind == "full_attention" for kind in kinds)):
        return
    # A mask for both directions is given the largest distance seen, one less than the window.
    unknown = sizes - {each.window and each.window - (not each.causal) for each in traits}
    if unknown:
        raise UnsupportedModel(
            f"{name}: its attention hides keys beyond {min(unknown)} tokens by a mask that its layers do not "
            "announce, so longer texts would be read wrongly; it is not supported"
        )


def looks_ahead(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether states depend on what tokens follow.

    Args:
        one: States of the first tokens of a text, shape (tokens, width).
        other: States of the same tokens with others behind them, as many.
    """
    # The passes have one shape and make the same roundings, in any dtype.
    return bool(torch.isfinite(one).all()) and not _difference(one, other) <= AHEAD


def check_states_equal(name: str, ours: torch.Tensor, own: torch.Tensor, width: int, coarse: bool) -> None:
    """Hold that states of packed sequences are the model's own, each shape (tokens, width).

    Args:
        name: The model's.
        ours: States of packed sequences.
        own: The model's own.
        width: The model's.
        coarse: Whether the model computes in half precision, or with codes.

    Raises:
        UnsupportedModel: They are not.
        NotFinite: The model's are not finite.
    """
    if ours.shape != own.shape or ours.shape[1] != width:
        raise UnsupportedModel(f"{name}: hidden states have shape {tuple(ours.shape)}, not width {width}")
    if not torch.isfinite(own).all():
        raise NotFinite(f"{name} gives NaN or infinity in {own.dtype}; its weights are damaged, or overflow there")
    most = allowed(coarse)
    difference = _apart(ours, own, coarse)
    if not difference <= most:
        raise UnsupportedModel(
            f"{name}: hidden states of packed sequences differ from the model's own by "
            f"{difference:.2g} (allowed {most:.0e}); its layers mix tokens in a way that is not supported"
        )


def _difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm())


def _apart(one: torch.Tensor, other: torch.Tensor, coarse: bool) -> float:
    """Relative difference of states, each shape (tokens, width); that of the median token in half precision and codes.

    Where experts are all but equally good for a token, such roundings choose another, and that token's state jumps. So
    it does where a value stands between two codes. A fault shows in most tokens.
    """
    if not coarse:
        return _difference(one, other)
    apart = (one.double() - other.double()).norm(dim=1)
    # The row that stands for padding may be zeros, and so may all states of its token be.
    return float(torch.where(apart == 0, 0.0, apart / other.double().norm(dim=1)).median())
