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


def raw_word(body: str, styles: str = "", numbering: str = "", strict: bool = False) -> bytes:
    """A Word file of the XML of its parts, with other names than Word gives them; in the strict format's namespaces."""
    base = "http://schemas.openxmlformats.org/{}/2006/{}"
    if strict:
        base = "http://purl.oclc.org/ooxml/{}/{}"
    spaces = f'xmlns:w="{base.format("wordprocessingml", "main")}" xmlns:m="{base.format("officeDocument", "math")}"'
    link, package = base.format("officeDocument", "relationships"), "http://schemas.openxmlformats.org/package/2006"
    parts = {
        "word/text2.xml": f"<w:document {spaces}><w:body>{body}</w:body></w:document>",
        "word/styles.xml": f"<w:styles {spaces}>{styles}</w:styles>",
        "word/numbering.xml": f"<w:numbering {spaces}>{numbering}</w:numbering>",
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"/>',
    }
    for name, links in (
        ("_rels/.rels", {"officeDocument": "word/text2.xml"}),
        ("word/_rels/text2.xml.rels", {"styles": "styles.xml", "numbering": "numbering.xml"}),
    ):
        inside = (f'<Relationship Id="{kind}" Type="{link}/{kind}" Target="{at}"/>' for kind, at in links.items())
        parts[name] = f'<Relationships xmlns="{package}/relationships">{"".join(inside)}</Relationships>'
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return out.getvalue()


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
