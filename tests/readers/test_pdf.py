"""PDF files: running text with its pages, what is left out and said, and what cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image
from pypdfium2 import PdfDocument
from reportlab.lib.utils import ImageReader
from tests.readers.pdf_builder import PITCH, SIZE, TOP, at, pdf, rewritten

from eddy_embed import Embedder
from readers_eddy import Unreadable, read_document
from readers_eddy.pdf import read_pdf, recognition
from readers_eddy.pdf.glyphs import Glyphs, read_glyphs
from readers_eddy.pdf.lines import Line, read_lines
from readers_eddy.pdf.page_headers import split_page_headers
from readers_eddy.pdf.paragraphs import reflow


def scan(*pages: str) -> bytes:
    """Pages with a text, and pictures for those without."""
    picture = ImageReader(Image.new("RGB", (8, 8)))
    return pdf(*([text or (lambda canvas: canvas.drawImage(picture, 60, 60, 300, 300))] for text in pages))


PAGES = (
    """

The moon pulls the water of the sea towards it, and the wa-
ter rises twice a day – 3 € a look – in every harbour of the
coast. A well-known harbour master says so.

At new moon the tide is high, and the boats that lie in the""",
    """harbour leave two hours before. It is a matter of experi-
ence.

Łeba has no tide. Its harbour master, by now a man well-
known all over the coast, watches the river instead, and he""",
    "sleeps well.",
)
EDGES = [[at(60, 815, "Tides of the coast", size=8), at(60, 30, f"{n}", size=8)] for n in (1, 2, 3)]
EDGES[0].append(at(60, TOP, "Grüße vom Meer", size=18))
DRAWN = ([*edges, *text.split("\n")] for edges, text in zip(EDGES, PAGES, strict=True))
BOOK = pdf(*DRAWN, title="Über die Gezeiten", font="Vera")
TEXT = (
    "Tides of the coast\n\nGrüße vom Meer\n\n"
    "The moon pulls the water of the sea towards it, and the water rises twice a day – 3 € a look – in every harbour "
    "of the coast. A well-known harbour master says so.\n\n"
    "At new moon the tide is high, and the boats that lie in the harbour leave two hours before. It is a matter of "
    "experience.\n\n"
    "Łeba has no tide. Its harbour master, by now a man well-known all over the coast, watches the river instead, and "
    "he sleeps well."
)


def test_lines_become_paragraphs_across_pages() -> None:
    content = read_pdf(BOOK)
    assert (content.text, content.title) == (TEXT, "Über die Gezeiten")
    assert content.page_starts == (0, TEXT.index("harbour leave"), TEXT.index("sleeps"))
    assert content.notes == (
        'left out 5 running headers and footers: page numbers (3 times), "Tides of the coast" (2 times)',
    )


# --- What is left out


def line(text: str, page: int, x: float, y: float, size: float = SIZE, **more: Any) -> Line:
    return Line(text, page, x, y, size, end=x + size / 2 * len(text), **more)


def lines(page: int, *texts: str) -> list[Line]:
    return [line(text, page, 60, TOP - PITCH * row) for row, text in enumerate(texts)]


# Each: what stands at the top of five pages, its size, and how many of these lines are left out.
HEADERS = [
    (("Title", "Title", "Title", "Other", "Another"), SIZE, 2),  # the first one stays, as it stands nowhere else
    (("Title", "Title", "Other", "Another", "None"), SIZE, 0),
    (("Body a4", "Body a4", "Body a4", "Body a4", "Body a4"), SIZE, 5),
    (("12", "13", "14", "15", "16"), SIZE, 5),
    (("12", "17", "3", "99", "4"), SIZE, 0),
    (("2019", "2020", "2021", "2022", "2023"), SIZE, 0),
    (("iv", "v", "vi", "vii", "viii"), SIZE, 5),
    (("- 1 -", "- 2 -", "- 3 -", "- 4 -", "- 5 -"), SIZE, 5),
    (("Chapter 1 7", "Chapter 1 8", "10 pages", "Chapter 2 10", "Chapter 2 11"), 8, 3),
    (("Lesson 1", "Lesson 2", "Lesson 3", "Lesson 4", "Lesson 5"), SIZE, 0),
    (("Lesson 1", "Lesson 2", "Lesson 3", "Lesson 4", "Lesson 5"), 20, 0),
    (("Invoice 1001", "Invoice 1002", "Invoice 1003", "Invoice 1004", "Invoice 1005"), SIZE, 0),
    (("Page 1 of 5", "Page 2 of 5", "Page 3 of 5", "Page 4 of 5", "Page 5 of 5"), SIZE, 5),
    (("Author", "Book", "Author", "Book", "Author"), SIZE, 2),
    (("Tides", "Tides", "Tides", "Tides", "Tides"), 14, 0),
]


@pytest.mark.parametrize(("tops", "size", "running"), HEADERS, ids=[f"{tops[0]} {size}" for tops, size, _ in HEADERS])
def test_running_lines(tops: Sequence[str], size: float, running: int) -> None:
    drawn = []
    for page, (top, letter) in enumerate(zip(tops, "abcde", strict=True)):
        drawn += [Line(top, page, 60, TOP, size), *lines(page, *4 * [""], f"Body {letter}.", f"B {letter}.")[4:]]
    body, left_out = split_page_headers(drawn)
    assert (sum(left_out.values()), len(body)) == (running, len(drawn) - running)


def test_the_head_of_a_table_on_every_page_stays() -> None:
    pages = [[f"Date of {'abcd'[page]}", "One", "Two"] for page in range(4)]
    assert split_page_headers([line for page in range(4) for line in lines(page, "Date", *pages[page])])[1] == {}


# --- Letters


def test_no_letter_is_lost_among_rows_of_two_sizes() -> None:
    """Equal letters that stand at one place across, in rows of other sizes, are all read."""
    rows = [(y, 6 + y % 5) for y in range(40, 800, 12)]
    with PdfDocument(pdf([at(60, y, "lillil", size=size) for y, size in rows])) as document:
        glyphs, unseen = read_glyphs(document[0])
    assert (len(glyphs.codes), unseen) == (6 * len(rows), 0)


@pytest.mark.parametrize("drawn", ["12 \u05d0\u05d1\u05d2 \u05d3\u05d4", "\u05d4\u05d3 \u05d2\u05d1\u05d0 12"])
def test_lines_from_right_to_left(drawn: str) -> None:
    """A file has the letters of a line in the order of their places, or in that of reading; the number comes last."""
    places = [(ord(letter), 10 * at) for at, letter in enumerate("12 \u05d0\u05d1\u05d2 \u05d3\u05d4") if letter != " "]
    glyphs_drawn = sorted(places, key=lambda place: drawn.index(chr(place[0])))
    codes, left = np.array(glyphs_drawn).T
    same, none = np.ones(len(codes)), np.zeros(len(codes), np.int64)
    boxes = np.stack([left, same, left + 10, same], 1).astype(float)
    glyphs = Glyphs(codes, boxes, same, 10 * same, none, none, none, none > 0, none > 0, np.arange(len(codes)))
    (line,), _ = read_lines(glyphs, 0)
    assert line.text == "\u05d4\u05d3 \u05d2\u05d1\u05d0 12"


# --- Paragraphs

LONG = "This line is as long as the column of the page is wide and"
END = "the last one, which ends about where the column of it does."
# Each: lines of a page and the text that they make; "" is a gap.
PARAGRAPHS = [
    ([LONG, LONG, END], f"{LONG} {LONG} {END}"),
    ([LONG, END, "", LONG, END], f"{LONG} {END}\n\n{LONG} {END}"),
    ([LONG, "it ends.", LONG, END], f"{LONG} it ends.\n\n{LONG} {END}"),
    ([LONG, END, "• first " + LONG, "and " + END, "• second"], f"{LONG} {END}\n\n• first {LONG} and {END}\n\n• second"),
    (["1. One", "2. Two", "2.1 Three"], "1. One\n\n2. Two\n\n2.1 Three"),
    ([f"It was {LONG} in", "1999. Then nothing."], f"It was {LONG} in 1999. Then nothing."),
    (["Name Price", "Apples 3", LONG, LONG, END], f"Name Price\n\nApples 3\n\n{LONG} {LONG} {END}"),
    (["潮は一日に二度満ち、一日に二度", "引く。"], "潮は一日に二度満ち、一日に二度引く。"),
    # Hyphens.
    (["This is an exam-", "ple."], "This is an example."),
    (["This is an exam\u2010", "ple, and exam\u00ad", "ple."], "This is an example, and example."),
    (["A well-known case of a well-", "known one."], "A well-known case of a well-known one."),
    (["A wellknown or well-known, well-", "known one."], "A wellknown or well-known, wellknown one."),
    (["A state-of-the-art case of state-of-the-", "art."], "A state-of-the-art case of state-of-the-art."),
    (["The two of them, Jean-", "Paul and I."], "The two of them, Jean-Paul and I."),
    (["Between 1999-", "2003 and 2004–", "2005."], "Between 1999-2003 and 2004–2005."),
    (["It was over - or so it seemed -", "and then not."], "It was over - or so it seemed - and then not."),
    (["It is at https://example.org/a-", "b/c now."], "It is at https://example.org/a-b/c now."),
]


@pytest.mark.parametrize(("drawn", "text"), PARAGRAPHS, ids=range(len(PARAGRAPHS)))
def test_paragraphs(drawn: list[str], text: str) -> None:
    assert reflow([line for line in lines(0, *drawn) if line.text], 1) == (text, (0,))


def test_a_remark_of_a_program_is_no_heading() -> None:
    """No heading of a PDF file begins with a sign of Markdown."""
    heading = at(60, 780, "4.1 The axes", size=16)
    text = read_pdf(pdf([heading, "", "", "# Name the axis", "", LONG, "and ends.", "", "## Draw it", "", LONG])).text
    assert text == f"4.1 The axes\n\n    # Name the axis\n\n{LONG} and ends.\n\n    ## Draw it\n\n{LONG}"
    found = Embedder("eddy-tiny").encode_long(text, passage_size=12, parts=("passages",)).passages
    assert {passage.headings for passage in found} == {("4.1 The axes",)}


def test_columns_sizes_indents_and_stamps() -> None:
    column = [line(f"{LONG} {n}", 0, 60, 500 - 14 * n, SIZE) for n in range(3)]
    second = [line(f"go on {LONG} {n}.", 0, 300 + 12 * (n == 2), 500 - 14 * n, SIZE) for n in range(3)]
    note = [line("A footnote in small print.", 0, 300, 100, 8), line("arXiv stamp", 0, 20, 300, SIZE, angle=90)]
    cells = [line(f"| {name} | 04:10 |", 0, 60, 80 - row, SIZE, is_row=True) for row, name in ((0, "Alden"), (9, "Bo"))]
    text, starts = reflow([*column, *second, *note, *cells], 3)
    joined = " ".join(line.text for line in [*column, *second[:2]])
    rest = "A footnote in small print.\n\narXiv stamp\n\n| Alden | 04:10 |\n| Bo | 04:10 |"
    assert text == f"{joined}\n\n{second[2].text}\n\n{rest}"
    assert starts == (0, len(text), len(text))


def test_pages_begin_where_their_first_character_is() -> None:
    """Also where a word, a sentence or a paragraph goes on over the border, and where pages are empty."""
    broken = ["exam-", "ple one and more of it", "Next sentence is here.", "Last."]
    text, starts = reflow([line(text, 2 * n, 60, 700, SIZE) for n, text in enumerate(broken)], 8)
    assert text == "example one and more of it Next sentence is here.\n\nLast."
    assert starts == (0, 4, 4, 27, 27, 51, 51, len(text))
    pieces = [text[a:b].strip() for a, b in pairwise((*starts, len(text))) if a < b]
    assert pieces == ["exam", *broken[1:]]


# --- What cannot be read


def test_files_without_text_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    """The reason is all that anybody sees; those that need no recognition are in the corpus."""
    with patch.object(recognition, "find_spec", lambda name: None):
        for data, pages in ((scan(""), "page"), (scan("", ""), "2 pages")):
            remedy = r'only pictures, which `pip install "eddy-embed\[ocr\]"` lets Eddy read'
            with pytest.raises(Unreadable, match=f"no text in its {pages}, {remedy}"):
                read_pdf(data)
    with pytest.raises(Unreadable, match="damaged, or no PDF file"):
        read_pdf(BOOK[: len(BOOK) // 2])
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("real_processes")
def test_scanned_pages_are_recognized_column_by_column(tmp_path: Path) -> None:
    """In the process with limited memory."""
    columns = [[f"{name} column goes on in line {line}." for line in range(4)] for name in ("The left", "The right")]
    drawn = pdf([at(x, 780, *column, pitch=20) for x, column in zip((20, 250), columns, strict=True)])
    with PdfDocument(drawn) as document:
        picture = ImageReader(document[0].render(scale=3, crop=(0, 680, 135, 2)).to_pil())
    (tmp_path / "scan.pdf").write_bytes(pdf([lambda canvas: canvas.drawImage(picture, 0, 680, 460, 160)]))
    read = read_document(tmp_path / "scan.pdf")
    assert read.text == "\n\n".join(map(" ".join, columns))
    assert read.notes == ("recognized in pictures, so there may be errors: text on 1 of 1 pages (p. 1)",)


def test_lines_that_recognition_is_unsure_of_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = np.array([[(10, y), (60, y), (60, y + 9), (10, y + 9)] for y in (10, 30)])
    result = SimpleNamespace(txts=("A clear line.", "#+~"), boxes=boxes, scores=(0.9, 0.4))
    monkeypatch.setattr(recognition, "_engine", lambda: lambda picture: result)
    alive: list[str] = []
    content = read_pdf(scan("", ""), alive=lambda: alive.append("page"))
    assert content.text == "A clear line.\n\nA clear line." and alive == ["page", "page"]
    assert content.notes[0].endswith("text on 2 of 2 pages (p. 1, p. 2); 2 lines are left out, too unsure")


def test_lists_of_page_numbers_go_by_the_labels_of_pages(tmp_path: Path) -> None:
    names = ("anchor", "bay", "boat", "buoy", "ferry", "harbour", "herring", "lamp")
    index = [f"{name}, {31 + at // 4}" for at, name in enumerate(names)]
    data = pdf([f"The {' '.join(names)} lie here."], index)
    for start, n_lists in ((1, 0), (31, 1)):
        labelled = rewritten(data, lambda writer, start=start: writer.set_page_label(0, 1, style="/D", start=start))
        (tmp_path / "a.pdf").write_bytes(labelled)
        assert len(read_document(tmp_path / "a.pdf").left_out) == n_lists


def test_what_is_missing_or_mended_is_said() -> None:
    pages = scan("Page one.", "", "Page three.")
    unread = "no text on 1 of 3 pages, only pictures (p. 2), "
    assert read_pdf(pages).notes == (unread + "in which no text is recognized",)
    with patch.object(recognition, "find_spec", lambda name: None):
        assert read_pdf(pages).notes == (unread + 'which `pip install "eddy-embed[ocr]"` lets Eddy read',)
    (note,) = read_pdf(pdf(["Not in the font: ź and 潮."], font="Vera")).notes
    assert note == "without a meaning in the file's fonts, and shown as \ufffd: 2 of the characters"
    mended = read_pdf(BOOK[:-2])
    assert mended.text == TEXT
    assert mended.notes[-1].startswith("damaged, so check that nothing is missing: the file does not end")
