"""Eddy's readers: files of many formats to titles, texts and pages, in a process with limits."""

from eddy_embed.utils.extras import check_installed

_NEEDED = "bs4 lxml mammoth markdown_it markdownify openpyxl pptx pypdfium2 selectolax webencodings yaml"
check_installed("readers", *_NEEDED.split())

from readers_eddy.content import NothingToRead, ReadingLimits, Unreadable  # noqa: E402
from readers_eddy.documents import (  # noqa: E402
    ReadResult,
    SkippedFile,
    SourceDocument,
    iter_documents,
    read_document,
    read_documents,
)

__all__ = [
    "NothingToRead",
    "ReadResult",
    "ReadingLimits",
    "SkippedFile",
    "SourceDocument",
    "Unreadable",
    "iter_documents",
    "read_document",
    "read_documents",
]
