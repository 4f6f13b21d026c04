"""Arguments of the wrong kind, and texts in odd containers or odd scripts, to the embedder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.comparison import embedder, loaded
from tests.scripts import SCRIPTS
from tests.selection import each_once

from eddy_embed import Embedder
from eddy_embed.errors import EddyError, InvalidParameter, InvalidText
from eddy_embed.text.sequence import Role

NEVER: list[Any] = [b"x", 2.5, ["a"], object(), np.array(["a", "b"]), float("nan")]
NO_COUNT = [*NEVER, "3", True, 0, -1, {"a": 1}]
NO_TEXT = [*NEVER, 3, True, {"a": 1}]
NO_FLAG = [*NEVER, None, "false", 0, {"a": 1}]
WRONG: dict[str, list[Any]] = {
    "model": [*NO_TEXT, None],
    "method": NO_TEXT,
    "tokenizer": [b"x", "eddy-tiny"],  # found out once the model is there
    "max_length": NO_COUNT,
    "batch_size": NO_COUNT,
    "batch_tokens": NO_COUNT,
    "overflow": [*NO_TEXT, None, "cut"],
    "query_instruction": NO_TEXT,
    "text_instruction": NO_TEXT,
    "normalize": NO_FLAG,
    "trust_remote_code": NO_FLAG,
    "local_files_only": NO_FLAG,
    "show_progress": NO_FLAG,
    "check": NO_FLAG,
    "fitted": NO_TEXT,
    "device": [*NO_TEXT, ""],
    "dtype": [*NO_TEXT, None],
    "language": [*NO_TEXT, None],
    "revision": NO_TEXT,
    "cache_folder": NO_TEXT,
    "model_kwargs": [b"x", 2.5, ["a"], object(), 3, True, "a"],
}


@pytest.mark.parametrize("name", WRONG)
def test_options_of_the_wrong_kind_are_named(name: str) -> None:
    for value in WRONG[name]:
        with pytest.raises(EddyError) as error:
            Embedder(**{"model": "eddy-tiny", "method": "plain", name: value})
        assert name in str(error.value) and len(str(error.value)) < 400


@pytest.mark.parametrize(("name", "meant"), [("metod", "method"), ("maxlength", "max_length"), ("model_name", "model")])
def test_a_misspelt_option_gets_a_guess(name: str, meant: str) -> None:
    with pytest.raises(InvalidParameter, match=rf"Embedder has no parameter '{name}'.*; did you mean {meant}=\?"):
        Embedder("nowhere", **{name: "plain"})  # type: ignore[arg-type]


def test_the_method_may_be_the_second_argument() -> None:
    assert Embedder("eddy-tiny", "plain", check=False).method == Embedder("eddy-tiny", method="plain").method


@pytest.mark.parametrize("options", [{"device": "nowhere"}, {"dtype": "float17"}], ids=str)
def test_devices_and_dtypes_are_refused_before_the_model_is_looked_for(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(options))):
        Embedder("nowhere", "plain", **options)


def test_options_may_be_objects_of_torch_numpy_and_pathlib(tmp_path: Path) -> None:
    usual = Embedder("eddy-tiny", method="plain", max_length=64)
    options = {"device": torch.device("cpu"), "dtype": torch.float32, "cache_folder": tmp_path}
    e = Embedder("eddy-tiny", method="plain", max_length=np.int64(64), batch_size=np.int32(2), **options)  # type: ignore[arg-type]
    assert e.fingerprint == usual.fingerprint
    model, tokenizer = loaded("llama")
    shared = Embedder(model, tokenizer=tokenizer, method="plain", device=torch.device("cpu"), dtype=torch.float32)
    assert shared.fingerprint == embedder("llama", "plain").fingerprint


def test_containers_of_texts() -> None:
    e = embedder("llama", "plain")
    expected = e.encode_document(["one", "two"])
    for texts in (
        np.array(["one", "two"]),
        ("one", "two"),
        (text for text in ["one", "two"]),
        {1: "one", 2: "two"}.values(),
    ):
        assert np.array_equal(e.encode_document(texts), expected)
    calls = [e.encode_document, e.encode_query, e.encode_long, e.count_tokens, embedder("llama", "plain+centre").fit]
    for call in calls:
        for texts in ({"one": 1}, {"one", "two"}, np.array("one"), np.array([["one", "two"]]), b"one", 3, None):
            with pytest.raises(InvalidText, match="expected a string or a list of strings, not a"):
                call(texts)  # type: ignore[arg-type]
        with pytest.raises(InvalidText, match="text 1 is a NoneType"):
            call(np.array(["one", None], object))
    for text in (["one"], ["one", "two"], [], None):
        with pytest.raises(InvalidText, match="expected one string"):
            e.explain(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [{"late": "no"}, {"late": 0}, {"progress": 3}, {"passage_size": 1.5}, {"parts": [["passages"]]}, {"parts": 3}],
    ids=str,
)
def test_options_of_long_documents(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(options))):
        embedder("llama", "plain").encode_long("One. Two.", **options)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "a\ud800", "~nobody/model"])
def test_names_that_no_model_can_have(name: str) -> None:
    with pytest.raises(EddyError) as error:
        Embedder(name, method="plain")
    assert len(str(error.value)) < 500


def test_only_what_was_fitted_is_post_processing() -> None:
    for value in (3, "file.npz", b"x"):
        with pytest.raises(InvalidParameter, match="fit"):
            embedder("llama", "plain").with_post(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize(("family", "script"), each_once(["llama", "gemma2"], SCRIPTS))
def test_offsets_are_exact_in_every_script(family: str, script: str, late: bool) -> None:
    text = SCRIPTS[script] * 9
    e = embedder(family, "htp", max_length=120)
    document = e.encode_long(text, passage_size=24, late=late)
    assert document.n_windows > 1 and len(document.sentences) > 3
    gaps = [0, *(edge for sentence in document.sentences for edge in (sentence.start, sentence.end)), len(text)]
    assert gaps == sorted(gaps) and not any(text[a:b].strip() for a, b in zip(gaps[::2], gaps[1::2], strict=True))
    for passage in document.passages:
        inside = document.sentences[passage.first_sentence : passage.last_sentence + 1]
        assert (passage.start, passage.end) == (inside[0].start, inside[-1].end)
    read = sum(passage.n_tokens for passage in document.passages)
    # By itself, each passage may begin with a token more.
    assert read <= document.n_tokens + (0 if late else len(document.passages))
    assert document.n_tokens == e.count_tokens(text)
    for span in (*document.sentences, *document.passages):
        assert np.isfinite(span.vector).all() and text[span.start : span.end].strip() == text[span.start : span.end]
    tokens = [token for token in embedder(family, "htp").explain(SCRIPTS[script]).tokens if token.role == Role.TEXT]
    assert {at for token in tokens for at in range(token.start, token.end)} >= {
        at for at, character in enumerate(SCRIPTS[script]) if character.isalnum()
    }
    word = document.sentences[1]
    vectors = e.encode_words(text[:200], [(word.start, word.end), (word.start, word.start + 1)])
    assert vectors.shape == (2, e.dimension) and np.isfinite(vectors).all()
