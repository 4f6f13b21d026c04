"""Word files: a small one, and one that unpacks to far more."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Mapping
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


def raw_word(
    body: str, styles: str = "", numbering: str = "", footnotes: str = "", strict: bool = False, **linked: bytes
) -> bytes:
    """A Word file of the XML of its parts, with other names than Word gives them; in the strict format's namespaces."""
    base = "http://schemas.openxmlformats.org/{}/2006/{}"
    if strict:
        base = "http://purl.oclc.org/ooxml/{}/{}"
    spaces = f'xmlns:w="{base.format("wordprocessingml", "main")}" xmlns:m="{base.format("officeDocument", "math")}"'
    link, package = base.format("officeDocument", "relationships"), "http://schemas.openxmlformats.org/package/2006"
    texts = {"styles": styles, "numbering": numbering, "footnotes": footnotes}
    parts: dict[str, str | bytes] = {
        "word/text2.xml": f"<w:document {spaces}><w:body>{body}</w:body></w:document>",
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"/>',
        **{f"word/{name}.xml": f"<w:{name} {spaces}>{inside}</w:{name}>" for name, inside in texts.items()},
        **{f"word/{name}.xml": part for name, part in linked.items()},
    }
    for name, links in (
        ("_rels/.rels", {"officeDocument": "word/text2.xml"}),
        ("word/_rels/text2.xml.rels", {name: f"charts/../{name}.xml" for name in (*texts, *linked)}),
    ):
        inside = (f'<Relationship Id="{kind}" Type="{link}/{kind}" Target="{at}"/>' for kind, at in links.items())
        parts[name] = f'<Relationships xmlns="{package}/relationships">{"".join(inside)}</Relationships>'
    return zipped(parts)


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return out.getvalue()


def changed(archive: bytes, part: str, find: str, put: str) -> bytes:
    """An archive with a part in which a pattern is replaced."""
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        parts = {name: source.read(name) for name in source.namelist()}
    text, count = re.subn(find, lambda _: put, parts[part].decode())
    assert count
    return zipped(parts | {part: text.encode()})


def bomb() -> bytes:
    """A Word file of some kilobytes that unpacks to six megabytes, and takes many times that to be read."""
    return changed(docx_of("A small file."), "word/document.xml", "<w:p>", "<w:p/>" * 1_000_000 + "<w:p>")
