"""Read PDF files: pypdf gives lines and positions, `page_headers` and `paragraphs` turn them into a text."""

from __future__ import annotations

import io
import logging
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from typing import Any

from pypdf import PageObject, PasswordType, PdfReader
from pypdf.errors import DependencyError

from eddy_demo.errors import Unreadable
from eddy_demo.readers.content import Content, choose_title
from eddy_demo.readers.limits import ReadingLimits
from eddy_demo.readers.page_headers import split_page_headers
from eddy_demo.readers.paragraphs import SOFT_HYPHEN, Line, reflow

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_SPACES = re.compile(r"[ \xa0]+")
_UNKNOWN = "\ufffd"
_REPLACED = {0x7F: "•"}  # the unused codes of WinAnsiEncoding are bullets: ISO 32000-1, annex D.2
_REPLACED |= {0xFB00 + at: letters for at, letters in enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"))}
_REPLACED |= {9: " ", 10: " ", 13: " "}
_NO_TITLE = {"anonymous", "untitled", "unspecified"}
_PROTECTED = "protected by a password: open it in a PDF reader, and print it to a new file without one"


def read_pdf(data: bytes, max_pages: int = ReadingLimits.pages) -> Content:
    """Extract the text of a PDF file, without page headers, footers and page numbers; notes count the removed lines."""
    with _warnings() as warnings:
        title, pages, pictures = _extract(data, max_pages)
    title, notes = choose_title([title])
    lines = [line for page in pages for line in page]
    if not pages:
        raise Unreadable("it has no pages")
    if not lines:
        many = "its page" if len(pages) == 1 else f"its {len(pages)} pages"
        if not pictures:
            raise Unreadable(f"no text in {many}")
        raise Unreadable(f"no text in {many}, only pictures: run OCR first, for instance with `ocrmypdf IN OUT`")
    messages = list(dict.fromkeys(record.getMessage() for record in warnings))
    body, left_out = split_page_headers(lines)
    text, starts = reflow(body, len(pages))
    return Content(title, text, starts, (*notes, *_notes(text, left_out, pictures, len(pages), messages)))


def _extract(data: bytes, max_pages: int) -> tuple[str, list[list[Line]], list[int]]:
    """Return the title, the lines of each page, and the numbers of the pages with pictures and no text."""
    try:
        reader = PdfReader(io.BytesIO(data))
        # Many files are encrypted with an empty password, to forbid printing or copying.
        if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
            raise Unreadable(_PROTECTED)
        if len(reader.pages) > max_pages:
            raise Unreadable(f"it has {len(reader.pages):,} pages, and at most {max_pages:,} are read; split it")
        pages = [_lines(page, number) for number, page in enumerate(reader.pages)]
        blank = [number for number, lines in enumerate(pages) if not lines]
        pictures = [number + 1 for number in blank if len(reader.pages[number].images.keys()) > 0]
        return _title(reader), pages, pictures
    except (Unreadable, MemoryError):
        raise
    except DependencyError as error:
        raise Unreadable(f'{error}; pip install "eddy-embed[readers]"') from None
    except Exception as error:  # a damaged file raises errors of any type in pypdf
        raise Unreadable(
            "damaged, or no PDF file: open it in a PDF reader, and print or export it as PDF again"
        ) from error


def _title(reader: PdfReader) -> str:
    title = reader.metadata.title if reader.metadata else None
    title = _SPACES.sub(" ", _clean(title)).strip() if isinstance(title, str) else ""
    return "" if title.lower().strip("()") in _NO_TITLE else title


def _lines(page: PageObject, number: int) -> list[Line]:
    lines: list[Line] = []
    pieces: list[tuple[str, tuple[float, float, float, float]]] = []

    def close() -> None:
        text = _SPACES.sub(" ", _clean("".join(piece for piece, _ in pieces))).strip()
        positions = [(piece.strip(), position) for piece, position in pieces if piece.strip()]
        if text and positions:
            sizes: Counter[float] = Counter()
            for piece, position in positions:
                sizes[position[2]] += len(piece)
            x, y, _, angle = positions[0][1]
            lines.append(Line(text, number, x, y, sizes.most_common(1)[0][0], angle))
        pieces.clear()

    def visit(text: str, cm: Sequence[float], tm: Sequence[float], font: Any, size: float) -> None:
        first, *others = text.split("\n")
        pieces.append((first, _position(cm, tm, size)))
        for other in others:
            close()
            pieces.append((other, _position(cm, tm, size)))

    page.extract_text(visitor_text=visit)
    close()
    return lines


def _position(cm: Sequence[float], tm: Sequence[float], size: float) -> tuple[float, float, float, float]:
    """Return start, size and angle in degrees of a text: x along the direction of writing, y perpendicular to it."""
    a, b = tm[0] * cm[0] + tm[1] * cm[2], tm[0] * cm[1] + tm[1] * cm[3]
    c, d = tm[2] * cm[0] + tm[3] * cm[2], tm[2] * cm[1] + tm[3] * cm[3]
    x, y = tm[4] * cm[0] + tm[5] * cm[2] + cm[4], tm[4] * cm[1] + tm[5] * cm[3] + cm[5]
    angle = math.atan2(b, a)
    cos, sin = math.cos(angle), math.sin(angle)
    return x * cos + y * sin, y * cos - x * sin, abs(size) * math.hypot(c, d), round(math.degrees(angle))


def _clean(text: str) -> str:
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins surrogate pairs
    body, last = (text[:-1], text[-1]) if text.rstrip().endswith(SOFT_HYPHEN) else (text, "")
    return _CONTROL.sub(_UNKNOWN, (body.replace(SOFT_HYPHEN, "") + last).translate(_REPLACED))


def _notes(
    text: str, left_out: dict[str, int], pictures: list[int], n_pages: int, warnings: list[str]
) -> Iterator[str]:
    if left_out:
        kinds = [f"{what} ({count} times)" for what, count in sorted(left_out.items(), key=lambda item: -item[1])]
        yield f"left out {sum(left_out.values())} running headers and footers: {_listed(kinds)}"
    if pictures:
        yield (
            f"no text on {len(pictures)} of {n_pages} pages, only pictures ({_listed([f'p. {n}' for n in pictures])}): "
            "run OCR first if they matter, for instance with `ocrmypdf --skip-text IN OUT`"
        )
    if unknown := text.count(_UNKNOWN):
        yield f"{unknown} characters have no meaning in the file's fonts and stand as {_UNKNOWN}"
    if warnings:
        yield f"damaged, so check that nothing is missing; pypdf reports: {_listed(warnings)}"


def _listed(items: list[str], most: int = 5) -> str:
    more = f", … and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


@contextmanager
def _warnings() -> Iterator[list[logging.LogRecord]]:
    """Collect pypdf's warnings about faults that it works around, and keep them off the terminal."""
    logger, collector = logging.getLogger("pypdf"), BufferingHandler(sys.maxsize)
    collector.setLevel(logging.WARNING)
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(collector)
    try:
        yield collector.buffer
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagate
