"""Small files of many kinds, made here, become the text that a reader sees; the score is printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.demo.corpus.pdf_files import PDF_FILES

from eddy_demo.readers.documents import read_documents

FILES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    **{name: (f"{name}.pdf", make, text) for name, (make, text) in PDF_FILES.items()},
}


def test_every_kind_of_file_is_read_as_people_see_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, make, _ in FILES.values():
        (tmp_path / name).write_bytes(make())
    texts = {document.name: document.text for document in read_documents([tmp_path]).documents}
    wrong = {kind: (texts.get(name), text) for kind, (name, _, text) in FILES.items() if texts.get(name) != text}
    with capsys.disabled():
        print(f"\n{len(FILES) - len(wrong)} of {len(FILES)} kinds of files are read right")  # noqa: T201
    assert wrong == {}
