"""Matrix products by oneDNN: the same vectors, in modules of our own, and only where it can multiply."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from tests.comparison import TEXTS
from tests.families import build
from tests.selection import each_once
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.pytorch_utils import Conv1D

from eddy_embed import Embedder
from eddy_embed.model import products

METHODS = ("plain", "htp", "kv:layers=2-4", "reba", "plain+tempscale:tau=0.7")


class Calls(TorchDispatchMode):
    """The operators that run, the rows that products take in, and how many products are by prepacked weights."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.rows: set[int] = set()
        self.packed = 0

    def count(self, part: str) -> int:
        return sum(part in name for name in self.names)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        self.packed += "_linear_pointwise" in str(func) and args[1].is_mkldnn
        if func in (torch.ops.aten.linear.default, torch.ops.aten.addmm.default):
            self.rows.add(args[func is torch.ops.aten.addmm.default].shape[-2])
        return func(*args, **(kwargs or {}))


def embedder(family: str, method: str, by_onednn: bool, patch: pytest.MonkeyPatch, **options: Any) -> Embedder:
    with patch.context() as context:
        context.setattr(products, "slower_in_mkl", lambda: by_onednn)
        model, tokenizer = build(family)
        return Embedder(options.pop("model", model), tokenizer=tokenizer, method=method, **options)


@pytest.mark.parametrize(("family", "method"), each_once(["llama", "gpt2", "phi"], METHODS))
def test_vectors_are_the_same(family: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With biases and without, and with weights that stand the other way round."""
    usual, own = (embedder(family, method, by, monkeypatch) for by in (False, True))
    counted = []
    for each in (usual, own):
        with Calls() as calls:
            each.encode_document(TEXTS)
        counted.append(calls.count("_linear_pointwise"))
    assert counted[0] == 0 and counted[1] >= 4 * 2  # four weights in each layer, at least
    np.testing.assert_allclose(own.encode_document(TEXTS), usual.encode_document(TEXTS), atol=2e-6)
    assert own.fingerprint == usual.fingerprint


def test_passes_are_filled_up_to_few_numbers_of_rows() -> None:
    cpu = torch.device("cpu")
    found = {rows: products.pad_rows(rows, cpu) for rows in range(1, 5000)}
    assert all(0 <= filled - rows < min(8, max(1, rows / 8)) for rows, filled in found.items() if rows < 512)
    assert all(0 <= filled - rows < rows / 32 and filled % 16 == 0 for rows, filled in found.items() if rows >= 512)
    assert (found[1], found[17], found[61], found[257], found[511], found[2000]) == (1, 18, 64, 264, 512, 2016)
    assert len({filled for rows, filled in found.items() if rows <= 1024}) <= 120
    assert products.pad_rows(7, torch.device("meta")) == 7


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "t5", "qwen3_moe"])
def test_rows_that_belong_to_nobody_are_not_read(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = "plain" if family in ("bert", "t5") else "htp"
    found = []
    for rows in (1, 4, 64):
        monkeypatch.setattr(products, "ROWS", rows)
        monkeypatch.setattr(products, "SHARE", 2**20)
        monkeypatch.setattr(products, "FEW", 1)
        own = embedder(family, method, False, monkeypatch)
        with Calls() as calls:
            found.append(own.encode_document(TEXTS))
        tokens = sum(own.explain(text).sequence_tokens for text in TEXTS)
        assert tokens + -tokens % rows in calls.rows and tokens % 64
    for each in found[1:]:
        np.testing.assert_allclose(each, found[0], atol=2e-6)


def test_the_model_keeps_its_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = build("gpt2")
    before = [(type(module), dict(vars(module))) for module in model.modules()]
    embedder("gpt2", "plain", True, monkeypatch, model=model).encode_document(TEXTS)
    assert [(type(module), dict(vars(module))) for module in model.modules()] == before
    assert any(type(module) is Conv1D for module in model.modules())


def test_what_it_cannot_multiply_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of another type, weights that are not laid out row by row, and modules that somebody has changed."""
    monkeypatch.setattr(products, "slower_in_mkl", lambda: True)
    made = {name: nn.Linear(8, 8) for name in ("plain", "short", "turned", "replaced", "derived")}
    made["short"].bfloat16()
    made["turned"].weight.data = made["turned"].weight.data.t()
    made["replaced"].forward = lambda states: states  # type: ignore[method-assign]
    made["derived"].__class__ = type("Own", (nn.Linear,), {})
    view = nn.ModuleDict(copy.deepcopy(made))
    products.use_onednn(view)
    changed = {name for name, module in view.items() if type(module) is not type(made[name])}
    assert changed == {"plain"}
