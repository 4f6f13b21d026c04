"""Text files: bytes to characters by the WHATWG's encoding standard, and what repeats at the ends of pages."""

from __future__ import annotations

import codecs
import re
from collections import defaultdict
from itertools import pairwise

import webencodings
from bs4.dammit import EncodingDetector

from readers_eddy.content import Content, Unreadable

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_COMMENT = re.compile(rb"<!--.*?(?:-->|$)", re.DOTALL)
_SEARCHED = 4096
"""Bytes at the beginning of a page that are searched for a label."""


def decode(data: bytes, html: bool = False, label: str | None = None) -> str:
    """Decode strictly: a wrong guess would shift every citation; `label` stands in a header, before the page's own.

    Raises:
        Unreadable: The bytes are not what their mark or label says, or not UTF-8 without either.
    """
    mark, encoding = next((pair for pair in _MARKS if data.startswith(pair[0])), (b"", ""))
    if not encoding and label:
        known = webencodings.lookup(label)
        if known is None and not data.isascii():
            raise Unreadable(f"its charset {label!r:.80} is not known; save its text as .txt")
        encoding = str(known.codec_info.name) if known else "utf-8"
    if not encoding:
        encoding = _declared(data) if html else "utf-8"
    # A page in a code page of Windows has a character for every byte, if only a control character.
    lenient = "replace" if encoding.startswith(("cp125", "windows-125")) else "strict"
    try:
        return data[len(mark) :].decode(encoding, lenient)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise Unreadable(
            f"not {encoding.upper():.80}: byte 0x{byte:02x} at position {error.start + len(mark)} cannot be decoded; "
            "convert it first, for instance with iconv"
        ) from None


def _declared(data: bytes) -> str:
    label = EncodingDetector.find_declared_encoding(_COMMENT.sub(b"", data[:_SEARCHED]), is_html=True)
    encoding = label and webencodings.lookup(label)
    if not encoding or encoding.name.startswith("utf-16"):  # the label was read as ASCII, so it is not
        return "utf-8"
    return "windows-1252" if encoding.name == "x-user-defined" else str(encoding.codec_info.name)


_PAGE_FOOT = re.compile(r"^(.*\[Page +\d+\])[ \t\r]*$", re.MULTILINE)
_NUMBERED = re.compile(r"(?!(?:page|seite|página|pagina|p\.) )[^\W\d]+\W*#\W*", re.IGNORECASE)
"""A line that is a word and a number, as a chapter's heading."""
_SENTENCE_ENDS = tuple(".!?:;…”\"'’)]»")
_LONG_LINE = 50
"""Characters of a line that is no heading."""


def read_text(text: str) -> Content:
    """Return a text as it is, or without page numbers and running heads, if it has such, and with sentences whole."""
    pages = (text if "\f" in text else _PAGE_FOOT.sub("\\1\f", text)).split("\f")
    if len(pages) == 1:
        return Content("", text)
    parts = [re.split(r"\r?\n", page.rstrip()) if page.strip() else [] for page in pages]
    for lines in parts:
        while lines and not lines[0].strip():
            del lines[0]
    running = {at: _running(parts, at) for at in (0, -1)}
    if not any(running.values()):
        return Content("", text)
    repeated: list[str] = []
    whole = ""
    for lines in filter(None, parts):
        for at, kinds in running.items():
            if (kind := _kind(lines, at)) in kinds:
                repeated.append(kind)
                del lines[at]
        page = "\n".join(lines).strip("\n").rstrip()
        whole += (("\n" if _goes_on(whole, page) else "\n\n") if whole and page else "") + page
    listed = ", ".join(f"“{kind}”" for kind in dict.fromkeys(repeated))
    return Content("", whole, notes=(f"page numbers and running heads are left out: {listed}",))


def _kind(lines: list[str], at: int) -> str:
    """Return the first or last line of a page without its numbers; "" if no empty line parts it from the others."""
    apart = [line for line in (lines[1:2] if at == 0 else lines[-2:-1]) if not line.strip()]
    return re.sub(r"\d+", "#", " ".join(lines[at].split())) if apart else ""


def _running(parts: list[list[str]], at: int) -> set[str]:
    """Return the kinds of lines that stand on most pages, or on every other one, and count nothing but pages."""
    numbers = defaultdict[str, list[tuple[int, list[int]]]](list)
    for page, lines in enumerate(parts):
        if kind := _kind(lines, at):
            numbers[kind].append((page, [int(number[-9:]) for number in re.findall(r"\d+", lines[at])]))
    return {
        kind
        for kind, lines in numbers.items()
        if len(lines) > 1 and len(lines) >= len(parts) // 2 and not _NUMBERED.fullmatch(kind)
        if all(
            b - a in (0, to - at)
            for (at, before), (to, now) in pairwise(lines)
            for a, b in zip(before, now, strict=True)
        )
    }


def _goes_on(before: str, after: str) -> bool:
    """Whether a sentence of one page goes on in the next."""
    last = before.rpartition("\n")[2]
    return not last.endswith(_SENTENCE_ENDS) and (after.lstrip()[:1].islower() or len(last) >= _LONG_LINE)
