"""HTML, Word, Markdown, text and JSONL files of kinds that go wrong elsewhere, and the text that a reader sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from docx.oxml import parse_xml
from tests.readers.word_files import word_file

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_M = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'


def word(*inside: str) -> bytes:
    """A Word file of one paragraph with "Start" and XML."""

    def fill(document: Any) -> None:
        paragraph = document.add_paragraph("Start")
        for xml in inside:
            paragraph._p.append(parse_xml(xml))

    return word_file(fill)


def merged_word(document: Any) -> None:
    table = document.add_table(rows=3, cols=2)
    for row, texts in zip(table.rows, (("Summer", ""), ("Bay", "5.00"), ("", "9.00")), strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    table.cell(0, 0).merge(table.cell(0, 1))
    table.cell(1, 0).merge(table.cell(2, 0))


def run(text: str, properties: str = "") -> str:
    return f'<w:r {_W}><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


KATEX = (
    '<p>So <span class="katex"><span class="katex-mathml"><math><mrow><msub><mi>x</mi><mn>2</mn></msub></mrow>'
    '<annotation encoding="application/x-tex">x_2</annotation></math></span>'
    '<span class="katex-html" aria-hidden="true">x2</span></span> it is.</p>'
)
HTML = {
    "raised and lowered": ("<p>m<sup>2</sup> H<sub>2</sub>O 1<sup>st</sup> note<sup>[3]</sup>", "m² H₂O 1st note[3]"),
    "a button in a heading": ("<h2><button>How much?</button></h2><p>Five.", "## How much?\n\nFive."),
    "a button for a form": ("<p>Name</p><div><button>Send</button></div>", "Name"),
    "a row that spans": (
        "<table><tr><th>Boat<th>Price<tr><td>Red<td rowspan=2>5<tr><td>Blue</table>",
        "| Boat | Price |\n| Red | 5 |\n| Blue | 5 |",
    ),
    "a column that spans": (
        "<table><tr><td colspan=2>Summer<td>Winter<tr><td>a<td>b<td>c</table>",
        "| Summer | Summer | Winter |\n| a | b | c |",
    ),
    "formulas in MathML": (KATEX, "So x₂ it is."),
    "declarative shadow DOM": (
        "<x-card><template shadowrootmode=open><p>Shadow.</template></x-card><template>no</template>",
        "Shadow.",
    ),
    "hidden elements": (
        '<p>Seen.<p hidden>a<p style="display: none">b<p style="visibility:hidden">c<dialog>d</dialog>',
        "Seen.",
    ),
    "a streamed article": ('<div hidden id="S:0"><p>The article.</div>', "The article."),
    "links behind headings": (
        '<h2>Tides <a class="headerlink" href="#t">¶</a></h2><h3>Moon<span>[edit]</span></h3>',
        "## Tides\n\n### Moon",
    ),
    "soft hyphens": ("<p>har&shy;bour", "harbour"),
}
CHARSETS = {
    "latin1 is windows-1252": (b'<meta charset="iso-8859-1"><p>\x93Smart\x94 5 \x80', "“Smart” 5 €"),
    "the mark before the label": (b'\xef\xbb\xbf<meta charset="iso-8859-1"><p>caf\xc3\xa9', "café"),
    "no utf-16 in a label": (b'<meta charset="utf-16"><p>caf\xc3\xa9', "café"),
    "a label in a comment": (b'<!-- <meta charset="windows-1251"> --><p>caf\xc3\xa9', "café"),
    "gb2312 is GBK": ("<meta charset=gb2312><p>镕基".encode("gbk"), "镕基"),
    "utf-16 with a mark": ("<p>Tides é".encode("utf-16"), "Tides é"),
}
MARKUP_FILES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    **{f"html: {kind}": (".html", lambda page=page: page.encode(), text) for kind, (page, text) in HTML.items()},
    **{f"html: {kind}": (".html", lambda page=page: page, text) for kind, (page, text) in CHARSETS.items()},
    "word: merged cells": (
        ".docx",
        lambda: word_file(merged_word),
        "| Summer | Summer |\n| Bay | 5.00 |\n| Bay | 9.00 |",
    ),
    "word: raised": (
        ".docx",
        lambda: word(run("2", '<w:vertAlign w:val="superscript"/>')),
        "Start²",
    ),
    "word: hidden text": (".docx", lambda: word(run(" seen"), run(" hidden", "<w:vanish/>")), "Start seen"),
    "word: a field": (
        ".docx",
        lambda: word(
            f'<w:fldSimple {_W} w:instr="DATE"><w:r><w:t xml:space="preserve"> 2026</w:t></w:r></w:fldSimple>'
        ),
        "Start 2026",
    ),
    "word: a formula": (
        ".docx",
        lambda: word(
            run(" "),
            f"<m:oMath {_M}><m:r><m:t>E=m</m:t></m:r><m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e>"
            "<m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath>",
        ),
        "Start E=mc²",
    ),
    "text: utf-16 with a mark": (".txt", lambda: "Notepad – é.".encode("utf-16"), "Notepad – é."),
    "markdown: front matter": (".md", lambda: b"---\ntitle: T\n---\n# Tides\n", "# Tides\n"),
}
