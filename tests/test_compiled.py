"""Compiled layers: they give what the model gives, for every method, or it is said why there are none."""

from __future__ import annotations

import copy
import gc
import shutil
import subprocess
import sys
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from tests import families
from tests.comparison import INSTRUCTION, TEXTS, embedder, expected, loaded
from tests.test_contract import EVERY, POOL, unchanged
from tests.test_cost import Counter
from torch import nn

from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.model.attention import Traits
from eddy_embed.model.speed import compile_layers, layer_trace
from eddy_embed.text.sequence import pack, plain

# Nobody needs a compiler for anything else; .ci/run installs one.
pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="compiling layers needs g++")
RIGHT = 1e-5
"""Largest difference of a component in float32."""
TRAITS = [Traits(1.0, None, None)]
LARGE = [name for name in families.MORE_FAMILIES | families.ENCODERS if name not in (*families.T5S, "mpnet")]


@cache
def fast(family: str, method: str) -> Embedder:
    return embedder(family, method, compile=True)


@contextmanager
def ran() -> Iterator[list[layer_trace.Bound]]:
    """The compiled layers that run, in order."""
    calls: list[layer_trace.Bound] = []
    right = layer_trace.Bound.__call__

    def noted(bound: layer_trace.Bound, *call: Any) -> Any:
        calls.append(bound)
        return right(bound, *call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_trace.Bound, "__call__", noted)
        yield calls


def layers_of(e: Embedder) -> list[Any]:
    return list(e._pipeline.runner.host._stack)


@pytest.mark.parametrize("family", families.FAMILIES)
def test_vectors_are_the_references(family: str) -> None:
    model, tokenizer = loaded(family)
    with unchanged(model):
        for method in ("plain", "kv:layers=2-4"):
            e = Embedder(model, tokenizer=tokenizer, method=method, compile=True, query_instruction=INSTRUCTION)
            references = np.stack([expected(family, method, text, INSTRUCTION) for text in TEXTS])
            with ran() as calls:
                together, alone = e.encode_query(TEXTS), np.stack([e.encode_query(text) for text in TEXTS])
            assert set(calls) == {layer.compiled for layer in layers_of(e)}
            assert np.abs(together - references).max() <= RIGHT
            assert np.abs(alone - references).max() <= RIGHT


@pytest.mark.parametrize("method", EVERY)
def test_every_method_gives_the_same(method: str) -> None:
    e, own = fast("llama", method), embedder("llama", method)
    assert np.abs(e.encode_document(POOL) - own.encode_document(POOL)).max() <= RIGHT
    long, same = (each.encode_long(" ".join(TEXTS * 3), passage_size=16, late=False) for each in (e, own))
    assert len(long.passages) == len(same.passages) > 3
    for one, other in zip((*long.passages, *long.sentences), (*same.passages, *same.sentences), strict=True):
        assert np.abs(one.vector - other.vector).max() <= RIGHT


@pytest.mark.slow
@pytest.mark.parametrize("family", LARGE)
def test_every_family_gives_the_same(family: str) -> None:
    e, own = fast(family, "plain"), embedder(family, "plain")
    with ran() as calls:
        assert np.abs(e.encode_document(POOL) - own.encode_document(POOL)).max() <= RIGHT
    assert set(calls) == {layer.compiled for layer in layers_of(e)}


@pytest.mark.parametrize("family", [*families.OWN_ATTENTION, *families.T5S, "mpnet"])
def test_attention_that_is_not_ours_is_refused(family: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"of its own, which cannot be compiled; leave compile=True out"):
        embedder(family, "plain", compile=True)


def test_layers_that_are_alike_share_kernels() -> None:
    assert len({layer.compiled.kernels for layer in layers_of(fast("llama", "plain"))}) == 1
    # One kind sees all that is behind, the other a window.
    kinds = [layer.compiled.kernels for layer in layers_of(fast("gemma2", "plain"))]
    assert len(set(kinds)) == 2 and kinds[0::2] == kinds[:1] * len(kinds[0::2]) and kinds[0] is not kinds[1]


def test_layers_taken_for_alike_that_are_not_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_layers, "_kind", lambda layer, _: type(layer))
    with pytest.raises(UnsupportedModel, match=r"layer 2 gives something else compiled.*leave compile=True out"):
        embedder("gemma2", "plain", compile=True)


def test_weights_of_another_layer_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[Any] = []
    right = layer_trace.Kernels.of

    def first(kernels: layer_trace.Kernels, layer: nn.Module) -> Any:
        bound.append(right(kernels, layer))
        return bound[0]

    monkeypatch.setattr(layer_trace.Kernels, "of", first)
    with pytest.raises(UnsupportedModel, match="layer 2 gives something else compiled"):
        embedder("llama", "plain", compile=True)


def test_layers_of_a_kind_have_all_but_weights_in_common() -> None:
    def alike(one: nn.Module, other: nn.Module, *kwargs: dict[str, Any]) -> bool:
        given, others = kwargs or ({}, {})
        return bool(compile_layers._kind(one, ((), given)) == compile_layers._kind(other, ((), others)))

    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    assert alike(one, other)
    for value, same, unlike in (
        (1, 1, True),  # equal in Python
        (torch.relu, torch.relu, torch.tanh),
        ({"a": 2.0}, {"a": 2.0}, {"a": 3.0}),
        ([1, (2,)], [1, (2,)], [1, (3,)]),
        (partial(max, default=1), partial(max, default=1), partial(max, default=2)),
        ({1, 2}, {2, 1}, {1}),
        ("layers.0.proj", "layers.1.proj", "layers.1.other"),
        (one.extra_repr, other.extra_repr, one.extra_repr),
    ):
        one.value, other.value = value, same
        assert alike(one, other), value
        other.value = unlike
        assert not alike(one, other), value
    del one.value, other.value
    assert not alike(one, nn.Linear(2, 2, dtype=torch.float64)) and not alike(one, other, {"a": None}, {"a": 1})
    other.weight = nn.Parameter(other.weight.detach().t())
    assert not alike(one, other)
    one, other = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    assert alike(one, other)
    other[1].weight = other[0].weight
    assert not alike(one, other)


def test_layers_with_adapters_share_kernels() -> None:
    from peft import LoraConfig, get_peft_model

    model, tokenizer = loaded("llama")
    adapted = get_peft_model(copy.deepcopy(model), LoraConfig(target_modules=["q_proj", "v_proj"], r=2)).eval()
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(generator=torch.Generator().manual_seed(1))
    e, own = (Embedder(adapted, tokenizer=tokenizer, method="plain", compile=each) for each in (True, False))
    assert len({layer.compiled.kernels for layer in layers_of(e)}) == 1
    assert np.abs(e.encode_document(TEXTS) - own.encode_document(TEXTS)).max() <= RIGHT
    plain = embedder("llama", "plain").encode_document(TEXTS)
    assert np.abs(plain - own.encode_document(TEXTS)).max() > 100 * RIGHT


def test_one_token_and_gradients_go_through_the_layers_themselves() -> None:
    ours, own = (each._pipeline.runner.host for each in (fast("llama", "plain"), embedder("llama", "plain")))
    lone, several = (pack([plain(np.arange(3, 3 + length))]) for length in (1, 9))
    found, usual = (host.run(lone, range(0), None) for host in (ours, own))
    assert torch.equal(found, usual)
    gradients = []
    for host in (ours, own):
        leaves: list[torch.Tensor] = []
        states = host.run(several, range(0), None, leaves=leaves)
        gradients.append(torch.autograd.grad(states.sum(), leaves)[0])
    assert torch.equal(*gradients) and gradients[0].abs().max() > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_laid_out_for_products_stay_so(dtype: str) -> None:
    own, e = (Embedder("eddy-tiny", method="htp", dtype=dtype, compile=each) for each in (False, True))
    laid = [[p.is_mkldnn for p in host.parameters()] for host in (*layers_of(own), *layers_of(e))]
    assert all(each == laid[0] for each in laid)
    assert e.fingerprint == own.fingerprint
    difference = np.abs(e.encode_document(TEXTS) - own.encode_document(TEXTS)).max()
    assert difference <= (RIGHT if dtype == "float32" else 2e-2)


def test_a_pass_has_half_of_the_operations() -> None:
    counts = []
    for e in (fast("llama", "plain"), embedder("llama", "plain")):
        e.encode_document(TEXTS[0])
        with Counter() as counted:
            e.encode_document(TEXTS[0])
        counts.append(counted.calls)
    assert counts[0] <= 0.5 * counts[1]


def test_threads_share_kernels() -> None:
    e = fast("llama", EVERY[8])
    alone = [e.encode_document(text) for text in POOL]
    with ThreadPoolExecutor(4) as threads:
        for one, other in zip(alone, threads.map(e.encode_document, POOL), strict=True):
            assert np.abs(one - other).max() <= RIGHT


def test_weights_go_with_the_embedder() -> None:
    e = Embedder("eddy-tiny", method="plain", compile=True)
    held = weakref.ref(next(layers_of(e)[0].parameters()))
    assert held() is not None
    del e
    gc.collect()
    assert held() is None


def test_many_embedders_in_a_process() -> None:
    """Torch keeps eight traces of a function, and no more."""
    for number in range(10):
        assert layers_of(embedder("llama", f"plain:exit={1 + number % 3}", compile=True))[0].compiled


def test_without_a_compiler_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    def none() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none)
    with pytest.raises(InvalidParameter, match=r"compile=True: there is no C\+\+ compiler"):
        embedder("llama", "plain", compile=True)


def test_elsewhere_it_is_refused() -> None:
    layers = [nn.Linear(2, 2, device="meta")]
    with pytest.raises(InvalidParameter, match="compile=True is for processors, and Model is elsewhere"):
        compile_layers.compile_layers("Model", layers, lambda _: None, traits=TRAITS, coarse=False)


def test_layers_that_run_more_than_once_are_refused() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(UnsupportedModel, match="Model runs its 1 layers 2 times in a pass"):
        compile_layers.compile_layers(
            "Model",
            [layer],
            lambda tokens: [layer(torch.ones(tokens, 2)) for _ in range(2)],
            traits=TRAITS,
            coarse=False,
        )


class _Deciding(nn.Module):
    """Its own code looks at values."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states + 1 if hidden_states.sum() > 0 else hidden_states


class _Remembering(nn.Module):
    """Reads a tensor that is neither its own nor given to it."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states + _FAR


class _Measuring(nn.Module):
    """Does something else with long texts, and would with short ones."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states * (1 if 20 < hidden_states.shape[1] <= 64 else 2)


class _Crossed(nn.Module):
    """Is given states that lie in memory the other way round."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states.cumsum(1) + 1


_FAR = torch.ones(2)


def compile_one(layer: nn.Module, shape: tuple[int, ...] = (2,), crossed: bool = False) -> None:
    def run(tokens: int) -> None:
        states = torch.randn(1, *shape, tokens).transpose(1, -1) if crossed else torch.randn(1, tokens, *shape)
        with torch.inference_mode():
            layer(states)

    compile_layers.compile_layers("Model", [layer], run, traits=TRAITS, coarse=False)


@pytest.mark.parametrize(
    "kind, words",
    [(_Deciding, "its layers cannot be compiled"), (_Remembering, "its layers read or give more than states")],
)
def test_layers_that_cannot_be_compiled_are_named(kind: type[nn.Module], words: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"Model: {words}.*leave compile=True out"):
        compile_one(kind())


def test_states_of_another_shape_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="Model: its layers take other states than of tokens in a row"):
        compile_one(nn.Identity(), (3, 2))


def test_a_trace_reaches_as_far_as_its_conditions() -> None:
    layer = _Measuring()
    compile_one(layer)
    for tokens in (2, 20, 21, 64, 65, 500):
        states = torch.randn(1, tokens, 2)
        with torch.inference_mode(), ran() as calls:
            assert torch.equal(layer(states), _Measuring()(states)), tokens
        assert len(calls) == (20 < tokens <= 64), tokens


def test_states_in_another_order_in_memory_are_read_rightly() -> None:
    for crossed in (False, True):
        layer = _Crossed()
        compile_one(layer, crossed=crossed)
        for states in (torch.randn(1, 5, 2), torch.randn(1, 2, 5).transpose(1, 2)):
            with torch.inference_mode(), ran() as calls:
                assert (layer(states) - _Crossed()(states)).abs().max() <= RIGHT
            assert len(calls) == 1


def test_weights_whose_type_their_owner_changes_go_through_the_layer() -> None:
    layer = nn.Linear(2, 2)
    compile_one(layer)
    layer.double()
    with torch.inference_mode(), ran() as calls:
        assert layer(torch.ones(1, 9, 2, dtype=torch.float64)).dtype == torch.float64
    assert not calls


@pytest.mark.parametrize("error", [MemoryError("no more"), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_memory_that_is_out_is_said(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    _fails(monkeypatch, error)
    with pytest.raises(type(error), match=str(error)):
        compile_one(nn.Linear(2, 2))


def test_what_the_compiler_says_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _fails(monkeypatch, ValueError("no such\n instruction"))
    with pytest.raises(UnsupportedModel, match=r"cannot be compiled \(ValueError: no such instruction\)"):
        compile_one(nn.Linear(2, 2))


def _fails(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    from torch._inductor import compile_fx

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(compile_fx, "compile_fx", fail)


def test_with_compiling_switched_off_it_is_said() -> None:
    with torch.compiler.set_stance("force_eager"), pytest.raises(InvalidParameter, match="told to compile nothing"):
        embedder("llama", "plain", compile=True)


ALL_AT_ONCE = """
import threading
from tests.comparison import embedder, loaded
loaded("llama")
found, errors = [], []
def make():
    try:
        found.append(embedder("llama", "plain", compile=True).encode_document("One text."))
    except Exception as error:
        errors.append(error)
threads = [threading.Thread(target=make) for _ in range(3)]
[each.start() for each in threads]
[each.join() for each in threads]
assert not errors and len(found) == 3 and all((each == found[0]).all() for each in found), errors
"""
FORKED = """
import os, torch
torch.set_num_threads(3)  # as many as the machine has processors is another case
from tests.comparison import embedder
from tests.test_contract import POOL
e = embedder("llama", "plain", compile=True)
before = e.encode_document(POOL)
child = os.fork()
if child == 0:
    torch.set_num_threads(1)  # more hang, compiled or not
    os._exit(int(abs(e.encode_document(POOL) - before).max() > 1e-5))
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("program", [ALL_AT_ONCE, FORKED])
def test_in_several_threads_and_processes(program: str) -> None:
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stderr
