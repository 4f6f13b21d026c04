"""Limits of reading one file, the same on the command line and on the page."""

from __future__ import annotations

from dataclasses import dataclass


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
