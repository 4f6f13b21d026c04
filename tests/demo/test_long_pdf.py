"""A PDF file with sections, broken words and page numbers: passages know their page and their headings."""

from __future__ import annotations

import io

from reportlab.pdfgen.canvas import Canvas
from tests.comparison import embedder

from chroma_eddy import Document
from eddy_demo.readers.pdf import read_pdf

PAGES = [
    [
        (16, "1.1 The ferry"),
        (10, "The ferry left the harbour at noon, and the old kee-"),
        (10, "per watched it from the pier. Nobody had told him of"),
        (10, "the storm that was to come, nor of the broken light-"),
    ],
    [
        (10, "house on the other side of the bay, where he was born."),
        (16, "1.2 The lamp"),
        (10, "The lamp was lit before the tide came in, as every eve-"),
        (10, "ning of the year. It had never once gone out since then."),
    ],
]


def paper() -> bytes:
    stream = io.BytesIO()
    canvas = Canvas(stream)
    for number, lines in enumerate(PAGES, start=7):
        y = 720.0
        for size, line in lines:
            y -= 30 if size > 10 else 13
            canvas.setFont("Helvetica", size)
            canvas.drawString(72, y, line)
            y -= 12 if size > 10 else 0
        canvas.setFont("Helvetica", 9)
        canvas.drawString(290, 40, str(number))
        canvas.showPage()
    canvas.save()
    return stream.getvalue()


def test_passages_of_a_pdf_know_their_page_and_their_headings() -> None:
    content = read_pdf(paper())
    whole = Document("paper", content.text, {}, content.page_starts)
    document = embedder("llama", "plain:exit=1").encode_long(content.text, passage_size=1)
    found = {
        content.text[p.start : p.end]: (p.headings, tuple(whole.pages(p.start, p.end).values()))
        for p in document.passages
    }
    assert found == {
        "1.1 The ferry\n\nThe ferry left the harbour at noon, and the old keeper watched it from the pier.": (
            ("1.1 The ferry",),
            (1, 1),
        ),
        "Nobody had told him of the storm that was to come, nor of the broken lighthouse on the other side of the bay, "
        "where he was born.": (("1.1 The ferry",), (1, 2)),
        "1.2 The lamp\n\nThe lamp was lit before the tide came in, as every evening of the year.": (
            ("1.2 The lamp",),
            (2, 2),
        ),
        "It had never once gone out since then.": (("1.2 The lamp",), (2, 2)),
    }
