"""What many tests begin with: a loaded model, and an index, written once in a session, read where it is or copied."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from chroma_eddy import Index
    from eddy_embed import Embedder


@pytest.fixture(scope="session")
def embedder() -> Embedder:
    from eddy_embed import Embedder

    return Embedder("eddy-tiny", method="plain:exit=2", query_instruction="Find the answer.")


@pytest.fixture(scope="session")
def live() -> tuple[Any, Any]:
    """The bundled model as transformers loads it, and its tokenizer."""
    from tests.adapters.samples import TINY
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(TINY, dtype="float32"), AutoTokenizer.from_pretrained(TINY)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory, embedder: Embedder) -> Path:
    """The folder of an index of six documents that no test changes."""
    from tests.adapters.indexes import documents

    from chroma_eddy import open_index

    folder = tmp_path_factory.mktemp("written") / "db"
    with open_index(folder, "notes", embedder, passage_size=24) as index:
        index.upsert(documents())
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of the folder."""
    return Path(shutil.copytree(written, tmp_path / "db"))


@pytest.fixture
def index(folder: Path, embedder: Embedder) -> Iterator[Index]:
    """The copy, opened."""
    from chroma_eddy import open_index

    with open_index(folder, "notes", embedder) as opened:
        yield opened


@pytest.fixture(scope="session")
def shelf(written: Path, embedder: Embedder) -> Iterator[Index]:
    """The index itself, for tests that only read."""
    from chroma_eddy import open_index

    with open_index(written, "notes", embedder) as opened:
        yield opened
