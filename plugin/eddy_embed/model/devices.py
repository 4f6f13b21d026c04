"""The device that a model runs on, and the dtype that it computes in."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from eddy_embed.errors import InvalidParameter
from eddy_embed.model.products import multiplies_bfloat16

DTYPE = "EDDY_DTYPE"
"""The variable that names what "auto" stands for."""


def check_numbers(device: str | None, dtype: str) -> None:
    """Refuse a device or a type of number that cannot be used here with InvalidParameter, before anything is read."""
    resolve_dtype(dtype, best_device() if device is None else usable_device(device), None)


def usable_device(device: str) -> str:
    """Return the device, if torch can use it here; refuse it with InvalidParameter if not."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise InvalidParameter(f"device={device!r} cannot be used here: {str(error).strip().splitlines()[0]}") from None
    return device


def best_device() -> str:
    """Return an accelerator if there is one, else the processor."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def resolve_dtype(name: str, device: str, own: Any) -> Any:
    """Return the dtype that a name means on a device for a checkpoint of dtype `own`, None if quantised; or "auto".

    "auto" means what the variable EDDY_DTYPE names, else the checkpoint's own on an accelerator, else, on a processor,
    bfloat16 if it multiplies in it and the checkpoint is in half precision, and float32 if not.
    """
    known = {"float32", "bfloat16", "float16", "float64"}
    on_processor, origin = torch.device(device).type == "cpu", "dtype"
    if name == "auto" and (named := os.environ.get(DTYPE)):
        name, origin = named, DTYPE
    if name == "auto":
        if not on_processor:
            return "auto"
        half = own in (torch.bfloat16, torch.float16)  # configurations that older versions wrote have none: float32
        return torch.bfloat16 if half and multiplies_bfloat16() else torch.float32
    if name not in known:
        raise InvalidParameter(f"{origin}={name!r} is unknown; choose auto, {', '.join(sorted(known))}")
    if name == "float16" and on_processor:
        raise InvalidParameter(f"{origin}='float16' is unusably slow on a processor; choose 'bfloat16' or 'float32'")
    return getattr(torch, name)


def to_device(values: NDArray[Any] | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return values on a device, without waiting for what an NVIDIA device has in hand."""
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if device.type != "cuda" or tensor.device == device:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def to_processor(tensor: torch.Tensor) -> tuple[NDArray[Any], torch.Event | None]:
    """Return a tensor's values, and the event after which they are there; None: now."""
    if tensor.device.type != "cuda":
        return tensor.cpu().numpy(), None
    values, event = tensor.to("cpu", non_blocking=True), torch.Event(tensor.device)
    event.record()
    return values.numpy(), event
