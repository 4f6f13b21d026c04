"""The command line of the engine: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from tests.command_line import PAGE, commands, run

from eddy_embed import Embedder, methods
from eddy_embed.model.loading import names

TEXTS = ["The ferry leaves at noon.", "Dogs travel for free."]


def test_vectors_are_those_of_the_library(capsys, monkeypatch) -> None:
    code, out, err = run(capsys, monkeypatch, "embed", *TEXTS, "--method", "htp")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [row["text"] for row in rows] == TEXTS
    vectors = Embedder("eddy-tiny", method="htp").encode_document(TEXTS)
    assert np.array_equal([row["vector"] for row in rows], vectors)
    assert f"Cosine of the two: {vectors[0] @ vectors[1]:.3f}" in err
    asked = ["--role", "query", "--instruction", "Find it:", "--method", "plain"]
    _, out, _ = run(capsys, monkeypatch, "embed", TEXTS[0], *asked)
    expected = Embedder("eddy-tiny", method="plain", query_instruction="Find it:").encode_query(TEXTS[0])
    assert np.array_equal(json.loads(out)["vector"], expected)


def test_a_file_or_standard_input_in_a_file_out(capsys, monkeypatch, tmp_path: Path) -> None:
    given = "\ufeff".encode() + "\r\n".join(TEXTS).encode() + b"\r\n"
    (tmp_path / "texts.txt").write_bytes(given)
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(given)))
    for name, output in (("-", tmp_path / "vectors.jsonl"), (str(tmp_path / "texts.txt"), tmp_path / "vectors.npy")):
        asked = ["-i", name, "-o", str(output), "--method", "plain"]
        assert run(capsys, monkeypatch, "embed", *asked)[:2] == (0, "")
    expected = Embedder("eddy-tiny", method="plain").encode_document(TEXTS)
    assert np.array_equal(np.load(tmp_path / "vectors.npy"), expected)
    rows = [json.loads(line) for line in (tmp_path / "vectors.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == TEXTS and np.array_equal([row["vector"] for row in rows], expected)


def test_methods_are_listed_and_explain_shows_what_happens(capsys, monkeypatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "methods")
    assert code == 0 and all(name in out.splitlines() for name in methods.names()) and "k=1, range=auto" in out
    code, out, _ = run(capsys, monkeypatch, "explain", " ".join(TEXTS), "--method", "htp")
    assert code == 0 and out.count("<PST>") == 2 and out.count("<B-PST>") == 2
    _, out, _ = run(capsys, monkeypatch, "explain", TEXTS[0], "--method", "kv:layers=2-4+tempscale:tau=0.5")
    assert "rerouted  2, 3, 4\n" in out and "logits    times 2\n" in out


def test_refusals_are_one_sentence_and_slips_are_found_before_torch_is_imported(
    capsys, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (("texts.txt", b"one"), ("empty", b""), ("blank", b"one\n\ntwo\n"), ("latin", b"caf\xe9\n")):
        Path(name).write_bytes(content)
    for arguments, said in (
        (["embed", "hi", "--method", "htpp"], "htpp"),
        (["embed", "hi", "--model", "./absent"], "./absent"),
        (["embed", "hi", "--device", "nowhere"], "nowhere"),
        (["embed", "hi", "--method", "plain+whiten:dims=999"], "999 components were asked for"),
        (["embed", "hi", ""], "text 1 is empty"),
        (["embed"], "no texts"),
        (["embed", "-i", "absent.txt"], "absent.txt"),
        (["embed", "-i", "empty"], "is empty"),
        (["embed", "-i", "blank"], "line 2 is blank"),
        (["embed", "-i", "latin"], "byte 3 is not UTF-8"),
        (["embed", "a text", "texts.txt"], "did you mean --input texts.txt?"),
        (["embed", "hi", "-o", "vectors.csv"], ".npy"),
    ):
        code, out, err = run(capsys, monkeypatch, *arguments)
        assert code != 0 and out == "" and said in err.replace("\n│ ", " "), arguments
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "eddy_embed.embedder", raising=False)
    for arguments, said in (
        (["embed", ""], "empty"),
        (["explain", " "], "blank"),
        (["embed", "hi", "--dtype", "float17"], "float17"),
        (["embed", "hi", "--model", "nosuch"], "nosuch"),
        (["explain", "hi", "--model", "eddy_tiny"], "did you mean 'eddy-tiny'?"),
    ):
        code, out, err = run(capsys, monkeypatch, *arguments)
        assert code != 0 and out == "" and said in err and "torch" not in err, arguments
        assert err.startswith("Usage") or err.count("\n") == 1, arguments


@pytest.mark.parametrize("offline", [True, False])
def test_a_hub_that_does_not_answer_is_asked_once(offline: bool, capsys, monkeypatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(names, "_hub_answers", lambda endpoint, period: asked.append(endpoint))
    code, _, err = run(capsys, monkeypatch, "embed", "hi", "--model", "nosuch")
    assert code == 1 and "nosuch' could not be opened: it is not on this machine, and" in err and len(err) < 200
    assert asked == ([] if offline else ["https://huggingface.co"])


def test_the_page_shows_every_command() -> None:
    """In an example, whose options `test_documents` looks up."""
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in commands() if f"\n{name} " not in page] == []


# --- a process of its own

FOREIGN = {
    *("bitsandbytes", "chromadb", "datasets", "fastapi", "langchain_core", "llama_index", "matplotlib", "nltk"),
    *("openai", "pandas", "peft", "pyarrow", "ray", "sentence_transformers", "sklearn", "spacy", "tantivy"),
    *("torchvision", "transformers.trainer", "eddy_embed.model.loading.on_disk"),
}
"""What `eddy embed` needs nothing of, installed or not; transformers imports scipy and torchao where they are."""
PROGRAM = """
import gc, json, sys, warnings
before = gc.get_stats()[2]["collections"]
from eddy_embed.cli import app
app(["embed", "one sentence"], standalone_mode=False)
print(json.dumps([gc.get_stats()[2]["collections"] - before, gc.isenabled(), sorted(sys.modules)]))
import logging, numpy
filters = [(action, message, kind) for action, message, kind, *_ in warnings.filters]
assert all(message is not None and message.match("size") is None for _, message, kind in filters if kind is Warning)
assert ("always", numpy.exceptions.RankWarning) in [(action, kind) for action, _, kind in filters]
assert logging.root.manager.disable == 0
warnings.warn("of the program's own")
"""


def test_the_command_imports_and_collects_only_what_it_must_and_hushes_what_is_installed_beside_it(
    tmp_path: Path,
) -> None:
    """transformers imports torchao where it is: here one that does not fit the installed torch, and complains."""
    module = tmp_path / "torchao" / "prototype" / "safetensors"
    module.mkdir(parents=True)
    (tmp_path / "torchao" / "__init__.py").write_text(
        "import logging, warnings\nwarnings.warn('another torch')\nlogging.getLogger('torchao').warning('no kernels')\n"
    )
    (module / "safetensors_support.py").write_text("flatten_tensor_state_dict = None\n")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}

    def run(code: str) -> tuple[str, str]:
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ)
        assert child.returncode == 0, child.stderr
        return child.stdout, child.stderr

    loud = run("import torchao")[1]
    assert "another torch" in loud and "no kernels" in loud
    out, heard = run(PROGRAM)
    (line,) = (line for line in heard.splitlines() if not line.startswith("Method "))
    assert "of the program's own" in line, heard
    collections, enabled, loaded = json.loads(out.splitlines()[-1])
    assert {"transformers.models.llama.modeling_llama", "torchao"} <= set(loaded)
    assert not FOREIGN & set(loaded)
    assert collections <= 1, "each walks through a million objects, and 6 were made"
    assert enabled
