"""Packed weights: every block format against the package gguf, bit by bit, and the modules against dense ones."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

from eddy_embed.model import packed
from eddy_embed.model.loading.gguf.header import TYPES
from eddy_embed.model.packed import FORMATS, BlockFormat, PackedEmbedding, PackedLinear


def random_blocks(kind: BlockFormat, rows: int, blocks: int, seed: int = 0) -> np.ndarray:
    """Rows of blocks of random bytes, without those that stand for NaN or infinity."""
    raw = np.random.default_rng(seed).integers(0, 256, (rows, blocks * kind.bytes), dtype=np.uint8)
    while True:
        with np.errstate(all="ignore"):
            bad = ~np.isfinite(dequantize(raw, GGMLQuantizationType[kind.name]))
        if not bad.any():
            return raw
        blocked = bad.reshape(rows, blocks, -1).any(-1).repeat(kind.bytes, 1)
        raw[blocked] = np.random.default_rng(seed := seed + 1).integers(0, 256, int(blocked.sum()), dtype=np.uint8)


@pytest.mark.parametrize("kind", FORMATS.values(), ids=lambda kind: kind.name)
def test_values_have_the_bits_of_gguf(kind: BlockFormat) -> None:
    assert (kind.values, kind.bytes) == GGML_QUANT_SIZES[GGMLQuantizationType[kind.name]]
    raw = random_blocks(kind, rows=37, blocks=max(1024 // kind.values, 3))
    expected = dequantize(raw, GGMLQuantizationType[kind.name])
    values = kind.unpack(torch.from_numpy(raw))
    assert values.dtype == torch.float32
    assert np.array_equal(values.numpy().view(np.uint32), expected.view(np.uint32))
    assert kind.name in TYPES and len(FORMATS) == len(TYPES)
    held = torch.full((40, expected.shape[1]), torch.nan)
    kind.unpack(torch.from_numpy(raw), held[:37])
    assert torch.equal(held[:37], values) and held[37:].isnan().all()


# --- modules

ROWS, WIDTH = 70, 512


def matrix(name: str) -> tuple[BlockFormat, torch.Tensor, torch.Tensor]:
    """A format, the bytes of a matrix, and its values: those of a quantised matrix, of a usual size."""
    kind = FORMATS[name]
    raw = torch.from_numpy(random_blocks(kind, ROWS, WIDTH // kind.values))
    if kind.name == "Q4_K":
        raw.view(-1, kind.bytes)[:, :4] = torch.tensor([[0.001, 0.002]], dtype=torch.float16).view(torch.uint8)
    else:
        raw.view(-1, kind.bytes)[:, :2] = torch.tensor([[0.001]], dtype=torch.float16).view(torch.uint8)
    return kind, raw, torch.from_numpy(dequantize(raw.numpy(), GGMLQuantizationType[name]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["Q4_K", "Q8_0"])
def test_a_product_is_that_of_the_same_values(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "TILE", 16 * WIDTH)  # the last tile is a smaller one
    kind, raw, values = matrix(name)
    order, bias = torch.randperm(ROWS), torch.randn(ROWS)
    states = torch.randn(3, 5, WIDTH).to(dtype)
    module = PackedLinear(kind, raw, dtype, bias=bias, order=order)
    assert (module.in_features, module.out_features) == (WIDTH, ROWS)
    assert torch.equal(module.weight, values[order].to(dtype))
    expected = torch.nn.functional.linear(states, values[order].to(dtype), bias.to(dtype))
    near = {"atol": 1e-4, "rtol": 1e-4} if dtype == torch.float32 else {}
    with torch.inference_mode():
        torch.testing.assert_close(module(states), expected, **near)
    with torch.no_grad():
        torch.testing.assert_close(module(states), expected, **near)
    assert module(states[:0]).shape == (0, 5, ROWS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_embeddings_are_those_of_the_same_values(dtype: torch.dtype) -> None:
    kind, raw, values = matrix("Q8_0")
    ids = torch.tensor([[3, 69], [0, 3]])
    assert torch.equal(PackedEmbedding(kind, raw, dtype)(ids), values.to(dtype)[ids])
    scale = torch.tensor(22.627417)
    assert torch.equal(PackedEmbedding(kind, raw, dtype, scale)(ids), values.to(dtype)[ids] * scale.to(dtype))


def test_a_module_moves_and_is_copied_as_others_are() -> None:
    kind, raw, _ = matrix("Q8_0")
    module = torch.nn.Sequential(PackedLinear(kind, raw, torch.float32))
    assert copy.deepcopy(module, {id(raw): raw})[0].raw is raw
    assert module.to(torch.bfloat16)[0].weight.dtype == torch.bfloat16
    assert module[0].raw.data_ptr() == raw.data_ptr()
    assert list(module.state_dict()) == ["0.raw"]


def test_threads_do_not_share_memory() -> None:
    kind, raw, values = matrix("Q4_K")
    module, states = PackedLinear(kind, raw, torch.float32), torch.randn(8, WIDTH)
    expected = states @ values.T

    def multiply(_: int) -> bool:
        with torch.inference_mode():
            return torch.allclose(module(states), expected, atol=1e-3)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(multiply, range(200)))
