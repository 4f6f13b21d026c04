"""One call runs through few files."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from chroma_eddy import Document, open_index
from eddy_embed import Embedder

ROOT = Path(__file__).resolve().parents[1]


def steps(call: Callable[[], object]) -> list[str]:
    """The files of ours that a call enters, one for each function, as `plugin/...`; import does not count."""
    files: list[str] = []
    ours = tuple(f"{ROOT / folder}/" for folder in ("plugin", "adapters"))

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(ours):
            files.append(str(Path(code.co_filename).relative_to(ROOT)))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return files


def moves(files: list[str]) -> int:
    """How often the next function is in another file than the one before."""
    return sum(file != other for file, other in pairwise(files))


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
