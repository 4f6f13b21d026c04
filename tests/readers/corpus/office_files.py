"""Slides, sheets and books, and the text that a reader sees."""

from __future__ import annotations

import datetime
import io
from functools import partial
from typing import Any

import openpyxl
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.comments import Comment
from pptx import Presentation
from pptx.util import Inches
from tests.readers.corpus import Sample
from tests.readers.word_files import changed, docx_of, zipped


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


def boxes(*placed: tuple[float, float, str], in_group: str = "") -> bytes:
    """A slide with text boxes, each so far from the left and the top, and one in a group above them."""
    file = Presentation()
    shapes = file.slides.add_slide(file.slide_layouts[6]).shapes
    for left, top, text in placed:
        shapes.add_textbox(Inches(left), Inches(top), Inches(3), Inches(1)).text_frame.text = text
    if in_group:
        group = shapes.add_group_shape()
        group.shapes.add_textbox(Inches(1), Inches(1), Inches(3), Inches(0.5)).text_frame.text = in_group
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
    page = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head><body>{}</body></html>'
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OPS/book.opf"/></rootfiles></container>',
            "OPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf"><metadata '
            'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Bay</dc:title></metadata><manifest>'
            '<item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
            '<item id="a" href="text/one%20a.xhtml" media-type="application/xhtml+xml"/>'
            '<item id="b" href="text/../two.xhtml" media-type="application/xhtml+xml"/></manifest>'
            '<spine><itemref idref="n"/><itemref idref="a"/><itemref idref="b"/></spine></package>',
            "OPS/two.xhtml": page.format('<h1>Two</h1><p>The sea<a id="x"/> rose.</p>'),
            "OPS/nav.xhtml": page.format("<p>One 1</p>"),
            "OPS/text/one a.xhtml": page.format("<h1>One</h1><p>The sea<sup>1</sup> fell.</p>"),
        }
    )


def book_in_xml() -> bytes:
    """A chapter with an entity of its own, one that the book does not list, and one that is not there."""
    page = (
        '<!DOCTYPE html [<!ENTITY own "ours">]><html><body><p/><p>&own;<i/> &ndash; <![CDATA[a<b]]></p></body></html>'
    )
    data = changed(book(), "OPS/text/one a.xhtml", "(?s).+", page)
    data = changed(data, "OPS/book.opf", "<spine>", '<spine><itemref idref="lost"/>')
    return changed(data, "OPS/book.opf", "two.xhtml", "2.xhtml#top")


def unsaved() -> bytes:
    """A formula without its value, a comment, and a cell at the far end of the sheet, which costs nothing."""
    file = openpyxl.Workbook()
    file.properties.title = "Sums"
    file.active.append([1, "=A1*2"])
    file.active["A1"].comment = Comment("Not so.", "Ada")
    file.active["XFD1048576"] = "far"
    return saved(file)


MISSING = "missing in the file"
OFFICE_FILES = {
    "slides: lists, notes, a merged table": Sample(
        ".pptx",
        slides,
        "# Ferry\n\n- Leaves at six\n  - From the old pier\n- Area in m²\n\nNotes: Mention the dog.\n\n"
        "# Prices\n\n| Summer | Summer |\n| Bay | 5.00 |",
        "Ferry",
        ("parts of the file are not read: hidden slides (1)",),
        ("# Ferry", "# Prices", "# Prices"),  # a hidden slide is a page without text
        ("slide 1", "slide 2", "slide 3"),
    ),
    "slides: boxes by place": Sample(
        ".pptx", partial(boxes, (1, 4, "Third."), (1, 2, "Second."), in_group="First."), "First.\n\nSecond.\n\nThird."
    ),
    "slides: boxes whose tops are level": Sample(
        ".pptx", partial(boxes, (5, 1, "b"), (1, 1.02, "a"), (5, 2, "d"), (1, 2.05, "c")), "a\n\nb\n\nc\n\nd"
    ),
    "sheets: numbers as shown": Sample(
        ".xlsx",
        formats,
        "# Prices\n\n| kind | 0 | 1 | 2 | 3 | 4 | 5 |\n"
        "| shown | 1,234.50 | 12.5% | € 5.00 | 00123 | 0.3 | 2026-03-01 |",
    ),
    "sheets: merged and hidden cells": Sample(
        ".xlsx",
        merged_sheet,
        "# Routes\n\n| Bay | six |\n| Bay | nine |\n| Cliff | ten |\n\n"
        "| Area | in |\n| 3 | m² |\n\n# Crew\n\nOne sailor.",
        "",
        (
            "hidden sheets are left out (1)",
            "hidden rows, as by a filter, are left out (1)",
            "cells of hidden columns are left out (1)",
        ),
        ("# Routes", "# Crew"),
        ("sheet Routes", "sheet Crew"),
    ),
    "sheets: formulas without values": Sample(
        ".xlsx",
        unsaved,
        "# Sheet\n\n1\n\nfar",
        "Sums",
        (
            "comments are not read (1)",
            "1 formulas have no stored value: open the file in an office program and save it again",
        ),
    ),
    "book: chapters in order": Sample(
        ".epub",
        book,
        "# One\n\nThe sea¹ fell.\n\n# Two\n\nThe sea rose.",
        "The Bay",
        (),
        ("# One", "# Two"),
        ("“One”", "“Two”"),
    ),
    "book: chapters in XML": Sample(
        ".epub", book_in_xml, "ours – a<b", notes=(f"chapters are not read: lost ({MISSING}); OPS/2.xhtml ({MISSING})",)
    ),
    "book: a bad chapter": Sample(
        ".epub",
        lambda: changed(book(), "OPS/two.xhtml", "<h1>Two", "\0"),
        "# One\n\nThe sea¹ fell.",
        notes=("chapters are not read: OPS/two.xhtml (character 70 is NUL: binary, or UTF-16 without its mark)",),
    ),
    "word: without a text": Sample(".docx", partial(docx_of, ""), reason="empty"),
    **{
        f"{suffix}: {kind}": Sample(suffix, data, reason=reason)
        for suffix, make in ((".docx", partial(docx_of, "A")), (".pptx", slides), (".xlsx", formats), (".epub", book))
        for kind, data, reason in (
            ("cut", partial(lambda make: make()[:-99], make), f"broken, or no {suffix} file ("),
            ("another file", b"Some text.", f"broken, or no {suffix} file ("),
            ("locked", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "protected by a password"),
        )
    },
}
