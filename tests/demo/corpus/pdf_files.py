"""PDF files of kinds that go wrong elsewhere: what is drawn, and the text that a reader sees."""

from __future__ import annotations

import io
from collections.abc import Callable

from PIL import Image
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

Drawing = Callable[[Canvas], None]

LEFT = ("The ferry crosses the wide bay every", "morning and returns before the sun", "sets behind the hills.")
RIGHT = ("Bread is baked at night by two men", "who sing while they knead, and sold", "at six to the fishers.")
COLUMNS = f"{' '.join(LEFT)}\n\n{' '.join(RIGHT)}"


def pdf(draw: Drawing) -> bytes:
    out = io.BytesIO()
    canvas = Canvas(out, invariant=1, pageCompression=0)
    canvas.setFont("Helvetica", 11)
    draw(canvas)
    canvas.showPage()
    canvas.save()
    return out.getvalue()


def lines(*texts: str, x: float = 60, y: float = 700, pitch: float = 14, size: float = 11) -> Drawing:
    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica", size)
        for row, text in enumerate(texts):
            canvas.drawString(x, y - pitch * row, text)

    return draw


def all_of(*drawings: Drawing) -> Drawing:
    def draw(canvas: Canvas) -> None:
        for each in drawings:
            each(canvas)

    return draw


def by_row(canvas: Canvas) -> None:
    for row, pair in enumerate(zip(LEFT, RIGHT, strict=True)):
        for x, text in zip((60, 320), pair, strict=True):
            canvas.drawString(x, 700 - 14 * row, text)


def table(canvas: Canvas) -> None:
    rows = (("Route", "Adult", "Child"), ("Bay", "5.00", "2.50"), ("Night tour", "12.00", ""))
    for row, cells in enumerate(rows):
        for x, text in zip((60, 180, 300), cells, strict=True):
            canvas.drawString(x, 700 - 16 * row, text)


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
    canvas.drawString(60, 700, "About 10")
    width = canvas.stringWidth("About 10")
    canvas.setFont("Helvetica", 7)
    canvas.drawString(60 + width, 704, "3")
    canvas.setFont("Helvetica", 11)
    canvas.drawString(64 + width, 700, " boats on the 1")
    width += 4 + canvas.stringWidth(" boats on the 1")
    canvas.setFont("Helvetica", 7)
    canvas.drawString(60 + width, 704, "st")


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
    text = canvas.beginText(60, 580)
    text.setFont("Helvetica", 11)
    text.setTextRenderMode(3)
    text.textOut("Mode three.")
    canvas.drawText(text)


def scan(canvas: Canvas) -> None:
    canvas.drawImage(ImageReader(Image.new("L", (60, 80), 250)), 0, 0, 595, 842)
    text = canvas.beginText(60, 700)
    text.setFont("Helvetica", 11)
    text.setTextRenderMode(3)
    text.textOut("The text of a scan.")
    canvas.drawText(text)


def blacked_out(canvas: Canvas) -> None:
    canvas.drawString(60, 700, "The spy is")
    canvas.drawString(130, 700, "Anna Berg")
    canvas.rect(128, 695, 60, 16, fill=1)


def form(canvas: Canvas) -> None:
    canvas.drawString(60, 700, "Name of the boat:")
    canvas.acroForm.textfield(name="boat", x=180, y=694, width=120, height=18, value="Seagull Nine")
    canvas.acroForm.textfield(name="harbour", x=60, y=660, width=120, height=18, value="Alden")
    canvas.acroForm.checkbox(name="insured", x=60, y=630, size=14, checked=True)


def drop_cap(canvas: Canvas) -> None:
    canvas.setFont("Helvetica", 36)
    canvas.drawString(60, 672, "O")
    canvas.setFont("Helvetica", 11)
    for row, text in enumerate(("nce upon a time there was a ferry that", "crossed the bay each day of the year,")):
        canvas.drawString(92, 698 - 14 * row, text)
    canvas.drawString(60, 670, "and it came back at night, always late.")


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
    from pypdf import PdfReader, PdfWriter
    from pypdf.generic import ArrayObject, DictionaryObject, NameObject, TextStringObject

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


def pages(*drawings: Drawing) -> bytes:
    def draw(canvas: Canvas) -> None:
        for number, each in enumerate(drawings):
            if number:
                canvas.showPage()
                canvas.setFont("Helvetica", 11)
            each(canvas)

    return pdf(draw)


def small(text: str, y: float) -> Drawing:
    return lines(text, y=y, size=8)


def lesson(number: int) -> Drawing:
    body = f"{'abcde'[number]} thing is taught here and it takes an hour."
    return all_of(lines(f"Lesson {number + 1}", y=780, size=20), lines(body, y=700))


def contents(canvas: Canvas) -> None:
    lines("Tides . . . . . . . . . . . . . . . . 3", "Boats . . . . . . . . . . . . . . . . 7")(canvas)


def three_columns(canvas: Canvas) -> None:
    for column, x in enumerate((40, 230, 420)):
        for row in range(4):
            canvas.drawString(x, 700 - 14 * row, f"the {'abcd'[row]} line of column {column} runs")


def shifted(canvas: Canvas) -> None:
    for row, pair in enumerate(zip(LEFT, RIGHT, strict=True)):
        for x, y, text in zip((60, 320), (700, 694), pair, strict=True):
            canvas.drawString(x, y - 14 * row, text)


def title_over_columns(canvas: Canvas) -> None:
    canvas.setFont("Helvetica", 20)
    canvas.drawString(60, 740, "A title that is as wide as both of the columns")
    canvas.setFont("Helvetica", 11)
    by_row(canvas)


def bullets(canvas: Canvas) -> None:
    for row, text in enumerate(("the first of the items is long and", "the second one is short", "the third one")):
        canvas.drawString(60, 700 - 14 * row, "•")
        canvas.drawString(80, 700 - 14 * row, text)


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


def program(canvas: Canvas) -> None:
    lines("It prints the tide of the day:", y=730)(canvas)
    canvas.setFont("Courier", 9)
    for row, (indent, text) in enumerate(((0, "def tide(x):"), (4, "# low and high"), (4, "return bay[x] * 7"))):
        canvas.drawString(60 + 5.4 * indent, 700 - 12 * row, text)


def numbered(canvas: Canvas) -> None:
    for row, text in enumerate(
        ("The ferry sails at noon and", "comes back in the evening, but", "in winter it waits.")
    ):
        canvas.drawString(40, 700 - 14 * row, str(row + 7))
        canvas.drawString(60, 700 - 14 * row, text)


def by_column(canvas: Canvas) -> None:
    for x, cells in ((60, ("Pier", "Alden", "Berg")), (160, ("Boats", "12", "7")), (260, ("Fee", "3.50", "12.00"))):
        lines(*cells, x=x)(canvas)


def long_cells(canvas: Canvas) -> None:
    for y, left, right in ((700, ("Anna",), ("mends the nets of", "the old boat")), (660, ("Bo", "Berg"), ("sings",))):
        lines(*left, y=y)(canvas)
        lines(*right, x=160, y=y)(canvas)


def choice(canvas: Canvas) -> None:
    canvas.drawString(60, 700, "Harbour:")
    canvas.acroForm.choice(
        name="h", x=120, y=694, height=18, options=[("Berg pier", "ber"), ("Alden", "ald")], value="ber"
    )


def outlined(canvas: Canvas) -> None:
    canvas.bookmarkPage("tides")
    canvas.addOutlineEntry("Of tides and of boats", "tides")
    lines("Of tides", "and of boats", "They come and go.")(canvas)


PDF_FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "columns drawn row by row": (lambda: pdf(by_row), COLUMNS),
    "columns drawn one by one": (lambda: pdf(all_of(lines(*LEFT), lines(*RIGHT, x=320))), COLUMNS),
    "columns at other heights": (lambda: pdf(shifted), COLUMNS),
    "a title over columns": (
        lambda: pdf(title_over_columns),
        f"A title that is as wide as both of the columns\n\n{COLUMNS}",
    ),
    "three columns": (
        lambda: pdf(three_columns),
        " ".join(f"the {'abcd'[row]} line of column {column} runs" for column in range(3) for row in range(4)),
    ),
    "a table": (lambda: pdf(table), "| Route | Adult | Child |\n| Bay | 5.00 | 2.50 |\n| Night tour | 12.00 | |"),
    "bold by repetition": (lambda: pdf(bold), "Important Notice\n\nTotal"),
    "raised and lowered in one line": (lambda: pdf(raised), "strong growth¹² of CO₂ now"),
    "raised by position": (lambda: pdf(raised_apart), "About 10³ boats on the 1st"),
    "unseen text": (lambda: pdf(invisible), "Seen.\n\nWhite on blue is seen."),
    "a scan with its text": (lambda: pdf(scan), "The text of a scan."),
    "blacked out": (lambda: pdf(blacked_out), "The spy is"),
    "a form": (lambda: pdf(form), "Name of the boat: Seagull Nine\n\nharbour: Alden\n\n☒ insured"),
    "a drop cap": (
        lambda: pdf(drop_cap),
        "Once upon a time there was a ferry that crossed the bay each day of the year, and it came back at night, "
        "always late.",
    ),
    "a turned page": (lambda: pdf(turned), "A page that lies on its side has lines as any other page."),
    "actual text": (lambda: pdf(actual_text), "The word is harbour"),
    "a layer that is off": (layers, "This layer is on."),
    "headings that count": (
        lambda: pages(*(lesson(number) for number in range(5))),
        "\n\n".join(f"Lesson {n + 1}\n\n{'abcde'[n]} thing is taught here and it takes an hour." for n in range(5)),
    ),
    "running heads": (
        lambda: pages(
            *(
                all_of(small("Of tides", 800), lines(f"Page {w} of the text."), small(f"{n + 1}", 40))
                for n, w in enumerate(("one", "two", "three"))
            )
        ),
        "Of tides\n\nPage one of the text.\n\nPage two of the text.\n\nPage three of the text.",
    ),
    "a table's head on every page": (
        lambda: pages(table, table),
        "\n".join(["| Route | Adult | Child |\n| Bay | 5.00 | 2.50 |\n| Night tour | 12.00 | |"] * 2),
    ),
    "a list": (
        lambda: pdf(bullets),
        "• the first of the items is long and\n\n• the second one is short\n\n• the third one",
    ),
    "a table of contents": (
        lambda: pdf(contents),
        "Tides . . . . . . . . . . . . . . . . 3\nBoats . . . . . . . . . . . . . . . . 7",
    ),
    "a narrow justified column": (lambda: pdf(justified), " ".join(NARROW)),
    "a sentence around a caption": (
        lambda: pdf(all_of(lines(OPEN), lines("Figure 1. The pier.", y=660, size=9), lines(REST, y=620))),
        f"{OPEN} {REST}\n\nFigure 1. The pier.",
    ),
    "a sentence around a footnote and a page's end": (
        lambda: pages(all_of(lines("Cats are rare.", OPEN), small("1 The clerk is paid.", 60)), lines(REST)),
        f"Cats are rare.\n\n1 The clerk is paid.\n\n{OPEN} {REST}",
    ),
    "a box beside a sentence": (
        lambda: pdf(all_of(lines(OPEN), lines("Tip: buy tickets", "early.", x=430, y=694, size=9), lines(REST, y=686))),
        f"{OPEN} {REST}\n\nTip: buy tickets early.",
    ),
    "a program": (
        lambda: pdf(program),
        "It prints the tide of the day:\n\n```\ndef tide(x):\n    # low and high\n    return bay[x] * 7\n```",
    ),
    "numbers of lines": (
        lambda: pdf(numbered),
        "The ferry sails at noon and comes back in the evening, but in winter it waits.",
    ),
    "a table drawn by column": (
        lambda: pdf(by_column),
        "| Pier | Boats | Fee |\n| Alden | 12 | 3.50 |\n| Berg | 7 | 12.00 |",
    ),
    "cells of several lines": (
        lambda: pdf(long_cells),
        "| Anna | mends the nets of the old boat |\n| Bo Berg | sings |",
    ),
    "page numbers of a volume": (
        lambda: pages(*(all_of(lines(text), lines(f"{216 + n}", y=40)) for n, text in enumerate((OPEN, *PLACES)))),
        f"{OPEN} {' '.join(PLACES)}",
    ),
    "a choice of a form": (lambda: pdf(choice), "Harbour: Berg pier"),
    "a heading of the outline": (lambda: pdf(outlined), "# Of tides and of boats\n\nThey come and go."),
    "a word broken at a line's end": (
        lambda: pdf(lines("The harbour master takes his ex-", "perience to the coast.")),
        "The harbour master takes his experience to the coast.",
    ),
}
