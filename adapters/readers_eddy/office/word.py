"""Read Word files: mammoth makes HTML of them, after what it does not know was put in its terms."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import mammoth
from lxml import etree
from lxml.builder import ElementMaker

from readers_eddy.content import Content
from readers_eddy.formulas import omml_text
from readers_eddy.markup import read_html
from readers_eddy.office.drawingml import XML_PARSER, Graphic, graphic_link, read_graphic
from readers_eddy.office.numbering import Numbering, Styles, W, is_on, value

_NAMESPACE = re.compile(r"\{[^}]*\}")
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/(\w+)")
_WORD_STYLES = "\n".join(
    [
        *(f"p.EddyHeading{level} => h{min(level, 6)}:fresh" for level in range(1, 10)),
        "p.EddyCode => pre:separator('\\n')",
        "p[style-name='Title'] => h1:fresh",
        *(
            f"p[style-name='List {kind} {level}'] => {'ul|ol > li > ' * (level - 1)}{tag} > li:fresh"
            for kind, tag in (("Bullet", "ul"), ("Number", "ol"))
            for level in (2, 3)
        ),
    ]
)
"""Styles of Word besides those that mammoth knows."""
_MAKE = ElementMaker(namespace=W[1:-1])
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_SIGNS = "\ue000\ue001"
"""Stand around a paragraph's label until it is HTML."""
_ITEM = re.compile(f"<li>{_SIGNS[0]}([^<{_SIGNS[1]}]*){_SIGNS[1]} ")
_RUBY = ("rubyBase", "rt")
_ROOT = re.compile(rb"<(?:\w+:)?(?:document|footnotes|endnotes|styles|numbering)[\s>]")
_SEARCHED = 4096
"""Bytes at the beginning of a part that are searched for its first element."""
_TEXTS = [f"{W}{name}" for name in ("document", "footnotes", "endnotes")]


def read_docx(data: bytes) -> Content:
    """Extract all text, charts and diagrams, but no headers, footers and comments."""
    damaged, hidden = list[str](), Counter[str]()
    result: Any = mammoth.convert_to_html(
        _simplified(data, damaged, hidden),
        style_map=_WORD_STYLES,
        convert_image=mammoth.images.img_element(lambda _: {}),
    )
    lost = sorted(
        {_NAMESPACE.sub("", note.message) for note in result.messages if "ignored" in note.message} | set(damaged)
    )
    markup = re.sub(r' ?<a href="#[^"]*note-ref-[^"]*">↑</a>', "", result.value)
    content = read_html(re.sub(f"[{_SIGNS}]", "", _ITEM.sub(r'<li mark="\1">', markup)))
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    notes = content.notes + tuple(f"{what} are left out ({count})" for what, count in hidden.items())
    note = f"parts of the file are not read: {'; '.join(lost[:3])}{more}"
    return Content(content.title, content.text, notes=(*notes, note) if lost else notes)


def _simplified(data: bytes, damaged: list[str], hidden: Counter[str]) -> io.BytesIO:
    """Return the file without hidden text, and with lists, fields, formulas, charts and diagrams as text."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
        usual = rb"http://schemas.openxmlformats.org/\1/2006/\2"
        parts = {name: _STRICT.sub(usual, source.read(name)) for name in source.namelist()}
        roots = {
            name: etree.fromstring(part, XML_PARSER)
            for name, part in parts.items()
            if _ROOT.search(part[:_SEARCHED]) and "glossary" not in name
        }
        by_kind = {root.tag: root for root in roots.values()}
        styles = Styles(by_kind.get(f"{W}styles"))
        numbering = Numbering(by_kind.get(f"{W}numbering"), styles)
        for name, part in parts.items():
            if name in roots and roots[name].tag in _TEXTS:
                linked = partial(_linked_part, source, name)
                _write_graphics(roots[name], linked, damaged)
                _simplify(roots[name])
                _write_fields(roots[name])
                _leave_out_hidden(roots[name], styles, hidden)
                _mark_paragraphs(roots[name], styles, numbering)
                part = etree.tostring(roots[name], xml_declaration=True, encoding="UTF-8", standalone=True)
            target.writestr(name, part)
    return out


def _linked_part(archive: zipfile.ZipFile, name: str, link: str) -> bytes:
    """Return the part of a file to which the part `name` has a relationship with the id `link`."""
    folder, file = posixpath.split(name)
    for relation in etree.fromstring(archive.read(f"{folder}/_rels/{file}.rels"), XML_PARSER):
        if relation.get("Id") == link:
            return archive.read(posixpath.normpath(posixpath.join("/", folder, relation.get("Target", "")))[1:])
    raise KeyError(link)


def _write_graphics(root: Any, linked: Callable[[str], bytes], damaged: list[str]) -> None:
    for drawing in reversed(list(root.iter(f"{W}drawing"))):  # each comes behind its paragraph, before later ones
        paragraph, link = next(drawing.iterancestors(f"{W}p"), None), graphic_link(drawing)
        if paragraph is None or link is None:
            continue
        drawing.getparent().remove(drawing)
        try:
            for element in reversed(_elements(read_graphic(linked(link)))):
                paragraph.addnext(element)
        except (KeyError, ValueError, etree.LxmlError):
            damaged.append("a damaged chart or diagram")


def _simplify(root: Any) -> None:
    """Write formulas and readings of signs as text, and put what mammoth reads wrongly in other terms."""
    for formula in list(root.iter(f"{_M}oMath")):
        formula.getparent().replace(formula, _text(omml_text(formula)))
    for ruby in list(root.iter(f"{W}ruby")):
        base, reading = ("".join(run.text or "" for run in ruby.iterfind(f"{W}{name}//{W}t")) for name in _RUBY)
        ruby.getparent().replace(ruby, _text(f"{base}({reading})")[0])
    for wrapper in [*root.iter(f"{W}fldSimple"), *root.iter(f"{_M}oMathPara")]:
        parent = wrapper.getparent()
        at = parent.index(wrapper)
        parent[at : at + 1] = list(wrapper)
    for end in root.iter(f"{W}cr"):
        end.tag = f"{W}br"
    for before in list(root.iter(f"{W}gridBefore")):
        for _ in range(min(int(before.get(f"{W}val", "0")), 100)):
            before.getparent().addnext(_MAKE.tc(_MAKE.p()))


def _write_fields(root: Any) -> None:
    """Take out the instructions of fields, with the fields in them, and write the state of those that are filled in."""
    fields: list[tuple[list[Any], list[bool]]] = []  # what stands in each one's instruction; whether that is over
    for part in [part for run in root.iter(f"{W}r") for part in run if part.tag != f"{W}rPr"]:
        kind = part.get(f"{W}fldCharType") if part.tag == f"{W}fldChar" else ""
        for inside, over in fields:
            if not over:
                inside.append(part)
        if kind == "begin":
            fields.append(([], []))
            part.addnext(_text(_state(part))[0])
        elif kind == "separate" and fields:
            fields[-1][1].append(True)
        elif kind == "end" and fields:
            for part in fields.pop()[0]:
                if part.getparent() is not None:
                    part.getparent().remove(part)
    etree.strip_elements(root, f"{W}fldChar", f"{W}instrText", with_tail=False)


def _state(begin: Any) -> str:
    """Return what a check box or a drop-down list of a form says."""
    if (box := begin.find(f"{W}ffData/{W}checkBox")) is not None:
        return "☒" if is_on(box, "checked" if box.find(f"{W}checked") is not None else "default") else "☐"
    choices = begin.find(f"{W}ffData/{W}ddList")
    entries = [] if choices is None else [entry.get(f"{W}val", "") for entry in choices.findall(f"{W}listEntry")]
    chosen = int(value(choices, "result", value(choices, "default", "0")) or 0)
    return entries[chosen] if chosen < len(entries) else ""


def _leave_out_hidden(root: Any, styles: Styles, hidden: Counter[str]) -> None:
    for row in [row for row in root.iter(f"{W}tr") if is_on(row, "trPr/hidden")]:
        row.getparent().remove(row)
        hidden["hidden rows"] += 1
    for run in [run for run in root.iter(f"{W}r") if styles.is_hidden(run)]:
        if any(text.text for text in run.iter(f"{W}t")):
            hidden["hidden texts"] += 1
        run.getparent().remove(run)


def _mark_paragraphs(root: Any, styles: Styles, numbering: Numbering) -> None:
    """Put headings and code in styles that are known here, and labels of lists in the text."""
    in_code, blank = False, list[Any]()  # lines of code without text, if more code follows them
    for paragraph in list(root.iter(f"{W}p")):
        label, level = numbering.label(paragraph), styles.heading(paragraph)
        if not any(text.text for text in paragraph.iter(f"{W}t")):
            blank += [paragraph] if in_code else []
            continue
        if label and label.strip():
            before = paragraph.find(f"{W}pPr")
            paragraph.insert(0 if before is None else 1, _text(f"{_SIGNS[0]}{label}{_SIGNS[1]} "))
        kind = f"Heading{level}" if level else "Plain" if label == " " else ""
        if not kind and label is None and styles.is_code(paragraph):
            kind = "Code"
            for line in blank:
                line.append(_text(_SIGNS[0]))  # mammoth drops empty paragraphs
                _set_style(line, kind)
        in_code, blank = kind == "Code", []
        if kind:
            _set_style(paragraph, kind)


def _set_style(paragraph: Any, kind: str) -> None:
    properties = paragraph.find(f"{W}pPr")
    if properties is not None:
        paragraph.remove(properties)
    paragraph.insert(0, _MAKE.pPr(_MAKE.pStyle()))
    paragraph[0][0].set(f"{W}val", f"Eddy{kind}")


def _elements(graphic: Graphic) -> list[Any]:
    """Return a chart or a diagram as a paragraph and tables."""
    return [
        _MAKE.p(*(part for line in graphic.lines for part in (_text(line), _MAKE.r(_MAKE.br())))),
        *(
            _MAKE.tbl(*(_MAKE.tr(*(_MAKE.tc(_MAKE.p(_text(cell))) for cell in row)) for row in rows))
            for rows in graphic.tables
        ),
    ]


def _text(text: str) -> Any:
    return _MAKE.r(_MAKE.t(text))
