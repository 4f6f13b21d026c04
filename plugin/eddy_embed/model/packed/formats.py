"""Block formats of GGUF tensors: what a block holds, and its values, by torch operations that any device has.

The layouts are those of llama.cpp's `ggml-common.h`. Every value equals that of `gguf.dequantize` in each bit: codes
are unpacked as bytes, and each scale is multiplied, and each minimum subtracted, in float32 in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor


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
        """Bytes of a row of so many values.

        Raises:
            ValueError: The row is no whole number of blocks.
        """
        if width % self.values:
            raise ValueError(f"a row of {width} values is no whole number of {self.name} blocks of {self.values}")
        return width // self.values * self.bytes

    def unpack(self, raw: Tensor, out: Tensor | None = None) -> Tensor:
        """Values of rows, float32 of shape (rows, width).

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
    """A number in float16 at a byte of each block, in float32, shape (blocks, 1)."""
    return blocks[:, at : at + 2].view(torch.float16).float()


def _spread(codes: Tensor, bits: int, out: Tensor) -> None:
    """Write the fields of `bits` bits of bytes (blocks, groups, n), lowest first, to (blocks, groups, fields, n)."""
    codes, mask, fields = codes.contiguous(), (1 << bits) - 1, 8 // bits
    for field in range(fields):
        part = codes >> field * bits if field else codes
        out[:, :, field] = part & mask if field + 1 < fields else part


def _fields(codes: Tensor, bits: int) -> Tensor:
    """The fields of `bits` bits of bytes (blocks, groups, n), in the order of `_spread`, (blocks, values)."""
    out = codes.new_empty((*codes.shape[:2], 8 // bits, codes.shape[2]))
    _spread(codes, bits, out)
    return out.flatten(1)


def _signed(codes: Tensor, offset: int) -> Tensor:
    """Bytes less an offset, as signed ones, in place."""
    return codes.sub_(offset).view(torch.int8)


def _scale(out: Tensor, scales: Tensor, minima: Tensor | None = None) -> None:
    """Multiply the groups of each block by scales (blocks, groups), and subtract minima, in place."""
    groups = out.view(*scales.shape, -1)
    groups.mul_(scales.unsqueeze(2))
    if minima is not None:
        groups.sub_(minima.unsqueeze(2))


@cache
def _value_pairs(values: tuple[int, ...], device: torch.device) -> Tensor:
    """For each byte, the values of its two nibbles as two bytes of an int16."""
    pairs = [[values[byte & 15], values[byte >> 4]] for byte in range(256)]
    return torch.tensor(pairs, dtype=torch.int8).view(torch.int16).view(-1).to(device)


def _looked_up(codes: Tensor, values: tuple[int, ...], out: Tensor) -> None:
    """As `_spread` for nibbles that stand for values."""
    pairs = _value_pairs(values, codes.device).index_select(0, codes.reshape(-1).int()).view(codes.shape)
    out[:, :, 0] = (pairs << 8) >> 8
    out[:, :, 1] = pairs >> 8


@cache
def _fifth_bits(device: torch.device) -> Tensor:
    """For each byte, its bits, lowest first, as eight bytes of an int64 that are 0 or 16."""
    bits = (torch.arange(256).unsqueeze(1) >> torch.arange(8) & 1) << 4
    return bits.to(torch.uint8).view(torch.int64).view(-1).to(device)


def _five_bits(blocks: Tensor, high: int) -> Tensor:
    """Codes of 5 bits, the fifth ones in four bytes of a block, (blocks, 32)."""
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
    """Scales and minima of the 8 groups of Q4_K and Q5_K, with the block's own factors, each (blocks, 8)."""
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
FORMATS = {each.name: each for each in _ALL}
"""The formats by GGUF's names."""
