"""The sums of a readout, by hand; `test_methods` and `test_long` have the readouts themselves."""

from __future__ import annotations

import pytest
import torch

from eddy_embed.parts.readout import gather


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
