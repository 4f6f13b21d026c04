"""Which kernel computes a layer: a pure function of what is known when the model is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

    from eddy_embed.model.attention.traits import AttentionSpec

Kernel = Literal["fused", "flash", "efficient", "blocked", "own"]
"""`fused`: torch's scaled_dot_product_attention. `flash` and `efficient`: two of its kernels by name, because they also
give the logarithm of the softmax's denominator. `blocked`: ours. `own`: the model's, out of our reach."""


@dataclass(frozen=True)
class KernelChoice:
    """The kernels of a layer.

    Attributes:
        within: For sequences that fit the layer's window, where no key is hidden from a later query: a window of w
            hides what stands w or more tokens back, and in w tokens or fewer nothing does.
        beyond: For longer ones.
        window: The window, None for none.
    """

    within: Kernel
    beyond: Kernel
    window: int | None = None

    def at(self, length: int) -> Kernel:
        """The kernel for sequences of so many tokens."""
        return self.within if self.window is None or length <= self.window else self.beyond


BLOCKED = KernelChoice("blocked", "blocked")
"""What every other kernel is compared with."""
OWN = KernelChoice("own", "own")
"""Where a model computes its attention itself."""


@dataclass(frozen=True)
class DeviceInfo:
    """Where and in what a layer computes.

    Attributes:
        device: Kind of device, such as "cpu".
        dtype: Kind of number, such as "float32".
        width: Of a query's and a key's head.
        value_width: Of a value's head.
        capability: Of an NVIDIA device, None for others.
    """

    device: str
    dtype: str
    width: int
    value_width: int
    capability: tuple[int, int] | None = None

    @classmethod
    def of(cls, query: torch.Tensor, value: torch.Tensor) -> DeviceInfo:
        """Where these states are."""
        import torch

        nvidia = query.device.type == "cuda" and torch.version.hip is None
        capability = torch.cuda.get_device_capability(query.device) if nvidia else None
        dtype = str(query.dtype).removeprefix("torch.")
        return cls(query.device.type, dtype, query.shape[-1], value.shape[-1], capability)


def choose(traits: AttentionSpec, place: DeviceInfo, mass: bool) -> KernelChoice:
    """The kernels that compute a layer exactly.

    Args:
        traits: What the layer does to its logits.
        place: Where and in what it computes.
        mass: Whether the logarithm of the softmax's denominator is needed, for further entries or a watch;
            sinks need it always.
    """
    masses = mass or traits.sinks
    whole: Kernel = "blocked" if traits.cap is not None or (traits.bias and masses) else _whole(place, masses)
    return KernelChoice(whole, whole if traits.window is None else "blocked", traits.window)


def _whole(place: DeviceInfo, mass: bool) -> Kernel:
    if not mass:
        return "fused"
    if place.width != place.value_width:
        return "blocked"
    if place.device == "cpu":
        return "flash"
    if place.capability is None:
        return "blocked"
    half, recent = place.dtype in ("float16", "bfloat16"), place.capability >= (8, 0)
    if half and recent and place.width % 8 == 0 and place.width <= 256:
        return "flash"
    aligned = place.width % (8 if half else 4) == 0
    known = place.dtype in ("float32", "float16") or (place.dtype == "bfloat16" and recent)
    return "efficient" if known and aligned else "blocked"
