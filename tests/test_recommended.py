"""`recommended`: what it stands for on a model, by its shape, and that the full text takes its place everywhere."""

from __future__ import annotations

import importlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from tests import families
from tests.command_line import run
from tests.comparison import TEXTS, loaded

from chroma_eddy import EddyEmbeddingFunction
from eddy_embed import Embedder, methods
from eddy_embed.errors import IncompatibleMethods, InvalidParameter, ModelNotFound
from eddy_embed.methods.recommended import Recommendation
from eddy_embed.model.backbone import Backbone, Pooling
from eddy_embed.model.loading.names import BUNDLED
from eddy_embed.model.loading.pretrained import read_backbone
from langchain_eddy import EddyEmbeddings
from llama_index.embeddings.eddy import EddyEmbedding

# The package's attribute of this name is the method.
table = importlib.import_module("eddy_embed.methods.recommended")
TINY = "plain:exit=0+sif+filter"
SMOLLM2 = Backbone("llama", 30, 576, 49152, 8192)
GEMMA = Backbone("gemma3_text", 18, 640, 262144, 32768)
SHALLOW_BEST = 'plain:exit=1+sif+layeravg:layers="0"+standardise'
SMOLLM2_BEST = 'plain:exit=7+sif+layeravg:layers="0,3,5"+standardise'
OTHER = Backbone("qwen3", 28, 1024, 151936, 32768)
SHALLOW = Backbone("qwen3", 6, 1024, 151936, 32768)
TRAINED = Backbone("llama", 30, 576, 49152, 8192, Pooling("mean", "mean"))
BERT = Backbone("bert", 12, 768, 30522, 512)


def done(capsys, monkeypatch, *arguments: str) -> tuple[str, str]:
    """Standard output and standard error of a command that succeeds."""
    code, out, err = run(capsys, monkeypatch, *arguments)
    assert not code, err
    return out, err


@pytest.mark.parametrize(
    ("model", "text", "meant"),
    [
        (SMOLLM2, "recommended", SMOLLM2_BEST),
        (SMOLLM2, "best", SMOLLM2_BEST),
        (SMOLLM2, "fast", "plain:exit=0+sif+filter"),
        (SMOLLM2, "recommended:use=similarity", "prompteol:exit=-2"),
        (GEMMA, "recommended", 'plain:exit=4+sif+layeravg:layers="0,2,3"+standardise'),
        (GEMMA, "recommended:use=similarity+whiten", "echo:exit=-2+whiten"),
        (OTHER, "recommended", 'plain:exit=7+sif+layeravg:layers="0,3,4"+standardise'),
        (SHALLOW, "recommended", SHALLOW_BEST),
        (OTHER, "recommended:use=similarity", "plain:exit=0+sif+filter"),
        (TRAINED, "recommended", "plain"),
        (TRAINED, "recommended:use=similarity", "plain"),
        (BERT, "recommended", "plain:exit=0+sif"),
        (BERT, "recommended:use=similarity", "plain"),
        (SMOLLM2, "whiten+fast+start:token=none", "whiten+plain:exit=0+sif+filter+start:token=none"),
        (SMOLLM2, "best+readout:pool=weighted", f"{SMOLLM2_BEST}+readout:pool=weighted"),
    ],
)
def test_it_stands_for_the_method_of_the_models_shape(model: Backbone, text: str, meant: str) -> None:
    resolved = methods.resolve(methods.parse(text), model)
    assert str(resolved) == meant and resolved.recommended is None
    assert resolved == methods.resolve(methods.parse(meant), model)


def test_what_does_not_go_with_it_is_refused_once_the_model_is_known() -> None:
    with pytest.raises(IncompatibleMethods, match=r'layeravg:layers="0,3,5"\+standardise and cot both set readout'):
        methods.resolve(methods.parse("recommended+cot"), SMOLLM2)
    with pytest.raises(InvalidParameter, match="use='search' is unknown; choose one of retrieval, fast, similarity"):
        methods.recommended("search")


@pytest.mark.parametrize("shape", table._OWN)
def test_every_entry_runs_on_its_shape(shape: tuple[str, int, int, int]) -> None:
    backbone = Backbone(*shape, window=2048)
    for use, chosen in methods.entry_for(backbone).uses.items():
        for text in (chosen.method, chosen.baseline, chosen.fitted):
            methods.resolve(methods.parse(text), backbone)
        assert use == "similarity" or methods.parse(chosen.method).can_embed_spans


RESULTS = {"smollm2": SMOLLM2, "gemma-3-270m": GEMMA}


@pytest.mark.parametrize("model", RESULTS)
def test_the_scores_of_an_entry_are_those_that_were_measured(model: str, root: Path) -> None:
    told = json.loads((root / "benchmarks" / "results" / f"{model}.json").read_text(encoding="utf-8"))
    measured = {(row["system"], row["task"]): row["scores"] for row in told["outcomes"]}
    uses = methods.entry_for(RESULTS[model]).uses
    searched = json.loads((root / "benchmarks" / "results" / "search.json").read_text(encoding="utf-8"))
    layers, none = (searched.get(name, {}).get("manuals") for name in (model, f"{model} fast"))
    hybrid = [round(part["scores"]["hybrid"][0], 3) for part in (layers, none) if part]
    assert uses.pop("retrieval").scores == ({"manuals, mrr@10, hybrid": tuple(hybrid)} if hybrid else {})
    for chosen in uses.values():
        ((measure, scores),) = chosen.scores.items()
        task, metric = measure.split(", ")
        baseline = f"{chosen.baseline}+{chosen.post}" if chosen.post else chosen.baseline
        assert scores == tuple(round(measured[system, task][metric][0], 3) for system in (chosen.fitted, baseline))
        assert scores[0] > scores[1]


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "t5"])
def test_models_without_an_entry_run_the_generic_one(family: str) -> None:
    model, tokenizer = loaded(family)
    for use in table.USES:
        embedder = Embedder(model, tokenizer=tokenizer, method=f"recommended:use={use}")
        assert np.isfinite(embedder.encode_document(TEXTS)).all()
    embedder = Embedder(model, tokenizer=tokenizer)
    assert str(embedder.method) == ("plain:exit=0+sif" if family in families.ENCODERS else SHALLOW_BEST)
    assert len(embedder.encode_long("One. Two. " * 9).sentences) == 18


def test_an_embedder_without_a_method_takes_it_and_holds_the_full_text() -> None:
    embedder, named = Embedder("eddy-tiny"), Embedder("eddy-tiny", method=TINY)
    assert str(embedder.method) == TINY and embedder.method == named.method
    assert embedder.settings == named.settings and embedder.fingerprint == named.fingerprint
    assert Embedder("eddy-tiny", method=None).fingerprint == named.fingerprint
    assert np.array_equal(embedder.encode_document(TEXTS), named.encode_document(TEXTS))
    assert embedder.backbone == read_backbone("eddy-tiny")
    said = f"Embedder('eddy-tiny', method='{TINY}', dimension=320, device='cpu', dtype='{embedder.dtype}')"
    assert repr(embedder) == said
    embedder.close()
    assert repr(embedder) == f"Embedder('eddy-tiny', method='{TINY}', dimension=320, closed)"
    fitted = Embedder("eddy-tiny", method="recommended+whiten")
    fitted.fit(["The ferry leaves at noon.", "Dogs travel for free.", "Bread needs flour."])
    assert str(fitted.method) == f"{TINY}+whiten" and str(fitted.with_post(None).method) == TINY


@pytest.mark.parametrize("kind", [EddyEmbedding, EddyEmbeddings])
def test_adapters_without_a_method_hold_the_full_text(kind: type, monkeypatch) -> None:
    own = kind(model_name="eddy-tiny")
    assert own.method == TINY == EddyEmbeddingFunction("eddy-tiny").get_config()["method"]
    assert all(kind(model_name="eddy-tiny", method=same).embedder is own.embedder for same in (TINY, None))
    assert kind.from_embedder(Embedder("eddy-tiny")).method == TINY
    model, tokenizer = loaded("llama")
    assert kind.from_model(model, tokenizer).method == SHALLOW_BEST
    # Another table changes what is new, and nothing that is there.
    packed, copied = pickle.dumps(own), own.__copy__()
    entry = table.ModelRecommendation("for this test", *[Recommendation("plain")] * 3)
    monkeypatch.setitem(table._OWN, ("llama", 8, 320, 8192), entry)
    again = pickle.loads(packed)
    assert again.method == copied.method == TINY and again.fingerprint == copied.fingerprint == own.fingerprint
    own.method = "recommended:use=similarity"
    assert own.embedder.method == Embedder("eddy-tiny", method="plain").method and own.method == "plain"


@pytest.mark.parametrize(
    ("given", "use"), [((), "retrieval"), (("--method", "recommended:use=similarity"), "similarity")]
)
def test_commands_say_once_what_they_took(given: tuple[str, ...], use: str, capsys, monkeypatch) -> None:
    said = f"Method {TINY}: recommended for {use} on eddy-tiny\n"
    out, err = done(capsys, monkeypatch, "embed", "The ferry leaves at noon.", *given)
    expected = Embedder("eddy-tiny", method=TINY).encode_document("The ferry leaves at noon.")
    assert err.count(said) == err.count("Method") == 1
    assert np.array_equal(np.float32(json.loads(out)["vector"]), expected)
    out, err = done(capsys, monkeypatch, "explain", "The ferry leaves at noon.", *given)
    assert err.count(said) == 1 and TINY in out
    _, err = done(capsys, monkeypatch, "embed", "The ferry leaves at noon.", "--method", "plain")
    assert "Method" not in err


def test_the_recommendations_for_a_model_are_shown_without_its_weights(capsys, monkeypatch, tmp_path: Path) -> None:
    config = json.loads((BUNDLED["eddy-tiny"] / "config.json").read_text(encoding="utf-8"))
    smollm2 = {"num_hidden_layers": 30, "hidden_size": 576, "num_attention_heads": 9, "vocab_size": 49152}
    (tmp_path / "config.json").write_text(json.dumps({**config, **smollm2}), encoding="utf-8")
    out, _ = done(capsys, monkeypatch, "methods", str(tmp_path))
    assert out.splitlines() == [
        f"retrieval: {SMOLLM2_BEST} (chosen for this model)",
        f"  manuals, mrr@10, hybrid: {SMOLLM2_BEST} 0.392, plain:exit=0+sif+filter 0.340",
        "fast: plain:exit=0+sif+filter (chosen for this model)",
        "  cranfield, ndcg@10: plain:exit=0+sif+filter 0.320, plain:exit=1 0.200",
        "similarity: prompteol:exit=-2 (chosen for this model)",
        "  stsb_dev, spearman: prompteol:exit=-2+whiten:power=0.5 0.803, plain:exit=1+whiten:power=0.5 0.784",
        "  join +whiten:power=0.5 where a library is large enough to fit it",
    ]
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    out, _ = done(capsys, monkeypatch, "methods", "eddy-tiny")
    assert out == done(capsys, monkeypatch, "methods", str(tmp_path))[0]
    assert "retrieval: plain:exit=0+sif+filter (chosen for this model)" in out
    assert "similarity: plain:exit=0+sif+filter (chosen for this model)" in out
    assert "  stsb_dev, spearman, Gemma 3 270M: plain:exit=0+sif+filter 0.762, prompteol:exit=-2 0.664" in out
    modules = [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    out, _ = done(capsys, monkeypatch, "methods", str(tmp_path))
    assert "retrieval: plain (as the model was trained)" in out
    with pytest.raises(ModelNotFound):
        read_backbone("nobody/nothing", local_files_only=True)
