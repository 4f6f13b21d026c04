"""Read Word files: mammoth makes HTML of them, after what it does not know was put in its terms."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mammoth
from lxml import etree
from lxml.builder import ElementMaker

from readers_eddy.content import Content
from readers_eddy.formulas import omml_text
from readers_eddy.markup import read_html
from readers_eddy.office.drawingml import XML_PARSER, Graphic, graphic_link, read_graphic
from readers_eddy.scripts import numeral

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_PLACE = re.compile("%([1-9])")
_CODE = re.compile(r"\bcode|preformatted|\blisting", re.IGNORECASE)
_CODE_FONT = re.compile(r"courier|consolas|menlo|monaco|lucida console|\bmono", re.IGNORECASE)
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
    paragraph.insert(0, _MAKE.pPr(_MAKE.pStyle({f"{W}val": f"Eddy{kind}"})))


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


# --- What styles and lists say of a paragraph: its heading level, its label such as `(a)` or `Article VII`


def value(element: Any, path: str, default: str | None = None) -> str | None:
    """Return the value of the element at a path such as `pPr/pStyle`; `default` without one."""
    at = None if element is None else element.find("/".join(f"{W}{name}" for name in path.split("/")))
    return default if at is None else at.get(f"{W}val", "1")


def is_on(element: Any, path: str) -> bool:
    """Whether a switch at a path is on."""
    return value(element, path, "0") not in ("0", "false", "off", "none")


class Styles:
    """The styles of a Word file, each with those that it is based on."""

    def __init__(self, root: Any) -> None:
        styles = [] if root is None else root.findall(f"{W}style")
        self._styles = {style.get(f"{W}styleId"): style for style in styles}
        default = [style for style in styles if (style.get(f"{W}type"), style.get(f"{W}default")) == ("paragraph", "1")]
        self._default = default[0].get(f"{W}styleId") if default else None

    def of(self, element: Any) -> Iterator[Any]:
        """Yield a paragraph or run, its style and what that is based on, the nearest first."""
        yield element
        name = value(element, "pPr/pStyle", self._default) if element.tag == f"{W}p" else value(element, "rPr/rStyle")
        seen = set()
        while name in self._styles and name not in seen:
            seen.add(name)
            yield self._styles[name]
            name = value(self._styles[name], "basedOn")

    def heading(self, paragraph: Any) -> int:
        """Return a paragraph's heading level, from 1; 0 for none."""
        for element in self.of(paragraph):
            if (level := value(element, "pPr/outlineLvl")) is not None:
                return int(level) % 9 + 1 if level in "012345678" else 0
            if named := re.fullmatch("heading ([1-9])", (value(element, "name") or "").lower()):
                return int(named[1])
        return 0

    def is_hidden(self, run: Any) -> bool:
        """Whether a run is hidden, by itself, by its style or by its paragraph's."""
        paragraph = next(run.iterancestors(f"{W}p"), None)
        chain = [*self.of(run), *(list(self.of(paragraph))[1:] if paragraph is not None else ())]
        return next((is_on(part, "rPr/vanish") for part in chain if value(part, "rPr/vanish") is not None), False)

    def is_code(self, paragraph: Any) -> bool:
        """Whether a paragraph is code: by its style's name, or all of it in a font for code unlike the body's."""
        styles = [style for style in list(self.of(paragraph))[1:] if style.get(f"{W}styleId") != self._default]
        if any(_CODE.search(value(style, "name") or "") for style in styles):
            return True
        runs = [run for run in paragraph.iter(f"{W}r") if run.find(f"{W}t") is not None]
        return bool(runs) and all(any(map(_has_code_font, (*self.of(run), *styles))) for run in runs)


def _has_code_font(element: Any) -> bool:
    fonts = element.find(f"{W}rPr/{W}rFonts")
    return fonts is not None and bool(_CODE_FONT.search(fonts.get(f"{W}ascii", "")))


class Numbering:
    """The lists of a Word file, and how far each has counted."""

    def __init__(self, root: Any, styles: Styles) -> None:
        self._styles = styles
        self._lists = {} if root is None else {num.get(f"{W}numId"): num for num in root.findall(f"{W}num")}
        abstract = [] if root is None else root.findall(f"{W}abstractNum")
        self._abstract = {definition.get(f"{W}abstractNumId"): definition for definition in abstract}
        self._linked = {value(definition, "styleLink"): definition for definition in abstract}
        self._counts: dict[Any, dict[int, int]] = {}
        self._begun: set[tuple[str, int]] = set()

    def label(self, paragraph: Any) -> str | None:
        """Count a paragraph, and return its label; "" for a bullet, " " for an empty one, None if it is in no list."""
        chain = list(self._styles.of(paragraph))
        number = next((id_ for element in chain if (id_ := value(element, "pPr/numPr/numId")) is not None), None)
        levels = self._levels(number)
        if not levels:
            return None
        set_level = next((level for element in chain if (level := value(element, "pPr/numPr/ilvl")) is not None), None)
        styles = [style.get(f"{W}styleId") for style in chain[1:]]
        by_style = (at for at, level in levels.items() if value(level, "pStyle") in styles)
        at = int(set_level) if set_level is not None else next(by_style, 0)
        if at not in levels:
            return None
        counts = self._count(str(number), levels, at)
        if value(levels[at], "numFmt") == "bullet":
            return ""

        def shown(place: re.Match[str]) -> str:
            level = int(place[1]) - 1
            style = "decimal" if is_on(levels[at], "isLgl") else value(levels.get(level), "numFmt", "decimal") or ""
            count = counts.get(level, self._start(levels, level))
            return "" if style == "none" else f"{count:02}" if style == "decimalZero" else numeral(count, style)

        return _PLACE.sub(shown, value(levels[at], "lvlText", "") or "").strip() or " "

    def _levels(self, number: str | None) -> dict[int, Any]:
        """Return the levels of a list, its own before those that it shares."""
        num = self._lists.get(number)
        abstract = self._abstract.get(value(num, "abstractNumId"))
        if abstract is not None and (link := value(abstract, "numStyleLink")) is not None:
            abstract = self._linked.get(link, abstract)
        if num is None or abstract is None:
            return {}
        levels = {int(level.get(f"{W}ilvl")): level for level in abstract.findall(f"{W}lvl")}
        return levels | {int(level.get(f"{W}ilvl")): level for level in num.findall(f"{W}lvlOverride/{W}lvl")}

    def _count(self, number: str, levels: dict[int, Any], at: int) -> dict[int, int]:
        counts = self._counts.setdefault(value(self._lists[number], "abstractNumId"), {})
        for override in self._lists[number].findall(f"{W}lvlOverride"):
            level, start = int(override.get(f"{W}ilvl")), value(override, "startOverride")
            if start is not None and level <= at and (number, level) not in self._begun:
                counts[level] = int(start) - 1
                self._begun.add((number, level))
        counts[at] = counts[at] + 1 if at in counts else self._start(levels, at)
        for level in [level for level in counts if level > at]:
            if at < int(value(levels.get(level), "lvlRestart", str(level)) or 0):
                del counts[level]
        return counts

    @staticmethod
    def _start(levels: dict[int, Any], at: int) -> int:
        return int(value(levels.get(at), "start", "1") or 1)
