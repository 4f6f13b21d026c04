"""Sample questions that cannot be read or made."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eddy_demo.library.recipe import SAMPLES_FILE
from eddy_demo.library.samples import read_samples
from eddy_demo.web.answers.samples import SampleQuestions


@pytest.mark.parametrize("stored", ['{"a": null}', '{"a": 5}', "[1]", "5", "{", '{"a": ' + "[" * 100_000])
def test_a_damaged_file_holds_no_questions(tmp_path: Path, stored: str) -> None:
    (tmp_path / SAMPLES_FILE).write_text(stored)
    assert read_samples(tmp_path) == {}


def test_a_document_that_fails_is_tried_again_by_the_next_server(tmp_path: Path) -> None:
    tries = []

    def failing(*_: object) -> None:
        tries.append(1)
        raise OSError("too many open files")

    entry = SimpleNamespace(id="a", digest="1")
    index = SimpleNamespace(settings=SimpleNamespace(fingerprint="2"))
    reader: Any = SimpleNamespace(
        folder=tmp_path, version=1, index=index, entries=lambda: [entry], read_consistently=failing
    )
    for server in (1, 2):
        samples = SampleQuestions(reader)
        for reader.version in range(3):
            assert not samples.make_next([], lambda: False)
        assert len(tries) == server and read_samples(tmp_path) == {}
