"""Word files: a small one, and one that unpacks to far more."""

from __future__ import annotations

import io
import zipfile

from docx import Document as Word


def docx(text: str) -> bytes:
    out = io.BytesIO()
    document = Word()
    document.add_paragraph(text)
    document.save(out)
    return out.getvalue()


def bomb() -> bytes:
    """A Word file of some kilobytes that unpacks to six megabytes, and takes many times that to be read."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(docx("A small file."))) as source,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        for name in source.namelist():
            body = source.read(name)
            if name == "word/document.xml":
                body = body.replace(b"<w:p>", b"<w:p/>" * 1_000_000 + b"<w:p>", 1)
            archive.writestr(name, body)
    return out.getvalue()
