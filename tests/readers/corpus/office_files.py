"""Slides, sheets, books, notebooks and e-mails, and the text that a reader sees."""

from __future__ import annotations

import datetime
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import openpyxl
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from pptx import Presentation
from pptx.util import Inches


def saved(file: Any) -> bytes:
    out = io.BytesIO()
    file.save(out)
    return out.getvalue()


def slides() -> bytes:
    """Two slides: a list in two levels with a note; a merged table. A hidden slide is between them."""
    file = Presentation()
    first = file.slides.add_slide(file.slide_layouts[1])
    first.shapes.title.text = "Ferry"
    body = first.placeholders[1].text_frame
    body.text = "Leaves at six"
    for text, level in (("From the old pier", 1), ("Area in m", 0)):
        paragraph = body.add_paragraph()
        paragraph.text, paragraph.level = text, level
    run = paragraph.add_run()
    run.text = "2"
    run.font._element.set("baseline", "30000")
    first.notes_slide.notes_text_frame.text = "Mention the dog."
    hidden = file.slides.add_slide(file.slide_layouts[5])
    hidden.shapes.title.text = "Not shown"
    hidden._element.set("show", "0")
    last = file.slides.add_slide(file.slide_layouts[5])
    last.shapes.title.text = "Prices"
    grid = last.shapes.add_table(2, 2, Inches(1), Inches(2), Inches(4), Inches(1)).table
    grid.cell(0, 0).text = "Summer"
    grid.cell(0, 0).merge(grid.cell(0, 1))
    grid.cell(1, 0).text, grid.cell(1, 1).text = "Bay", "5.00"
    return saved(file)


def boxes() -> bytes:
    """Text boxes that were drawn from bottom to top, one of them in a group."""
    file = Presentation()
    shapes = file.slides.add_slide(file.slide_layouts[6]).shapes
    for top, text in ((4, "Third."), (2, "Second.")):
        shapes.add_textbox(Inches(1), Inches(top), Inches(3), Inches(1)).text_frame.text = text
    group = shapes.add_group_shape()
    group.shapes.add_textbox(Inches(1), Inches(1), Inches(3), Inches(0.5)).text_frame.text = "First."
    return saved(file)


def formats() -> bytes:
    file = openpyxl.Workbook()
    sheet = file.active
    sheet.title = "Prices"
    values = ((1234.5, "#,##0.00"), (0.125, "0.0%"), (5, '"€" 0.00'), (123, "00000"), (0.1 + 0.2, "General"))
    sheet.append(["kind", *map(str, range(6))])
    sheet.append(["shown", *(value for value, _ in values), datetime.date(2026, 3, 1)])
    for column, (_, form) in enumerate(values, start=2):
        sheet.cell(2, column).number_format = form
    return saved(file)


def merged_sheet() -> bytes:
    """Two tables, the first with a cell over two rows; raised digits; a hidden sheet, row and column."""
    file = openpyxl.Workbook()
    sheet = file.active
    sheet.title = "Routes"
    for row in (("Bay", "six"), (None, "nine"), ("secret", "row"), ("Cliff", "ten"), (), ("Area", "in"), (3, "")):
        sheet.append(row)
    sheet.merge_cells("A1:A2")
    sheet.row_dimensions[3].hidden = True
    sheet["B7"] = CellRichText("m", TextBlock(InlineFont(vertAlign="superscript"), "2"))
    sheet["C7"] = "hidden"
    sheet.column_dimensions["C"].hidden = True
    other = file.create_sheet("Staff")
    other["A1"] = "hidden"
    other.sheet_state = "hidden"
    file.create_sheet("Crew")["D9"] = "One sailor."
    return saved(file)


def book() -> bytes:
    """Two chapters in the spine's order, not the archive's; a contents page that is left out."""
    out = io.BytesIO()
    page = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head><body>{}</body></html>'
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OPS/book.opf"/></rootfiles></container>',
        )
        archive.writestr(
            "OPS/book.opf",
            '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
            "<dc:title>The Bay</dc:title></metadata><manifest>"
            '<item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
            '<item id="a" href="text/one%20a.xhtml" media-type="application/xhtml+xml"/>'
            '<item id="b" href="text/../two.xhtml" media-type="application/xhtml+xml"/></manifest>'
            '<spine><itemref idref="n"/><itemref idref="a"/><itemref idref="b"/></spine></package>',
        )
        archive.writestr("OPS/two.xhtml", page.format('<h1>Two</h1><p>The sea<a id="x"/> rose.</p>'))
        archive.writestr("OPS/nav.xhtml", page.format("<p>One 1</p>"))
        archive.writestr("OPS/text/one a.xhtml", page.format("<h1>One</h1><p>The sea<sup>1</sup> fell.</p>"))
    return out.getvalue()


NOTEBOOK = {
    "nbformat": 4,
    "metadata": {"kernelspec": {"language": "python"}},
    "cells": [
        {"cell_type": "markdown", "source": ["# Tides\n", "\n", "They *rise*."]},
        {
            "cell_type": "code",
            "source": "print(2)\ntable",
            "outputs": [
                {"output_type": "stream", "text": ["2\n"]},
                {"data": {"text/html": "<table><tr><th>a<th>b<tr><td>1<td>2</table>", "text/plain": "a b"}},
                {"data": {"image/png": "iVBO", "text/plain": "<Figure>"}},
                {"output_type": "error", "traceback": ["\x1b[31mKeyError\x1b[0m", "'x'"]},
            ],
        },
    ],
}
MAIL = """From: =?utf-8?q?J=C3=BCrgen?= <j@example.org>
To: crew@example.org
Subject: The
 ferry
Received: from elsewhere
MIME-Version: 1.0
"""
PLAIN = """Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

=93Six=94 =3D 6.
"""
MIXED = f"""Content-Type: multipart/mixed; boundary=M

--M
Content-Type: multipart/alternative; boundary=A

--A
{PLAIN}--A
Content-Type: text/html; charset=utf-8

<p style="display:none">Preview<p>It <b>leaves</b> at six.
--A--
--M
Content-Type: application/pdf
Content-Disposition: attachment; filename=map.pdf

x
--M--
"""
FORWARDED = f"""Content-Type: multipart/mixed; boundary=M

--M

See below.
--M
Content-Type: message/rfc822

From: Cleo <c@example.org>
{PLAIN}--M--
"""
SHOWN = "From: Jürgen <j@example.org>\nTo: crew@example.org\nSubject: The ferry"
OFFICE_FILES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "slides: lists, notes, a merged table, a hidden slide": (
        ".pptx",
        slides,
        "# Ferry\n\n- Leaves at six\n  - From the old pier\n- Area in m²\n\nNotes: Mention the dog.\n\n"
        "# Prices\n\n| Summer | Summer |\n| Bay | 5.00 |",
    ),
    "slides: boxes by place": (".pptx", boxes, "First.\n\nSecond.\n\nThird."),
    "sheets: numbers as shown": (
        ".xlsx",
        formats,
        "# Prices\n\n| kind | 0 | 1 | 2 | 3 | 4 | 5 |\n"
        "| shown | 1,234.50 | 12.5% | € 5.00 | 00123 | 0.3 | 2026-03-01 |",
    ),
    "sheets: merged and hidden cells": (
        ".xlsx",
        merged_sheet,
        "# Routes\n\n| Bay | six |\n| Bay | nine |\n| Cliff | ten |\n\n"
        "| Area | in |\n| 3 | m² |\n\n# Crew\n\nOne sailor.",
    ),
    "csv: quotes": (".csv", lambda: b'a,b\r\n"1,5","two\r\nlines"\r\n,\r\n', "| a | b |\n| 1,5 | two lines |"),
    "csv: semicolons": (".csv", lambda: "sep=;\r\nPreis;1,5\r\n".encode("utf-8-sig"), "| Preis | 1,5 |"),
    "csv: tabs": (".tsv", lambda: b"a\tb, c\n1\t2, 3\n", "| a | b, c |\n| 1 | 2, 3 |"),
    "csv: short rows": (
        ".csv",
        lambda: b"Boat,Crew\nRed\nBlue,3\n",
        "| Boat | Crew |\n| Red |  |\n| Blue | 3 |",
    ),
    "book: chapters in order": (".epub", book, "# One\n\nThe sea¹ fell.\n\n# Two\n\nThe sea rose."),
    "notebook: cells and results": (
        ".ipynb",
        lambda: json.dumps(NOTEBOOK).encode(),
        "# Tides\n\nThey *rise*.\n\n```python\nprint(2)\ntable\n```\n\n```\n2\n```\n\n| a | b |\n| 1 | 2 |\n\n"
        "```\n<Figure>\n```\n\n```\nKeyError\n'x'\n```",
    ),
    "mail: quoted-printable": (".eml", lambda: (MAIL + PLAIN).encode(), f"{SHOWN}\n\n“Six” = 6."),
    "mail: another one forwarded": (
        ".eml",
        lambda: (MAIL + FORWARDED).encode(),
        f"{SHOWN}\n\nSee below.\n\nForwarded:\n\nFrom: Cleo <c@example.org>\n\n“Six” = 6.",
    ),
    "mail: two versions, an attachment": (".eml", lambda: (MAIL + MIXED).encode(), f"{SHOWN}\n\nIt leaves at six."),
}
