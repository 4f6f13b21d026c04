"""Small files of many kinds, made here, become the text that a reader sees, or are refused with the reason."""

from __future__ import annotations

from pathlib import Path

from tests.readers.corpus.graphic_files import GRAPHIC_FILES
from tests.readers.corpus.office_files import OFFICE_FILES
from tests.readers.corpus.pdf_files import PDF_FILES
from tests.readers.corpus.text_files import TEXT_FILES

from readers_eddy.documents import read_documents

FILES = {**PDF_FILES, **TEXT_FILES, **OFFICE_FILES, **GRAPHIC_FILES}


def test_every_kind_of_file_is_read_as_people_see_it(tmp_path: Path) -> None:
    """Also behind files that are refused."""
    names = {kind: f"{number:03}{sample.suffix}" for number, (kind, sample) in enumerate(FILES.items())}
    for kind, sample in FILES.items():
        (tmp_path / names[kind]).write_bytes(sample.data if isinstance(sample.data, bytes) else sample.data())
    result = read_documents([tmp_path])
    seen = {skipped.name: {"reason": skipped.reason} for skipped in result.skipped}
    for document in result.documents:
        pages = tuple(document.text[start:].partition("\n")[0] for start in document.page_starts)
        seen[document.name] = {**vars(document), "pages": pages}
    wrong = {}
    for kind, sample in FILES.items():
        for part, right in vars(sample).items():
            value = seen[names[kind]].get(part)
            begins = part == "reason" and str(value).startswith(str(right))
            if part not in ("suffix", "data") and right is not None and value != right and not begins:
                wrong[f"{kind}: {part}"] = value, right
    assert wrong == {}
