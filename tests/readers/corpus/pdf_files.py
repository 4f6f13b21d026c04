"""PDF files of kinds that go wrong elsewhere: what is drawn, and the text that a reader sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from PIL import Image
from pypdf import PdfWriter
from pypdf.generic import ArrayObject, DictionaryObject, NameObject, TextStringObject
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from tests.readers.corpus import Sample
from tests.readers.pdf_builder import Drawing, at, pdf, rewritten

LEFT = ("The ferry crosses the wide bay every", "morning and returns before the sun", "sets behind the hills.")
RIGHT = ("Bread is baked at night by two men", "who sing while they knead, and sold", "at six to the fishers.")
TITLE = "A title that is as wide as both of the columns"
COLUMNS = f"{' '.join(LEFT)}\n\n{' '.join(RIGHT)}"


def grid(rows: Iterable[Sequence[str]], places: Sequence[float], pitch: float = 14, drop: float = 0) -> Drawing:
    """Cells drawn row by row at these places across, each so much lower than the one before it."""

    def draw(canvas: Canvas) -> None:
        for row, cells in enumerate(rows):
            for column, (x, text) in enumerate(zip(places, cells, strict=True)):
                canvas.drawString(x, 700 - pitch * row - drop * column, text)

    return draw


BESIDE = list(zip(LEFT, RIGHT, strict=True))
TABLE = grid((("Route", "Adult", "Child"), ("Bay", "5.00", "2.50"), ("Night tour", "12.00", "")), (60, 180, 300), 16)


def bold(canvas: Canvas) -> None:
    for shift in (0, 0.3, 0.6):
        canvas.drawString(60 + shift, 700, "Important Notice")
    x = 60.0
    for letter in "Total":
        for shift in (0, 0.4):
            canvas.drawString(x + shift, 660, letter)
        x += canvas.stringWidth(letter)


def raised(canvas: Canvas) -> None:
    text = canvas.beginText(60, 700)
    for size, rise, piece in ((11, 0, "strong growth"), (7, 4, "12"), (11, 0, " of CO"), (7, -2, "2"), (11, 0, " now")):
        text.setFont("Helvetica", size)
        text.setRise(rise)
        text.textOut(piece)
    canvas.drawText(text)


def raised_apart(canvas: Canvas) -> None:
    x = 60.0
    for text, size, y in (("About 10", 11, 700), ("3", 7, 704), (" boats on the 1", 11, 700), ("st", 7, 704)):
        at(x, y, text, size=size)(canvas)
        x += canvas.stringWidth(text, "Helvetica", size)


def unseen(canvas: Canvas, text: str, y: float) -> None:
    """Write text in the mode that draws nothing."""
    drawn = canvas.beginText(60, y)
    drawn.setTextRenderMode(3)
    drawn.textOut(text)
    canvas.drawText(drawn)


def invisible(canvas: Canvas) -> None:
    canvas.drawString(60, 700, "Seen.")
    canvas.setFillColorRGB(1, 1, 1)
    canvas.drawString(60, 680, "White on white.")
    canvas.setFillColorRGB(0, 0, 0.5)
    canvas.rect(50, 640, 300, 30, fill=1)
    canvas.drawString(60, 650, "Blue on blue.")
    canvas.setFillColorRGB(1, 1, 1)
    canvas.rect(0, 0, 0, 0)
    canvas.drawString(200, 650, "White on blue is seen.")
    canvas.setFillColorRGB(0, 0, 0)
    canvas.drawString(-300, 620, "Off the page.")
    canvas.setFont("Helvetica", 0.5)
    canvas.drawString(60, 600, "Tiny.")
    canvas.setFont("Helvetica", 11)
    unseen(canvas, "Mode three.", 580)


def scan(canvas: Canvas) -> None:
    canvas.drawImage(ImageReader(Image.new("L", (60, 80), 250)), 0, 0, 595, 842)
    unseen(canvas, "The text of a scan.", 700)


def form(canvas: Canvas) -> None:
    canvas.drawString(60, 700, "Name of the boat:")
    canvas.acroForm.textfield(name="boat", x=180, y=694, width=120, height=18, value="Seagull Nine")
    canvas.acroForm.textfield(name="harbour", x=60, y=660, width=120, height=18, value="Alden")
    canvas.acroForm.checkbox(name="insured", x=60, y=630, size=14, checked=True)


def marked(mark: str, text: str, x: float = 60, y: float = 700) -> Drawing:
    """Text in a sequence of marked content."""

    def draw(canvas: Canvas) -> None:
        canvas._code.append(f"{mark} BDC")
        canvas.drawString(x, y, text)
        canvas._code.append("EMC")

    return draw


def layers(writer: PdfWriter) -> None:
    """Declare two layers, of which the second is off."""
    groups = {}
    for name in ("/On", "/Off"):
        entries = {NameObject("/Type"): NameObject("/OCG"), NameObject("/Name"): TextStringObject(name)}
        groups[NameObject(name)] = writer._add_object(DictionaryObject(entries))
    writer.pages[0]["/Resources"][NameObject("/Properties")] = DictionaryObject(groups)
    chosen = DictionaryObject({NameObject("/OFF"): ArrayObject([groups["/Off"]])})
    declared = {NameObject("/OCGs"): ArrayObject(groups.values()), NameObject("/D"): chosen}
    writer._root_object[NameObject("/OCProperties")] = DictionaryObject(declared)


TABLE_TEXT = "| Route | Adult | Child |\n| Bay | 5.00 | 2.50 |\n| Night tour | 12.00 | |"
ITEMS = ("the first of the items is long and", "the second one is short", "the third one")
SAILS = ("The ferry sails at noon and", "comes back in the evening, but", "in winter it waits.")
CONTENTS = ("Tides . . . . . . . . . . . . . . . . 3", "Boats . . . . . . . . . . . . . . . . 7")
NARROW = ("The harbour master", "of the town is told of", "every large ship that", "comes in overnight.")
OPEN, REST = "Dogs travel for free, but cats pay one coin to the clerk who", "waits at the gate of the old harbour."
PLACES = (
    "waits at the gate of the old harbour, and the boats that",
    "leave two hours before come back while the crew",
    "mends nets.",
)


def justified(canvas: Canvas) -> None:
    for row, text in enumerate(NARROW):
        words = canvas.beginText(60, 700 - 14 * row)
        words.setWordSpace((120 - canvas.stringWidth(text)) / text.count(" ") if row < 3 else 0)
        words.textOut(text)
        canvas.drawText(words)


def choice(canvas: Canvas) -> None:
    canvas.drawString(60, 700, "Harbour:")
    canvas.acroForm.choice(
        name="h", x=120, y=694, height=18, options=[("Berg pier", "ber"), ("Alden", "ald")], value="ber"
    )


LESSONS = [
    (f"Lesson {number}", f"{letter} thing is taught here and it takes an hour.")
    for number, letter in enumerate("abcde", start=1)
]
CROSSED = "a ferry that crossed the bay each day,"
COUNTED = [(1, "one"), (2, "two"), (3, "three")]
NETS = ("mends the nets of", "the old boat")
code = partial(at, pitch=12, size=9, font="Courier")
HEAD = at(60, 815, "Tides", size=8)
THREE = [[f"the {row} line of column {column} runs" for row in "abcd"] for column in range(3)]
PAGES: dict[str, tuple[Any, ...]] = {  # the text, and what is drawn on each page
    "columns drawn row by row": (COLUMNS, [grid(BESIDE, (60, 320))]),
    "columns drawn one by one": (COLUMNS, [at(60, 700, *LEFT), at(320, 700, *RIGHT)]),
    "columns at other heights": (COLUMNS, [grid(BESIDE, (60, 320), drop=6)]),
    "a title over columns": (f"{TITLE}\n\n{COLUMNS}", [at(60, 740, TITLE, size=20), grid(BESIDE, (60, 320))]),
    "three columns": (" ".join(map(" ".join, THREE)), [at(40 + 190 * n, 700, *texts) for n, texts in enumerate(THREE)]),
    "a table": (TABLE_TEXT, [TABLE]),
    "bold by repetition": ("Important Notice\n\nTotal", [bold]),
    "raised and lowered in one line": ("strong growth¹² of CO₂ now", [raised]),
    "raised by position": ("About 10³ boats on the 1st", [raised_apart]),
    "unseen text": ("Seen.\n\nWhite on blue is seen.", [invisible]),
    "a scan with its text": ("The text of a scan.", [scan]),
    "blacked out": (
        "The spy is",
        ["The spy is ", at(130, 780, "Anna Berg"), lambda c: c.rect(128, 775, 60, 16, fill=1)],
    ),
    "a form": ("Name of the boat: Seagull Nine\n\nharbour: Alden\n\n☒ insured", [form]),
    "a drop cap": (
        f"Once upon a time there was {CROSSED} and it came back at night, always late.",
        [
            at(60, 672, "O", size=36),
            at(92, 698, "nce upon a time there was", CROSSED),
            at(60, 670, "and it came back at night, always late."),
        ],
    ),
    "a turned page": (
        f"{OPEN} {REST}",
        [lambda c: c.rotate(90), lambda c: c.setPageRotation(270), at(100, -100, OPEN, REST)],
    ),
    "actual text": (
        "The word is harbour",
        [at(60, 700, "The word is "), marked("/Span <</ActualText (harbour)>>", "h@rb0ur", 120)],
    ),
    "headings that count": (
        "\n\n".join(text for lesson in LESSONS for text in lesson),
        *([at(60, 780, title, size=20), at(60, 700, body)] for title, body in LESSONS),
    ),
    "running heads": (
        "Tides\n\nPage one.\n\nPage two.\n\nPage three.",
        *([HEAD, at(60, 700, f"Page {word}."), at(60, 40, f"{n}", size=8)] for n, word in COUNTED),
    ),
    "a title in the words of the header": (
        "Tides\n\nPage one.\n\nPage two.\n\nPage three.",
        [HEAD, at(60, 780, "Tides", size=24), at(60, 700, "Page one.")],
        *([HEAD, at(60, 700, f"Page {number}.")] for number in ("two", "three")),
    ),
    "a table's head on every page": (f"{TABLE_TEXT}\n{TABLE_TEXT}", [TABLE], [TABLE]),
    "a list": ("\n\n".join(f"• {item}" for item in ITEMS), [grid(zip("•••", ITEMS, strict=True), (60, 80))]),
    "a table of contents": ("\n".join(CONTENTS), [*CONTENTS]),
    "a narrow justified column": (" ".join(NARROW), [justified]),
    "a sentence around a caption": (
        f"{OPEN} {REST}\n\nFigure 1. The pier.",
        [at(60, 700, OPEN), at(60, 660, "Figure 1. The pier.", size=9), at(60, 620, REST)],
    ),
    "a sentence around a footnote and a page's end": (
        f"Cats are rare.\n\n1 The clerk is paid.\n\n{OPEN} {REST}",
        [at(60, 700, "Cats are rare.", OPEN), at(60, 60, "1 The clerk is paid.", size=8)],
        [REST],
    ),
    "a box beside a sentence": (
        f"{OPEN} {REST}\n\nTip: buy tickets early.",
        [at(60, 700, OPEN), at(430, 694, "Tip: buy tickets", "early.", size=9), at(60, 686, REST)],
    ),
    "a program": (
        "It prints the tide of the day:\n\n```\ndef tide(x):\n    # low and high\n    return bay[x] * 7\n```",
        [
            at(60, 730, "It prints the tide of the day:"),
            code(60, 700, "def tide(x):"),
            code(81.6, 688, "# low and high", "return bay[x] * 7"),
        ],
    ),
    "numbers of lines": (" ".join(SAILS), [grid(zip("789", SAILS, strict=True), (40, 60))]),
    "a table drawn by column": (
        "| Pier | Boats | Fee |\n| Alden | 12 | 3.5 |\n| Berg | 7 | 12.0 |",
        [at(60, 700, "Pier", "Alden", "Berg"), at(160, 700, "Boats", "12", "7"), at(260, 700, "Fee", "3.5", "12.0")],
    ),
    "cells of several lines": (
        "| Anna | mends the nets of the old boat |\n| Bo Berg | sings |",
        [at(60, 700, "Anna"), at(160, 700, *NETS), at(60, 660, "Bo", "Berg"), at(160, 660, "sings")],
    ),
    "page numbers of a volume": (
        f"{OPEN} {' '.join(PLACES)}",
        *([at(60, 700, text), at(60, 40, f"{216 + n}")] for n, text in enumerate((OPEN, *PLACES))),
    ),
    "a choice of a form": ("Harbour: Berg pier", [choice]),
    "a heading of the outline": (
        "# Of tides and of boats\n\nThey come and go.",
        [
            lambda c: c.bookmarkPage(""),
            lambda c: c.addOutlineEntry("Of tides and of boats", ""),
            at(60, 700, "Of tides", "and of boats", "They come and go."),
        ],
    ),
    "a word broken at a line's end": (
        "The harbour master takes his experience to the coast.",
        ["The harbour master takes his ex-", "perience to the coast."],
    ),
}


def encrypted(password: str, way: str) -> bytes:
    return rewritten(pdf(["A note."]), lambda writer: writer.encrypt(password, "owner", algorithm=way))


LAYERS = pdf([marked("/OC /On", "This layer is on."), marked("/OC /Off", "This layer is off.", y=680)])
TWICE = "Only this.\n\nOnly this."
TREELESS = pdf(["A note."]).replace(b"/Pages", b"/Pagan")
DAMAGED = {"no PDF": b"no pdf", "no tree": TREELESS, "no pages": rewritten(b"", lambda _: None)}
PDF_FILES = {
    **{f"pdf: {kind}": Sample(".pdf", pdf(*pages), text) for kind, (text, *pages) in PAGES.items()},
    "pdf: a layer that is off": Sample(".pdf", rewritten(LAYERS, layers), "This layer is on."),
    "pdf: headers alone": Sample(".pdf", pdf(["Only this."], ["Only this."]), TWICE, "", ()),
    **{f"pdf: {way}": Sample(".pdf", encrypted("", way), "A note.") for way in ("RC4-128", "AES-128", "AES-256")},
    "pdf: a password": Sample(".pdf", encrypted("secret", "AES-256"), reason="protected by a password: open it in"),
    **{f"pdf: {kind}": Sample(".pdf", data, reason="damaged, or no PDF file") for kind, data in DAMAGED.items()},
    "pdf: blank": Sample(".pdf", pdf([], []), reason="no text in its 2 pages"),
    "pdf: empty": Sample(".pdf", b"", reason="empty"),
}
