"""Weights of a GGUF file as they are in the file: block formats, and modules that unpack them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from eddy_embed.model.mapped_file import MappedFile
from eddy_embed.model.products import available, multiplies_bfloat16, product, slower_in_mkl
from eddy_embed.model.view import unpacked


@dataclass(frozen=True)
class BlockFormat:
    """A type of blocks.

    Attributes:
        name: GGUF's name.
        values: Values of a block.
        bytes: Bytes of a block.
        fill: Writes the values of blocks, bytes of shape (blocks, bytes), into float32 of shape (blocks, values).
    """

    name: str
    values: int
    bytes: int
    fill: Callable[[Tensor, Tensor], None]

    def row_bytes(self, width: int) -> int:
        """Return bytes of a row of so many values.

        Raises:
            ValueError: The row is no whole number of blocks.
        """
        if width % self.values:
            raise ValueError(f"a row of {width} values is no whole number of {self.name} blocks of {self.values}")
        return width // self.values * self.bytes

    def unpack(self, raw: Tensor, out: Tensor | None = None) -> Tensor:
        """Return values of rows, float32 of shape (rows, width).

        Args:
            raw: Bytes of the rows, contiguous, shape (rows, bytes of a row).
            out: Where the values are written, contiguous; None: into new memory.
        """
        width = raw.shape[1] // self.bytes * self.values
        values = raw.new_empty((len(raw), width), dtype=torch.float32) if out is None else out
        self.fill(raw.view(-1, self.bytes), values.view(-1, self.values))
        return values


# --- what blocks are made of


def _half(blocks: Tensor, at: int) -> Tensor:
    """Return a number in float16 at a byte of each block, in float32, shape (blocks, 1)."""
    return blocks[:, at : at + 2].view(torch.float16).float()


def _spread(codes: Tensor, bits: int, out: Tensor) -> None:
    """Write the fields of `bits` bits of bytes (blocks, groups, n), lowest first, to (blocks, groups, fields, n)."""
    codes, mask, fields = codes.contiguous(), (1 << bits) - 1, 8 // bits
    for field in range(fields):
        part = codes >> field * bits if field else codes
        out[:, :, field] = part & mask if field + 1 < fields else part


def _fields(codes: Tensor, bits: int) -> Tensor:
    """Return the fields of `bits` bits of bytes (blocks, groups, n), in the order of `_spread`, (blocks, values)."""
    out = codes.new_empty((*codes.shape[:2], 8 // bits, codes.shape[2]))
    _spread(codes, bits, out)
    return out.flatten(1)


def _signed(codes: Tensor, offset: int) -> Tensor:
    """Return bytes less an offset, as signed ones, in place."""
    return codes.sub_(offset).view(torch.int8)


def _scale(out: Tensor, scales: Tensor, minima: Tensor | None = None) -> None:
    """Multiply the groups of each block by scales (blocks, groups), and subtract minima, in place."""
    groups = out.view(*scales.shape, -1)
    groups.mul_(scales.unsqueeze(2))
    if minima is not None:
        groups.sub_(minima.unsqueeze(2))


@cache
def _value_pairs(values: tuple[int, ...], device: torch.device) -> Tensor:
    """Return, for each byte, the values of its two nibbles as two bytes of an int16."""
    pairs = [[values[byte & 15], values[byte >> 4]] for byte in range(256)]
    return torch.tensor(pairs, dtype=torch.int8).view(torch.int16).view(-1).to(device)


def _looked_up(codes: Tensor, values: tuple[int, ...], out: Tensor) -> None:
    """Return what `_spread` does, for nibbles that stand for values."""
    pairs = _value_pairs(values, codes.device).index_select(0, codes.reshape(-1).int()).view(codes.shape)
    out[:, :, 0] = (pairs << 8) >> 8
    out[:, :, 1] = pairs >> 8


@cache
def _fifth_bits(device: torch.device) -> Tensor:
    """Return, for each byte, its bits, lowest first, as eight bytes of an int64 that are 0 or 16."""
    bits = (torch.arange(256).unsqueeze(1) >> torch.arange(8) & 1) << 4
    return bits.to(torch.uint8).view(torch.int64).view(-1).to(device)


def _five_bits(blocks: Tensor, high: int) -> Tensor:
    """Return codes of 5 bits, the fifth ones in four bytes of a block, (blocks, 32)."""
    fifth = _fifth_bits(blocks.device).index_select(0, blocks[:, high : high + 4].reshape(-1).int())
    return _fields(blocks[:, None, high + 4 :], 4).bitwise_or_(fifth.view(torch.uint8).view(-1, 32))


# --- 32 values, a scale, and with _1 an offset


def _q4_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(_signed(_fields(blocks[:, None, 2:], 4), 8))
    _scale(out, _half(blocks, 0))


def _q4_1(blocks: Tensor, out: Tensor) -> None:
    _spread(blocks[:, None, 4:], 4, out.view(-1, 1, 2, 16))
    _scale(out, _half(blocks, 0), -_half(blocks, 2))


def _q5_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(_signed(_five_bits(blocks, 2), 16))
    _scale(out, _half(blocks, 0))


def _q5_1(blocks: Tensor, out: Tensor) -> None:
    out.copy_(_five_bits(blocks, 4))
    _scale(out, _half(blocks, 0), -_half(blocks, 2))


def _q8_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks[:, 2:].view(torch.int8))
    _scale(out, _half(blocks, 0))


_NONLINEAR = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the values of a float of 2 bits of exponent and 1 of mantissa."""


def _iq4_nl(blocks: Tensor, out: Tensor) -> None:
    _looked_up(blocks[:, None, 2:], _NONLINEAR, out.view(-1, 1, 2, 16))
    _scale(out, _half(blocks, 0))


def _mxfp4(blocks: Tensor, out: Tensor) -> None:
    _looked_up(blocks[:, None, 1:], _E2M1, out.view(-1, 1, 2, 16))
    exponents = blocks[:, :1].int()
    # The bits of 2 ** (exponent - 128); below exponent 2 it is subnormal.
    bits = torch.where(exponents < 2, 0x200000 << exponents.clamp(max=1), (exponents - 1) << 23)
    _scale(out, bits.view(torch.float32))


# --- 256 values, whose groups have scales of their own


def _six_bits(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return scales and minima of the 8 groups of Q4_K and Q5_K, with the block's own factors, each (blocks, 8)."""
    low, lowest, both = blocks[:, 4:16].reshape(-1, 3, 4).unbind(1)
    scales = torch.cat([low & 63, (both & 15) | ((low >> 2) & 48)], 1)
    minima = torch.cat([lowest & 63, (both >> 4) | ((lowest >> 2) & 48)], 1)
    return _half(blocks, 0) * scales, _half(blocks, 2) * minima


def _q2_k(blocks: Tensor, out: Tensor) -> None:
    _spread(blocks[:, 16:80].reshape(-1, 2, 32), 2, out.view(-1, 2, 4, 32))
    factors = blocks[:, :16]
    _scale(out, _half(blocks, 80) * (factors & 15), _half(blocks, 82) * (factors >> 4))


def _q3_k(blocks: Tensor, out: Tensor) -> None:
    codes = _fields(blocks[:, 32:96].reshape(-1, 2, 32), 2)
    codes |= _fields(blocks[:, None, :32], 1).bitwise_left_shift_(2)
    out.copy_(_signed(codes, 4))
    low, high = _fields(blocks[:, None, 96:104], 4), _fields(blocks[:, None, 104:108], 2)
    _scale(out, _half(blocks, 108) * _signed(low | high << 4, 32))


def _q4_k(blocks: Tensor, out: Tensor) -> None:
    _spread(blocks[:, 16:].reshape(-1, 4, 32), 4, out.view(-1, 4, 2, 32))
    _scale(out, *_six_bits(blocks))


def _q5_k(blocks: Tensor, out: Tensor) -> None:
    codes = _fields(blocks[:, 48:].reshape(-1, 4, 32), 4)
    codes |= _fields(blocks[:, None, 16:48], 1).bitwise_left_shift_(4)
    out.copy_(codes)
    _scale(out, *_six_bits(blocks))


def _q6_k(blocks: Tensor, out: Tensor) -> None:
    codes = _fields(blocks[:, :128].reshape(-1, 2, 64), 4)
    codes |= _fields(blocks[:, 128:192].reshape(-1, 2, 32), 2).bitwise_left_shift_(4)
    out.copy_(_signed(codes, 32))
    _scale(out, _half(blocks, 208) * blocks[:, 192:208].view(torch.int8))


def _iq4_xs(blocks: Tensor, out: Tensor) -> None:
    _looked_up(blocks[:, 8:].reshape(-1, 8, 16), _NONLINEAR, out.view(-1, 8, 2, 16))
    low, high = _fields(blocks[:, 4:8, None], 4), _fields(blocks[:, 2:4, None], 2)
    _scale(out, _half(blocks, 0) * _signed(low | high << 4, 32))


# --- numbers without blocks


def _float32(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks.view(torch.float32))


def _float16(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks.view(torch.float16))


def _bfloat16(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks.view(torch.bfloat16))


_ALL = (
    BlockFormat("F32", 1, 4, _float32),
    BlockFormat("F16", 1, 2, _float16),
    BlockFormat("BF16", 1, 2, _bfloat16),
    BlockFormat("Q4_0", 32, 18, _q4_0),
    BlockFormat("Q4_1", 32, 20, _q4_1),
    BlockFormat("Q5_0", 32, 22, _q5_0),
    BlockFormat("Q5_1", 32, 24, _q5_1),
    BlockFormat("Q8_0", 32, 34, _q8_0),
    BlockFormat("Q2_K", 256, 84, _q2_k),
    BlockFormat("Q3_K", 256, 110, _q3_k),
    BlockFormat("Q4_K", 256, 144, _q4_k),
    BlockFormat("Q5_K", 256, 176, _q5_k),
    BlockFormat("Q6_K", 256, 210, _q6_k),
    BlockFormat("IQ4_NL", 32, 18, _iq4_nl),
    BlockFormat("IQ4_XS", 256, 136, _iq4_xs),
    BlockFormat("MXFP4", 32, 17, _mxfp4),
)
FORMATS = {block.name: block for block in _ALL}
"""The formats by GGUF's names."""


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
        """Return some rows, shape (ids, width)."""
        return self._unpacked(ids).to(self.zero.dtype)

    def values_at(self, index: Tensor) -> Tensor:
        """Return values at places of the matrix's rows one behind the other, shape (places,)."""
        rows, places = index.to(self.raw.device) // self.width, index.to(self.raw.device) % self.width
        size = self.kind.values
        rows = rows if self.order is None else self.order[rows]
        blocks = self.raw.view(-1, self.kind.bytes)[rows * (self.width // size) + places // size]
        values = self.kind.unpack(blocks)
        return values[torch.arange(len(values), device=values.device), places % size].to(self.zero.dtype)

    def multiply(self, states: Tensor, begin: int = 0, end: int | None = None) -> Tensor:
        """Return products of states (tokens, width) with the rows from `begin` to `end`, shape (tokens, rows)."""
        end = self.rows if end is None else end
        if self.left_out:
            return states.new_zeros((len(states), end - begin))
        step = max((TILE if self.raw.device.type == "cpu" else DEVICE_TILE) // self.width, 1)
        bias = None if self.bias is None else self.bias.to(states.dtype)
        out = states.new_empty((len(states), end - begin))
        for start in range(begin, end, step):
            part = slice(start, min(start + step, end))
            part_bias = None if bias is None else bias[part]
            out[:, start - begin : part.stop - begin] = _product(states, self._values(part, states.dtype), part_bias)
        return out

    def _values(self, part: slice, dtype: torch.dtype) -> Tensor:
        """Return some of the rows, unpacked into memory that the next call writes to."""
        shape, device = (part.stop - part.start, self.width), self.raw.device
        values = self._unpacked(part, _memory.of(shape, torch.float32, device))
        return values if dtype == torch.float32 else _memory.of(shape, dtype, device).copy_(values)

    def _unpacked(self, rows: slice | Tensor, out: Tensor | None = None) -> Tensor:
        """Return some of the rows in float32, of a file that is the same before and after they are read."""
        if self.file is not None:  # the system ends a process that reads behind the end of a file that was cut short
            self.file.check()
        chosen = rows if self.order is None else self.order[rows]
        raw = self.raw[chosen] if isinstance(chosen, slice) else self.raw.index_select(0, chosen)
        values = self.kind.unpack(raw, out)
        if self.file is not None:
            self.file.check()
        return values

    def extra_repr(self) -> str:
        """Return what `print` shows of the module."""
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
        """Return shape (.., outputs), for states of shape (.., inputs)."""
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
        """Return what a token's experts give, times their weights.

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
        """Return shape (.., width), for ids of shape (..)."""
        rows = self.unpacked_rows(ids.reshape(-1)).view(*ids.shape, self.width)
        return rows if self.scale is None else rows * self.scale.to(rows.dtype)


def embeddings_at_distance(embedding: Any, most: int) -> Tensor:
    """Return token embeddings as they are stored, at most so many at equal distances, shape (tokens, width).

    A factor that the model multiplies them by is left out.
    """
    if isinstance(embedding, PackedEmbedding):
        return embedding.unpacked_rows(
            torch.arange(0, embedding.rows, -(-embedding.rows // most), device=embedding.raw.device)
        )
    table: Tensor = embedding.weight.detach()
    return table[:: -(-len(table) // most)]


def _product(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the product by the library that multiplies dense weights here."""
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
        """Return some of the memory, with whatever it holds."""
        values = shape[0] * shape[1]
        held = self.held.get((dtype, device))
        if held is None or held.numel() < values:
            with torch.inference_mode(False):  # else it could not be written to outside of that mode
                held = self.held[dtype, device] = torch.empty(values, dtype=dtype, device=device)
        return held[:values].view(shape)


_memory = _Memory()


DIGESTED = 1024
"""Values of each tensor that enter the weights' digest."""


def weights_digest(tensors: Iterable[tuple[str, Tensor | PackedWeight]]) -> str:
    """Return the hash of names, shapes and evenly spaced values of tensors, rounded to bfloat16.

    Rounding makes the digest the same in float32 and bfloat16; float16, which rounds otherwise, gives another. A packed
    matrix counts by its values, so that it is the same whether it is packed in memory or not.
    """
    sha = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        shape = (tensor.rows, tensor.width) if isinstance(tensor, PackedWeight) else tuple(tensor.shape)
        count = prod(shape)
        index = torch.linspace(0, max(count - 1, 0), min(DIGESTED, count), dtype=torch.float64).long()
        if isinstance(tensor, PackedWeight):
            values = tensor.values_at(index)
        else:
            flat = unpacked(tensor.detach()).reshape(-1)
            values = flat[index.to(flat.device)]
        sha.update(f"{name}{shape}".encode() + values.to(torch.bfloat16).float().cpu().numpy().tobytes())
    return sha.hexdigest()
