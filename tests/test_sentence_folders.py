"""Models of sentence-transformers, in folders made by the library itself: equal to its own vectors."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests import families
from tests.comparison import TEXTS, embedder, exact, loaded, sentences_of
from tests.reference import methods as reference
from tests.reference.double import double
from tests.selection import mostly_slow, turns

from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter, MissingExtra, ModelNotFound, UnsupportedModel

PROMPTS = {"query": "Given a question, find the passage.\nQuery:", "document": "passage: "}


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import the package, which takes seconds, where a test uses it."""
    global LSTM, Dense, LayerNorm, Normalize, Pooling, SentenceTransformer, Transformer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import Dense, Normalize, Transformer
        from sentence_transformers.sentence_transformer.modules import LSTM, LayerNorm, Pooling


@dataclass(frozen=True)
class Case:
    """A model: its family, how it is pooled, what stands behind that, its prompts."""

    family: str
    pool: str
    behind: tuple[Callable[[], Any], ...] = ()
    prompts: tuple[str, ...] = ()
    include: bool = True
    similarity: str = "cosine"


def _dense(width: int, out: int, **more: Any) -> Callable[[], Any]:
    return lambda: Dense(width, out, **more)


def normalized() -> Any:
    return Normalize()


LINEAR, RESIDUAL = {"bias": False, "activation_function": None}, _dense(96, 32, use_residual=True)
CASES = {
    "mean": Case("bert", "mean", prompts=("query",)),
    "mpnet": Case("mpnet", "mean", (normalized,)),
    "cls": Case("bert", "cls", (normalized,)),
    "last": Case("qwen3", "lasttoken", (normalized,), prompts=("query", "document")),
    "weighted": Case("llama", "weightedmean", prompts=("document",)),
    "without": Case("roberta", "mean", (normalized,), prompts=("query",), include=False),
    "dense": Case("distilbert", "mean", (_dense(64, 96, **LINEAR), lambda: LayerNorm(96), RESIDUAL, normalized)),
    "t5": Case("t5", "mean", (_dense(64, 48, **LINEAR), normalized)),
    "dot": Case("bert", "cls", similarity="dot"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes the folder of a case, once."""

    @cache
    def make(name: str) -> Path:
        case, root = CASES[name], tmp_path_factory.mktemp(name)
        base, tokenizer = loaded(case.family)
        tokenizer = families.bracketing_tokenizer() if tokenizer.pad_token is None else tokenizer
        getattr(base, "model", base).save_pretrained(root / "base")
        tokenizer.save_pretrained(root / "base")
        torch.manual_seed(7)
        modules = [Transformer(str(root / "base")), Pooling(families.HIDDEN, case.pool, case.include)]
        modules += [build() for build in case.behind]
        prompts = {role: PROMPTS[role] for role in case.prompts}
        made = SentenceTransformer(modules=modules, prompts=prompts, device="cpu", similarity_fn_name=case.similarity)
        made.save(str(root / "model"), create_model_card=False)
        return root / "model"

    return make


def theirs(path: Path) -> Any:
    return SentenceTransformer(str(path), device="cpu")


def changed(path: Path, to: Path, file: str, **values: Any) -> Path:
    """A copy of a folder with entries of one of its JSON files changed."""
    shutil.copytree(path, to)
    there = to / file
    told = json.loads(there.read_text()) if there.exists() else {}
    there.write_text(json.dumps(values.pop("whole", None) or {**told, **values}))
    return to


def normal(name: str) -> bool:
    return normalized in CASES[name].behind


@pytest.mark.parametrize("name", CASES)
def test_vectors_are_sentence_transformers_own(name: str, folder: Callable[[str], Path]) -> None:
    own = theirs(folder(name))
    query, document = own.encode_query(TEXTS), own.encode_document(TEXTS)
    for method in ("plain", "plain+tempscale:tau=1") if name in ("mean", "last", "t5") else ("plain",):
        with Embedder(folder(name), method=method, normalize=normal(name)) as e:
            assert e.dimension == query.shape[1]
            for vectors, expected in ((e.encode_query(TEXTS), query), (e.encode_document(TEXTS), document)):
                scale = 1 if normal(name) else np.linalg.norm(expected, axis=1).max()
                assert np.abs(vectors - expected).max() <= 1e-5 * scale
            alone = e.encode_query(TEXTS[0])
            assert np.abs(alone - query[0]).max() <= 1e-5 * scale
    if name == "dot":  # lengths that mean something are not taken away in silence
        with pytest.raises(InvalidParameter, match=r"similarity_fn_name='dot', .*normalize=False"):
            Embedder(folder(name), method="plain")
    if CASES[name].prompts:
        assert np.abs(query - document).max() > 1e-3
    if name in ("weighted", "dense"):  # lengths are made one where nothing behind the pooling does it
        lengths = np.linalg.norm(document, axis=1, keepdims=True)
        unit = Embedder(folder(name), method="plain").encode_document(TEXTS)
        assert np.abs(unit - document / lengths).max() <= 1e-5


def test_a_loaded_one_is_read_like_its_folder(folder: Callable[[str], Path]) -> None:
    live, stored = Embedder(theirs(folder("dense")), method="plain"), Embedder(folder("dense"), method="plain")
    assert np.array_equal(live.encode_query(TEXTS), stored.encode_query(TEXTS))
    assert live.settings == stored.settings and live.fingerprint == stored.fingerprint


METHODS = {
    "htp": ("htp", {"range": (1, 6)}),
    "htp:k=2,source=released": ("htp", {"range": (1, 6), "k": 2, "source": "released"}),
    "tp": ("tp", {"range": (1, 6)}),
    "echo": ("echo", {}),
    "htp+tempscale:tau=0.6": ("htp", {"range": (1, 6), "tau": 0.6}),
    "prompteol": ("prompteol", {}),
}


@pytest.mark.parametrize(
    ("name", "method"),
    mostly_slow(product(["last", "weighted"], METHODS), turns(["last", "weighted"], list(METHODS)[2:])),
)
def test_methods_keep_pooling_prompts_and_the_last_layer(name: str, method: str, folder: Callable[[str], Path]) -> None:
    kind, parameters = METHODS[method]
    pool = "last" if name == "last" or method == "prompteol" else "weighted"
    worded = method in ("echo", "prompteol")
    told = {"exit": -1, "trained": True, "read": (pool, not worded), "specials": not worded}
    model, tokenizer = loaded(CASES[name].family)[0], families.bracketing_tokenizer()
    e = Embedder(folder(name), method=method, dtype="float64")
    for role in ("query", "document"):
        instruction = PROMPTS[role] if role in CASES[name].prompts else None
        for text, vector in zip(TEXTS, exact(e, TEXTS, role), strict=True):
            options = {"sentences": sentences_of(text), "instruction": instruction, "role": role}
            expected = reference.embed(kind, {**parameters, **told}, double(model), tokenizer, text, **options)
            assert np.abs(vector - expected).max() <= 1e-9, (role, text)


def test_a_pooling_that_is_named_wins_and_explain_says_so(folder: Callable[[str], Path]) -> None:
    _, tokenizer = loaded("bert")
    for method in ("plain:pool=mean", "plain+readout:pool=mean"):
        named = Embedder(folder("cls"), method=method)
        assert np.abs(named.encode_document(TEXTS) - embedder("bert", "plain").encode_document(TEXTS)).max() <= 1e-6
        assert named.explain("Salt.").pooling == "mean"
    with pytest.raises(UnsupportedModel, match="from left to right, so its first token has seen nothing of the text"):
        embedder("llama", "plain:pool=cls")
    own = Embedder(folder("cls"), method="plain").explain("Salt.")
    assert own.pooling == "cls"
    assert [token.weight for token in own.tokens][:2] == [1, 0] and own.tokens[0].id == tokenizer.bos_token_id


def test_an_instruction_of_ones_own_takes_the_prompts_place(folder: Callable[[str], Path]) -> None:
    own, usual = theirs(folder("last")), Embedder(folder("last"), method="plain")
    given = Embedder(folder("last"), method="plain", query_instruction="Find:", text_instruction="")
    assert np.abs(given.encode_query("Salt.") - own.encode("Salt.", prompt="Find: ")).max() <= 1e-5
    assert np.abs(given.encode_document("Salt.") - own.encode("Salt.", prompt="")).max() <= 1e-5
    assert usual.settings["query_instruction"] == PROMPTS["query"] and usual.fingerprint != given.fingerprint
    # The same words, and a blank behind them or none.
    worded = Embedder(folder("last"), method="plain", query_instruction=PROMPTS["query"])
    assert worded.fingerprint != usual.fingerprint


def test_length_and_case_are_the_models_own(folder: Callable[[str], Path], tmp_path: Path) -> None:
    path = changed(
        folder("cls"), tmp_path / "model", "sentence_bert_config.json", max_seq_length=40, do_lower_case=True
    )
    own, e = theirs(path), Embedder(path, method="plain")
    assert own.max_seq_length == e.max_length == 40
    short = [TEXTS[1], TEXTS[1].upper()]
    assert np.abs(e.encode_document(short) - own.encode_document(short)).max() <= 1e-5
    assert np.array_equal(*e.encode_document(short))
    # What sentence-transformers cuts in silence is read in windows, or cut as asked and counted.
    cut = Embedder(path, method="plain", overflow="truncate")
    long = " ".join(TEXTS)
    assert np.abs(cut.encode_document(long) - own.encode_document(long)).max() <= 1e-5
    assert cut.counts.truncated_tokens > 0 and e.explain(long).windows > 1
    assert Embedder(path, method="plain", max_length=200).max_length == 200


# --- what cannot be run here is refused by name

POOLING, TRANSFORMER = "1_Pooling/config.json", "sentence_bert_config.json"
WHOLE, MODULES = "config_sentence_transformers.json", "modules.json"
ENTRY = {"method": "forward", "method_output_name": "last_hidden_state"}
CODE = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "modeling_own.Pooler"}
REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "to be read by pooling_mode max, which": ("mean", POOLING, {"pooling_mode": "max"}),
    "pooling_mode cls and mean, which": ("mean", POOLING, {"pooling_mode": ["cls", "mean"]}),
    "cls with include_prompt=false, which": ("cls", POOLING, {"include_prompt": False}),
    r"\+truncate:dims=8": ("mean", WHOLE, {"truncate_dim": 8}),
    "modality_config='message, text' of its Transformer": (
        *("mean", TRANSFORMER),
        {"modality_config": dict.fromkeys(("message", "text"), ENTRY)},
    ),
    "holds the special token '<eos>'": ("mean", WHOLE, {"prompts": {"query": "<eos>find:"}}),
    "modeling_own.Pooler is code of the model's own, which is not run": ("mean", MODULES, {"whole": [CODE]}),
}


def test_what_cannot_be_run_is_refused_by_name(folder: Callable[[str], Path], tmp_path: Path) -> None:
    for number, (message, (name, file, values)) in enumerate(REFUSED.items()):
        path = changed(folder(name), tmp_path / str(number), file, **values)
        with pytest.raises(UnsupportedModel, match=message):
            Embedder(path, method="plain")
        if number < 2:
            assert np.isfinite(Embedder(path, method="plain:pool=mean").encode_document("Salt.")).all()
    whole = theirs(folder("mean"))
    for modules, message in (
        ([whole[0]], "its modules are Transformer, and only a Transformer followed by a Pooling"),
        ([*whole, LSTM(families.HIDDEN, 8)], "its module LSTM cannot be run here behind the pooling"),
    ):
        with pytest.raises(UnsupportedModel, match=message):
            Embedder(SentenceTransformer(modules=modules, device="cpu"), method="plain")


def test_without_the_package_a_folder_is_refused_with_what_to_install(
    folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path := tmp_path / "model").mkdir()
    (path / "modules.json").write_text("[{")
    with pytest.raises(ModelNotFound, match=r"modules\.json is no list of modules .*; fetch the model again"):
        Embedder(path, method="plain")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r'pip install "eddy-embed\[sentence-transformers\]"'):
        Embedder(folder("mean"), method="plain")
