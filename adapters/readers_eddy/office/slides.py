"""Read slides: python-pptx gives the shapes, each slide is a page."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from lxml.etree import LxmlError
from pptx import Presentation
from pptx.enum.shapes import PP_PLACEHOLDER as KINDS
from pptx.oxml.ns import qn

from readers_eddy.content import Content, choose_title, join_pages
from readers_eddy.office.drawingml import graphic_link, paragraph_text, read_graphic, table

_REPEATED = {KINDS.SLIDE_NUMBER, KINDS.FOOTER, KINDS.HEADER, KINDS.DATE}
_TITLES = {KINDS.TITLE, KINDS.CENTER_TITLE, KINDS.VERTICAL_TITLE}
_LISTS = {KINDS.BODY, KINDS.OBJECT, KINDS.VERTICAL_BODY, KINDS.VERTICAL_OBJECT}
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_HALF_A_LINE = 114_300
"""Half the height of a line of 18 points, in the unit of places on slides."""
_NO_TITLE = {"powerpoint presentation", "slide 1"}


def read_pptx(data: bytes) -> Content:
    """Extract all text, charts, diagrams and notes, but no hidden slides and no footers."""
    file, lost = Presentation(io.BytesIO(data)), Counter[str]()
    text, starts = join_pages(_slide(slide, lost) for slide in file.slides)
    titles = (slide.shapes.title for slide in file.slides)
    of_file = file.core_properties.title.strip()
    first = (" ".join(title.text_frame.text.split()) for title in titles if title is not None)
    title, notes = choose_title(["" if of_file.lower() in _NO_TITLE else of_file, *first])
    listed = ", ".join(f"{what} ({count})" for what, count in lost.items())
    labels = tuple(f"slide {number}" for number in range(1, len(starts) + 1))
    notes += (f"parts of the file are not read: {listed}",) if lost else ()
    return Content(title, text, starts, page_labels=labels, notes=notes)


def _slide(slide: Any, lost: Counter[str]) -> str:
    for alternative in list(slide._element.iter(f"{_MC}AlternateContent")):  # of what older programs cannot show
        parent, choice = alternative.getparent(), alternative.find(f"{_MC}Choice")
        at = parent.index(alternative)
        parent[at : at + 1] = [] if choice is None else list(choice)
    if slide._element.get("show") in ("0", "false"):
        lost["hidden slides"] += 1
        return ""
    parts = list(_shapes(slide.shapes, lost))
    spoken = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    if spoken is not None and spoken.text.strip():
        parts.append(f"Notes: {spoken.text.strip()}")
    return "\n\n".join(filter(None, parts))


def _shapes(shapes: Iterable[Any], lost: Counter[str]) -> Iterator[str]:
    """Yield the text of shapes from top to bottom, a title first; those whose tops are level from left to right."""
    rows: list[list[Any]] = []
    for shape in sorted(shapes, key=_top):
        if not rows or _top(shape)[0] != _top(rows[-1][0])[0] or _top(shape)[1] - _top(rows[-1][0])[1] > _HALF_A_LINE:
            rows.append([])
        rows[-1].append(shape)
    for shape in (shape for row in rows for shape in sorted(row, key=lambda shape: shape.left or 0)):
        if shape._element._nvXxPr.cNvPr.get("hidden") in ("1", "true"):
            lost["hidden shapes"] += 1
        elif hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes, lost)
        elif getattr(shape, "has_table", False):
            yield _table(shape.table)
        elif shape.has_text_frame and _kind(shape) not in _REPEATED:
            yield _text(shape)
        elif shape._element.tag == qn("p:graphicFrame"):
            yield _graphic(shape, lost)


def _top(shape: Any) -> tuple[bool, int]:
    return _kind(shape) not in _TITLES, shape.top or 0


def _graphic(shape: Any, lost: Counter[str]) -> str:
    link = graphic_link(shape._element)
    if link is None:
        lost["embedded objects"] += 1
        return ""
    try:
        return str(read_graphic(shape.part.related_part(link).blob))
    except (KeyError, ValueError, LxmlError):
        lost["damaged charts or diagrams"] += 1
        return ""


def _kind(shape: Any) -> Any:
    return shape.placeholder_format.type if shape.is_placeholder else None


def _table(shown: Any) -> str:
    """Return a table, with a merged cell's text in each that it covers."""
    rows = [[_line(cell) for cell in row.cells] for row in shown.rows]
    for at, row in enumerate(shown.rows):
        for across, cell in enumerate(row.cells):
            if cell.is_merge_origin:
                for covered in rows[at : at + cell.span_height]:
                    width = len(covered[across : across + cell.span_width])
                    covered[across : across + width] = [rows[at][across]] * width
    return table(rows)


def _line(shape: Any) -> str:
    return " ".join(filter(None, (paragraph_text(paragraph._p) for paragraph in shape.text_frame.paragraphs)))


def _text(shape: Any) -> str:
    kind = _kind(shape)
    if kind in _TITLES:
        title = _line(shape)
        return f"# {title}" if title else ""
    lines = [(paragraph, text) for paragraph in shape.text_frame.paragraphs if (text := paragraph_text(paragraph._p))]
    listed = kind in _LISTS and len(lines) > 1
    return "\n".join(f"{_mark(paragraph, listed)}{text}" for paragraph, text in lines)


def _mark(paragraph: Any, listed: bool) -> str:
    properties = paragraph._p.pPr
    tags = set() if properties is None else {child.tag for child in properties}
    has_mark = tags & {qn("a:buChar"), qn("a:buAutoNum"), qn("a:buBlip")} or (listed and qn("a:buNone") not in tags)
    return f"{'  ' * paragraph.level}- " if has_mark else ""
