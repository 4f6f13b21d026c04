"""A temperature in attention that a model computes itself: the softmax of each layer is found while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from eddy_embed.model.hooks import PassState

_SOFTMAX = (functional.softmax, torch.softmax, torch.Tensor.softmax)
_FUSED = (functional.scaled_dot_product_attention,)


class SoftmaxTemperatureMode(TorchFunctionMode):
    """Multiplies the input of attention's softmax by a factor, and counts; for torch calls of its own thread only.

    The softmax of attention is the one over all keys of all queries of all heads: no other has that shape. Fused
    attention computes softmax(query x key x scale + mask), so there the query and the mask are multiplied.
    """

    def __init__(self, call: PassState, shape: Sequence[int], config: Any) -> None:
        """For a pass whose tokens have this shape, (rows, length), of a model with this configuration."""
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
