"""Numbers and times of sheets and charts, as their formats show them."""

from __future__ import annotations

import datetime
import re

_SPACING = re.compile(r"\[[^$][^]]*\]|[_*].")  # widths, colours and conditions in a number's format
_CURRENCY = re.compile(r"\[\$([^]-]*)[^]]*\]")
_DIGITS = re.compile(r'"[^"]*"|\\.|(?P<whole>[#0,]*[#0])(?:\.(?P<places>[0#?]+))?(?P<percent>%?)')
_LITERAL = re.compile(r'"([^"]*)"|\\(.)|([ $€£¥%+()-])')
_OTHER = re.compile("[0#]E[+-]|[#?0]/")  # powers of ten, fractions


def shown_number(value: float, form: str) -> str:
    """Return a number as a format of sheets and charts shows it, such as `#,##0.00`; powers and fractions plainly."""
    form = _CURRENCY.sub(r'"\1"', _SPACING.sub("", form.split(";")[0]))
    digits = next((found for found in _DIGITS.finditer(form) if found["whole"]), None)
    if digits is None or _OTHER.search(form):
        return f"{value:.15g}" if isinstance(value, float) else str(value)
    places = digits["places"] or ""
    zeros, grouped = digits["whole"].count("0"), "," if "," in digits["whole"] else ""
    width = "" if grouped else f"0{zeros + (len(places) + 1 if places else 0)}"
    text = f"{value * (100 if digits['percent'] else 1):{width}{grouped}.{len(places)}f}"
    if set(places) & set("#?"):
        text = text.rstrip("0").rstrip(".")
    before, after = (
        "".join("".join(found) for found in _LITERAL.findall(each))
        for each in (form[: digits.start()], digits["percent"] + form[digits.end() :])
    )
    return f"{before}{text}{after}".strip()


def shown_time(value: datetime.datetime) -> str:
    """Return a date, with its time of day unless that is midnight."""
    return str(value.date()) if value.time() == datetime.time() else f"{value:%Y-%m-%d %H:%M}"
