"""Models that somebody else made: no code of theirs runs unasked, and files that describe no model are refused."""

from __future__ import annotations

import builtins
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from eddy_demo.library.settings import method_in_full
from eddy_demo.web.answers.write import CannotGenerate, Generator
from eddy_embed import Embedder
from eddy_embed.encoding.collapse import warn_of_collapse
from eddy_embed.encoding.encoder import VectorFinalizer
from eddy_embed.errors import EddyError, ModelNotFound, UnsupportedModel, ZeroVector
from eddy_embed.model.loading import inventory
from eddy_embed.model.loading.names import BUNDLED
from eddy_embed.model.loading.pretrained import read_backbone

CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaModel, PreTrainedTokenizerFast
Path({mark!r}).touch()
class Own(LlamaConfig):
    model_type = "own"
class OwnModel(LlamaModel):
    config_class = Own
class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""
MAP = {"AutoConfig": "own.Own", "AutoModel": "own.OwnModel", "AutoModelForCausalLM": "own.OwnModel"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the bundled model, to damage."""
    return Path(shutil.copytree(BUNDLED["eddy-tiny"], tmp_path / "model"))


def change(model: Path, name: str = "config.json", **entries: Any) -> None:
    file = model / name
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | entries), encoding="utf-8")


PATHS: dict[str, Any] = {
    "embedder": lambda model: Embedder(model),
    "named method": lambda model: Embedder(model, method="plain", dtype="float32", local_files_only=True),
    "configuration": read_backbone,
    "library": lambda model: method_in_full(str(model)),
    "generator": lambda model: Generator.load(str(model), None),
}


@pytest.mark.parametrize("of", ["model", "tokenizer"])
@pytest.mark.parametrize("path", PATHS)
def test_no_code_of_a_model_runs_unasked(
    model: Path, path: str, of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is anybody asked: an answer may wait on stdin, as in `yes | eddy-demo ingest`."""

    asked: list[str] = []
    monkeypatch.setattr(builtins, "input", lambda question="": asked.append(question) or "y")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    mark = tmp_path / "mark"
    (model / "own.py").write_text(CODE.format(mark=str(mark)), encoding="utf-8")
    if of == "model":
        change(model, model_type="own", auto_map=MAP)
    else:
        own = {"AutoTokenizer": [None, "own.OwnTokenizer"]}
        change(model, "tokenizer_config.json", auto_map=own, tokenizer_class="OwnTokenizer")
        change(model, model_type="arcee")  # whose tokenizer transformers does not name
    try:
        PATHS[path](model)
    except (EddyError, CannotGenerate) as error:
        assert of == "tokenizer" or "code" in str(error)
    else:
        assert of == "tokenizer"
    assert not asked and not mark.exists()


def test_code_of_a_model_runs_with_the_flag(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    mark = tmp_path / "mark"
    (model / "own.py").write_text(CODE.format(mark=str(mark)), encoding="utf-8")
    change(model, model_type="own", auto_map=MAP)
    backbone = read_backbone(model, trust_remote_code=True)
    assert mark.exists() and backbone.architecture == "own"


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "width": ({"hidden_size": 10**9}, "hidden_size=1000000000"),
    "a width beyond the weights": ({"hidden_size": 40_000}, "values, and the files there have"),
    "no heads": ({"num_attention_heads": 0}, "num_attention_heads=0"),
    "layers": ({"num_hidden_layers": 10**6}, "num_hidden_layers=1000000, and a model has 1 to 512"),
    "layers of a list": ({"model_type": "gemma3_text", "num_hidden_layers": 10**9}, "num_hidden_layers=1000000000"),
    "layers below": ({"text_config": {"num_hidden_layers": 10**9}}, "num_hidden_layers=1000000000"),
    "negative window": ({"max_position_embeddings": -3}, "max_position_embeddings=-3"),
    "vocabulary": ({"vocab_size": 10**10}, "vocab_size=10000000000"),
    "words": ({"hidden_size": "wide"}, "expected int, got str"),
    "activation": ({"hidden_act": "none"}, "KeyError: 'none'"),
    "kind": ({"model_type": [1]}, "unhashable type: 'list'"),
}


@pytest.mark.parametrize(("entries", "said"), HOSTILE.values(), ids=HOSTILE)
def test_sizes_that_no_model_has(model: Path, entries: dict[str, Any], said: str) -> None:
    change(model, **entries)
    with pytest.raises((ModelNotFound, UnsupportedModel)) as error:
        Embedder(model, method="plain:exit=2")
    assert said in str(error.value) and str(model)[-5:] in str(error.value)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer_config.json", "tokenizer.json", "modules.json", "adapter_config.json"]
)
def test_files_nested_without_end(model: Path, name: str) -> None:
    (model / name).write_text("[" * 200_000, encoding="utf-8")
    with pytest.raises(ModelNotFound, match="recursion"):
        Embedder(model, method="plain")
    if name == "config.json":
        found = inventory._in_folder("model", "folder", model, [])
        assert found.problem is not None and "RecursionError" in found.problem


@pytest.mark.parametrize(("value", "method"), [(0.0, "plain"), (0.25, "plain:exit=0")])
def test_constant_weights(model: Path, value: float, method: str) -> None:
    file = model / "model.safetensors"
    tensors = {name: torch.full_like(tensor, value) for name, tensor in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(UnsupportedModel, match="every token the same state"):
        Embedder(model, method=method, check=False)


def test_one_vector_for_all_texts(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that do nothing leave the last token as it was embedded, whatever stands before it."""
    monkeypatch.setattr("eddy_embed.embedder.warn_of_collapse", warn_of_collapse)
    file = model / "model.safetensors"
    layers = {name: tensor * ("layers." not in name) for name, tensor in load_file(file).items()}
    save_file(layers, file, metadata={"format": "pt"})
    with pytest.raises(UnsupportedModel, match="every text the same vector"):
        Embedder(model, method="prompteol", dtype="float32")


def test_a_vector_of_zeros_is_an_error() -> None:
    for finish in (VectorFinalizer(normalize=True), VectorFinalizer(normalize=False)):
        with pytest.raises(ZeroVector, match=r"text 7: .*zeros"):
            finish(np.stack([np.ones(4), np.zeros(4)]), 7)
