"""Find tables of contents and indexes in a text: lists of page numbers, which name a word and say nothing of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

_NUMBER = r"[A-Z]?[-.]?\d{1,4}(?:[-–]\d{1,4}|ff?\.?)?"
_NUMBERS = rf"{_NUMBER}(?:[,;]\s*{_NUMBER})*"
_LEADER = re.compile(
    rf"(?:(?:[.·…]\s?){{4,}}|(?:\.[ \xa0]){{2,}}|…{{2,}})\s*({_NUMBER}|[ivxlc]+)(?=[,;]?\s|$)", re.IGNORECASE
)
_LEADERS = ("...", ". .", "…", "··", "· ·")
"""One of these is in every line with leaders; a search for them takes less time."""
_INDEXED = re.compile(rf"([^\W\d_].*?),\s+({_NUMBERS})(?=\s|$)")
"""An entry of an index; a reader of PDF files joins those of several lines."""
_CHAPTER = re.compile(r"(?:#+ |[-*] )?(\S.*?)\s+(\d{1,4})$")
_NUMBERED = re.compile(r"(?:\d+|[A-Z]|[IVX]+)(?:\.\d+)*[.:]?\s|(?:chapter|part|kapitel|teil|chapitre)\s", re.IGNORECASE)
_HEADING = re.compile(
    r"[#*\s]*(?:(?:table of )?contents?|inhalt(?:sverzeichnis)?|table des matières|sommaire|[ií]ndice|目次|目录)\W*",
    re.IGNORECASE,
)
_LONG_TERM, _LONG_BETWEEN = 80, 60
"""Characters of an entry, and of a line among entries, such as the letter above those that begin with it."""
_BETWEEN = 3
"""Lines in a row that may stand among entries."""
_LED_ENTRIES, _ENTRIES = 4, 8
"""Least number of entries of a list, with leaders and without."""
_MARKS = " .\"'“‘(-$*_"
"""Characters before a term that do not count in its order."""
_ORDERED = 0.7
"""Least share of neighbours among entries that are in order."""
_APART = 300
"""Characters between two lists up to which they are one; what stands there is their headings."""

_STOP = re.compile(r"[^\W\d_]{2,}[.!?]\s")

Entry = tuple[str, str, str]
"""Kind, term and first page; kinds are led, indexed and chapter."""


def page_lists(text: str) -> tuple[tuple[int, int], ...]:
    """Return the parts of a text that are lists of page numbers: first character, and the one after the last."""
    found: list[tuple[int, int]] = []
    for start, end in _lists(text):
        if found and start - found[-1][1] < _APART and not _STOP.search(text, found[-1][1], start):
            start = found.pop()[0]
        found.append((start, end))
    return tuple(found)


def _lists(text: str) -> Iterator[tuple[int, int]]:
    run: list[tuple[int, int, list[Entry]]] = []  # start and end of each line with entries
    between, at, above, heading = 0, 0, "", ""
    for line in [*text.split("\n"), "."]:
        start, bare = at, line.strip()
        at += len(line) + 1
        entries = _entries(bare)
        if entries:
            heading = above if not run else heading
            run.append((start, start + len(line), entries))
            between = 0
        elif bare:
            above, between = bare, between + 1
            if run and (len(bare) > _LONG_BETWEEN or bare.endswith(".") or between > _BETWEEN):
                if _is_list([entry for *_, own in run for entry in own], heading):
                    yield run[0][0], run[-1][1]
                run = []


def _entries(line: str) -> list[Entry]:
    """Return the entries of a line; none if it is not made of entries alone."""
    if any(leader in line for leader in _LEADERS) and not line.endswith("|") and (led := _LEADER.search(line)):
        return [("led", line[: led.start()], led[1])]
    if not line[-1:].isdigit() or line.startswith("|"):
        return []
    indexed = list(_INDEXED.finditer(line))
    if indexed and indexed[-1].end() == len(line) and all(len(each[1]) <= _LONG_TERM for each in indexed):
        return [("indexed", each[1], each[2]) for each in indexed]
    chapter = _CHAPTER.match(line) if len(line) <= _LONG_TERM else None
    return [("chapter", chapter[1], chapter[2])] if chapter else []


def _is_list(entries: Sequence[Entry], heading: str) -> bool:
    """Whether entries are a list of page numbers and not of prices, results or years.

    An index is in the order of its terms, a table of contents in that of its pages.
    """
    kinds = Counter(kind for kind, *_ in entries)
    kind, count = kinds.most_common(1)[0]
    titled = bool(_HEADING.fullmatch(heading))
    if count < (_LED_ENTRIES if kind == "led" or titled else _ENTRIES):
        return False
    own = [(term.casefold(), page) for each, term, page in entries if each == kind]
    by_term = _in_order([term.strip(_MARKS) for term, _ in own])
    pages = [int(page) for _, page in own if page.isdecimal()]
    by_page = len(set(pages)) >= _LED_ENTRIES and _in_order(pages)
    if kind != "chapter":
        return by_page or by_term
    return by_page and (titled or 2 * sum(bool(_NUMBERED.match(term)) for term, _ in own) >= len(entries))


def _in_order(values: Sequence[str] | Sequence[int]) -> bool:
    pairs = list(pairwise(values))
    return sum(a <= b for a, b in pairs) >= _ORDERED * len(pairs)  # type: ignore[operator]
