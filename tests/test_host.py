"""Models by name: loaded up to the exit and no further, in the precision asked for, or refused with the reason."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests import families
from tests.comparison import TEXTS, embedder
from tests.selection import each_once
from transformers import AutoModel, AutoTokenizer

from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter, ModelNotFound, UnsupportedModel
from eddy_embed.model import devices

METHOD = "htp:range=1-3,exit=3"


def write(folder: Path, family: str, change: Callable[[dict[str, torch.Tensor]], object] = dict) -> Path:
    """A model's folder; `change` gets the tensors by name."""
    model, tokenizer = families.build(family)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {family: write(tmp_path_factory.mktemp(family), family) for family in families.FAMILIES}


@pytest.fixture
def llama(checkpoints: dict[str, Path], tmp_path: Path) -> Path:
    """A checkpoint of its own, to be damaged."""
    return Path(shutil.copytree(checkpoints["llama"], tmp_path / "llama"))


# --- up to the exit


@pytest.mark.parametrize(
    ("family", "method"), each_once(families.FAMILIES, ["plain", METHOD, "plain:exit=0", "prompteol:exit=1"])
)
def test_a_loaded_checkpoint_equals_the_model_in_memory(family: str, method: str, checkpoints: dict[str, Path]) -> None:
    loaded, shared = Embedder(checkpoints[family], method=method), embedder(family, method)
    assert np.array_equal(loaded.encode_document(TEXTS), shared.encode_document(TEXTS))
    assert loaded.fingerprint == shared.fingerprint
    assert loaded.explain("a").bytes == shared.explain("a").bytes


@pytest.mark.parametrize("family", families.FAMILIES)
def test_layers_above_the_exit_are_never_read(family: str, checkpoints: dict[str, Path], read: set[str]) -> None:
    Embedder(checkpoints[family], method=METHOD)
    layers = {int(part) for name in read for part in name.split(".") if part.isdigit()}
    assert layers == {0, 1, 2}
    assert not any("lm_head" in name for name in read)
    read.clear()
    Embedder(checkpoints[family], method="plain")
    assert {int(part) for name in read for part in name.split(".") if part.isdigit()} == set(range(families.LAYERS))


@pytest.mark.parametrize(("family", "exit_layer"), each_once(["llama", "gpt2", "bloom", "bert"], [0, 1]))
def test_no_layer_runs_where_the_embeddings_are_read(family: str, exit_layer: int) -> None:
    model, tokenizer = families.build(family)
    e = Embedder(model, tokenizer=tokenizer, method=f"plain:exit={exit_layer}")
    ran: list[int] = []
    for layer in e._pipeline.open_runner.host._stack:
        layer.register_forward_hook(lambda *_: ran.append(1))
    e.encode_document(TEXTS)
    assert bool(ran) == bool(exit_layer)
    assert len(e.explain(TEXTS[0]).kernels) == exit_layer


# --- what cannot be loaded


UP = "model.layers.1.mlp.up_proj.weight"


def test_tensors_that_are_missing_or_of_another_shape_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "llama", lambda tensors: tensors.pop(UP))
    with pytest.raises(UnsupportedModel, match=r"1 tensors are missing .*layers\.1\.mlp\.up_proj.*random weights"):
        Embedder(tmp_path, method="plain")
    assert Embedder(tmp_path, method="plain:exit=1").encode_document("a").shape == (families.HIDDEN,)
    write(tmp_path, "llama", lambda tensors: tensors.update({UP: torch.zeros(3, 3)}))
    with pytest.raises(UnsupportedModel, match=r"1 tensors are missing .* another shape, .*up_proj"):
        Embedder(tmp_path, method="plain")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("model.safetensors", content) for content in (b"rubbish" * 10**5, slice(-100))),
        *((name, None) for name in ("config.json", "tokenizer.json", "model.safetensors")),
    ],
)
def test_files_that_are_damaged_or_missing_are_an_error_of_ours(
    llama: Path, name: str, content: bytes | slice | None
) -> None:
    (llama / name).write_bytes((llama / name).read_bytes()[content] if isinstance(content, slice) else content or b"")
    if content is None:
        (llama / name).unlink()
        (llama / "tokenizer_config.json").unlink()
    said = r"weights of .*llama.* could not be read" if content is not None else "llama"
    with pytest.raises((ModelNotFound, UnsupportedModel), match=said):
        Embedder(llama, method="plain")


def test_models_that_are_not_there() -> None:
    for name, message in (
        *((name, "no model at") for name in ("./no-such-folder", "a/b/c", "~/no-such-folder")),
        ("no-such-model", "could not be opened: it is not on this machine, and .* `eddy models` lists"),
        ("no-such-organisation/no-such-model", "could not be opened: it is not on this machine"),
        ("SmolLM2", r"did you mean 'smollm2'\?$"),
        ("spaces and ?", "could not be opened"),
        *((name, f"the model's name is '{name}', blank") for name in ("", " ")),
    ):
        with pytest.raises(ModelNotFound, match=message):
            Embedder(name, method="plain")


# --- precision


def test_what_a_processor_chooses(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half precision for what comes in it, and where the processor multiplies in it; never float16."""
    single = checkpoints["llama"]
    for name, kind in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        AutoModel.from_pretrained(single, dtype=kind).save_pretrained(tmp_path / name)
        AutoTokenizer.from_pretrained(single).save_pretrained(tmp_path / name)

    def chosen(model: Path, **given: Any) -> str:
        return Embedder(model, method="plain", **given).explain("a").dtype

    monkeypatch.delenv(devices.DTYPE)
    for native in (True, False):
        monkeypatch.setattr(devices, "multiplies_bfloat16", lambda native=native: native)
        half = "bfloat16" if native else "float32"
        assert chosen(single) == "float32"
        assert chosen(tmp_path / "bfloat16") == chosen(tmp_path / "float16") == half
    monkeypatch.setenv(devices.DTYPE, "bfloat16")
    assert chosen(single) == "bfloat16" and chosen(single, dtype="float32") == "float32"
    monkeypatch.setenv(devices.DTYPE, "int4")
    for asked, said in (
        ({}, "EDDY_DTYPE='int4' is unknown"),
        ({"dtype": "int4"}, "dtype='int4' is unknown; choose auto"),
        ({"dtype": "float16", "device": "cpu"}, r"float16.*bfloat16"),
    ):
        with pytest.raises(InvalidParameter, match=said):
            chosen(single, **asked)
    monkeypatch.undo()
    if Path("/proc/cpuinfo").exists():
        assert devices.multiplies_bfloat16() == (" avx512_bf16 " in Path("/proc/cpuinfo").read_text())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_may_be_zeros(dtype: torch.dtype) -> None:
    """As that of padding is before it is trained; then all of its states are, and they differ by nothing."""
    model, tokenizer = families.build("llama")
    model = copy.deepcopy(model).to(dtype)
    with torch.no_grad():
        model.get_input_embeddings().weight[0] = 0
    assert np.isfinite(Embedder(model, tokenizer=tokenizer, method="plain").encode_document(TEXTS)).all()
