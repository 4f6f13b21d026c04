"""Slides, sheets, books, notebooks and e-mails: pages, titles and notes, and what is refused."""

from __future__ import annotations

import datetime
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pytest
from openpyxl.comments import Comment
from pptx import Presentation
from pptx.util import Inches
from tests.readers.corpus.graphic_files import DIAGRAM, NEWER, diagram_slide, with_charts
from tests.readers.corpus.office_files import MAIL, MIXED, NOTEBOOK, PLAIN, book, formats, merged_sheet, saved, slides

from readers_eddy.documents import SourceDocument, read_documents
from readers_eddy.limits import ReadingLimits
from readers_eddy.office.cells import shown_number, shown_time


def changed(archive: bytes, part: str, find: str, put: str) -> bytes:
    """An archive with a part in which a pattern is replaced."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        assert re.search(find, source.read(part).decode())
        for name in source.namelist():
            body = source.read(name)
            target.writestr(name, re.sub(find, lambda _: put, body.decode()) if name == part else body)
    return out.getvalue()


def read(folder: Path, name: str, data: bytes) -> SourceDocument:
    (folder / name).write_bytes(data)
    return read_documents([folder / name]).documents[0]


def refused(folder: Path, name: str, data: bytes, limits: ReadingLimits | None = None) -> str:
    """The reason why a file is skipped, while the one after it is read."""
    (folder / "zebra.md").write_text("The last file.", encoding="utf-8")
    (folder / name).write_bytes(data)
    result = read_documents([folder / name, folder / "zebra.md"], limits=limits)
    assert [document.name for document in result.documents] == ["zebra.md"]
    return result.skipped[0].reason


def test_slides_sheets_and_chapters_are_pages(tmp_path: Path) -> None:
    for name, data, pages, labels in (
        # A hidden slide is a page without text.
        ("a.pptx", slides(), ["# Ferry", "# Prices", "# Prices"], ("slide 1", "slide 2", "slide 3")),
        ("a.xlsx", merged_sheet(), ["# Routes", "# Crew"], ("sheet Routes", "sheet Crew")),
        ("a.epub", book(), ["# One", "# Two"], ("“One”", "“Two”")),
    ):
        document = read(tmp_path, name, data)
        assert [document.text[start:].split("\n")[0] for start in document.page_starts] == pages
        assert document.page_labels == labels


def test_a_list_without_a_delimiter_is_no_table(tmp_path: Path) -> None:
    assert read(tmp_path, "a.csv", b"Name\nFerry, the red\nBoat\n").text == "Name\nFerry, the red\nBoat"


def test_titles_and_notes(tmp_path: Path) -> None:
    table = openpyxl.Workbook()
    table.properties.title = "Sums"
    table.active.append([1, "=A1*2"])
    for name, data, title, notes in (
        ("a.pptx", slides(), "Ferry", ("parts of the file are not read: hidden slides (1)",)),
        (
            "a.xlsx",
            merged_sheet(),
            "",
            (
                "hidden sheets are left out (1)",
                "hidden rows, as by a filter, are left out (1)",
                "cells of hidden columns are left out (1)",
            ),
        ),
        (
            "b.xlsx",
            saved(table),
            "Sums",
            ("1 formulas have no stored value: open the file in an office program and save it again",),
        ),
        ("a.epub", book(), "The Bay", ()),
        ("a.ipynb", json.dumps(NOTEBOOK).encode(), "Tides", ()),
        (
            "a.eml",
            (MAIL + MIXED).encode(),
            "The ferry",
            ("attachments are not read: map.pdf", "1 elements that a browser hides are left out"),
        ),
    ):
        document = read(tmp_path, name, data)
        assert (document.title, document.notes) == (title, notes)


def test_damaged_and_foreign_files_are_named(tmp_path: Path) -> None:
    for suffix, data in ((".pptx", slides()), (".xlsx", formats()), (".epub", book())):
        broken = f"broken, or no {suffix} file ("
        assert refused(tmp_path, f"cut{suffix}", data[:-99]).startswith(broken)
        assert refused(tmp_path, f"other{suffix}", b"Some text.").startswith(broken)
        locked = refused(tmp_path, f"locked{suffix}", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512))
        assert locked.startswith("protected by a password")
    assert refused(tmp_path, "a.ipynb", b'{"worksheets": []}').startswith("no notebook of format 4")
    assert refused(tmp_path, "deep.ipynb", b"[" * 200_000) == "its JSON is nested hundreds of levels deep"
    assert refused(tmp_path, "a.eml", b"Some text.").startswith("no e-mail")
    unknown = (MAIL + PLAIN).replace("iso-8859-1", "klingon").encode()
    assert refused(tmp_path, "b.eml", unknown).startswith("its charset 'klingon' is not known")


def test_an_archive_is_measured_before_it_is_unpacked(tmp_path: Path) -> None:
    limits = ReadingLimits(unpacked_bytes=2**20)
    for suffix, data in ((".docx", b""), (".pptx", slides()), (".xlsx", formats()), (".epub", book())):
        out = io.BytesIO(data)
        with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("large", bytes(3 * 2**20))
        assert len(out.getvalue()) < 2**16
        reason = refused(tmp_path, f"bomb{suffix}", out.getvalue(), limits)
        assert reason == "unpacks to 3 MB, and at most 1 MB are read; split it"


@pytest.mark.parametrize(
    ("name", "made", "note"),
    [
        ("a.pptx", lambda part: diagram_slide(DIAGRAM, part), "damaged charts or diagrams (1)"),
        ("a.docx", with_charts, "a damaged chart or diagram"),
    ],
)
def test_a_damaged_chart_costs_only_itself(
    tmp_path: Path, name: str, made: Callable[[bytes], bytes], note: str
) -> None:
    whole = read(tmp_path, name, made(NEWER))
    chart = "Costs\n\n|  | Euro |\n| Fuel | -1,200 |\n| Total | 300 |"
    assert chart in whole.text and whole.notes == ()
    for part in (NEWER[:-9], NEWER.replace(b'idx="1"', b'idx="x"')):
        document = read(tmp_path, name, made(part))
        assert document.text == whole.text.replace(f"\n\n{chart}", "")
        assert document.notes == (f"parts of the file are not read: {note}",)
    odd = made(NEWER.replace(b"300.4", b"#N/A").replace(b"-1200", b"1e999"))
    assert "| Fuel | inf |\n| Total | #N/A |" in read(tmp_path, name, odd).text


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
    data = changed(data, part, root, f'<!DOCTYPE x [<!ENTITY own SYSTEM "{secret.as_uri()}">]>')
    (tmp_path / "zebra.md").write_text("The last file.", encoding="utf-8")
    (tmp_path / name).write_bytes(data)
    result = read_documents([tmp_path / name, tmp_path / "zebra.md"])
    assert "SECRET" not in repr(result)


def test_a_cell_at_the_far_end_of_a_sheet_costs_nothing(tmp_path: Path) -> None:
    file = openpyxl.Workbook()
    file.active["A1"], file.active["XFD1048576"] = "near", "far"
    assert read(tmp_path, "a.xlsx", saved(file)).text == "# Sheet\n\nnear\n\nfar"


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


def test_boxes_whose_tops_are_level_are_read_from_left_to_right(tmp_path: Path) -> None:
    file = Presentation()
    shapes = file.slides.add_slide(file.slide_layouts[6]).shapes
    for left, top, text in ((5, 1, "b"), (1, 1.02, "a"), (5, 2, "d"), (1, 2.05, "c")):
        shapes.add_textbox(Inches(left), Inches(top), Inches(3), Inches(1)).text_frame.text = text
    assert read(tmp_path, "a.pptx", saved(file)).text == "a\n\nb\n\nc\n\nd"


def test_comments_on_cells_are_noted(tmp_path: Path) -> None:
    file = openpyxl.Workbook()
    file.active["A1"] = "a"
    file.active["A1"].comment = Comment("Not so.", "Ada")
    assert read(tmp_path, "a.xlsx", saved(file)).notes == ("comments are not read (1)",)


PARTS = "Content-Type: multipart/mixed; boundary=M\n\n--M\n\nOne.\n--M\n{}\n--M\n\nTwo.\n--M--\n"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (PARTS.format("Content-Type: image/png\nContent-Disposition: inline; filename=a.png\n\nx"), "One.\n\nTwo."),
        (PARTS.format("Content-Type: text/html; name=a.html\nContent-Disposition: attachment\n\nx"), "One.\n\nTwo."),
        (PARTS.format("Content-Type: text/html\n\n<p>Here."), "One.\n\nHere.\n\nTwo."),
        ("Content-Type: text/html\n\n<meta charset=iso-8859-1><p>Caf\xe9", "Café"),
        (
            "Content-Type: multipart/alternative; boundary=A\n\n--A\n\nPlain.\n--A\nContent-Type: text/html\n\n\n--A--",
            "Plain.",
        ),
    ],
)
def test_texts_of_mails_are_those_that_people_see(tmp_path: Path, body: str, text: str) -> None:
    assert read(tmp_path, "a.eml", (MAIL + body).encode("latin-1")).text.partition("\n\n")[2] == text


def test_bytes_of_mails_without_a_charset_are_refused(tmp_path: Path) -> None:
    for label in ("", "; charset=us-ascii"):
        data = f"{MAIL}Content-Type: text/plain{label}\nContent-Transfer-Encoding: 8bit\n\nCaf\xe9"
        assert refused(tmp_path, "a.eml", data.encode("latin-1")).startswith("not UTF-8: byte 0xe9 at position 3 ")


def test_chapters_are_read_as_xml_and_a_bad_one_is_named(tmp_path: Path) -> None:
    page = (
        '<!DOCTYPE html [<!ENTITY own "ours">]><html><body><p/><p>&own;<i/> &ndash; <![CDATA[a<b]]></p></body></html>'
    )
    data = changed(book(), "OPS/text/one a.xhtml", "(?s).+", page)
    data = changed(data, "OPS/book.opf", "<spine>", '<spine><itemref idref="lost"/>')
    document = read(tmp_path, "a.epub", changed(data, "OPS/book.opf", "two.xhtml", "2.xhtml#top"))
    assert document.text == "ours – a<b"
    reason = "missing in the file"
    assert document.notes == (f"chapters are not read: lost ({reason}); OPS/2.xhtml ({reason})",)
    cut = changed(book(), "OPS/two.xhtml", "<h1>Two", "\0")
    document = read(tmp_path, "b.epub", cut)
    assert document.text == "# One\n\nThe sea¹ fell."
    assert document.notes[0].startswith("chapters are not read: OPS/two.xhtml (character ")
