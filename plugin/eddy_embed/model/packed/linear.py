"""Modules whose weights stay packed: rows are unpacked as they are needed, into memory that is used again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from eddy_embed.model.packed.formats import BlockFormat
from eddy_embed.model.packed.mapped_file import MappedFile
from eddy_embed.model.speed.onednn_linear import available, multiplies_bfloat16, product, slower_in_mkl

TILE = 2**20
"""Values that a processor unpacks at a time: more leave its caches, and with fewer the calls take longer than what they
do."""
DEVICE_TILE = 2**26
"""The same on a device, where a call costs more and memory is fast: 0.25 GiB of float32."""


class PackedWeight(nn.Module):
    """A matrix in blocks, of `rows` rows of `width` values.

    Its buffer `raw` holds the bytes, such as a part of a mapped file, and moves to a device as that of any module;
    `order` says which row of them each row is, None as they come. Each time that they are read, their file must be the
    one that was opened, else ModelNotFound is raised. While `left_out` is set, products are zeros.
    """

    raw: Tensor
    order: Tensor | None
    zero: Tensor

    def __init__(
        self,
        kind: BlockFormat,
        raw: Tensor,
        dtype: torch.dtype,
        bias: Tensor | None = None,
        order: Tensor | None = None,
        file: MappedFile | None = None,
    ) -> None:
        """Compute with bytes as they are.

        Args:
            kind: Format of the blocks.
            raw: Bytes of the rows, contiguous uint8, shape (rows, bytes of a row).
            dtype: Type of the numbers that `weight` has; a product has that of the states.
            bias: Added to a product, shape (rows,).
            order: Row of `raw` for each row of the matrix, int64, shape (rows,).
            file: Where the bytes are mapped from.
        """
        super().__init__()
        self.kind, self.file, self.left_out = kind, file, False
        self.rows = len(raw if order is None else order)
        self.width = raw.shape[1] // kind.bytes * kind.values
        self.register_buffer("raw", raw)
        self.register_buffer("order", order)
        # Its dtype follows `module.to`, as that of a weight would.
        self.register_buffer("zero", torch.zeros(1, dtype=dtype, device=raw.device), persistent=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    @property
    def weight(self) -> Tensor:
        """The whole matrix unpacked, shape (rows, width), for code that reads a weight without calling its module."""
        return self._unpacked(slice(None)).to(self.zero.dtype)

    def unpacked_rows(self, ids: Tensor) -> Tensor:
        """Some rows, shape (ids, width)."""
        return self._unpacked(ids).to(self.zero.dtype)

    def values_at(self, index: Tensor) -> Tensor:
        """Values at places of the matrix's rows one behind the other, shape (places,)."""
        rows, places = index.to(self.raw.device) // self.width, index.to(self.raw.device) % self.width
        size = self.kind.values
        rows = rows if self.order is None else self.order[rows]
        blocks = self.raw.view(-1, self.kind.bytes)[rows * (self.width // size) + places // size]
        values = self.kind.unpack(blocks)
        return values[torch.arange(len(values), device=values.device), places % size].to(self.zero.dtype)

    def multiply(self, states: Tensor, begin: int = 0, end: int | None = None) -> Tensor:
        """Products of states (tokens, width) with the rows from `begin` to `end`, shape (tokens, rows)."""
        end = self.rows if end is None else end
        if self.left_out:
            return states.new_zeros((len(states), end - begin))
        step = max((TILE if self.raw.device.type == "cpu" else DEVICE_TILE) // self.width, 1)
        bias = None if self.bias is None else self.bias.to(states.dtype)
        out = states.new_empty((len(states), end - begin))
        for start in range(begin, end, step):
            part = slice(start, min(start + step, end))
            own = None if bias is None else bias[part]
            out[:, start - begin : part.stop - begin] = _product(states, self._values(part, states.dtype), own)
        return out

    def _values(self, part: slice, dtype: torch.dtype) -> Tensor:
        """Some of the rows, unpacked into memory that the next call writes to."""
        shape, device = (part.stop - part.start, self.width), self.raw.device
        values = self._unpacked(part, _memory.of(shape, torch.float32, device))
        return values if dtype == torch.float32 else _memory.of(shape, dtype, device).copy_(values)

    def _unpacked(self, rows: slice | Tensor, out: Tensor | None = None) -> Tensor:
        """Some of the rows in float32, of a file that is the same before and after they are read."""
        if self.file is not None:  # the system ends a process that reads behind the end of a file that was cut short
            self.file.check()
        chosen = rows if self.order is None else self.order[rows]
        raw = self.raw[chosen] if isinstance(chosen, slice) else self.raw.index_select(0, chosen)
        values = self.kind.unpack(raw, out)
        if self.file is not None:
            self.file.check()
        return values

    def extra_repr(self) -> str:
        """What `print` shows of the module."""
        return f"{self.rows}, {self.width}, {self.kind.name}"


class PackedLinear(PackedWeight):
    """A linear layer with packed weights; products are those of an ordinary one with the same values."""

    @property
    def in_features(self) -> int:
        """Width of the states."""
        return self.width

    @property
    def out_features(self) -> int:
        """Width of the outputs."""
        return self.rows

    def forward(self, states: Tensor) -> Tensor:
        """Shape (.., outputs), for states of shape (.., inputs)."""
        if torch.is_grad_enabled() and states.requires_grad:  # the values are needed once more on the way back
            bias = None if self.bias is None else self.bias.to(states.dtype)
            return nn.functional.linear(states, self.weight.to(states.dtype), bias)
        return self.multiply(states.reshape(-1, self.width)).view(*states.shape[:-1], self.rows)


class PackedExperts(nn.Module):
    """Experts of a mixture, whose packed matrices are stacked, one expert's rows after the other's."""

    def __init__(
        self,
        experts: int,
        gating: Callable[[Tensor, Tensor], Tensor],
        gate: PackedLinear,
        up: PackedLinear,
        down: PackedLinear,
    ) -> None:
        super().__init__()
        self.gate, self.up, self.down = gate, up, down
        self.experts, self.gating = experts, gating

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """What a token's experts give, times their weights.

        Args:
            hidden_states: Shape (tokens, width).
            top_k_index: The experts of each token, shape (tokens, experts of a token).
            top_k_weights: Their weights, in the same shape.
        """
        out = torch.zeros_like(hidden_states)
        wide, narrow = self.gate.rows // self.experts, self.down.rows // self.experts
        for expert in sorted(set(top_k_index.flatten().tolist())):
            token, place = torch.where(top_k_index == expert)
            states, inside = hidden_states[token], (expert * wide, (expert + 1) * wide)
            states = self.gating(self.gate.multiply(states, *inside), self.up.multiply(states, *inside))
            states = self.down.multiply(states, expert * narrow, (expert + 1) * narrow)
            out.index_add_(0, token, (states * top_k_weights[token, place, None]).to(out.dtype))
        return out


class PackedEmbedding(PackedWeight):
    """A table of packed embeddings, with a factor on what is looked up where the model has one, as Gemma."""

    scale: Tensor | None

    def __init__(
        self,
        kind: BlockFormat,
        raw: Tensor,
        dtype: torch.dtype,
        scale: Tensor | None = None,
        file: MappedFile | None = None,
    ) -> None:
        """Look embeddings up in bytes as they are.

        Args:
            kind: Format of the blocks.
            raw: As for `PackedWeight`.
            dtype: Type of the embeddings.
            scale: A factor of one number.
            file: As for `PackedWeight`.
        """
        super().__init__(kind, raw, dtype, file=file)
        self.register_buffer("scale", scale, persistent=False)

    @property
    def num_embeddings(self) -> int:
        """Rows of the table."""
        return self.rows

    @property
    def embedding_dim(self) -> int:
        """Width of an embedding."""
        return self.width

    def forward(self, ids: Tensor) -> Tensor:
        """Shape (.., width), for ids of shape (..)."""
        found = self.unpacked_rows(ids.reshape(-1)).view(*ids.shape, self.width)
        return found if self.scale is None else found * self.scale.to(found.dtype)


def embeddings_at_distance(embedding: Any, most: int) -> Tensor:
    """Token embeddings as they are stored, at most so many at equal distances, shape (tokens, width).

    A factor that the model multiplies them by is left out.
    """
    if isinstance(embedding, PackedEmbedding):
        return embedding.unpacked_rows(
            torch.arange(0, embedding.rows, -(-embedding.rows // most), device=embedding.raw.device)
        )
    table: Tensor = embedding.weight.detach()
    return table[:: -(-len(table) // most)]


def _product(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product by the library that multiplies dense weights here."""
    fast = (
        slower_in_mkl() if states.dtype == torch.float32 else states.dtype == torch.bfloat16 and multiplies_bfloat16()
    )
    if fast and available() and states.device.type == "cpu":
        return product(states, weight, bias)
    return nn.functional.linear(states, weight, bias)


class _Memory(threading.local):
    """Memory of each thread for unpacked values, one piece for each type and device, as large as was ever needed."""

    def __init__(self) -> None:
        self.held: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def of(self, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Some of the memory, with whatever it holds."""
        values = shape[0] * shape[1]
        held = self.held.get((dtype, device))
        if held is None or held.numel() < values:
            with torch.inference_mode(False):  # else it could not be written to outside of that mode
                held = self.held[dtype, device] = torch.empty(values, dtype=dtype, device=device)
        return held[:values].view(shape)


_memory = _Memory()
