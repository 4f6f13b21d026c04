"""Headings: which lines are some, of what level, and the path of headings that a passage stands under."""

from __future__ import annotations

import re
from collections.abc import Iterable

CONTINUED = 9
"""Level of what follows a heading on its own line: "The Boat" in "Chapter 1. The Boat"."""

_WIDTH = 80
_WORDS = 8
"""A line that begins like a heading, has more words and ends like a sentence is a sentence."""
_NUMBER = r"(?:\d{1,3}|[IVXLC]{1,7}|one|two|three|four|five|six|seven|eight|nine|ten|the \w+)\b"
_PLAIN = (
    (1, re.compile(rf"(?:part|book|volume|teil|buch|band|partie|livre|tome|parte|libro)\s+{_NUMBER}", re.IGNORECASE)),
    (2, re.compile(rf"(?:chapter|kapitel|chapitre|cap[ií]tulo|capitolo|hoofdstuk|глава)\s+{_NUMBER}", re.IGNORECASE)),
    (1, re.compile(r"第[一二三四五六七八九十百千零〇两\d]{1,6}[部卷編编篇](?!分)")),
    (2, re.compile(r"第[一二三四五六七八九十百千零〇两\d]{1,6}[章回]")),
    (3, re.compile(r"第[一二三四五六七八九十百千零〇两\d]{1,6}[節节]")),
)
_SECTION = re.compile(r"(\d{1,2}(?:\.\d{1,2})+)\.?\s+[^\W\d_]")
_ENDED = re.compile(r"[.!?:;,…。！？：；，、][\"'”’»)\]]*$")
_MARKS = re.compile(r"#{1,6}")
_CAPITALS = 3
"""Level of a line in capitals, and letters that it needs at least."""


def level_of(block: str) -> int:
    """The level of a heading in Markdown, 1 to 6, of a block that is one: `## Tides`, or a line that is underlined."""
    line = block.strip()
    marks = _MARKS.match(line)
    if marks:
        return len(marks[0])
    return 1 if line.endswith("=") else 2


def plain_level_of(line: str, in_capitals: bool) -> int:
    """The level of a line that stands alone, 0 where it is no heading.

    Chapters and parts are told by their word and number, sections by a number such as 2.1, others by capitals.

    Args:
        line: Without surrounding white space.
        in_capitals: Whether the whole text is, so that capitals say nothing.
    """
    if len(line) > _WIDTH:
        return 0
    ended = _ENDED.search(line)
    for level, pattern in _PLAIN:
        if pattern.match(line) and not (ended and len(line.split()) >= _WORDS):
            return level
    if ended:
        return 0
    section = _SECTION.match(line)
    if section:
        return 2 + section[1].count(".")
    letters = sum(map(str.isalpha, line))
    return _CAPITALS if line.isupper() and letters >= _CAPITALS and not in_capitals else 0


def title_of(heading: str) -> str:
    """The wording of a heading: without marks, without the line below it, its white space made single."""
    lines = heading.strip().splitlines()
    if len(lines) > 1 and not lines[-1].strip("=- \t"):
        lines.pop()
    line = " ".join(" ".join(lines).split())
    marks = _MARKS.match(line)
    return (line[marks.end() :].rstrip("#") if marks else line).strip()


def units(levels: Iterable[int]) -> list[tuple[int, int]]:
    """First and last sentence of what stays together: a sentence, with the headings that lead to it.

    A heading leads to what follows unless that is a heading of its own level or above: then it has no text.

    Args:
        levels: Of each sentence, 0 where it is no heading.
    """
    found: list[tuple[int, int]] = []
    above = 0
    for at, level in enumerate(levels):
        if above and (level == 0 or level > above or level == CONTINUED):
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
        above = level
    return found


class Path:
    """The headings in force while a text is read from its beginning."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def read(self, level: int, heading: str) -> None:
        """Go on to a heading; it closes those of its own level and below."""
        if level == CONTINUED and self._open:
            above, begun = self._open.pop()
            self._open.append((above, f"{begun} {title_of(heading)}"))
            return
        while self._open and self._open[-1][0] >= level:
            self._open.pop()
        self._open.append((level, title_of(heading)))

    @property
    def titles(self) -> tuple[str, ...]:
        """Their wordings, the widest first; a heading without words is left out."""
        return tuple(title for _, title in self._open if title)
