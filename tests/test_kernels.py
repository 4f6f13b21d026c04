"""Kernels: which one is chosen, that it is shown and kept, and that all of them compute the same."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch
from tests.comparison import TEXTS, embedder, gap
from tests.selection import each_once, each_pair
from torch.utils.flop_counter import FlopCounterMode

from eddy_embed.errors import UnsupportedModel
from eddy_embed.model import attention
from eddy_embed.model.attention import blocked, kernels, watcher
from eddy_embed.model.attention.blocked import AttentionSpec
from eddy_embed.model.attention.kernels import LONG, DeviceInfo, KernelChoice, by_products, choose
from eddy_embed.parts.attention import ExtraKeyValues

OPEN, CAPPED, LOCAL = AttentionSpec(0.3, None, None), AttentionSpec(0.3, 8.0, None), AttentionSpec(0.3, None, 12)
BOTH = [replace(traits, causal=False) for traits in (OPEN, LOCAL, replace(CAPPED, window=3))]
BIASED = [replace(traits, bias=True) for traits in (BOTH[0], BOTH[1], replace(CAPPED, causal=False))]
SHAPES = [OPEN, CAPPED, LOCAL, replace(LOCAL, cap=2.0, window=3), replace(LOCAL, window=1), *BOTH]


def on(
    device: str, dtype: str, width: int = 64, capability: tuple[int, int] | None = None, value: int = 0
) -> DeviceInfo:
    return DeviceInfo(device, dtype, width, value or width, capability)


BFLOAT16 = replace(on("cpu", "bfloat16"), products=True)


@pytest.mark.parametrize(
    ("traits", "place", "mass", "within", "beyond"),
    [
        (OPEN, on("cpu", "float32"), False, "fused", "fused"),
        (OPEN, on("cpu", "float64"), True, "flash", "flash"),
        (OPEN, on("cpu", "float32", value=32), True, "blocked", "blocked"),
        (CAPPED, on("cpu", "float32"), False, "blocked", "blocked"),
        (LOCAL, on("cpu", "float32"), False, "fused", "blocked"),
        (LOCAL, on("cpu", "float32"), True, "flash", "blocked"),
        (LOCAL, on("cuda", "float16", 64, (9, 0)), False, "fused", "varlen"),
        (replace(LOCAL, sinks=True), on("cuda", "bfloat16", 64, (9, 0)), False, "flash", "varlen"),
        (OPEN, on("cuda", "bfloat16", 64, (9, 0)), True, "flash", "flash"),
        (OPEN, on("cuda", "bfloat16", 512, (9, 0)), True, "efficient", "efficient"),
        (OPEN, on("cuda", "bfloat16", 84, (9, 0)), True, "blocked", "blocked"),
        (OPEN, on("cuda", "float16", 64, (7, 5)), True, "efficient", "efficient"),
        (OPEN, on("cuda", "bfloat16", 64, (7, 5)), True, "blocked", "blocked"),
        (OPEN, on("cuda", "float32", 84, (9, 0)), True, "efficient", "efficient"),
        (OPEN, on("cuda", "float64", 64, (9, 0)), True, "blocked", "blocked"),
        (OPEN, on("cuda", "bfloat16"), True, "blocked", "blocked"),  # ROCm
        (OPEN, on("mps", "float32"), True, "blocked", "blocked"),
        (BIASED[0], on("cpu", "float32"), False, "fused", "fused"),
        (BIASED[0], on("cpu", "float32"), True, "blocked", "blocked"),
        (OPEN, BFLOAT16, False, "fused", "fused"),
        (LOCAL, BFLOAT16, False, "fused", "blocked"),
        (OPEN, BFLOAT16, True, "flash", "flash"),
        (CAPPED, BFLOAT16, False, "blocked", "blocked"),
        (BOTH[0], BFLOAT16, False, "fused", "fused"),
    ],
)
def test_the_choice(traits: AttentionSpec, place: DeviceInfo, mass: bool, within: str, beyond: str) -> None:
    chosen = choose(traits, place, mass)
    assert (chosen.at(12), chosen.at(13)) == (within, beyond)
    products = place.products and traits in (OPEN, LOCAL) and not mass
    assert (chosen.at(LONG - 1), chosen.at(LONG)) == (beyond, "products" if products else beyond)
    assert chosen.at(LONG, sequences=2) == beyond


def test_kernels_of_other_devices_are_called_as_torch_declares_them() -> None:
    # Nothing is computed: tensors without memory show what torch's own declarations accept and return.
    query = torch.empty(3, 8, 37, 64, dtype=torch.bfloat16, device="meta")
    key, value = (torch.empty(3, 2, 37, 64, dtype=torch.bfloat16, device="meta") for _ in range(2))
    (members,) = attention.blocked.group(np.arange(4) * 37, [1.25] * 3, device=torch.device("meta"))
    for kernel in (attention.kernels.flash, attention.kernels.efficient):
        out, mass = kernel(query, key, value, OPEN, members)
        assert out.shape == query.shape and out.dtype == query.dtype
        assert mass.shape == (3, 8, 37) and mass.dtype == torch.float32


def test_sequences_of_any_lengths_share_a_call_where_that_costs_less(monkeypatch: pytest.MonkeyPatch) -> None:
    def grouped(*lengths: int, factors: list[float] | None = None) -> list[attention.blocked.Group]:
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return attention.blocked.group(offsets, factors, device=torch.device("meta"), one_row=True)

    (members,) = grouped(5, 1, 30, 75, factors=[0.7] * 4)
    assert members.bounds is not None
    assert (members.longest, members.factor, members.bounds.shape) == (75, 0.7, (5,))
    query = torch.empty(1, 8, 111, 64, dtype=torch.bfloat16, device="meta")
    key, value = (torch.empty(1, 2, 111, 64, dtype=torch.bfloat16, device="meta") for _ in range(2))
    out, mass = attention.kernels.varlen(query, key, value, LOCAL, members)
    assert out.shape == query.shape and mass.shape == query.shape[:3]
    (alike,) = grouped(37, 37, 37)
    assert alike.bounds is None and alike.rows.shape == (3, 37)
    assert [each.bounds for each in grouped(5, 30, factors=[0.7, 0.8])] == [None, None]
    monkeypatch.setattr(attention.blocked, "PAIRS", 900 / 2)
    assert [each.longest for each in grouped(5, 30)] == [5, 30]


def packed(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, np.ndarray]:
    generator = torch.Generator().manual_seed(sum(lengths))
    query = torch.randn(1, 4, sum(lengths), 16, generator=generator, dtype=torch.float64)
    key, value = torch.randn(2, 1, 2, sum(lengths), 16, generator=generator, dtype=torch.float64)
    return query, key, value, np.concatenate([[0], np.cumsum(lengths)])


@pytest.mark.parametrize("reroute", [None, ExtraKeyValues((1,), 0.5, 3)])
def test_a_window_that_hides_nothing_needs_no_kernel_of_its_own(reroute: ExtraKeyValues | None) -> None:
    query, key, value, offsets = packed([11, 12, 13, 12, 30, 1])
    groups = attention.blocked.group(offsets, None, [12])
    kernels = choose(LOCAL, DeviceInfo.of(query, value), reroute is not None)
    got = attention.kernels.attend(query, key, value, groups, LOCAL, kernels, reroute)
    expected = attention.kernels.attend(query, key, value, groups, LOCAL, attention.kernels.BLOCKED, reroute)
    assert kernels.within != kernels.beyond == "blocked"
    assert (got - expected).abs().max() <= 1e-12
    wrong = KernelChoice(kernels.within, kernels.beyond, 13)
    assert (attention.kernels.attend(query, key, value, groups, LOCAL, wrong, reroute) - expected).abs().max() > 1e-6


@pytest.mark.parametrize(("traits", "rows"), each_once(SHAPES, [1, 5, 64]))
def test_blocks_of_queries_change_nothing(traits: AttentionSpec, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "ROWS", rows)
    query, key, value, _ = packed([37])
    out, mass = blocked.blocked(query, key, value, traits, 1.25)
    for head in range(4):
        for row in range(37):
            first = 0 if traits.window is None else max(0, row - traits.window + 1)
            end = row + 1 if traits.causal else 37 if traits.window is None else min(37, row + traits.window)
            logits = key[0, head // 2, first:end] @ query[0, head, row] * traits.scale
            logits = (logits if traits.cap is None else traits.cap * torch.tanh(logits / traits.cap)) * 1.25
            expected = logits.softmax(0) @ value[0, head // 2, first:end]
            assert (out[0, head, row] - expected).abs().max() <= 1e-12
            assert (mass[0, head, row] - logits.logsumexp(0)).abs() <= 1e-12


@pytest.mark.parametrize(
    ("length", "window", "shape"),
    each_pair([1, 31, 32, 129, 300], [None, 1, 12, 200], [(6, 2, 16), (4, 4, 80), (3, 1, 64)]),
)
def test_products_in_bfloat16_round_no_more_than_their_outputs(
    length: int, window: int | None, shape: tuple[int, int, int]
) -> None:
    heads, shared, width = shape
    generator = torch.Generator().manual_seed(length)
    query, key, value = (
        torch.randn(1, number, length, width, generator=generator).bfloat16() * size + mean
        for number, size, mean in ((heads, 8, 4), (shared, 8, 4), (shared, 1, 0))
    )
    traits = AttentionSpec(width**-0.5, None, window)
    exact, _ = blocked.blocked(query.double(), key.double(), value.double(), traits, 1.3)
    logits = query[0, 0].double() @ key[0, 0].double().T * traits.scale
    assert length == 1 or logits.abs().max() > 128  # from where on bfloat16 is exact to 0.5
    got = by_products(query, key, value, traits, 1.3)
    assert got.dtype == torch.bfloat16
    # Outputs alone are rounded by up to 2 ** -9, or 2e-3.
    assert (got.double() - exact).norm() <= 4e-3 * exact.norm()


def test_a_long_sequence_in_bfloat16_goes_through_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention.kernels, "multiplies_bfloat16", lambda: True)
    query, key, value, offsets = packed([LONG, 20, LONG + 77])
    states = [each.bfloat16() for each in (query, key, value)]
    groups = attention.blocked.group(offsets, None, [12])
    kernels = choose(LOCAL, DeviceInfo.of(states[0], states[2]), False)
    exact = attention.kernels.attend(query, key, value, groups, LOCAL, attention.kernels.BLOCKED)
    lengths: list[int] = []

    def counting(query: torch.Tensor, *rest: object) -> torch.Tensor:
        lengths.append(query.shape[2])
        return by_products(query, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(attention.kernels, "by_products", counting)
    got = attention.kernels.attend(*states, groups, LOCAL, kernels)
    assert sorted(lengths) == [LONG, LONG + 77]
    assert (got - exact).norm() <= 1e-2 * exact.norm()


@pytest.mark.parametrize("traits", [CAPPED, LOCAL])
def test_what_a_window_and_the_order_of_the_text_hide_is_not_scored(traits: AttentionSpec) -> None:
    def scored(length: int) -> int:
        query, key, value, _ = packed([length])
        with FlopCounterMode(display=False) as counted:
            blocked.blocked(query, key, value, traits, 1.0)
        return int(counted.get_total_flops())

    whole = 2 * 2 * 4 * 16 * 1024**2  # both products of 4 heads of width 16, over all pairs of tokens
    assert scored(1024) <= (0.6 if traits.window is None else 0.15) * whole


@pytest.mark.parametrize("method", ["kv:layers=2", "reba"])
def test_a_kernel_that_computes_something_else_is_noticed_when_a_method_is_prepared(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, off = attention.kernels.flash, {"kv:layers=2": (1.0, 0.1), "reba": (1.1, 0.0)}[method]

    def wrong(*states: object) -> tuple[torch.Tensor, torch.Tensor]:
        out, mass = right(*states)  # type: ignore[arg-type]
        return out * off[0], mass + off[1]

    monkeypatch.setattr(attention.kernels, "flash", wrong)
    embedder("llama", "plain")
    with pytest.raises(UnsupportedModel, match=r"attention by .*flash.* differs here from the blocked kernel"):
        embedder("llama", method)


@pytest.mark.parametrize(("place", "method"), [(blocked, "plain"), (kernels, "kv:layers=2-4"), (watcher, "reba")])
def test_a_cap_that_is_dropped_anywhere_is_noticed(
    place: ModuleType, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = embedder("gemma2", method, exactly=True)
    assert gap(e, "gemma2", method, TEXTS[3:]) <= 1e-9
    monkeypatch.setattr(place, "capped", lambda scores, traits: scores)
    assert gap(e, "gemma2", method, TEXTS[3:]) > 1e-3
