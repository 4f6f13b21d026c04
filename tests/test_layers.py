"""Layers by intrinsic dimension: the estimate, the rules on the curve, and the states it is taken from."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
import torch
from tests import families
from tests.comparison import AllDouble, loaded
from tests.reference import forward, twonn
from tests.selection import mostly_slow

from eddy_embed import Embedder, methods
from eddy_embed.encoding.calibration import MEASURED, dimensions_of, last_states
from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.kv import clear_minima, intrinsic_dimension, propose

WHO = ["The miller", "A ferryman", "My aunt", "The baker", "Nobody", "The old pilot", "A child", "The surveyor"]
DID = ["mended", "sold", "forgot", "painted", "carried", "found", "weighed", "burnt"]
WHAT = ["the lamp", "two oars", "a map of the river", "her boots", "the bell", "some bread", "a letter", "the chart"]
SENTENCES = [f"{who} {did} {what}." for who in WHO for did in DID for what in WHAT]


# --- The estimate


def sphere(d: int, points: int, width: int = 40) -> np.ndarray:
    """Points spread evenly over a sphere of d dimensions, far from the origin of a space of many more."""
    rng = np.random.default_rng(d)
    directions = rng.standard_normal((points, d + 1))
    axes, _ = np.linalg.qr(rng.standard_normal((width, d + 1)))
    return directions / np.linalg.norm(directions, axis=1, keepdims=True) @ axes.T + 1e3


def test_known_dimensions_are_found() -> None:
    estimates = {d: intrinsic_dimension(sphere(d, 2000)) for d in (1, 2, 3, 5, 8, 10, 20, 30)}
    assert {d: value for d, value in estimates.items() if d <= 10 and abs(value - d) > 0.1 * d} == {}
    assert list(estimates.values()) == sorted(estimates.values())


@pytest.mark.parametrize("points", [3, 4, 101, 250])
def test_equals_the_reference(points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = np.random.default_rng(points).standard_normal((points, 12)) ** 3
    expected = twonn.dimension(cloud.tolist())
    assert intrinsic_dimension(cloud) == pytest.approx(expected, rel=1e-12)
    assert intrinsic_dimension(cloud * 1e-3 + 1e3) == pytest.approx(expected, rel=1e-9)
    monkeypatch.setitem(intrinsic_dimension.__globals__, "DISTANCES", 7 * points)  # blocks that do not come out even
    assert intrinsic_dimension(cloud) == pytest.approx(expected, rel=1e-12)


def test_duplicates_count_once() -> None:
    cloud = sphere(3, 150)
    again = np.concatenate([cloud, cloud[:70], cloud[:5]])
    assert intrinsic_dimension(again) == intrinsic_dimension(cloud)


@pytest.mark.parametrize("cloud", [np.eye(9), np.ones((50, 4)), np.eye(4)[:2]], ids=["even", "one", "two"])
def test_clouds_without_a_dimension(cloud: np.ndarray) -> None:
    assert np.isnan(intrinsic_dimension(cloud))


# --- The rules

VALLEY = [nan, 12, 14, 13, 12, 9, 7, 7.5, 8, 9, 10, 11, *range(12, 20)]  # 20 states; the minimum is h[6]
TWO = [nan, 12, 14, 6, 10, 9, 7, 7.2, 7.8, 9, 6.8, 8, *range(12, 20)]  # h[3], h[6] and h[10]


@pytest.mark.parametrize(
    ("curve", "minima", "form"),
    [
        (VALLEY, (6,), "kv:layers=7-9"),  # equation 4: states 6 .. 6 + floor(0.1 * 20)
        ([*VALLEY[:5], 9, 9.4, *VALLEY[6:]], (7,), "kv:layers=8-10"),  # a bump of less than a tenth divides nothing
        (VALLEY[:10], (6,), "kv:layers=7-8"),
        (TWO, (3, 6, 10), 'kv:layers="7-8,11"'),  # at most 1.1 * 6.8, behind the first four layers
        ([nan, 9, 7, 8, 7, 9], (2, 4), 'kv:layers="3,5"'),
        ([nan, 9, 7, 7, 9, 9], (2,), "kv:layers=3"),  # equal and nothing between: one minimum
        ([9, 9, 9, 9, 9], (), "kv:layers=2-5"),  # flat: all behind the first
        ([5, 6, 7, 8, 9, 10, 11, 12, 13, 14], (), "kv:layers=3"),  # rising: the lowest is at the border
        ([9, 8, 7, 6, 5], (), "kv:layers=5"),
        ([10, 9.5, 10, 9.8], (), "kv:layers=1-4"),  # dents of less than a tenth
        ([10, 9, 10], (1,), "kv:layers=2"),  # a tenth exactly
        ([10, 8, 8.5, 5], (), "kv:layers=4"),  # lower still on the right
        ([10, nan, 8, nan, 10], (2,), "kv:layers=3"),
    ],
)
def test_the_rules(curve: list[float], minima: tuple[int, ...], form: str) -> None:
    proposal = propose(curve)
    assert proposal.minima == minima == clear_minima(curve)
    assert proposal.rule == ("one minimum" if len(minima) == 1 else "low region")
    assert proposal.method == form
    assert methods.parse(form).reroute.layers == proposal.layers


def test_a_width_of_ones_own() -> None:
    for curve, width, form in (
        (VALLEY, 1, "kv:layers=7"),
        (VALLEY, 20, "kv:layers=7-20"),
        (TWO, 2, 'kv:layers="7-9,11-12"'),
        ([9, 8, 7, 6, 5], 3, "kv:layers=5"),
    ):
        assert propose(curve, width).method == form
    with pytest.raises(InvalidParameter, match="width=21 must be a number of layers"):
        propose(VALLEY, 21)
    with pytest.raises(InvalidParameter, match="more various, sentences"):
        propose([3, nan, nan, nan, nan, nan])


# --- The states


@pytest.mark.parametrize("family", mostly_slow(families.FAMILIES, ["gpt2", "gemma2"]))
def test_states_are_those_of_the_last_token_at_every_layer(family: str) -> None:
    model, tokenizer = loaded(family, exactly=True)
    with AllDouble():
        embedder = Embedder(model, MEASURED, tokenizer=tokenizer, language="xx", check=False, batch_tokens=500)
        read = last_states(embedder._pipeline, SENTENCES[:100], None)
    assert read.shape == (families.LAYERS, 100, families.HIDDEN)
    for at, text in list(enumerate(SENTENCES[:100]))[::33]:
        ids = tokenizer(f'"Context: {text}" Compress the Context in one word:', add_special_tokens=False)["input_ids"]
        front = {"llama": [1], "gemma2": [0]}.get(family, [tokenizer.bos_token_id])
        expected = forward.forward(model, [*front, *ids])[: families.LAYERS]
        assert np.abs(read[:, at] - torch.stack([h[-1] for h in expected]).numpy()).max() < 1e-9
    # The last token of the prompt is always the same, and gemma2's first layer sees no further than the prompt's end.
    alike = 2 if family == "gemma2" else 1
    dimensions = dimensions_of(read)
    assert np.isnan(dimensions[:alike]).all()
    for level in range(alike, families.LAYERS):
        assert dimensions[level] == pytest.approx(twonn.dimension(read[level].tolist()), rel=1e-9)
