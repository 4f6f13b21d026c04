"""On a CUDA device: vectors are the reference's, and everything that holds on a processor holds there.

    pytest -m device

These fail where there is no such device; elsewhere `test_elsewhere` holds that nothing is left behind on either side.
"""

from __future__ import annotations

import copy
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from accelerate import dispatch_model
from tests import families, gguf_files
from tests.comparison import CALIBRATION, METHODS, TEXTS, exact, expected
from tests.reference.double import AllDouble, double
from tests.test_contract import POOL, unchanged
from tests.test_packed import random_blocks
from tests.test_reranker import QUESTION
from tests.test_reranker import TEXTS as PASSAGES
from tests.test_reranker import expected as likelihood

from eddy_embed import Embedder, Reranker
from eddy_embed.errors import UnsupportedModel
from eddy_embed.model import attention, packed
from eddy_embed.model.attention.blocked import AttentionSpec
from eddy_embed.model.attention.kernels import DeviceInfo, choose
from eddy_embed.model.packed import FORMATS, BlockFormat
from eddy_embed.parts.attention import ExtraKeyValues

pytestmark = pytest.mark.device

CUDA = "cuda"
SAME = 1e-5
"""Relative difference that kernels which round otherwise may make to vectors in float32."""
EVERYWHERE = (
    "plain",
    "tp:prompt=prompteol,range=2-5,exit=-1",
    "htp:range=1-4,exit=-1",
    "kv:layers=2-4",
    "echo",
    "reba:pool=mean,piece=7+tempscale:tau=0.6",
)
"""Methods that are tried on every family."""
COARSE = [("gpt_oss", "kv:layers=2-4", "bfloat16")]
"""Refused when the method is prepared, as on a processor: rounding has random experts chosen otherwise."""
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}


@pytest.fixture(scope="session", autouse=True)
def device() -> None:
    if not torch.cuda.is_available():
        pytest.fail("torch finds no CUDA device here; leave `-m device` out")


@cache
def loaded(family: str, place: str, dtype: str) -> tuple[Any, Any]:
    """A model of a family on a device, in a type, and its tokenizer."""
    model, tokenizer = families.build(family)
    own = double(model) if dtype == "float64" else model
    return copy.deepcopy(own).to(place, DTYPES[dtype]), tokenizer


def vectors(family: str, method: str, place: str, dtype: str) -> np.ndarray:
    """Of the texts as questions, in one call."""
    model, tokenizer = loaded(family, place, dtype)
    e = Embedder(model, tokenizer=tokenizer, method=method)
    if e.method.post is not None and e.method.post.learns:
        if dtype != "float64":
            e.fit(*CALIBRATION)
        else:
            with AllDouble():
                e.fit(*CALIBRATION)
    return exact(e, TEXTS, "query") if dtype == "float64" else e.encode_query(TEXTS)


def distance(found: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(found - reference) / np.linalg.norm(reference))


def check(family: str, method: str, dtype: str) -> None:
    """Near the reference, by what the processor's own vectors of this type are away from it."""
    if (family, method, dtype) in COARSE:
        for place in ("cpu", CUDA):
            with pytest.raises(UnsupportedModel, match="differs here from the blocked kernel"):
                vectors(family, method, place, dtype)
        return
    reference = np.stack([expected(family, method, text) for text in TEXTS])
    found = distance(vectors(family, method, CUDA, dtype), reference)
    if dtype == "float64":
        assert found <= 1e-9
    else:
        assert found <= max(SAME, 4 * distance(vectors(family, method, "cpu", dtype), reference))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: str, dtype: str) -> None:
    check("llama", method, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", EVERYWHERE)
@pytest.mark.parametrize("family", [*families.FAMILIES, *families.MORE_FAMILIES, *families.OWN_ATTENTION])
def test_every_family(family: str, method: str, dtype: str) -> None:
    if family in families.OWN_ATTENTION and method.startswith(("kv", "reba")):
        with pytest.raises(UnsupportedModel, match="computes its attention itself"):
            vectors(family, method, CUDA, dtype)
    else:
        check(family, method, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", families.ENCODERS)
def test_every_encoder(family: str, dtype: str) -> None:
    check(family, "plain", dtype)


@pytest.mark.parametrize(
    ("family", "method", "dtype"),
    [
        case
        for case in product(("llama", "gemma2", "mistral", "gpt_oss"), EVERYWHERE, ("float32", "bfloat16"))
        if case not in COARSE
    ],
)
def test_company_changes_nothing_and_the_model_is_left_as_it_was(family: str, method: str, dtype: str) -> None:
    model, tokenizer = loaded(family, CUDA, dtype)
    texts = [*POOL, POOL[0] * 20]
    with unchanged(model):
        e = Embedder(model, tokenizer=tokenizer, method=method)
        together = e.encode_document(texts)
        alone = np.stack([e.encode_document(text) for text in texts])
    assert e.device == "cuda:0"
    # Kernels for other shapes of a product round otherwise, and rounding may have experts chosen otherwise.
    allowed = 1e-3 if family == "gpt_oss" else SAME
    if dtype != "float32":
        exactly = Embedder(loaded(family, CUDA, "float32")[0], tokenizer=tokenizer, method=method)
        allowed = 2 * distance(alone, exactly.encode_document(texts))
    assert distance(together, alone) <= allowed


@pytest.mark.parametrize("name", [*families.FAMILIES, *families.MORE_FAMILIES])
def test_likelihoods(name: str) -> None:
    model, tokenizer = loaded(name, CUDA, "float32")
    found = Reranker(model, tokenizer=tokenizer).scores(QUESTION, PASSAGES[:2])
    np.testing.assert_allclose(found, [likelihood(name, QUESTION, text) for text in PASSAGES[:2]], atol=1e-4)


# --- kernels

OPEN = AttentionSpec(0.1, None, None)
SPECS = [
    OPEN,
    AttentionSpec(0.1, None, 100),
    AttentionSpec(0.1, None, 1),
    AttentionSpec(0.1, 8.0, None),
    AttentionSpec(0.1, None, 100, sinks=True),
    AttentionSpec(0.1, None, None, causal=False),
    AttentionSpec(0.1, None, 100, causal=False),
]
LENGTHS = [1, 37, 128, 129, 37, 1000, 2048]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", [64, 80, 128, 256])
@pytest.mark.parametrize("reroute", [None, ExtraKeyValues((1,), 0.5, 3)])
@pytest.mark.parametrize("spec", SPECS)
def test_kernels_are_the_blocked_one(
    spec: AttentionSpec, reroute: ExtraKeyValues | None, width: int, dtype: str
) -> None:
    """Outputs, and through extra entries and sinks the denominators."""
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)])
    generator = torch.Generator(CUDA).manual_seed(width)
    shapes = [(1, heads, int(offsets[-1]), width) for heads in (8, 2, 2)]
    states = [torch.randn(shape, generator=generator, device=CUDA).to(DTYPES[dtype]) * 2 for shape in shapes]
    sinks = torch.randn(8, generator=generator, device=CUDA) if spec.sinks else None
    place = torch.device(CUDA, 0)
    kernels = choose(spec, DeviceInfo.of(states[0], states[2]), reroute is not None)
    windows = [spec.window] if spec.window else []
    groups = attention.blocked.group(offsets, None, windows, not spec.causal, place, kernels.in_one_row)
    got = attention.kernels.attend(*states, groups, spec, kernels, reroute, sinks=sinks)
    plain = attention.blocked.group(offsets, None, windows, not spec.causal, place)
    right = attention.kernels.attend(
        *(each.double() for each in states), plain, spec, attention.kernels.BLOCKED, reroute, sinks=sinks
    )
    assert kernels != attention.kernels.BLOCKED or spec.cap or not spec.causal
    assert (got.double() - right).norm() <= {"float32": 1e-5, "bfloat16": 4e-3}[dtype] * right.norm()


@pytest.mark.parametrize("kernel", ["flash", "efficient", "varlen"])
def test_denominators(kernel: str) -> None:
    generator = torch.Generator(CUDA).manual_seed(0)
    query, key, value = (
        torch.randn(2, heads, 700, 128, generator=generator, device=CUDA).bfloat16() for heads in (8, 2, 2)
    )
    (members,) = attention.blocked.group(np.array([0, 700, 1400]), device=torch.device(CUDA, 0))
    out, lse = getattr(attention.kernels, kernel)(query, key, value, OPEN, members)
    right, exactly = attention.kernels.blocked(*(each.double() for each in (query, key, value)), OPEN, 1.0)
    assert (out.double() - right).norm() <= 4e-3 * right.norm()
    assert (lse.double() - exactly).abs().max() <= 1e-4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("family", "fused"), [("llama", 13), ("qwen3", 25), ("gpt_oss", 13), ("gemma2", 0), ("gpt2", 0)]
)
def test_norms_that_one_kernel_computes(family: str, fused: int, dtype: str) -> None:
    """Those of the usual definition; Gemma adds 1 to the weight."""
    model, tokenizer = loaded(family, CUDA, dtype)
    view = Embedder(model, tokenizer=tokenizer, method="plain")._pipeline.open_runner.host._view
    found = [module for module in view.modules() if "forward" in vars(module)]
    assert len(found) == fused
    assert not any("forward" in vars(module) for module in model.modules())


# --- packed weights


@pytest.mark.parametrize("kind", FORMATS.values(), ids=lambda kind: kind.name)
def test_packed_values_have_the_processors_bits(kind: BlockFormat) -> None:
    raw = torch.from_numpy(random_blocks(kind, rows=37, blocks=max(1024 // kind.values, 3)))
    ours, right = kind.unpack(raw.to(CUDA)).cpu(), kind.unpack(raw)
    assert torch.equal(ours.view(torch.int32), right.view(torch.int32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "Q8_0") for name in gguf_files.FAMILIES), ("llama", "Q4_1"), ("qwen2", "Q4_K")]
)
def test_a_gguf_file(name: str, kind: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights lie packed on the card; tiles there are smaller than a matrix too."""
    monkeypatch.setattr(packed, "DEVICE_TILE", 4096)
    recipe, path = gguf_files.FAMILIES[name], tmp_path / "x.gguf"
    gguf_files.write(path, gguf_files.wide(recipe) if kind == "Q4_K" else recipe, kind)
    for method in ("plain", "htp:range=1-2,exit=-1"):
        found = {}
        for place, of in ((CUDA, dtype), ("cpu", dtype), ("cpu", "float32")):
            with Embedder(str(path), method=method, device=place, dtype=of) as e:
                found[place, of] = e.encode_document(TEXTS)
        rounding = distance(found["cpu", dtype], found["cpu", "float32"])
        assert distance(found[CUDA, dtype], found["cpu", "float32"]) <= max(SAME, 4 * rounding)


# --- a shape of today


@pytest.fixture(scope="module")
def mistral() -> Any:
    """Layers of the shape of Mistral-7B, with random weights."""
    config = transformers.MistralConfig(vocab_size=32_000, num_hidden_layers=6, sliding_window=None)
    with torch.device(CUDA):
        torch.manual_seed(0)
        model = transformers.MistralForCausalLM._from_config(config, dtype=torch.bfloat16)
    return model.eval()


@pytest.mark.parametrize("method", EVERYWHERE)
def test_a_model_that_device_map_spreads(method: str, mistral: Any, tmp_path: Path) -> None:
    """Some layers on the card, the others fetched there for each pass, or on the processor."""
    tokenizer = families.build("mistral")[1]
    options: dict[str, Any] = {"tokenizer": tokenizer, "method": method}
    whole = Embedder(mistral, **options).encode_document(TEXTS)
    inside = {"model.embed_tokens": 0, "model.norm": 0, "model.rotary_emb": 0, "lm_head": 0}
    layers = {f"model.layers.{index}": 0 if index < 3 else "cpu" for index in range(6)}
    spread = dispatch_model(copy.deepcopy(mistral), inside | layers, main_device=CUDA)
    # Norms whose weights are fetched are computed by the model's own class.
    assert distance(Embedder(spread, **options).encode_document(TEXTS), whole) <= 1e-2


def test_a_model_opened_on_the_card_by_its_name(mistral: Any, tmp_path: Path) -> None:
    mistral.save_pretrained(tmp_path)
    tokenizer = families.build("mistral")[1]
    tokenizer.save_pretrained(tmp_path)
    expected_vectors = Embedder(mistral, tokenizer=tokenizer, method="htp").encode_document(TEXTS)
    for named in ({"device": CUDA}, {}, {"model_kwargs": {"device_map": "auto"}}):
        with Embedder(str(tmp_path), method="htp", dtype="bfloat16", **named) as e:
            assert e.device == "cuda:0"
            assert distance(e.encode_document(TEXTS), expected_vectors) <= 1e-6
