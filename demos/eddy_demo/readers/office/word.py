"""Read Word files: mammoth makes HTML of them, after what it does not know was put in its terms."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

import mammoth
from lxml import etree

from eddy_demo.readers.content import Content
from eddy_demo.readers.markup import read_html
from eddy_demo.readers.scripts import lowered, raised

_NAMESPACE = re.compile(r"\{[^}]*\}")
_WORD_STYLES = "\n".join(
    [
        "p[style-name='Title'] => h1:fresh",
        *(f"p[style-name='heading {level}'] => h6:fresh" for level in (7, 8, 9)),
        *(
            f"p[style-name='List {kind} {level}'] => {'ul|ol > li > ' * (level - 1)}{tag} > li:fresh"
            for kind, tag in (("Bullet", "ul"), ("Number", "ol"))
            for level in (2, 3)
        ),
    ]
)
"""Styles of Word besides those that mammoth knows."""
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_PARTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
_SCRIPTS = {"sup": raised, "sub": lowered}


def read_docx(data: bytes) -> Content:
    """Extract headings, paragraphs, lists, tables, text boxes and notes, without headers, footers and comments."""
    result: Any = mammoth.convert_to_html(
        _simplified(data), style_map=_WORD_STYLES, convert_image=mammoth.images.img_element(lambda _: {})
    )
    lost = sorted({_NAMESPACE.sub("", each.message) for each in result.messages if "ignored" in each.message})
    content = read_html(re.sub(r' ?<a href="#[^"]*note-ref-[^"]*">↑</a>', "", result.value))
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    note = f"parts of the file are not read: {'; '.join(lost[:3])}{more}"
    return Content(content.title, content.text, notes=(*content.notes, note) if lost else content.notes)


def _simplified(data: bytes) -> io.BytesIO:
    """Return the file without hidden text, with the values of fields and with formulas as text."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            part = source.read(name)
            if name in _PARTS and any(mark in part for mark in (b"w:vanish", b"w:fldSimple", b"m:oMath")):
                part = _simplified_part(part)
            target.writestr(name, part)
    return out


def _simplified_part(part: bytes) -> bytes:
    root = etree.fromstring(part, etree.XMLParser(resolve_entities=False, no_network=True))
    for mark in list(root.iter(f"{_W}vanish")):
        run = next(mark.iterancestors(f"{_W}r"), None)
        if run is not None and mark.get(f"{_W}val", "1") not in ("0", "false") and run.getparent() is not None:
            run.getparent().remove(run)
    for formula in list(root.iter(f"{_M}oMath")):
        run = etree.Element(f"{_W}r")
        etree.SubElement(run, f"{_W}t").text = _formula(formula)
        formula.getparent().replace(formula, run)
    for wrapper in [*root.iter(f"{_W}fldSimple"), *root.iter(f"{_M}oMathPara")]:
        parent = wrapper.getparent()
        at = parent.index(wrapper)
        parent[at : at + 1] = list(wrapper)
    return bytes(etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True))


def _formula(element: Any) -> str:
    """Return a formula as text: raised and lowered signs as Unicode has them, fractions with a stroke."""
    name = element.tag.removeprefix(_M)
    if name == "t":
        return element.text or ""
    parts = [_formula(child) for child in element if isinstance(child.tag, str)]
    if name in _SCRIPTS:
        return _SCRIPTS[name]("".join(parts))
    return "/".join(filter(None, parts)) if name == "f" else "".join(parts)
