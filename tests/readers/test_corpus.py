"""Small files of many kinds, made here, become the text that a reader sees; the score is printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.readers.corpus.graphic_files import GRAPHIC_FILES
from tests.readers.corpus.markup_files import MARKUP_FILES
from tests.readers.corpus.office_files import OFFICE_FILES
from tests.readers.corpus.pdf_files import PDF_FILES

from readers_eddy.documents import read_documents

FILES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    **{f"pdf: {kind}": (".pdf", make, text) for kind, (make, text) in PDF_FILES.items()},
    **MARKUP_FILES,
    **OFFICE_FILES,
    **GRAPHIC_FILES,
}


def test_every_kind_of_file_is_read_as_people_see_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {f"{number:02}{suffix}": kind for number, (kind, (suffix, _, _)) in enumerate(FILES.items())}
    for name, kind in names.items():
        (tmp_path / name).write_bytes(FILES[kind][1]())
    result = read_documents([tmp_path])
    texts = {names[each.name.split("/")[0]]: each.text for each in result.documents}
    texts |= {names[each.name]: each.reason for each in result.skipped}
    wrong = {kind: (texts.get(kind), text) for kind, (_, _, text) in FILES.items() if texts.get(kind) != text}
    with capsys.disabled():
        print(f"\n{len(FILES) - len(wrong)} of {len(FILES)} kinds of files are read right")  # noqa: T201
    assert wrong == {}
    assert len(FILES) == 75
