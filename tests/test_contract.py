"""What holds for every method on every family: the model is left as it was, and company changes no vector."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from tests import families
from tests.comparison import METHODS, TEXTS, embedder, loaded
from tests.selection import each_once, mostly_slow, turns

from eddy_embed import Embedder, methods
from eddy_embed.errors import NotFinite

EVERY = [
    "plain:pool=weighted",
    "prompteol",
    "cot",
    "knowledge",
    "metaeol",
    "echo:preset=bare",
    "tp:prompt=prompteol+reroute:layers=3,n=2",
    "htp:range=1-4,exit=4,pool=all",
    "kv:layers=2-4+htp:range=1-3+tempscale:tau=0.6+readout",
    "kv:layers=2-4,n=2+last2avg+start:token=none",
    "reba:pool=mean",
    "reba:piece=9",
    "htp:range=1-4,exit=-1+sif:a=0.01",
    "plain+filter:drop=3",
    "plain:exit=-1+sif:a=0.01+layeravg:layers=1-2+standardise",
]
"""Between them they touch every moment of a pass; a newly registered method has to be put in."""
FEW = ["htp:range=1-4,exit=4,pool=all", "kv:layers=2-4+htp:range=1-3+tempscale:tau=0.6+readout", "reba:pool=mean"]
"""So do these."""
CELLS = each_once(families.FAMILIES, EVERY)
ENCODERS = [(family, "plain+tempscale") for family in families.ENCODERS]
FAULTS = mostly_slow(product(families.FAMILIES, EVERY), turns(families.FAMILIES, FEW))
POOL = [
    *TEXTS,
    "One. Two. Three. Four.",
    "日本語。 Then 🙂!",
    "a",
    "x" * 50,
    "The tide " * 30,
    "No stop here\nnor here",
]
IDS = torch.tensor([[3, 17, 101, 250, 9, 44]])


def test_every_registered_method_is_under_contract() -> None:
    # Post-processing touches no model: `test_postprocess` has it. What is recommended is one of the others:
    # `test_recommended` has it.
    running = {name for name in methods.names() if methods.parse(name).post is None} - {"recommended", "best", "fast"}
    for covered in (EVERY, METHODS):
        assert running <= {term.partition(":")[0] for method in covered for term in method.split("+")}


def copied(family: str) -> tuple[Any, Any]:
    """A model of its own for tests that change it."""
    model, tokenizer = loaded(family)
    return copy.deepcopy(model), tokenizer


def state_of(model: torch.nn.Module) -> dict[str, Any]:
    """Everything about a model that a pass could leave changed, tensors by value and by identity."""
    state: dict[str, Any] = {
        "config": str(model.config),
        "attention": model.config._attn_implementation,
        "modules": {name: id(module) for name, module in model.named_modules()},
        "training": {name: module.training for name, module in model.named_modules()},
        "gradients": {name: (p.requires_grad, p.grad) for name, p in model.named_parameters()},
        "weights": {name: (id(p), p.dtype, _bytes(p)) for name, p in model.named_parameters()},
        "buffers": {name: (id(t), _bytes(t)) for name, t in model.named_buffers()},
    }
    for name, module in model.named_modules():
        hooks = {kind: dict(value) for kind, value in vars(module).items() if kind.endswith("_hooks")}
        own = {key: id(value) for key, value in vars(module).items() if not key.startswith("_")}
        state[f"module {name}"] = (hooks, own)
    with torch.no_grad():
        state["output"] = _bytes(model(IDS.to(model.device))[0])
    return state


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Holds that the model is the same afterwards, to the bit."""
    before = state_of(model)
    yield
    after = state_of(model)
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert value == after[name], name


@pytest.mark.parametrize(("family", "method"), [*CELLS, *ENCODERS])
def test_the_model_is_left_as_it_was(family: str, method: str) -> None:
    model, tokenizer = copied(family)
    with unchanged(model):
        with Embedder(model, tokenizer=tokenizer, method=method) as e:
            e.encode_document(TEXTS)
            e.encode_query(TEXTS[0])
            e.encode_long(TEXTS[0], late=False)
            e.explain(TEXTS[0])
            assert e.fingerprint
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(("family", "method"), FAULTS)
def test_weights_that_give_nan_are_an_error_that_names_the_text_and_leaves_the_model(family: str, method: str) -> None:
    model, tokenizer = copied(family)
    e = Embedder(model, tokenizer=tokenizer, method=method)
    kept, norm = e.encode_document(TEXTS), next(p for n, p in model.named_parameters() if "norm" in n or "ln_1" in n)
    value = norm.detach().clone()
    with torch.no_grad():
        norm.fill_(float("nan"))
    with unchanged(model), pytest.raises(NotFinite, match=r"text [01234]: .*NaN"):
        e.encode_document(TEXTS)
    with pytest.raises(NotFinite, match="NaN"):
        Embedder(model, tokenizer=tokenizer, method=method)
    with torch.no_grad():
        norm.copy_(value)
    assert np.array_equal(e.encode_document(TEXTS), kept)


@pytest.mark.parametrize(("family", "method"), FAULTS)
def test_hooks_of_others_stay_and_do_not_fire(family: str, method: str) -> None:
    model, tokenizer = copied(family)
    plain = Embedder(model, tokenizer=tokenizer, method=method).encode_document(TEXTS)
    hook = Mock(return_value=None, lock=threading.Lock())  # as people write them: an object that cannot be copied
    with pytest.raises(TypeError):
        copy.deepcopy(hook)
    layers = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))
    handles = [
        model.get_input_embeddings().register_forward_hook(hook),
        layers[1].register_forward_pre_hook(hook, with_kwargs=True),
        layers[2].register_forward_hook(hook, always_call=True),
        layers[2].register_full_backward_hook(hook),
    ]
    e = Embedder(model, tokenizer=tokenizer, method=method)
    assert np.array_equal(e.encode_document(TEXTS), plain)
    assert hook.call_count == 0
    with torch.no_grad():
        model(IDS)
    assert hook.call_count == 3
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("family", families.FAMILIES)
def test_a_model_in_training_stays_so(family: str) -> None:
    model, tokenizer = copied(family)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    expected = Embedder(model, tokenizer=tokenizer, method="htp").encode_document(TEXTS)
    model.train()
    vectors = Embedder(model, tokenizer=tokenizer, method="htp").encode_document(TEXTS)
    assert all(module.training for module in model.modules())
    assert np.array_equal(vectors, expected)


# --- company


EXPERTS = ["mixtral", "qwen3_moe", "gpt_oss"]
"""Whose experts a token meets depends on its state alone."""
COMPANY = [
    *CELLS,
    *ENCODERS,
    *each_once(EXPERTS, ["plain", "htp", "kv:layers=2-4,n=40"]),  # more entries than the shorter texts have tokens
    *(("gemma2", f"plain+tempscale:{rule}") for rule in ("rule=log,tau=0.7", "rule=rate,rate=0.3")),
    ("gemma2", 'plain+tempscale:lengths="1:1,20:0.7,30:0.5"'),
]


@pytest.mark.parametrize(("family", "method"), COMPANY)
def test_company_and_order_change_nothing(family: str, method: str) -> None:
    e = embedder(family, method, max_length=320)
    long = "The keeper wrote a line in the log. " * 30
    assert e.explain(long).windows > 1
    alone = [e.encode_document(text) for text in POOL]
    before, _, behind = np.split(e.encode_document([*POOL, long, *POOL[::-1]]), [len(POOL), len(POOL) + 1])
    assert np.abs(before - alone).max() <= 1e-5 and np.abs(behind[::-1] - alone).max() <= 1e-5
