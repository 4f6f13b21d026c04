"""Rows of cells as text; numbers and times as the formats that are surely known show them, else their plain values."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal

_NOTHING_SHOWN = re.compile(r"\[(?:Black|Blue|Cyan|Green|Magenta|Red|White|Yellow|Color ?\d+)\]|[_*].", re.IGNORECASE)
"""Colours, gaps and fillings of a number's format."""
_CURRENCY = re.compile(r"\[\$([^]-]*)[^]]*\]")
_LITERAL = r'((?:"[^"]*"|\\.|[ $€£¥+()-])*)'
_FORM = re.compile(rf"{_LITERAL}(#,##)?(0+)(?:\.(0+))?( *%)?{_LITERAL}")

_MOST = 1e15
"""Sheets know the digits of numbers below this one."""


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
