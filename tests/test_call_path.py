"""One call runs through few files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.call_path import moves, steps

from chroma_eddy import Document, open_index
from eddy_embed import Embedder


def test_a_text_goes_through_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDDY_DTYPE")  # the call names no dtype

    def encode() -> None:
        Embedder("eddy-tiny", method="htp", check=False).encode_document(["a"])

    encode()
    assert len(set(steps(encode))) <= 31


def test_an_index_goes_through_few_files(tmp_path: Path) -> None:
    """Beside the engine's own; of an upsert, two are entered by Chroma, which makes its embedding function anew."""
    with open_index(tmp_path, "notes", Embedder("eddy-tiny", method="plain:exit=0+sif+filter", check=False)) as index:
        index.upsert([Document("a", "The ferry leaves at noon. Dogs travel for free.")])
        index.query("When does the ferry leave?")
        query = steps(lambda: index.query("When does the ferry leave?"))
        upsert = steps(lambda: index.upsert([Document("b", "The keel is deep. Boats wait for the tide.")]))
    for files, most, most_moves in ((query, 8, 200), (upsert, 10, 345)):
        entered = {file for file in files if "/chroma_eddy/" in file or "/integrations/" in file}
        assert len(entered) <= most and moves(files) <= most_moves, f"{len(entered)} files, {moves(files)} moves"
