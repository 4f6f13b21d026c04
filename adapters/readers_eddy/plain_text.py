"""Read plain text: the file as it is, but for what repeats at the ends of its pages."""

from __future__ import annotations

import re
from collections import Counter

from readers_eddy.content import Content

_PAGE_FOOT = re.compile(r"^(.*\[Page +\d+\])[ \t\r]*$", re.MULTILINE)
_NUMBERED = re.compile(r"(?!(?:page|seite|página|pagina|p\.) )[^\W\d]+\W*#\W*", re.IGNORECASE)
"""A line that is a word and a number, as a chapter's heading."""
_SENTENCE_ENDS = tuple(".!?:;…”\"'’)]»")
_LONG_LINE = 50
"""Characters of a line that is no heading."""


def read_text(text: str) -> Content:
    """Return a text; where form feeds part pages, without page numbers and running heads, and with sentences whole."""
    pages = (text if "\f" in text else _PAGE_FOOT.sub("\\1\f", text)).split("\f")
    if len(pages) == 1:
        return Content("", text)
    parts = [re.split(r"\r?\n", page.rstrip()) if page.strip() else [] for page in pages]
    edges = {0: Counter[str](), -1: Counter[str]()}
    for lines in parts:
        while lines and not lines[0].strip():
            del lines[0]
        for at, seen in edges.items():
            seen.update(map(_kind, lines[at:][:1]))
    repeated: list[str] = []
    whole = ""
    for lines in filter(None, parts):
        for at, seen in edges.items():
            kind = _kind(lines[at]) if lines else ""
            if seen[kind] > 1 and seen[kind] >= len(parts) // 2 and not _NUMBERED.fullmatch(kind):
                repeated.append(kind)
                del lines[at]
        page = "\n".join(lines).strip("\n").rstrip()
        whole += (("\n" if _goes_on(whole, page) else "\n\n") if whole and page else "") + page
    listed = ", ".join(f"“{kind}”" for kind in dict.fromkeys(repeated))
    return Content("", whole, notes=(f"page numbers and running heads are left out: {listed}",) if listed else ())


def _kind(line: str) -> str:
    return re.sub(r"\d+", "#", " ".join(line.split()))


def _goes_on(before: str, after: str) -> bool:
    """Whether a sentence of one page goes on in the next."""
    last = before.rpartition("\n")[2]
    return not last.endswith(_SENTENCE_ENDS) and (after.lstrip()[:1].islower() or len(last) >= _LONG_LINE)
