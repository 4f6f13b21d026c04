"""Readouts by hand: the hidden state of a token is its index."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

from eddy_embed.encoding.document import group_sentences, positions_by_span
from eddy_embed.encoding.planner import Window
from eddy_embed.errors import InvalidParameter
from eddy_embed.parts.readout import Pool, Readout, gather
from eddy_embed.text.sequence import Role, Sequence

S, P, T, PST, BPST = Role.SPECIAL, Role.PROMPT, Role.TEXT, Role.PST, Role.BPST
ROLES = [S, P, BPST, PST, T, T, PST, T, P]
#        0  1   2     3   4  5   6   7  8     the text is 4, 5 and 7


def sequence() -> Sequence:
    roles = np.array([int(role) for role in ROLES])
    text = roles == Role.TEXT
    starts = np.where(text, np.cumsum(text) - 1, -1)  # one character each: 0, 1, 2
    none = np.empty((0, 2), np.int64)
    return Sequence(np.arange(9), roles, starts, np.where(text, starts + 1, -1), np.where(text, 0, -1), none)


def read(readout: Readout, counted: list[int] | None = None) -> float:
    laid = sequence()
    index, weight = readout.weights(laid, laid.text if counted is None else np.array(counted))
    assert weight.sum() == pytest.approx(1)
    hidden = torch.arange(9.0).unsqueeze(1)
    out = gather(hidden, torch.from_numpy(index), torch.from_numpy(weight), torch.tensor([len(index)]))
    return float(out[0, 0])


@pytest.mark.parametrize(
    ("readout", "expected"),
    [
        (Readout(), (5 + 7) / 2),
        (Readout(pool="last"), 8),
        (Readout(pool="hybrid"), ((5 + 7) / 2 + 8) / 2),
        (Readout(pool="weighted"), (1 * 5 + 2 * 7) / (1 + 2)),
        (Readout(placeholders=True), (2 + 3 + 5 + 6 + 7) / 5),
    ],
    ids=str,
)
def test_the_part_of_a_window_that_counts(readout: Readout, expected: float) -> None:
    assert read(readout, [5, 7]) == pytest.approx(expected)


def test_runs_are_summed_by_themselves() -> None:
    hidden = torch.arange(9.0).unsqueeze(1) * torch.tensor([[1.0, -1.0]])
    index, weight = torch.tensor([1, 2, 8, 0, 3]), torch.tensor([0.5, 0.5, 1.0, 2.0, 3.0])
    # 1·.5 + 2·.5 = 1.5; 8·1 = 8; nothing; 0·2 + 3·3 = 9
    out = gather(hidden, index, weight, torch.tensor([2, 1, 0, 2]))
    assert out[:, 0].tolist() == [1.5, 8, 0, 9] and torch.equal(out[:, 1], -out[:, 0])


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_states_are_summed_in_float32_at_least(dtype: torch.dtype, expected: torch.dtype) -> None:
    # In bfloat16, 256 + 1 is 256: the sum of 256 and a hundred ones would stay there.
    hidden = torch.tensor([[256.0]] + [[1.0]] * 100, dtype=dtype)
    out = gather(hidden, torch.arange(101), torch.ones(101), torch.tensor([101]))
    assert out.dtype == expected and out.item() == 356


@pytest.mark.parametrize(
    ("exit_layer", "layers", "expected"), [(-1, 6, 6), (-2, 6, 5), (0, 6, 0), (6, 6, 6), (-7, 6, 0)]
)
def test_exits_count_as_python_counts(exit_layer: int, layers: int, expected: int) -> None:
    assert Readout(exit=exit_layer).layer(layers) == expected


@pytest.mark.parametrize("exit_layer", [7, -8, None])
def test_exits_outside_the_model_are_refused(exit_layer: int | None) -> None:
    with pytest.raises(InvalidParameter, match=r"exit"):
        Readout(exit=exit_layer).layer(6)


def test_unknown_poolings_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="'max' is unknown; choose one of mean, last, hybrid, weighted, cls"):
        Readout(pool="max")  # type: ignore[arg-type]


def test_only_averages_have_spans() -> None:
    spans = {pool: Readout(pool=pool).spans for pool in get_args(Pool)}
    assert [pool for pool, averages in spans.items() if averages] == ["mean", "weighted"]


# --- spans


@pytest.mark.parametrize(
    ("spans", "found", "positions"),
    [
        ([(0, 3)], [0], [[4, 5, 7]]),
        ([(0, 1), (1, 3)], [0, 1], [[4], [5, 7]]),
        ([(0, 1), (2, 3)], [0, 1], [[4], [7]]),
        ([(3, 9)], [], []),
    ],
)
def test_tokens_of_spans(spans: list[tuple[int, int]], found: list[int], positions: list[list[int]]) -> None:
    laid = sequence()
    index, runs = positions_by_span(Window(laid, laid.text), np.array(spans))
    assert index.tolist() == found and [run.tolist() for run in runs] == positions


def test_only_counted_tokens_are_a_spans() -> None:
    laid = sequence()
    index, runs = positions_by_span(Window(laid, np.array([5])), np.array([(0, 1), (1, 3)]))
    assert index.tolist() == [1] and [run.tolist() for run in runs] == [[5]]


def test_a_span_inside_a_token_of_another_reads_that_token() -> None:
    starts, ends = np.array([0, 1, 3]), np.array([1, 3, 4])  # a, .b, c
    none = np.empty((0, 2), np.int64)
    laid = Sequence(np.arange(3), np.full(3, int(T)), starts, ends, np.zeros(3, np.int64), none)
    index, runs = positions_by_span(Window(laid, laid.text), np.array([(0, 2), (2, 3), (3, 4)]))
    assert index.tolist() == [0, 1, 2] and [run.tolist() for run in runs] == [[0, 1], [1], [2]]


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        ([3, 3, 3], 6, [(0, 1), (2, 2)]),
        ([3, 3, 3], 5, [(0, 0), (1, 1), (2, 2)]),
        ([9, 1, 1], 2, [(0, 0), (1, 2)]),  # a longer sentence is a passage alone
        ([0, 0, 4, 0], 4, [(0, 3)]),
        ([], 4, []),
    ],
)
def test_passages_are_whole_sentences(sizes: list[int], most: int, expected: list[tuple[int, int]]) -> None:
    assert group_sentences(sizes, most, [0] * len(sizes)) == expected
