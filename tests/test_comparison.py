"""Texts under several methods: the matrices are the embedder's, and what cannot be run says why."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tests import families
from tests.comparison import INSTRUCTION, TEXTS, loaded

import eddy_embed
from eddy_embed import Embedder, compare, methods
from eddy_embed.analysis.compare import default_methods
from eddy_embed.cli import main
from eddy_embed.errors import InvalidParameter, InvalidText, UnknownMethod


def test_every_method_has_its_matrix() -> None:
    model, tokenizer = loaded("llama")
    found = {each.method: each for each in compare(TEXTS, model, tokenizer=tokenizer)}
    assert list(found) == default_methods()
    alone = [method for method in map(methods.parse, methods.names()) if method.readout and method.layout]
    assert set(map(str, alone)) <= set(found) and "plain+tempscale" in found
    assert not {"readout", "plain+centre"} & set(found)
    refused = {name: each.reason for name, each in found.items() if each.cosines is None}
    assert set(refused) == {"kv", "plain+reroute"}
    assert all("eddy layers MODEL" in reason for reason in refused.values())
    for name in set(found) - set(refused):
        vectors = Embedder(model, tokenizer=tokenizer, method=name).encode_document(TEXTS)
        assert found[name].reason is None and np.abs(found[name].cosines - vectors @ vectors.T).max() < 1e-5


def test_options_are_the_embedders() -> None:
    model, tokenizer = loaded("llama")
    options = {"query_instruction": INSTRUCTION, "max_length": 60, "normalize": False}
    found = compare(TEXTS, model, ["plain", methods.tp(exit=3)], role="query", tokenizer=tokenizer, **options)
    for each, method in zip(found, ["plain", "tp:exit=3"], strict=True):
        vectors = Embedder(model, tokenizer=tokenizer, method=method, **options).encode_query(TEXTS).astype(float)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        assert each.method == method and np.abs(each.cosines - vectors @ vectors.T).max() < 1e-6
    assert eddy_embed.compare is compare


def test_what_cannot_be_run_says_why() -> None:
    model, tokenizer = loaded("llama")
    asked = ["kv", "kv:layers=99", "tempscale", "plain+whiten", "plain:exit=40", "plain"]
    found = compare(TEXTS, model, asked, tokenizer=tokenizer)
    said = ["eddy layers MODEL", "above the model", "no readout", "fit", "exit=40"]
    assert [each.method for each in found] == asked
    for each, words in zip(found, said, strict=False):
        assert each.cosines is None and words in each.reason
    assert found[-1].reason is None
    odd = compare(TEXTS, model, ["reba:piece=600", "plain+truncate:dims=65", "plain"], tokenizer=tokenizer)
    assert "choose a smaller piece" in odd[0].reason and "vectors have 64" in odd[1].reason
    assert odd[2].reason is None
    (only,) = compare(TEXTS, model, ["metaeol"], tokenizer=tokenizer, max_length=8)
    assert only.cosines is None and "max_length=8" in only.reason


@pytest.mark.parametrize(
    ("texts", "named", "options", "error"),
    [
        (TEXTS[:1], None, {}, InvalidParameter),
        (TEXTS[0], None, {}, InvalidText),
        (TEXTS, ["plain"], {"normalize": "yes"}, InvalidParameter),
        ([*TEXTS, " "], None, {}, InvalidText),
        (TEXTS, ["htpp"], {}, UnknownMethod),
        (TEXTS, ["plain"], {"max_length": 10**6}, InvalidParameter),
        (TEXTS, ["plain"], {"role": "title"}, InvalidParameter),
        (TEXTS, ["plain"], {"device": "nowhere"}, InvalidParameter),
    ],
)
def test_what_is_wrong_for_all_of_them_is_refused(texts, named, options, error) -> None:
    with pytest.raises(error):
        compare(texts, "eddy-tiny", named, **options)


# --- The command


def run(capsys, monkeypatch, *arguments: str, columns: int = 120) -> tuple[int, str, str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "argv", ["eddy", "compare", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return int(stop.value.code or 0), out, err


def test_matrices_stand_side_by_side(capsys, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(text.replace("\n", " ") for text in TEXTS[1:]))
    given = [TEXTS[0], "--file", str(tmp_path / "texts.txt"), "-m", "plain", "-m", "kv:layers=99", "-m", "htp"]
    code, out, _ = run(capsys, monkeypatch, *given, "--plot", str(tmp_path / "matrices.svg"))
    lines = out.splitlines()
    assert code == 0 and [line[:3] for line in lines[:4]] == ["  1", "  2", "  3", "  4"]
    assert lines[5].split() == ["plain", "kv:layers=99", "htp"]
    assert "kv: layer 99 is above the model's 8" in lines[6] and len(lines) == 11
    told = [float(number) for line in lines[7:] for number in line.split()[1:] if "." in number]
    texts = [text.replace("\n", " ") for text in TEXTS]
    plain, _, htp = compare(texts, "eddy-tiny", ["plain", "kv:layers=99", "htp"])
    assert np.allclose(told, np.hstack([plain.cosines, htp.cosines]).ravel(), atol=6e-4)
    assert (tmp_path / "matrices.svg").read_text().startswith("<?xml")
    _, out, _ = run(capsys, monkeypatch, *given, columns=20)  # one below the other, and nothing cut
    assert all(name in out for name in ("plain", "kv:layers=99", "htp")) and len(out.splitlines()) == 4 + 7 + 4 + 7


def test_json(capsys, monkeypatch) -> None:
    code, out, _ = run(capsys, monkeypatch, *TEXTS[:2], "-m", "plain", "-m", "plain+whiten", "--json")
    told = json.loads(out)
    assert code == 0 and told["texts"] == TEXTS[:2] and told["methods"][0]["method"] == "plain"
    assert np.shape(told["methods"][0]["cosines"]) == (2, 2) and told["methods"][1]["cosines"] is None
    assert "fit" in told["methods"][1]["reason"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["one"], "two texts or more, not 1"),
        ([], "two texts or more, not 0"),
        (["one", "two", "-m", "htpp"], "htpp"),
        (["one", ""], "empty"),
        (["one", "two", "--plot", "x.pdf"], ".svg"),
        (["one", "two", "--file", "absent.txt"], "absent.txt"),
        (["one", "two", "--model", "./absent"], "./absent"),
    ],
)
def test_refusals_are_one_sentence(arguments: list[str], said: str, capsys, monkeypatch) -> None:
    code, out, err = run(capsys, monkeypatch, *arguments)
    assert code != 0 and out == "" and said in err


def test_a_model_on_which_none_runs(capsys, monkeypatch, tmp_path: Path) -> None:
    model, tokenizer = families.build("qwen3")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    code, out, err = run(capsys, monkeypatch, "one", "two", "-m", "kv", "--model", str(tmp_path))
    assert code == 1 and "eddy layers" in " ".join(out.split()) and "none of the methods" in err
