"""Word files: a small one, and one that unpacks to far more."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import docx


def word_file(fill: Callable[[Any], object]) -> bytes:
    """A Word file that a function fills.

    It lacks the styles of tables, which are nine tenths of what a reader of an otherwise small file goes through.
    """
    document = docx.Document()
    styles = document.styles.element
    for style in [*styles.iterchildren("{*}latentStyles"), *styles.xpath("w:style[@w:type='table']")]:
        styles.remove(style)
    fill(document)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def docx_of(text: str) -> bytes:
    return word_file(lambda document: document.add_paragraph(text))


def bomb() -> bytes:
    """A Word file of some kilobytes that unpacks to six megabytes, and takes many times that to be read."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(docx_of("A small file."))) as source,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        for name in source.namelist():
            body = source.read(name)
            if name == "word/document.xml":
                body = body.replace(b"<w:p>", b"<w:p/>" * 1_000_000 + b"<w:p>", 1)
            archive.writestr(name, body)
    return out.getvalue()
