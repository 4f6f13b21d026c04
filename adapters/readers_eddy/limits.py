"""Limits of reading one file, the same on the command line and on the page; archives are checked while packed."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from readers_eddy.errors import Unreadable, one_line

_OLE_SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""First bytes of an encrypted .docx, .pptx or .xlsx, and of any .doc, .ppt or .xls."""

_XML_NO_MEMORY = 2
"""Code of lxml's errors where memory is exhausted."""


@dataclass(frozen=True)
class ReadingLimits:
    """Limits of reading one file; it is refused beyond them, and the message names the limit."""

    file_bytes: int = 64 * 2**20  # of a file that is one document, and of a row of a .jsonl file
    parse_seconds: float = 120.0
    parse_bytes: int = 2 * 2**30  # memory of the process that reads
    pages: int = 5_000  # of a PDF file
    characters: int = 20_000_000  # of a document's text
    rows: int = 1_000_000  # of a .jsonl file
    unpacked_bytes: int = 512 * 2**20  # of a .jsonl file, and of one that is an archive, as .docx is


@contextmanager
def reading_archive(data: bytes, suffix: str, most_bytes: int) -> Iterator[None]:
    """Check an archive, and turn the errors of many types that damage causes into one.

    Raises:
        Unreadable: The file is encrypted, of an older type, damaged, or unpacks to more than `most_bytes`.
    """
    if data.startswith(_OLE_SIGNATURE):
        raise Unreadable(
            "protected by a password, or of an older type under another name: open it in an office program and save "
            f"it as {suffix} without a password"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:  # which unpacks no more of a part than is declared
            size = sum(part.file_size for part in archive.infolist())
        if size > most_bytes:
            raise Unreadable(
                f"unpacks to {size / 2**20:,.0f} MB, and at most {most_bytes / 2**20:g} MB are read; split it"
            )
        yield
    except (Unreadable, MemoryError, RecursionError):
        raise
    except Exception as error:
        if getattr(error, "code", None) == _XML_NO_MEMORY:
            raise MemoryError from None
        raise Unreadable(
            f"broken, or no {suffix} file ({one_line(error)}): open it in the program that made it and save it again"
        ) from None
