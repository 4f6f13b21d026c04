"""Models by name: loaded up to the exit and no further, in the precision asked for, or refused with the reason."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests import families
from tests.comparison import TEXTS, embedder
from tests.selection import each_once
from transformers import AutoModel, AutoTokenizer

from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter, ModelNotFound, UnsupportedModel
from eddy_embed.model import devices

METHOD = "htp:range=1-3,exit=3"
LAYER_SHARDS = [f"layer{index}" for index in range(families.LAYERS)]


def write(folder: Path, family: str, *, leave_out: str = "") -> Path:
    """A checkpoint with a shard for each layer and one for every other tensor."""
    model, tokenizer = families.build(family)
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    shards: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in model.state_dict().items():
        inside = [part for part in name.split(".") if part.isdigit()]
        if not (leave_out and leave_out in name):
            shards.setdefault(f"layer{inside[0]}" if inside else name, {})[name] = tensor.clone()
    for shard, tensors in shards.items():
        save_file(tensors, folder / f"{shard}.safetensors", metadata={"format": "pt"})
    where = {name: f"{shard}.safetensors" for shard, tensors in shards.items() for name in tensors}
    index = {"metadata": {"total_size": 1}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {family: write(tmp_path_factory.mktemp(family), family) for family in families.FAMILIES}


@pytest.fixture
def llama(checkpoints: dict[str, Path], tmp_path: Path) -> Path:
    """A checkpoint of its own, to be damaged."""
    return Path(shutil.copytree(checkpoints["llama"], tmp_path / "llama"))


def poison(folder: Path, shards: list[str]) -> None:
    """Overwrites the data of shards with not-a-numbers; their headers stay valid."""
    for shard in shards:
        path = folder / f"{shard}.safetensors"
        content = path.read_bytes()
        header = 8 + int.from_bytes(content[:8], "little")
        path.write_bytes(content[:header] + b"\xff" * (len(content) - header))


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


def test_what_is_above_the_exit_may_be_rubbish(llama: Path) -> None:
    expected = embedder("llama", METHOD).encode_document(TEXTS)
    poison(llama, [*LAYER_SHARDS[3:], "lm_head.weight", "model.norm.weight"])
    assert np.array_equal(Embedder(llama, method=METHOD).encode_document(TEXTS), expected)
    with pytest.raises(Exception, match="NaN"):
        Embedder(llama, method="plain")
    poison(llama, LAYER_SHARDS[2:3])
    with pytest.raises(Exception, match="NaN"):
        Embedder(llama, method=METHOD)


# --- what cannot be loaded


def test_missing_tensors_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, "llama", leave_out="layers.1.mlp.up_proj")
    with pytest.raises(UnsupportedModel, match=r"1 tensors are missing .*layers\.1\.mlp\.up_proj.*random weights"):
        Embedder(folder, method="plain")
    assert Embedder(folder, method="plain:exit=1").encode_document("a").shape == (families.HIDDEN,)


def test_tensors_of_another_shape_are_refused(llama: Path) -> None:
    path = llama / "layer1.safetensors"
    model, _ = families.build("llama")
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items() if "layers.1." in name}
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 3)
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(UnsupportedModel, match=r"1 tensors are missing .* another shape, .*up_proj"):
        Embedder(llama, method="plain")


@pytest.mark.parametrize("content", [b"", b"rubbish", None])
def test_damaged_shards_are_an_error_of_ours(llama: Path, content: bytes | None) -> None:
    path = llama / "layer1.safetensors"
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(ModelNotFound, match=r"weights of .*llama.* could not be read"):
        Embedder(llama, method="plain")


@pytest.mark.parametrize("damage", ["config.json", "tokenizer.json", "layer0.safetensors"])
def test_incomplete_folders_are_not_found(llama: Path, damage: str) -> None:
    (llama / damage).unlink()
    (llama / "tokenizer_config.json").unlink()
    with pytest.raises((ModelNotFound, UnsupportedModel), match=r"llama"):
        Embedder(llama, method="plain")


def test_models_that_are_not_there() -> None:
    for name, message in (
        *((name, f"no model at '{name}'") for name in ("/no/such/folder", "./no-such-folder", "a/b/c")),
        ("~/no-such-folder", "no model at"),
        ("no-such-model", "could not be opened: it is not on this machine, and .* `eddy models` lists"),
        ("no-such-organisation/no-such-model", "could not be opened: it is not on this machine"),
        ("eddy_tiny", r"could not be opened: .*; did you mean 'eddy-tiny'\?$"),
        ("SmolLM2", r"did you mean 'smollm2'\?$"),
        ("spaces and ?", "could not be opened"),
        *((name, f"the model's name is '{name}', blank") for name in ("", " ")),
    ):
        with pytest.raises(ModelNotFound, match=message):
            Embedder(name, method="plain")


# --- precision


def test_float16_on_a_processor_is_refused(checkpoints: dict[str, Path]) -> None:
    with pytest.raises(InvalidParameter, match=r"float16.*bfloat16"):
        Embedder(checkpoints["llama"], method="plain", dtype="float16", device="cpu")
    with pytest.raises(InvalidParameter, match="dtype='int4' is unknown; choose auto"):
        Embedder(checkpoints["llama"], method="plain", dtype="int4")


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
    with pytest.raises(InvalidParameter, match="EDDY_DTYPE='int4' is unknown"):
        chosen(single)
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


@pytest.mark.parametrize("method", ["plain", "htp", "prompteol", "kv:layers=2-4"])
def test_layers_read_side_by_side_are_those_of_passes_that_end_there(method: str) -> None:
    top = families.LAYERS
    joined = "," if ":" in method else ":"
    exits = (0, 2, 3, top) if method == "plain" else (3, top)  # copies and re-routing end below earlier exits
    e = embedder("llama", f"{method}{joined}exit={top}", normalize=False)
    pipeline = replace(e._pipeline, runner=e._pipeline.open_runner.at_layers(exits))
    together = np.stack([vector for _, vector in pipeline.vectors(TEXTS, "document")])
    for part, exit_layer in zip(np.split(together, len(exits), axis=1), exits, strict=True):
        alone = embedder("llama", f"{method}{joined}exit={exit_layer}", normalize=False).encode_document(TEXTS)
        assert np.abs(part - alone).max() <= 1e-5 * np.abs(alone).max()
