"""Compiled layers: they give what the model gives, for every method, or it is said why there are none."""

from __future__ import annotations

import gc
import shutil
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests import families
from tests.comparison import INSTRUCTION, TEXTS, embedder, expected, loaded
from tests.test_contract import EVERY, POOL, unchanged
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from eddy_embed import Embedder, compiled, tracing
from eddy_embed.attention import Traits
from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.sequence import pack, plain

# Nobody needs a compiler for anything else; .ci/run installs one.
pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="compiling layers needs g++")
RIGHT = 1e-5
"""Largest difference of a component in float32."""
TRAITS = [Traits(1.0, None, None)]
LARGE = [name for name in families.MORE_FAMILIES | families.ENCODERS if name not in (*families.T5S, "mpnet")]


@cache
def fast(family: str, method: str) -> Embedder:
    return embedder(family, method, compile=True)


def layers_of(e: Embedder) -> list[Any]:
    return list(e._pipeline.runner.host._stack)


@pytest.mark.parametrize("family", families.FAMILIES)
def test_vectors_are_the_references(family: str) -> None:
    model, tokenizer = loaded(family)
    with unchanged(model):
        for method in ("plain", "kv:layers=2-4"):
            e = Embedder(model, tokenizer=tokenizer, method=method, compile=True, query_instruction=INSTRUCTION)
            references = np.stack([expected(family, method, text, INSTRUCTION) for text in TEXTS])
            together, alone = e.encode_query(TEXTS), np.stack([e.encode_query(text) for text in TEXTS])
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
    assert all(type(layer) is not type(usual) for layer, usual in zip(layers_of(e), layers_of(own), strict=True))
    assert np.abs(e.encode_document(POOL) - own.encode_document(POOL)).max() <= RIGHT


@pytest.mark.parametrize("family", [*families.OWN_ATTENTION, *families.T5S, "mpnet"])
def test_attention_that_is_not_ours_is_refused(family: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"of its own, which cannot be compiled; leave compile=True out"):
        embedder(family, "plain", compile=True)


def test_layers_that_are_alike_share_kernels() -> None:
    assert len({layer.compiled.run for layer in layers_of(fast("llama", "plain"))}) == 1
    # One kind sees all that is behind, the other a window.
    kinds = [layer.compiled.run for layer in layers_of(fast("gemma2", "plain"))]
    assert len(set(kinds)) == 2 and kinds[0::2] == kinds[:1] * len(kinds[0::2]) and kinds[0] is not kinds[1]


def test_layers_taken_for_alike_that_are_not_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_kind", lambda layer: type(layer))
    with pytest.raises(UnsupportedModel, match=r"layer 2 gives something else compiled.*leave compile=True out"):
        embedder("gemma2", "plain", compile=True)


def test_weights_of_another_layer_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[Any] = []
    right = tracing.Kernels.of

    def first(kernels: tracing.Kernels, layer: nn.Module) -> Any:
        bound.append(right(kernels, layer))
        return bound[0]

    monkeypatch.setattr(tracing.Kernels, "of", first)
    with pytest.raises(UnsupportedModel, match="layer 2 gives something else compiled"):
        embedder("llama", "plain", compile=True)


def test_plain_values_alone_are_compared() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    assert compiled._kind(one) == compiled._kind(other)
    one.scale, other.scale = 1, True  # equal in Python
    assert compiled._kind(one) != compiled._kind(other)
    other.scale = 1
    one.gate = other.gate = torch.relu
    assert compiled._kind(one) == compiled._kind(other)
    other.gate = torch.tanh
    assert compiled._kind(one) != compiled._kind(other)
    assert compiled._kind(one) != compiled._kind(nn.Linear(2, 2, dtype=torch.float64))


def test_one_token_and_gradients_go_through_the_layers_themselves() -> None:
    ours, own = (each._pipeline.runner.host for each in (fast("llama", "plain"), embedder("llama", "plain")))
    lone, several = (pack([plain(np.arange(3, 3 + length))]) for length in (1, 9))
    found, usual = (host.run(lone, range(0), None) for host in (ours, own))
    assert torch.equal(found, usual)
    gradients = []
    for host in (ours, own):
        leaves: list[torch.Tensor] = []
        host.run(several, range(0), None, leaves=leaves).sum().backward()
        gradients.append(leaves[0].grad)
    assert torch.equal(*gradients) and gradients[0].abs().max() > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_laid_out_for_products_stay_so(dtype: str) -> None:
    own, e = (Embedder("eddy-tiny", method="htp", dtype=dtype, compile=each) for each in (False, True))
    laid = [[p.is_mkldnn for p in host.parameters()] for host in (*layers_of(own), *layers_of(e))]
    assert all(each == laid[0] for each in laid)
    assert e.fingerprint == own.fingerprint
    difference = np.abs(e.encode_document(TEXTS) - own.encode_document(TEXTS)).max()
    assert difference <= (RIGHT if dtype == "float32" else 2e-2)


class _Counted(TorchDispatchMode):
    """How many of torch's operations run."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return function(*args, **(kwargs or {}))


def test_a_pass_has_half_of_the_operations() -> None:
    counts = []
    for e in (fast("llama", "plain"), embedder("llama", "plain")):
        e.encode_document(TEXTS[0])
        with _Counted() as counted:
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
        compiled.compile_layers("Model", layers, lambda _: None, traits=TRAITS, coarse=False)


def test_layers_that_run_more_than_once_are_refused() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(UnsupportedModel, match="Model runs its 1 layers 2 times in a pass"):
        compiled.compile_layers(
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


_FAR = torch.ones(2)


@pytest.mark.parametrize(
    "kind, words",
    [(_Deciding, "its layers cannot be compiled"), (_Remembering, "its layers read or give more than states")],
)
def test_layers_that_cannot_be_compiled_are_named(kind: type[nn.Module], words: str) -> None:
    layer = kind()
    with torch.inference_mode(), pytest.raises(UnsupportedModel, match=f"Model: {words}.*leave compile=True out"):
        compiled.compile_layers(
            "Model", [layer], lambda tokens: layer(torch.ones(1, tokens, 2)), traits=TRAITS, coarse=False
        )
