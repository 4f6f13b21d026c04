"""Find tables of contents and indexes in a text: lists of page numbers, which name a word and say nothing of it.

A chronicle, a menu or a list of references looks the same; but only a table of contents or an index points into its own
document: no number is above that of its last page, and what it names stands elsewhere in the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

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
_NAMED = 0.5
"""Least share of entries that name what stands elsewhere in the text."""
_MARK = re.compile(r"[\W_]+")
_APART = 300
"""Characters between two lists up to which they are one; what stands there is their headings."""

_STOP = re.compile(r"[^\W\d_]{2,}[.!?]\s")

Entry = tuple[str, str, str]
"""Kind, term and first page; kinds are led, indexed and chapter."""


def page_lists(text: str, last_page: int = 0) -> tuple[tuple[int, int], ...]:
    """Return the parts of a text that are lists of page numbers: first character, and the one after the last.

    `last_page` is the highest number of a page in the document, 0 where it has no pages.
    """
    lists: list[tuple[int, int]] = []
    for start, end in _Lists(text, last_page).find():
        if lists and start - lists[-1][1] < _APART and not _STOP.search(text, lists[-1][1], start):
            start = lists.pop()[0]
        lists.append((start, end))
    return tuple(lists)


class _Lists:
    def __init__(self, text: str, last_page: int) -> None:
        self.lines, self.last_page = text.split("\n"), last_page

    def find(self) -> Iterator[tuple[int, int]]:
        run: list[tuple[int, list[Entry]]] = []  # number of each line with entries
        between, above, heading = 0, "", ""
        starts = [*accumulate((len(line) + 1 for line in self.lines), initial=0)]
        for number, line in enumerate([*self.lines, "."]):
            bare = line.strip()
            if entries := _entries(bare):
                heading = above if not run else heading
                run.append((number, entries))
                between = 0
            elif bare:
                above, between = bare, between + 1
                if run and (len(bare) > _LONG_BETWEEN or bare.endswith(".") or between > _BETWEEN):
                    first, last = run[0][0], run[-1][0]
                    if self._is_list([entry for _, entries in run for entry in entries], heading, first, last):
                        yield starts[first], starts[last + 1] - 1
                    run = []

    def _is_list(self, entries: Sequence[Entry], heading: str, first: int, last: int) -> bool:
        """Whether the entries of some lines are a list of page numbers and not of prices, results or years.

        An index is in the order of its terms, a table of contents in that of its pages.
        """
        kind, count = Counter(kind for kind, *_ in entries).most_common(1)[0]
        titled = bool(_HEADING.fullmatch(heading))
        if count < (_LED_ENTRIES if kind == "led" or titled else _ENTRIES):
            return False
        listed = [(term.casefold(), page) for entry_kind, term, page in entries if entry_kind == kind]
        pages = [int(page) for _, page in listed if page.isdecimal()]
        if self.last_page and max(pages, default=0) > self.last_page:
            return False
        terms = [term for term, _ in listed]
        if len(set(pages)) >= _LED_ENTRIES and _in_order(pages):
            numbered = 2 * sum(bool(_NUMBERED.match(term)) for term in terms) >= len(entries)
            if (kind != "chapter" or titled or numbered) and self._share(terms, last, None) >= _NAMED:
                return True
        return (
            kind != "chapter"
            and _in_order([term.strip(_MARKS) for term in terms])
            and self._share(terms, last, first) >= _NAMED
        )

    def _share(self, terms: Sequence[str], last: int, first: int | None) -> float:
        """Share of terms that stand after the list as they are, or, given its first line, whose words stand outside."""
        if first is None:
            after = self._offsets[last + 1]
            titles = (_NUMBERED.sub("", term, count=1) for term in terms)
            return sum(self._plain.find(f" {_plain(title)} ", after) >= 0 for title in titles) / len(terms)
        inside = Counter(self._plain[self._offsets[first] : self._offsets[last + 1]].split())
        words = [[word for word in _plain(term).split() if len(word) > 1] for term in terms]
        return sum(all(self._words[word] > inside[word] for word in term) and bool(term) for term in words) / len(terms)

    @cached_property
    def _plain(self) -> str:
        """Words of the text, in small letters, each between two spaces."""
        return " ".join(["", *map(_plain, self.lines), ""])

    @cached_property
    def _offsets(self) -> list[int]:
        """Where each line begins in the plain text, and where that ends."""
        return [*accumulate((len(_plain(line)) + 1 for line in self.lines), initial=0)]

    @cached_property
    def _words(self) -> Counter[str]:
        return Counter(self._plain.split())


def _plain(text: str) -> str:
    return _MARK.sub(" ", text.casefold()).strip()


def _entries(line: str) -> list[Entry]:
    """Return the entries of a line; none if it is not made of entries alone."""
    if any(leader in line for leader in _LEADERS) and not line.endswith("|") and (led := _LEADER.search(line)):
        return [("led", line[: led.start()], led[1])]
    if not line[-1:].isdigit() or line.startswith("|"):
        return []
    indexed = list(_INDEXED.finditer(line))
    if indexed and indexed[-1].end() == len(line) and all(len(match[1]) <= _LONG_TERM for match in indexed):
        return [("indexed", match[1], match[2]) for match in indexed]
    chapter = _CHAPTER.match(line) if len(line) <= _LONG_TERM else None
    return [("chapter", chapter[1], chapter[2])] if chapter else []


def _in_order(values: Sequence[str] | Sequence[int]) -> bool:
    pairs = list(pairwise(values))
    return sum(a <= b for a, b in pairs) >= _ORDERED * len(pairs)  # type: ignore[operator]
