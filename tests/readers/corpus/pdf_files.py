"""PDF files of kinds that go wrong elsewhere: what is drawn, and the text that a reader sees."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from PIL import Image
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, DictionaryObject, NameObject, TextStringObject
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

Drawing = Callable[[Canvas], None]

LEFT = ("The ferry crosses the wide bay every", "morning and returns before the sun", "sets behind the hills.")
RIGHT = ("Bread is baked at night by two men", "who sing while they knead, and sold", "at six to the fishers.")
COLUMNS = f"{' '.join(LEFT)}\n\n{' '.join(RIGHT)}"


def pdf(*pages: Drawing) -> bytes:
    out = io.BytesIO()
    canvas = Canvas(out, invariant=1, pageCompression=0)
    for draw in pages:
        canvas.setFont("Helvetica", 11)
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def lines(
    *texts: str, x: float = 60, y: float = 700, pitch: float = 14, size: float = 11, font: str = "Helvetica"
) -> Drawing:
    def draw(canvas: Canvas) -> None:
        canvas.setFont(font, size)
        for row, text in enumerate(texts):
            canvas.drawString(x, y - pitch * row, text)

    return draw


def all_of(*drawings: Drawing) -> Drawing:
    def draw(canvas: Canvas) -> None:
        for drawing in drawings:
            drawing(canvas)

    return draw


def grid(rows: Iterable[Sequence[str]], places: Sequence[float], pitch: float = 14, drop: float = 0) -> Drawing:
    """Cells drawn row by row at these places across, each so much lower than the one before it."""
    return all_of(
        *(
            lines(text, x=x, y=700 - pitch * row - drop * column)
            for row, cells in enumerate(rows)
            for column, (x, text) in enumerate(zip(places, cells, strict=True))
        )
    )


BY_ROW = grid(zip(LEFT, RIGHT, strict=True), (60, 320))
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
        lines(text, x=x, y=y, size=size)(canvas)
        x += canvas.stringWidth(text, "Helvetica", size)


def unseen(text: str, y: float) -> Drawing:
    """Text in the mode that draws nothing."""

    def draw(canvas: Canvas) -> None:
        drawn = canvas.beginText(60, y)
        drawn.setFont("Helvetica", 11)
        drawn.setTextRenderMode(3)
        drawn.textOut(text)
        canvas.drawText(drawn)

    return draw


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
    unseen("Mode three.", 580)(canvas)


def scan(canvas: Canvas) -> None:
    canvas.drawImage(ImageReader(Image.new("L", (60, 80), 250)), 0, 0, 595, 842)
    unseen("The text of a scan.", 700)(canvas)


def blacked_out(canvas: Canvas) -> None:
    canvas.drawString(60, 700, "The spy is")
    canvas.drawString(130, 700, "Anna Berg")
    canvas.rect(128, 695, 60, 16, fill=1)


def form(canvas: Canvas) -> None:
    canvas.drawString(60, 700, "Name of the boat:")
    canvas.acroForm.textfield(name="boat", x=180, y=694, width=120, height=18, value="Seagull Nine")
    canvas.acroForm.textfield(name="harbour", x=60, y=660, width=120, height=18, value="Alden")
    canvas.acroForm.checkbox(name="insured", x=60, y=630, size=14, checked=True)


def turned(canvas: Canvas) -> None:
    canvas.rotate(90)
    canvas.setPageRotation(270)
    for row, text in enumerate(("A page that lies on its side has lines", "as any other page.")):
        canvas.drawString(100, -100 - 14 * row, text)


def actual_text(canvas: Canvas) -> None:
    canvas.drawString(60, 700, "The word is ")
    canvas._code.append("/Span <</ActualText (harbour)>> BDC")
    canvas.drawString(60 + canvas.stringWidth("The word is "), 700, "h@rb0ur")
    canvas._code.append("EMC")


def layers() -> bytes:
    """Two layers, of which the second is off."""

    def draw(canvas: Canvas) -> None:
        for name, text, y in (("On", "This layer is on.", 700), ("Off", "This layer is off.", 680)):
            canvas._code.append(f"/OC /{name} BDC")
            canvas.drawString(60, y, text)
            canvas._code.append("EMC")

    data = pdf(draw)
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    groups = {}
    for name in ("On", "Off"):
        entries = {NameObject("/Type"): NameObject("/OCG"), NameObject("/Name"): TextStringObject(name)}
        groups[name] = writer._add_object(DictionaryObject(entries))
    page = writer.pages[0]
    page["/Resources"][NameObject("/Properties")] = DictionaryObject(
        {NameObject(f"/{name}"): group for name, group in groups.items()}
    )
    chosen = DictionaryObject({NameObject("/OFF"): ArrayObject([groups["Off"]])})
    writer._root_object[NameObject("/OCProperties")] = DictionaryObject(
        {NameObject("/OCGs"): ArrayObject(groups.values()), NameObject("/D"): chosen}
    )
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def small(text: str, y: float) -> Drawing:
    return lines(text, y=y, size=8)


def lesson(number: int) -> Drawing:
    body = f"{'abcde'[number]} thing is taught here and it takes an hour."
    return all_of(lines(f"Lesson {number + 1}", y=780, size=20), lines(body, y=700))


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


def outlined(canvas: Canvas) -> None:
    canvas.bookmarkPage("tides")
    canvas.addOutlineEntry("Of tides and of boats", "tides")
    lines("Of tides", "and of boats", "They come and go.")(canvas)


PAGES = {  # drawings of pages, and their text
    "columns drawn row by row": ([BY_ROW], COLUMNS),
    "columns drawn one by one": ([all_of(lines(*LEFT), lines(*RIGHT, x=320))], COLUMNS),
    "columns at other heights": ([grid(zip(LEFT, RIGHT, strict=True), (60, 320), drop=6)], COLUMNS),
    "a title over columns": (
        [all_of(lines("A title that is as wide as both of the columns", y=740, size=20), BY_ROW)],
        f"A title that is as wide as both of the columns\n\n{COLUMNS}",
    ),
    "three columns": (
        [
            all_of(
                *(
                    lines(*(f"the {row} line of column {column} runs" for row in "abcd"), x=x)
                    for column, x in enumerate((40, 230, 420))
                )
            )
        ],
        " ".join(f"the {row} line of column {column} runs" for column in range(3) for row in "abcd"),
    ),
    "a table": ([TABLE], TABLE_TEXT),
    "bold by repetition": ([bold], "Important Notice\n\nTotal"),
    "raised and lowered in one line": ([raised], "strong growth¹² of CO₂ now"),
    "raised by position": ([raised_apart], "About 10³ boats on the 1st"),
    "unseen text": ([invisible], "Seen.\n\nWhite on blue is seen."),
    "a scan with its text": ([scan], "The text of a scan."),
    "blacked out": ([blacked_out], "The spy is"),
    "a form": ([form], "Name of the boat: Seagull Nine\n\nharbour: Alden\n\n☒ insured"),
    "a drop cap": (
        [
            all_of(
                lines("O", y=672, size=36),
                lines("nce upon a time there was a ferry that", "crossed the bay each day of the year,", x=92, y=698),
                lines("and it came back at night, always late.", y=670),
            )
        ],
        "Once upon a time there was a ferry that crossed the bay each day of the year, and it came back at night, "
        "always late.",
    ),
    "a turned page": ([turned], "A page that lies on its side has lines as any other page."),
    "actual text": ([actual_text], "The word is harbour"),
    "headings that count": (
        [lesson(number) for number in range(5)],
        "\n\n".join(f"Lesson {n + 1}\n\n{'abcde'[n]} thing is taught here and it takes an hour." for n in range(5)),
    ),
    "running heads": (
        [
            all_of(small("Of tides", 800), lines(f"Page {w} of the text."), small(f"{n}", 40))
            for n, w in enumerate(("one", "two", "three"), start=1)
        ],
        "Of tides\n\nPage one of the text.\n\nPage two of the text.\n\nPage three of the text.",
    ),
    "a table's head on every page": ([TABLE, TABLE], f"{TABLE_TEXT}\n{TABLE_TEXT}"),
    "a list": (
        [grid(zip("•••", ITEMS, strict=True), (60, 80))],
        "\n\n".join(f"• {item}" for item in ITEMS),
    ),
    "a table of contents": ([lines(*CONTENTS)], "\n".join(CONTENTS)),
    "a narrow justified column": ([justified], " ".join(NARROW)),
    "a sentence around a caption": (
        [all_of(lines(OPEN), lines("Figure 1. The pier.", y=660, size=9), lines(REST, y=620))],
        f"{OPEN} {REST}\n\nFigure 1. The pier.",
    ),
    "a sentence around a footnote and a page's end": (
        [all_of(lines("Cats are rare.", OPEN), small("1 The clerk is paid.", 60)), lines(REST)],
        f"Cats are rare.\n\n1 The clerk is paid.\n\n{OPEN} {REST}",
    ),
    "a box beside a sentence": (
        [all_of(lines(OPEN), lines("Tip: buy tickets", "early.", x=430, y=694, size=9), lines(REST, y=686))],
        f"{OPEN} {REST}\n\nTip: buy tickets early.",
    ),
    "a program": (
        [
            all_of(
                lines("It prints the tide of the day:", y=730),
                lines("def tide(x):", size=9, font="Courier"),
                lines("# low and high", "return bay[x] * 7", x=60 + 5.4 * 4, y=688, pitch=12, size=9, font="Courier"),
            )
        ],
        "It prints the tide of the day:\n\n```\ndef tide(x):\n    # low and high\n    return bay[x] * 7\n```",
    ),
    "numbers of lines": ([grid(zip("789", SAILS, strict=True), (40, 60))], " ".join(SAILS)),
    "a table drawn by column": (
        [
            all_of(
                lines("Pier", "Alden", "Berg"),
                lines("Boats", "12", "7", x=160),
                lines("Fee", "3.50", "12.00", x=260),
            )
        ],
        "| Pier | Boats | Fee |\n| Alden | 12 | 3.50 |\n| Berg | 7 | 12.00 |",
    ),
    "cells of several lines": (
        [
            all_of(
                *(lines("Anna"), lines("mends the nets of", "the old boat", x=160)),
                *(lines("Bo", "Berg", y=660), lines("sings", x=160, y=660)),
            )
        ],
        "| Anna | mends the nets of the old boat |\n| Bo Berg | sings |",
    ),
    "page numbers of a volume": (
        [all_of(lines(text), lines(f"{216 + n}", y=40)) for n, text in enumerate((OPEN, *PLACES))],
        f"{OPEN} {' '.join(PLACES)}",
    ),
    "a choice of a form": ([choice], "Harbour: Berg pier"),
    "a heading of the outline": ([outlined], "# Of tides and of boats\n\nThey come and go."),
    "a word broken at a line's end": (
        [lines("The harbour master takes his ex-", "perience to the coast.")],
        "The harbour master takes his experience to the coast.",
    ),
}
PDF_FILES = {kind: (partial(pdf, *drawings), text) for kind, (drawings, text) in PAGES.items()}
PDF_FILES["a layer that is off"] = layers, "This layer is on."
