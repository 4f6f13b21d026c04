"""Read PDF files: PDFium gives the glyphs, `lines` their lines, `paragraphs` the text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import pypdfium2.raw as pdfium
from pypdfium2 import PdfDocument, PdfiumError, PdfPage

from readers_eddy.content import Content, ReadingLimits, Unreadable, choose_title
from readers_eddy.pdf.glyphs import read_glyphs
from readers_eddy.pdf.lines import Line, read_fields, read_lines
from readers_eddy.pdf.page_headers import letters_of, split_page_headers
from readers_eddy.pdf.paragraphs import SOFT_HYPHEN, reflow
from readers_eddy.pdf.recognition import can_recognize, recognize

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]|[\ufffe\uffff]")
_SPACES = re.compile(r"[ \xa0]+")
_UNKNOWN = "\ufffd"
_REPLACED = {0x7F: "•"}  # the unused codes of WinAnsiEncoding are bullets: ISO 32000-1, annex D.2
_REPLACED |= {0xFB00 + at: letters for at, letters in enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"))}
_REPLACED |= {code: text for code in range(0x80, 0xA0) if (text := bytes([code]).decode("cp1252", "ignore"))}
_REPLACED |= {9: " ", 10: " ", 13: " "}
_TEX = dict(
    zip("\x0b\x0c\x0e\x0f\x1b\x1c\x1d\x1e\x1f", ("ff", "fi", "ffi", "ffl", "ff", "fi", "fl", "ffi", "ffl"), strict=True)
)
_TEX_LIGATURE = re.compile("(?<=[a-z])[\x0b\x0c\x0e\x0f\x1b-\x1f]|[\x0b\x0c\x0e\x0f\x1b-\x1f](?=[a-z])")
"""Codes of ligatures beside letters, in TeX's fonts of pixels, which have no names."""
_OUTLINE, _TITLE_LINES = 10_000, 3
"""Entries of an outline, and lines of a title, at most."""
_NO_TITLE = {"anonymous", "untitled", "unspecified"}
_END = b"%%EOF"


def read_pdf(data: bytes, max_pages: int = ReadingLimits.pages, alive: Callable[[], None] = lambda: None) -> Content:
    """Extract the text of a PDF file as people see it; notes say what is left out.

    `alive` is called after each page whose text was recognized in its picture, which takes seconds.
    """
    try:
        with PdfDocument(data) as document:
            if len(document) > max_pages:
                raise Unreadable(f"it has {len(document):,} pages, and at most {max_pages:,} are read; split it")
            return _read(document, _END not in data[-1024:], alive)
    except PdfiumError as error:
        if error.err_code == pdfium.FPDF_ERR_PASSWORD:
            raise Unreadable(
                "protected by a password: open it in a PDF reader, and print it to a new file without one"
            ) from None
        raise Unreadable(
            "damaged, or no PDF file: open it in a PDF reader, and print or export it as PDF again"
        ) from error


def _read(document: PdfDocument, is_cut: bool, alive: Callable[[], None]) -> Content:
    document.init_forms()
    n_pages, lines, n_numbers = len(document), list[Line](), 0
    pages = defaultdict[str, dict[int, int]](dict)  # of which the notes say something, with what is counted on each
    for number in range(n_pages):
        try:
            page = document[number]
        except PdfiumError:
            pages["broken"][number + 1] = 0
            continue
        of_page, unseen, n_margin = page_lines(page, number)
        if not of_page and next(page.get_objects([pdfium.FPDF_PAGEOBJ_IMAGE], max_depth=3), None):
            if can_recognize():
                glyphs, n_unsure = recognize(page)
                of_page = _cleaned(read_lines(glyphs, number)[0])
                alive()
            if of_page:
                pages["recognized"][number + 1] = n_unsure
            else:
                pages["pictures"][number + 1] = 0
        lines += of_page
        n_numbers += n_margin
        if unseen:
            pages["hidden"][number + 1] = unseen
        page.close()
    if not n_pages:
        raise Unreadable("it has no pages")
    if not lines:
        many = "its page" if n_pages == 1 else f"its {n_pages} pages"
        raise Unreadable(f"no text in {many}" + (f", only pictures, {_remedy()}" if pages["pictures"] else ""))
    labels = tuple(document.get_page_label(number) for number in range(n_pages))
    plain = tuple(str(number + 1) for number in range(n_pages))
    body, left_out = split_page_headers(lines, labels if any(labels) else plain)
    text, starts = reflow(with_headings(body, document), n_pages)
    title, notes = choose_title([_title(document)])
    notes += (f"left out {n_numbers} numbers of lines in the margins",) if n_numbers else ()
    notes += tuple(_notes(text, left_out, pages, n_pages))
    if is_cut:
        notes += ("damaged, so check that nothing is missing: the file does not end as a PDF file does",)
    return Content(title, text, starts, page_labels=labels if any(labels) and labels != plain else (), notes=notes)


def page_lines(page: PdfPage, number: int) -> tuple[list[Line], int, int]:
    """Return the lines of a page in reading order, and the numbers of unseen glyphs and of line numbers."""
    glyphs, unseen = read_glyphs(page)
    lines, n_numbers = read_lines(glyphs, number, list(read_fields(page)))
    return _cleaned(lines), unseen, n_numbers


def _cleaned(lines: list[Line]) -> list[Line]:
    for line in lines:
        text = _clean(line.text)
        line.text = (text if line.is_code else _SPACES.sub(" ", text)).strip()
    return [line for line in lines if line.text]


def with_headings(lines: list[Line], document: PdfDocument) -> list[Line]:
    """Join and mark the lines that are a title of the file's outline, on the page to which it leads."""
    titles: dict[int, dict[str, int]] = defaultdict(dict)
    for entry in islice(document.get_toc(), _OUTLINE):
        page = dest.get_index() if (dest := entry.get_dest()) else None
        if page is not None and (title := letters_of(entry.get_title())):
            titles[page].setdefault(title, min(entry.level + 1, 6))
    out: list[Line] = []
    at = 0
    while at < len(lines):
        line, wanted, title, size = lines[at], titles.get(lines[at].page, {}), "", 0
        for end in range(at + 1, min(at + _TITLE_LINES, len(lines)) + 1):
            title += letters_of(lines[end - 1].text)
            if not lines[end - 1].is_row and title in wanted:
                size, level = end - at, wanted.pop(title)
                text = " ".join(part.text for part in lines[at:end]).replace(f"{SOFT_HYPHEN} ", "")
                line.text, line.level = text, level
                break
            if not title or not any(other.startswith(title) for other in wanted):
                break
        out.append(line)
        at += max(size, 1)
    return out


def _title(document: PdfDocument) -> str:
    title = _SPACES.sub(" ", _clean(document.get_metadata_value("Title"))).strip()
    return "" if title.lower().strip("()") in _NO_TITLE else title


def _clean(text: str) -> str:
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins surrogate pairs
    text = _TEX_LIGATURE.sub(lambda match: _TEX[match[0]], text)
    body, last = (text[:-1], text[-1]) if text.rstrip().endswith(SOFT_HYPHEN) else (text, "")
    return _CONTROL.sub(_UNKNOWN, (body.replace(SOFT_HYPHEN, "") + last).translate(_REPLACED))


def _notes(text: str, left_out: dict[str, int], pages: dict[str, dict[int, int]], n_pages: int) -> Iterator[str]:
    if left_out:
        kinds = [f"{what} ({count} times)" for what, count in sorted(left_out.items(), key=lambda item: -item[1])]
        yield f"left out {sum(left_out.values())} running headers and footers: {_listed(kinds, 50)}"
    if hidden := pages["hidden"]:
        count = sum(hidden.values())
        yield (
            f"left out {count:,} character{'s' * (count > 1)} that nobody sees ({_listed_pages(hidden)}): "
            "drawn invisibly, in the colour behind them, tiny, off the page or on a layer that is off"
        )
    if pictures := pages["pictures"]:
        yield f"no text on {len(pictures)} of {n_pages} pages, only pictures ({_listed_pages(pictures)}), {_remedy()}"
    if recognized := pages["recognized"]:
        many = f"{len(recognized)} of {n_pages} pages ({_listed_pages(recognized)})"
        unsure = f"; {n_unsure} lines are left out, too unsure" if (n_unsure := sum(recognized.values())) else ""
        yield f"recognized in pictures, so there may be errors: text on {many}{unsure}"
    if unknown := text.count(_UNKNOWN):
        yield f"without a meaning in the file's fonts, and shown as {_UNKNOWN}: {unknown:,} of the characters"
    if broken := pages["broken"]:
        yield f"damaged: {len(broken)} of {n_pages} pages cannot be read ({_listed_pages(broken)})"


def _remedy() -> str:
    install = 'which `pip install "eddy-embed[ocr]"` lets Eddy read'
    return "in which no text is recognized" if can_recognize() else install


def _listed_pages(numbers: Iterable[int]) -> str:
    return _listed([f"p. {number}" for number in numbers])


def _listed(items: list[str], most: int = 5) -> str:
    more = f", … and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
