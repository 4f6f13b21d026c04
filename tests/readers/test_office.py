"""Slides, sheets and books: charts, numbers as they are shown, and what an archive may not bring in."""

from __future__ import annotations

import datetime
import io
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.readers.corpus.graphic_files import DIAGRAM, NEWER, diagram_slide, with_charts
from tests.readers.corpus.office_files import book, formats, slides
from tests.readers.word_files import changed

from readers_eddy.content import ReadingLimits
from readers_eddy.documents import SourceDocument, read_document, read_documents
from readers_eddy.office.drawingml import shown_number, shown_time


def test_an_archive_is_measured_before_it_is_unpacked(tmp_path: Path) -> None:
    limits = ReadingLimits(unpacked_bytes=2**20)
    (tmp_path / "zebra.md").write_text("The last file.", encoding="utf-8")
    for suffix, data in ((".docx", b""), (".pptx", slides()), (".xlsx", formats()), (".epub", book())):
        out = io.BytesIO(data)
        with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("large", bytes(3 * 2**20))
        assert len(out.getvalue()) < 2**16
        (tmp_path / f"bomb{suffix}").write_bytes(out.getvalue())
    reasons = [skipped.reason for skipped in read_documents(tmp_path, limits=limits).skipped]
    assert reasons == 4 * ["unpacks to 3 MB, and at most 1 MB are read; split it"]


@pytest.mark.parametrize(
    ("name", "made", "note"),
    [
        ("a.pptx", partial(diagram_slide, DIAGRAM), "damaged charts or diagrams (1)"),
        ("a.docx", with_charts, "a damaged chart or diagram"),
    ],
)
def test_a_damaged_chart_costs_only_itself(tmp_path: Path, name: str, made: Callable[..., bytes], note: str) -> None:
    def read(part: bytes) -> SourceDocument:
        (tmp_path / name).write_bytes(made(part))
        return read_document(tmp_path / name)

    whole, chart = read(NEWER), "Costs\n\n|  | Euro |\n| Fuel | -1,200 |\n| Total | 300 |"
    assert chart in whole.text and whole.notes == ()
    for part in (NEWER[:-9], NEWER.replace(b'idx="1"', b'idx="x"')):
        shown = whole.text.replace(f"\n\n{chart}", ""), (f"parts of the file are not read: {note}",)
        assert (read(part).text, read(part).notes) == shown
    odd = NEWER.replace(b"300.4", b"#N/A").replace(b"-1200", b"1e999")
    assert "| Fuel | inf |\n| Total | #N/A |" in read(odd).text


@pytest.mark.parametrize(
    ("name", "archive", "part", "before"),
    [
        ("a.pptx", slides(), "ppt/slides/slide1.xml", "Leaves at six"),
        ("a.pptx", diagram_slide(DIAGRAM, NEWER), "ppt/graphic0.xml", "Ferry"),
        ("a.docx", with_charts(NEWER), "word/chart0.xml", "Costs"),
        ("a.xlsx", formats(), "xl/workbook.xml", "Prices"),
        ("a.xlsx", formats(), "xl/worksheets/sheet1.xml", "shown"),
        ("a.epub", book(), "OPS/book.opf", "The Bay"),
        ("a.epub", book(), "OPS/two.xhtml", "The sea"),
    ],
)
def test_entities_bring_in_no_file(tmp_path: Path, name: str, archive: bytes, part: str, before: str) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("SECRET", encoding="utf-8")
    data = changed(archive, part, before, "&own;")
    root = r"^(<\?xml[^>]*\?>)?\s*(?=<)"
    (tmp_path / name).write_bytes(changed(data, part, root, f'<!DOCTYPE x [<!ENTITY own SYSTEM "{secret.as_uri()}">]>'))
    (tmp_path / "zebra.md").write_text("The last file.", encoding="utf-8")
    assert "SECRET" not in repr(read_documents([tmp_path / name, tmp_path / "zebra.md"]))


def test_numbers_and_times_are_shown_right_or_plainly() -> None:
    for value, form, text in (
        (0.25, "0.0 %", "25.0 %"),
        (0.125, "0.00", "0.13"),
        (-1234.5, "#,##0.00;(#,##0.00)", "-1,234.50"),
        (1234.5, "_-* #,##0.00 [$€-407]_-", "1,234.50 €"),
        (7, "000\\x", "007x"),
        (1234567, '#,##0,"K"', "1234567"),
        (123456789, "000-00-0000", "123456789"),
        (0.5, "# ?/?", "0.5"),
        (12345.678, "0.00E+00", "12345.678"),
        (5, "[>=10]0.0,;0", "5"),
        (1e300, "0.00", "1e+300"),
    ):
        assert shown_number(value, form) == text
    for time, text in (
        (datetime.datetime(2026, 1, 2), "2026-01-02"),
        (datetime.datetime(2026, 1, 2, 0, 0, 30), "2026-01-02 00:00:30"),
        (datetime.datetime(2026, 1, 2, 8, 5, 0, 500_000), "2026-01-02 08:05:00.5"),
        (datetime.time(8, 5), "08:05"),
        (datetime.timedelta(hours=26, seconds=5), "26:00:05"),
    ):
        assert shown_time(time) == text
