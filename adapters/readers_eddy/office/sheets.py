"""Read sheets: openpyxl gives the cells of .xlsx files, each sheet is a page; a .csv file is one table."""

from __future__ import annotations

import csv
import datetime
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import openpyxl
from openpyxl.cell.rich_text import CellRichText
from openpyxl.utils import column_index_from_string
from openpyxl.xml.functions import tostring

from readers_eddy.content import Content, Unreadable, choose_title, join_pages
from readers_eddy.office.drawingml import read_graphic, shown_number, shown_time, table
from readers_eddy.scripts import lowered, raised

_UNSTORED = re.compile(rb"<f[^>]*>[^<]*</f>\s*(?:<v\s*/>|<v></v>|</c>)|<f[^>]*/>\s*(?:<v\s*/>|<v></v>|</c>)")
_MOST_MERGED = 100_000
"""Cells that a merged one may cover."""
_NONE = "\x1f"
"""Stands for no delimiter: a list with a line for each of its cells."""
_SNIFFED = 65_536
"""Characters at the beginning of a .csv file that tell its delimiter."""


def read_csv(text: str) -> Content:
    """Read a table; `sep=;` or its first rows tell the delimiter."""
    declared = re.match(r"sep=(.)\r?\n", text)
    csv.field_size_limit(max(len(text), 1))
    try:
        delimiter = declared[1] if declared else max(f"\t;|,{_NONE}", key=lambda sign: _regular(text[:_SNIFFED], sign))
        rows = list(csv.reader(io.StringIO(text[declared.end() if declared else 0 :]), delimiter=delimiter))
    except csv.Error as error:
        raise Unreadable(f"no table: {error}") from None
    width = max(map(len, rows), default=0)
    if width == 1:
        return Content("", "\n".join(" ".join(row[0].split()) for row in rows if row))
    return Content("", table([*row, *[""] * (width - len(row))] for row in rows))


def _regular(text: str, delimiter: str) -> int:
    """Return how many rows have as many cells as the first, 0 if that has one; most of them must have."""
    if delimiter == _NONE:
        return text.count("\n") // 2
    widths = [len(row) for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row]
    return widths.count(widths[0]) if widths and widths[0] > 1 else 0


def read_xlsx(data: bytes) -> Content:
    """Extract the values of all visible cells, as their formats show them, a merged cell's in each that it covers."""
    file = openpyxl.load_workbook(io.BytesIO(data), data_only=True, rich_text=True, keep_links=False)
    sheets = [sheet for sheet in file.worksheets if sheet.sheet_state == "visible"]
    lost = Counter({"hidden sheets are left out": len(file.worksheets) - len(sheets)})
    text, starts = join_pages(_sheet(sheet, lost) for sheet in sheets)
    title, notes = choose_title([file.properties.title or ""])
    notes += tuple(f"{what} ({count})" for what, count in lost.items() if count)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = [name for name in archive.namelist() if name.startswith("xl/worksheets/sheet")]
        unstored = sum(len(_UNSTORED.findall(archive.read(name))) for name in parts)
    if unstored:
        notes += (f"{unstored} formulas have no stored value: open the file in an office program and save it again",)
    labels = tuple(f"sheet {sheet.title}" for sheet in sheets)
    return Content(title, text, starts, page_labels=labels, notes=notes)


def _sheet(sheet: Any, lost: Counter[str]) -> str:
    # A chart's values are those of cells; only its titles are its own.
    titles = ("\n".join(read_graphic(tostring(chart._write())).lines) for chart in sheet._charts)
    blocks = "\n\n".join(filter(None, chain(_blocks(_cells(sheet, lost)), titles)))
    return f"# {sheet.title}\n\n{blocks}" if blocks else ""


def _cells(sheet: Any, lost: Counter[str]) -> dict[int, dict[int, str]]:
    """Return the texts of visible cells by row and column, of those only that have any: most of a sheet is empty."""
    hidden = {
        column
        for letter, columns in sheet.column_dimensions.items()
        if columns.hidden
        for column in range(columns.min or column_index_from_string(letter), (columns.max or 0) + 1)
    }
    cells: dict[int, dict[int, str]] = {}
    for (row, column), cell in sorted(sheet._cells.items()):
        if text := _shown(cell):
            cells.setdefault(row, {})[column] = text
        lost["comments are not read"] += cell.comment is not None
    for merged in sheet.merged_cells.ranges:
        covering = cells.get(merged.min_row, {}).get(merged.min_col)
        if covering and merged.size["rows"] * merged.size["columns"] <= _MOST_MERGED:
            for row, column in merged.cells:
                cells.setdefault(row, {})[column] = covering
    for row, texts in cells.items():
        whole = sheet.row_dimensions[row].hidden
        gone = texts if whole else hidden.intersection(texts)
        lost["hidden rows, as by a filter, are left out"] += bool(whole and texts)
        lost["cells of hidden columns are left out"] += 0 if whole else len(gone)
        cells[row] = {column: text for column, text in texts.items() if column not in gone}
    return dict(sorted(cells.items()))


def _blocks(cells: dict[int, dict[int, str]]) -> Iterator[str]:
    """Yield what empty rows part: tables, or lines of text where only one column has cells."""
    blocks: list[list[dict[int, str]]] = []
    last = 0
    for row, texts in cells.items():
        if not blocks or row != last + 1:
            blocks.append([])
        blocks[-1].append(texts)
        last = row
    for block in blocks:
        columns = sorted(set().union(*block))
        if len(columns) == 1:
            yield "\n".join(" ".join(text.split()) for texts in block for text in texts.values())
        else:
            yield table([texts.get(column, "") for column in columns] for texts in block)


def _shown(cell: Any) -> str:
    value = cell.value
    if isinstance(value, CellRichText):
        scripts = {"superscript": raised, "subscript": lowered}
        pieces = (p if isinstance(p, str) else scripts.get(p.font.vertAlign, str)(p.text) for p in value)
        return "".join(pieces).strip()
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (datetime.datetime, datetime.time, datetime.timedelta)):
        return shown_time(value)
    if isinstance(value, (int, float)):
        return shown_number(value, cell.number_format)
    return "" if value is None else str(value).strip()
