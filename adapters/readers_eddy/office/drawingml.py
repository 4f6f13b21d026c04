"""What slides, Word files and sheets have in common: charts, diagrams, lines of text in shapes, rows of cells."""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from lxml import etree
from openpyxl.styles.numbers import is_date_format, is_timedelta_format
from openpyxl.utils.datetime import MAC_EPOCH, WINDOWS_EPOCH, from_excel

from readers_eddy.formulas import omml_text
from readers_eddy.scripts import lowered, raised

_NOTHING_SHOWN = re.compile(r"\[(?:Black|Blue|Cyan|Green|Magenta|Red|White|Yellow|Color ?\d+)\]|[_*].", re.IGNORECASE)
"""Colours, gaps and fillings of a number's format."""
_CURRENCY = re.compile(r"\[\$([^]-]*)[^]]*\]")
_LITERAL = r'((?:"[^"]*"|\\.|[ $€£¥+()-])*)'
_FORM = re.compile(rf"{_LITERAL}(#,##)?(0+)(?:\.(0+))?( *%)?{_LITERAL}")

_MOST = 1e15
"""Sheets know the digits of numbers below this one."""
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_A14 = "{http://schemas.microsoft.com/office/drawing/2010/main}"
_C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_CX = "{http://schemas.microsoft.com/office/drawing/2014/chartex}"
_DGM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_LINKS = {f"{_C}chart": f"{_R}id", f"{_CX}chart": f"{_R}id", f"{_DGM}relIds": f"{_R}dm"}
XML_PARSER = etree.XMLParser(resolve_entities=False, no_network=True)
"""Of parts of files: brings in no other file."""
_Labels = dict[int, tuple[str, ...]]
"""Names of a chart's categories by number, from the widest to the narrowest."""


@dataclass
class Graphic:
    """A chart or a diagram as text."""

    lines: list[str] = field(default_factory=list)  # titles of a chart, items of a diagram
    tables: list[list[list[str]]] = field(default_factory=list)  # for each the rows: names of the series, then values

    def __str__(self) -> str:
        return "\n\n".join(filter(None, ["\n".join(self.lines), *map(table, self.tables)]))


def graphic_link(element: Any) -> str | None:
    """Return the id of the relationship to the part of a chart or diagram within an element; None without one."""
    return next((link.get(_LINKS[link.tag]) for link in element.iter(*_LINKS)), None)


def read_graphic(part: bytes) -> Graphic:
    """Read the part of a chart or a diagram.

    Raises:
        ValueError, lxml.etree.LxmlError: The part is damaged.
    """
    root = etree.fromstring(part, XML_PARSER)
    if root.tag == f"{_DGM}dataModel":
        return Graphic(_items(root))
    series = list(_newer_series(root) if root.tag == f"{_CX}chartSpace" else _series(root))
    titles, across = _titles(root)
    tables: list[tuple[_Labels, list[tuple[str, dict[int, str]]]]] = []
    for name, labels, values in series:
        if not tables or labels != tables[-1][0]:
            tables.append((labels, []))
        tables[-1][1].append((name, values))
    return Graphic(titles, [_rows(labels, columns, across) for labels, columns in tables])


def _rows(labels: _Labels, columns: list[tuple[str, dict[int, str]]], across: str) -> list[list[str]]:
    levels = max(map(len, labels.values()), default=1)
    rows = [["", *[""] * (levels - 2), across][-levels:] + [name for name, _ in columns]]
    for number in sorted(set(labels).union(*(values for _, values in columns))):
        names = labels.get(number, (str(number + 1),) if not labels else ())
        rows.append([*[""] * (levels - len(names)), *names, *(values.get(number, "") for _, values in columns)])
    return rows


def _series(root: Any) -> Iterator[tuple[str, _Labels, dict[int, str]]]:
    """Yield name, categories and values of each series of a chart."""
    for series in root.iter(f"{_C}ser"):
        parts = {child.tag.removeprefix(_C): child for child in series if isinstance(child.tag, str)}
        name = " ".join(text.text or "" for text in parts["tx"].iter(f"{_C}v")) if "tx" in parts else ""
        labels = _labels(parts.get("cat", parts.get("xVal")))
        for kind in ("val", "yVal", "bubbleSize"):
            if kind in parts:
                yield name, labels, _points(parts[kind])


def _newer_series(root: Any) -> Iterator[tuple[str, _Labels, dict[int, str]]]:
    """Yield the same of the kinds of charts that came later, such as waterfalls and trees."""
    data = {values.get("id"): values for values in root.iter(f"{_CX}data")}
    for series in root.iter(f"{_CX}series"):
        name = " ".join(text.text or "" for text in series.iterfind(f"{_CX}tx//{_CX}v"))
        used = next(series.iter(f"{_CX}dataId"), None)
        values = None if used is None else data.get(used.get("val"))
        if values is not None:
            for numbers in values.iter(f"{_CX}numDim"):
                yield name, _labels(values.find(f"{_CX}strDim")), _points(numbers)


def _labels(axis: Any) -> _Labels:
    if axis is None:
        return {}
    levels = [_points(level) for level in axis.iter(f"{_C}lvl", f"{_CX}lvl")] or [_points(axis)]
    labels: _Labels = {}
    for number in sorted(levels[0]):  # a wider one stands at the first of the narrower ones that it covers
        wider = ([level[at] for at in sorted(level) if at <= number][-1:] for level in reversed(levels[1:]))
        labels[number] = (*(text for texts in wider for text in texts), levels[0][number])
    return labels


def _points(values: Any) -> dict[int, str]:
    numbers = next(values.iter(f"{_C}numCache", f"{_C}numLit"), None)
    form = None if numbers is None else numbers.findtext(f"{_C}formatCode", "General")
    if values.tag == f"{_CX}numDim":
        form = next((level.get("formatCode") for level in values.iter(f"{_CX}lvl")), None) or "General"
    epoch = WINDOWS_EPOCH if values.getroottree().find(f"{_C}date1904[@val='1']") is None else MAC_EPOCH
    points = {}
    for point in values.iter(f"{_C}pt", f"{_CX}pt"):
        text = point.findtext(f"{_C}v") if point.tag == f"{_C}pt" else point.text
        points[int(point.get("idx", 0))] = _shown(text or "", form and point.get("formatCode", form), epoch)
    return points


def _shown(text: str, form: str | None, epoch: datetime.datetime) -> str:
    try:
        if form is None:
            raise ValueError
        if not is_date_format(form):
            return shown_number(float(text), form)
        return shown_time(from_excel(float(text), epoch, timedelta=is_timedelta_format(form)))
    except (ValueError, OverflowError):  # a text, or an error of the sheet, such as #N/A
        return " ".join(text.split())


def _titles(root: Any) -> tuple[list[str], str]:
    """Return the titles of a chart and of its axes, and apart that of the categories."""
    titles, across = list[str](), ""
    for title in root.iter(f"{_C}title", f"{_CX}title"):
        if title.getparent().tag in (f"{_C}catAx", f"{_C}dateAx") and not across:
            across = _words(title)
        else:
            titles.append(_words(title))
    return list(filter(None, titles)), across


def _words(element: Any) -> str:
    lines = [paragraph_text(paragraph) for paragraph in element.iter(f"{_A}p")]
    return " ".join(filter(None, lines or [text.text or "" for text in element.iter(f"{_C}v", f"{_CX}v")]))


def _items(root: Any) -> list[str]:
    """Return the texts of a diagram as a list, what belongs to another text below that."""
    points = {point.get("modelId"): point for point in root.iter(f"{_DGM}pt") if point.get("type") != "pres"}
    below: dict[str | None, list[tuple[int, str]]] = defaultdict(list)
    for link in root.iter(f"{_DGM}cxn"):
        if link.get("type", "parOf") == "parOf" and link.get("destId") in points:
            below[link.get("srcId")].append((int(link.get("srcOrd", 0)), link.get("destId")))
    tops = [id_ for id_, point in points.items() if point.get("type") == "doc"]
    waiting = [(id_, 0) for id_ in (*reversed(points), *reversed(tops))]
    items, seen = [], set()
    while waiting:
        id_, level = waiting.pop()
        if id_ in seen:
            continue
        seen.add(id_)
        text = _words(points[id_])
        if text:
            items.append(f"{'  ' * level}- {text}")
        waiting += [(lower, level + bool(text)) for _, lower in sorted(below[id_], reverse=True)]
    return items


def paragraph_text(paragraph: Any) -> str:
    """Return the text of a paragraph in a shape, raised and lowered signs as Unicode has them."""
    pieces = []
    for part in paragraph:
        if part.tag == f"{_A14}m":
            pieces.append(omml_text(part))
            continue
        text = " " if part.tag == f"{_A}br" else "".join(run.text or "" for run in part.iter(f"{_A}t"))
        properties = part.find(f"{_A}rPr")
        shift = "0" if properties is None else properties.get("baseline", "0")
        pieces.append(text if shift == "0" else lowered(text) if shift.startswith("-") else raised(text))
    return " ".join("".join(pieces).split())


# --- Cells: numbers and times as the formats that are surely known show them, else their plain values


def shown_number(value: float, form: str) -> str:
    """Return a number as a format such as `#,##0.00` or `0.0 %` shows it; plainly for any other format."""
    form = _CURRENCY.sub(r'"\1"', _NOTHING_SHOWN.sub("", form.split(";")[0]))
    known = _FORM.fullmatch(form)
    plain = f"{value:.15g}" if isinstance(value, float) else str(value)
    if known is None or not abs(value) < _MOST:
        return plain
    before, grouped, zeros, places, percent, after = known.groups("")
    if grouped and len(zeros) > 1:
        return plain
    number = Decimal(plain).scaleb(2 if percent else 0).quantize(Decimal(1).scaleb(-len(places)), ROUND_HALF_UP)
    width = len(zeros) + (len(places) + 1 if places else 0) + (number < 0)
    before, after = (re.sub(r'"([^"]*)"|\\(.)', r"\1\2", literal) for literal in (before, after))
    return f"{before}{number:{',' if grouped else f'0{width}'}f}{percent}{after}".strip()


def shown_time(value: datetime.datetime | datetime.time | datetime.timedelta) -> str:
    """Return a date, with its time of day unless that is midnight; a time or a length, with seconds if it has any."""
    if isinstance(value, datetime.timedelta):
        seconds = round(value.total_seconds())
        hours, rest = divmod(abs(seconds), 3600)
        return f"{'-' if seconds < 0 else ''}{hours}:{rest // 60:02}:{rest % 60:02}"
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return str(value.date())
    text = value.isoformat(*([" "] if isinstance(value, datetime.datetime) else []))
    return re.sub(r"(:\d\d):00$|(\.\d*?)0+$", r"\1\2", text)


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows as lines `| cell | cell |`; rows without text are left out."""
    lines = ([" ".join(cell.split()) for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines if any(cells))
