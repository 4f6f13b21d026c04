"""Read Word files: mammoth makes HTML of them, after what it does not know was put in its terms."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import mammoth
from lxml import etree

from readers_eddy.content import Content
from readers_eddy.markup import read_html
from readers_eddy.office.drawingml import XML_PARSER, Graphic, formula_text, graphic_link, read_graphic

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
_MARKS = (b"w:vanish", b"w:fldSimple", b"m:oMath", b"c:chart", b"cx:chart", b"dgm:relIds")
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_PARTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")


def read_docx(data: bytes) -> Content:
    """Extract all text, charts and diagrams, but no headers, footers and comments."""
    damaged: list[str] = []
    result: Any = mammoth.convert_to_html(
        _simplified(data, damaged), style_map=_WORD_STYLES, convert_image=mammoth.images.img_element(lambda _: {})
    )
    lost = sorted(
        {_NAMESPACE.sub("", each.message) for each in result.messages if "ignored" in each.message} | set(damaged)
    )
    content = read_html(re.sub(r' ?<a href="#[^"]*note-ref-[^"]*">↑</a>', "", result.value))
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    note = f"parts of the file are not read: {'; '.join(lost[:3])}{more}"
    return Content(content.title, content.text, notes=(*content.notes, note) if lost else content.notes)


def _simplified(data: bytes, damaged: list[str]) -> io.BytesIO:
    """Return the file without hidden text, and with the values of fields, formulas, charts and diagrams as text."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            part = source.read(name)
            if name in _PARTS and any(mark in part for mark in _MARKS):
                part = _simplified_part(part, partial(_linked_part, source, name), damaged)
            target.writestr(name, part)
    return out


def _linked_part(archive: zipfile.ZipFile, name: str, link: str) -> bytes:
    """Return the part of a file to which the part `name` has a relationship with the id `link`."""
    folder, file = posixpath.split(name)
    for each in etree.fromstring(archive.read(f"{folder}/_rels/{file}.rels"), XML_PARSER):
        if each.get("Id") == link:
            return archive.read(posixpath.normpath(posixpath.join("/", folder, each.get("Target", "")))[1:])
    raise KeyError(link)


def _simplified_part(part: bytes, linked: Callable[[str], bytes], damaged: list[str]) -> bytes:
    root = etree.fromstring(part, XML_PARSER)
    for drawing in reversed(list(root.iter(f"{_W}drawing"))):  # each comes behind its paragraph, before later ones
        paragraph, link = next(drawing.iterancestors(f"{_W}p"), None), graphic_link(drawing)
        if paragraph is None or link is None:
            continue
        drawing.getparent().remove(drawing)
        try:
            for element in reversed(_elements(read_graphic(linked(link)))):
                paragraph.addnext(element)
        except (KeyError, ValueError, etree.LxmlError):
            damaged.append("a damaged chart or diagram")
    for mark in list(root.iter(f"{_W}vanish")):
        run = next(mark.iterancestors(f"{_W}r"), None)
        if run is not None and mark.get(f"{_W}val", "1") not in ("0", "false") and run.getparent() is not None:
            run.getparent().remove(run)
    for formula in list(root.iter(f"{_M}oMath")):
        formula.getparent().replace(formula, _text(formula_text(formula)))
    for wrapper in [*root.iter(f"{_W}fldSimple"), *root.iter(f"{_M}oMathPara")]:
        parent = wrapper.getparent()
        at = parent.index(wrapper)
        parent[at : at + 1] = list(wrapper)
    return bytes(etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True))


def _elements(graphic: Graphic) -> list[Any]:
    """Return a chart or a diagram as a paragraph and tables."""
    return [
        _element("p", *(part for line in graphic.lines for part in (_text(line), _element("r", _element("br"))))),
        *(
            _element(
                "tbl", *(_element("tr", *(_element("tc", _element("p", _text(cell))) for cell in row)) for row in rows)
            )
            for rows in graphic.tables
        ),
    ]


def _text(text: str) -> Any:
    run = _element("r", _element("t"))
    run[0].text = text
    return run


def _element(name: str, *children: Any) -> Any:
    element = etree.Element(f"{_W}{name}")
    element.extend(children)
    return element
