"""Bytes to text by the WHATWG's encoding standard: the mark first, then the label that HTML declares, else UTF-8."""

from __future__ import annotations

import codecs
import re

import webencodings
from bs4.dammit import EncodingDetector

from readers_eddy.errors import Unreadable

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


def rows_mark(start: bytes) -> str:
    """Return the encoding that the first bytes of a file of lines mark; "" for none that changes its line ends."""
    return next((name for mark, name in _MARKS[1:] if start.startswith(mark)), "")
