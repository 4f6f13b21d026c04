"""The command line of the engine: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import json
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pytest

from eddy_embed import Embedder, __version__, methods
from eddy_embed.cli import main

TEXTS = ["The ferry leaves at noon.", "Dogs travel for free."]


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["eddy", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return int(stop.value.code or 0), out, err


def test_vectors_are_those_of_the_library(capsys, monkeypatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "embed", *TEXTS, "--method", "htp")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [row["text"] for row in rows] == TEXTS
    assert np.array_equal([row["vector"] for row in rows], Embedder("eddy-tiny", method="htp").encode_document(TEXTS))


def test_queries_have_their_instruction(capsys, monkeypatch) -> None:
    _, out, _ = run(
        capsys, monkeypatch, "embed", TEXTS[0], "--role", "query", "--instruction", "Find it:", "--method", "plain"
    )
    expected = Embedder("eddy-tiny", method="plain", query_instruction="Find it:").encode_query(TEXTS[0])
    assert np.array_equal(json.loads(out)["vector"], expected)


@pytest.mark.parametrize("suffix", [".npy", ".jsonl"])
def test_a_file_in_a_file_out(suffix: str, capsys, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_bytes("\ufeff".encode() + "\r\n".join(TEXTS).encode() + b"\r\n")
    output = tmp_path / f"vectors{suffix}"
    code, out, _ = run(
        capsys, monkeypatch, "embed", "-i", str(tmp_path / "texts.txt"), "-o", str(output), "--method", "plain"
    )
    expected = Embedder("eddy-tiny", method="plain").encode_document(TEXTS)
    assert (code, out) == (0, "")
    if suffix == ".npy":
        assert np.array_equal(np.load(output), expected)
    else:
        rows = [json.loads(line) for line in output.read_text().splitlines()]
        assert [row["text"] for row in rows] == TEXTS
        assert np.array_equal([row["vector"] for row in rows], expected)


def test_standard_input(capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO("\n".join(TEXTS).encode())))
    code, out, _ = run(capsys, monkeypatch, "embed", "-i", "-", "--method", "plain")
    assert code == 0 and len(out.splitlines()) == 2


def test_methods_are_listed_with_their_parameters(capsys, monkeypatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "methods")
    assert code == 0 and all(name in out.splitlines() for name in methods.names())
    assert "k=1, range=auto" in out


def test_explain_shows_what_happens(capsys, monkeypatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "explain", " ".join(TEXTS), "--method", "htp")
    assert code == 0 and out.count("<PST>") == 2 and out.count("<B-PST>") == 2
    _, out, _ = run(capsys, monkeypatch, "explain", TEXTS[0], "--method", "kv:layers=2-4+tempscale:tau=0.5")
    assert "last token's keys and values in layers 2, 3, 4" in out and "logits times 2" in out


def test_the_version(capsys, monkeypatch) -> None:
    assert run(capsys, monkeypatch, "--version")[1] == f"eddy-embed {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["embed", "hi", "--method", "htpp"], "htpp"),
        (["embed", "hi", "--method", "htp:kk=2"], "kk"),
        (["embed", "hi", "--model", "./absent"], "./absent"),
        (["embed", "hi", "--device", "nowhere"], "nowhere"),
        (["embed", "hi", "--dtype", "float16"], "float16"),
        (["embed", "hi", "--method", "plain+whiten"], "fit"),
        (["embed", ""], "empty"),
        (["embed"], "no texts"),
        (["embed", "-i", "absent.txt"], "absent.txt"),
        (["embed", "hi", "-o", "vectors.csv"], ".npy"),
        (["explain", " "], "blank"),
        (["evaluate"], "EDDY_EVAL_DATA"),
    ],
)
def test_refusals_are_one_sentence(arguments: list[str], said: str, capsys, monkeypatch) -> None:
    monkeypatch.delenv("EDDY_EVAL_DATA", raising=False)
    code, out, err = run(capsys, monkeypatch, *arguments)
    assert code != 0 and out == "" and said in err


@pytest.mark.parametrize(
    ("content", "said"), [(b"one\n\ntwo\n", "line 2 is blank"), (b"caf\xe9\n", "byte 3 is not UTF-8")]
)
def test_files_that_do_not_give_a_vector_a_line(content: bytes, said: str, capsys, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_bytes(content)
    code, out, err = run(capsys, monkeypatch, "embed", "-i", str(tmp_path / "texts.txt"))
    assert code != 0 and out == "" and said in err
