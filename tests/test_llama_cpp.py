"""Against llama.cpp on the same GGUF files: the same token ids on texts of every kind, and the same mean of states.

EDDY_LLAMA_CPP_PYTHON names the interpreter that has the package llama-cpp-python, if it is not this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.gguf_files import FAMILIES, VARIANTS, Recipe, write
from tests.mixed_texts import mixed_texts

from eddy_embed import Embedder
from eddy_embed.model.loading.gguf.header import GgufFile
from eddy_embed.model.loading.gguf.tokenizer import SPLITS, tokenizer_of
from eddy_embed.text.tokenizer import FOLDED, Tokenizer

pytestmark = pytest.mark.slow

PYTHON = os.environ.get("EDDY_LLAMA_CPP_PYTHON", sys.executable)
PROGRAM = Path(__file__).with_name("llama_cpp_reference.py")
TEXTS = [text.translate(FOLDED) for text in mixed_texts(1000)]  # which Eddy does to every text
EMBEDDED = [text.translate(FOLDED) for text in mixed_texts(400, seed=5) if 40 < len(text) < 200][:20]
OTHERWISE = ("phi3, sliding", "gpt-oss", "command-r, normed keys")
"""llama.cpp reads Phi 3 without its window (https://github.com/ggml-org/llama.cpp/pull/13676), gpt-oss with the ends of
YaRN's ramp rounded, where the model's own configuration says `truncate: false`, and no small Command R
with normed keys."""
RECIPES: dict[str, Recipe] = {name: each for name, each in (FAMILIES | VARIANTS).items() if name not in OTHERWISE}


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    if subprocess.run([PYTHON, "-c", "import llama_cpp"], capture_output=True).returncode:
        pytest.skip(
            f"{PYTHON} has no llama.cpp: `python3 -m venv V && V/bin/pip install llama-cpp-python==0.3.36` compiles "
            "it, and EDDY_LLAMA_CPP_PYTHON=V/bin/python names it"
        )


@pytest.fixture
def llama_cpp() -> Callable[..., dict[str, Any]]:
    """What llama.cpp gives for a file, texts to tokenize and texts to embed."""

    def ask(path: Path, texts: list[str], embedded: list[str]) -> dict[str, Any]:
        asked = json.dumps({"file": str(path), "texts": texts, "embedded": embedded})
        done = subprocess.run([PYTHON, str(PROGRAM)], input=asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        given: dict[str, Any] = json.loads(done.stdout)
        return given

    return ask


def hold_ids(path: Path, given: dict[str, Any]) -> None:
    """Assert that a file's tokenizer gives llama.cpp's ids."""
    tokenizer = Tokenizer(tokenizer_of(GgufFile.read(path)))
    for text, tokens, ids in zip(TEXTS, tokenizer(TEXTS), given["ids"], strict=True):
        assert tokens.ids.tolist() == ids, repr(text)
    whole, body = given["around"]
    assert [*tokenizer.prefix.tolist(), *body, *tokenizer.suffix.tolist()] == whole


def cosines(path: Path, given: dict[str, Any]) -> np.ndarray:
    """Of Eddy's vectors with llama.cpp's, whose mean covers the start token; shape (texts,)."""
    with Embedder(
        path, method="plain+start:token=none+readout:prompt=true,specials=true", dtype="float32", device="cpu"
    ) as embedder:
        vectors = embedder.encode_document(EMBEDDED)
    others = np.array(given["vectors"])
    return np.asarray((vectors * others).sum(1) / np.linalg.norm(others, axis=1))


def test_smollm2(smollm2: Path, llama_cpp: Callable[..., dict[str, Any]]) -> None:
    given = llama_cpp(smollm2, TEXTS, EMBEDDED)
    hold_ids(smollm2, given)
    assert cosines(smollm2, given).min() >= 0.999


@pytest.mark.parametrize("name", RECIPES)
def test_tiny_files(name: str, tmp_path: Path, llama_cpp: Callable[..., dict[str, Any]]) -> None:
    write(tmp_path / "x.gguf", RECIPES[name], "F32")
    given = llama_cpp(tmp_path / "x.gguf", TEXTS, EMBEDDED)
    hold_ids(tmp_path / "x.gguf", given)
    assert cosines(tmp_path / "x.gguf", given).min() >= 0.9999


@pytest.mark.parametrize("name", [name for names in SPLITS for name in names])
def test_every_pre_tokenizer(name: str, tmp_path: Path, llama_cpp: Callable[..., dict[str, Any]]) -> None:
    recipe = replace(FAMILIES["llama"], words="llama-bpe")
    write(tmp_path / "x.gguf", recipe, "F16", own_metadata={"tokenizer.ggml.pre": name})
    hold_ids(tmp_path / "x.gguf", llama_cpp(tmp_path / "x.gguf", TEXTS, []))
