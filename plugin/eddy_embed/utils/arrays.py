"""Types of arrays, and their way to a device and back while it goes on computing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def to_device(values: NDArray[Any] | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Values on a device, without waiting for what an NVIDIA device has in hand."""
    import torch

    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if device.type != "cuda" or tensor.device == device:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def to_processor(tensor: torch.Tensor) -> tuple[NDArray[Any], torch.Event | None]:
    """A tensor's values, and the event after which they are there; None: now."""
    import torch

    if tensor.device.type != "cuda":
        return tensor.cpu().numpy(), None
    values, event = tensor.to("cpu", non_blocking=True), torch.Event(tensor.device)
    event.record()
    return values.numpy(), event
