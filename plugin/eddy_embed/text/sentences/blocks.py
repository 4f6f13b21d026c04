"""Lines to blocks: paragraphs, list items, headings and their levels, table rows and lines of code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

Line = tuple[int, int]
Block = tuple[int, int, bool, int]
"""Start, end, whether it is prose (otherwise it is one unit, however many stops it has), and its level as a heading."""

_WRAP_WIDTH = 200
_WRAP_WORDS = 20
_CAPITALS_WIDTH = 80
_LABEL_WIDTH = 40
_TABS = 2
_TITLE_LINES = 3
"""Most lines above `===` that are one heading; above `---`, which also is a rule, it is one line."""

_INVISIBLE_LEAD = " \t\u200b\u200e\u200f\u2060\ufeff\xa0\u3000"
_FENCE = re.compile(r"(`{3,}|~{3,})")
_HEADING = re.compile(r"#{1,6}(?:\s+\S|$)")
_MARKDOWN = re.compile(
    r"\A\s*#{1,6}\s+\S|\n[ \t]*\r?\n {0,3}#{2,6}[ \t]+\S"
    r"|^ {0,3}(?:```|~~~)|\]\(\S+\)|\*\*\S|^[ \t]*\|[ \t]*:?-+:?[ \t]*\||<!--",
    re.MULTILINE,
)
"""What a text in Markdown has: a heading at its beginning, one of a further level, a fence, a link, a table."""
_SET_OFF = re.compile(r"(?:\A\s*|\n[ \t]*\r?\n) {0,3}#[ \t]+\S.*(?=\r?\n[ \t]*\r?\n|\s*\Z)")
_UNDERLINE = re.compile(r"(?:={2,}|-{2,})$")
_RULE = re.compile(r"(?:[-*_=~#+]\s*){3,}$")
_ROW = re.compile(r"\|.|\+[-=+]+\+$")
_DELIMITER_ROW = re.compile(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?$")
_LONE_QUOTE_MARK = re.compile(r"(?:>\s*)+$")
_ITEM = re.compile(
    r"(?P<bullet>[-*+•‣◦⁃▪▫●○■□➢➤✓✔✗·])\s"
    r"|(?P<dash>[–—])\s"
    r"|\(?(?P<number>\d{1,3})[.)]\s"
    r"|(?P<letter>\(?(?:[A-Za-z]|[ivx]{1,5}|[IVXLC]{1,6})[.)]\s|\d+(?:\.\d+)+[.)]?\s)"
)
_ENDED = re.compile(r"[.!?:;…。！？：；][\"'”’»)\]*_]*$")
_SENTENCE_ENDED = re.compile(r"[.;…。；][\"'”’»)\]*_]*$")
_STOP = re.compile(r"[.!?:;,…。！？：；，、]")
_LABEL = re.compile(
    r"\s*[-*>]*\s*(?:"
    r"[\[(]\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d+)?[\])]"
    r"|(?:\d{1,2}:\d{2}(?::\d{2})?\s+)?[^\W\d_a-z][^\s:：]*(?:[ \t][^\s:：]+){0,3}\s?[:：]\**(?=\s|$)"
    r"|[\u3040-\u30ff\u4e00-\u9fff]{1,8}：)"
)


def blocks(text: str) -> Iterator[Block]:
    """Divide a text into blocks, in order, with whitespace between them; no sentence crosses the border of a block."""
    return _Reader(text).read()


def headings(text: str) -> Iterator[str]:
    """Yield the wordings of the headings that Markdown marks, with the marks inside them."""
    for start, end, is_prose, level in blocks(text):
        if level and not is_prose:
            yield title_of(text[start:end])


class _Reader:
    """Reads lines and keeps the paragraph that is still open."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.open: list[Line] = []
        self.kind = ""
        self.fence = ""
        self.in_table = False
        self.last_fence: dict[str, int] = {}
        self.in_comment = False
        self.last_comment = text.rfind("-->")
        self.is_markdown = bool(_MARKDOWN.search(text))
        # In other texts a line after "#" is mostly a remark or a command of a listing, and one in capitals a label.
        self.set_off = set() if self.is_markdown else {match.end() for match in _SET_OFF.finditer(text)}
        self.lines = text.splitlines(keepends=True)
        capitals = Counter(line.strip() for line in self.lines if line.isupper())
        self.in_capitals = set() if text.isupper() else {line for line, count in capitals.items() if count == 1}

    def read(self) -> Iterator[Block]:
        offset = 0
        if "```" in self.text or "~~~" in self.text:
            bare = (line.strip() for line in self.lines)
            self.last_fence = {line[0]: i for i, line in enumerate(bare) if line and line.strip(line[0]) == ""}
        for number, line in enumerate(self.lines):
            start, offset = offset, offset + len(line)
            bare_line = line.strip()
            if not bare_line:
                yield from self._close()
                self.in_table = False
                continue
            # As in Markdown, an indented "# comment" is a line of code; one in a comment of HTML is no heading either.
            remark = bare_line[0] == "#" and (self.in_comment or line.startswith(("    ", "\t")))
            if self.last_comment >= start and not self.fence:
                self._track_comment(start, line)
            if self._is_code(bare_line, number) or remark:
                yield from self._close()
                yield start, offset, False, 0
                continue
            yield from self._line((start, offset), bare_line.lstrip(_INVISIBLE_LEAD) or bare_line)
            if line.endswith("\u2029"):
                yield from self._close()
        yield from self._close()

    def _track_comment(self, start: int, line: str) -> None:
        opened, closed = line.rfind("<!--"), line.rfind("-->")
        if opened > closed:
            self.in_comment = start + opened < self.last_comment
        elif closed >= 0:
            self.in_comment = False

    def _is_code(self, line: str, number: int) -> bool:
        """Track fences; an opening fence that nothing closes is an ordinary line, or it would swallow the rest."""
        if self.fence:
            if line.startswith(self.fence) and line.strip(self.fence[0]) == "":
                self.fence = ""
            return True
        match = _FENCE.match(line) if line[0] in "`~" else None
        if match and self.last_fence.get(line[0], -1) > number:
            self.fence = match.group()
            return True
        return False

    def _line(self, span: Line, line: str) -> Iterator[Block]:
        if _DELIMITER_ROW.match(line) and "|" in line:
            header = self.open.pop() if self.open else None
            yield from self._close()
            if header:
                yield *header, False, 0
            yield *span, False, 0
            self.in_table = True
        elif _ROW.match(line) or (self.in_table and "|" in line) or line.count("\t") >= _TABS:
            yield from self._close()
            yield *span, False, 0
        elif _HEADING.match(line) and self._is_heading(span):
            yield from self._close()
            yield *span, False, level_of(line)
        elif _UNDERLINE.match(line) and self._is_title(line):
            lines, self.open = self.open, []
            yield lines[0][0], span[1], False, level_of(line)
        elif _RULE.match(line):
            yield from self._close()
            yield *span, False, 0
        elif _LONE_QUOTE_MARK.match(line) and self.open:
            self.open.append(span)
            yield from self._close()
        else:
            kind = self._item(line)
            if kind:
                yield from self._close()
                self.kind = kind
            self.open.append(span)

    def _is_heading(self, span: Line) -> bool:
        """Return whether a line after "#" is one: in Markdown, or one of several that are set off."""
        end = span[0] + len(self.text[slice(*span)].rstrip("\r\n"))
        return self.is_markdown or (end in self.set_off and len(self.set_off) > 1)

    def _is_title(self, underline: str) -> bool:
        """Return whether the open lines are a heading: few, and no sentence above a rule or a signature."""
        most = _TITLE_LINES if underline[0] == "=" else 1
        ended = _ENDED if underline == "--" else _SENTENCE_ENDED
        return 0 < len(self.open) <= most and not self.kind and not self._ended(ended)

    def _item(self, line: str) -> str:
        """Return the kind of list item that a line opens, or an empty string.

        Hard-wrapped prose has lines that begin with "5. ", "A. " or a dash by chance; such a line opens an item only
        where a sentence or an item of the same kind ended.
        """
        match = _ITEM.match(line)
        if not match:
            return ""
        kind = str(match.lastgroup)
        sure = kind == "bullet" or match["number"] == "1" or not self.open or self.kind == kind
        return kind if sure or self._ended() else ""

    def _ended(self, mark: re.Pattern[str] = _ENDED) -> bool:
        start, end = self.open[-1]
        return bool(mark.search(self.text[max(start, end - 40) : end].rstrip()))

    def _close(self) -> Iterator[Block]:
        lines, self.open, self.kind = self.open, [], ""
        if not lines:
            return
        first = 0
        borders = self._borders(lines) if len(lines) > 1 else []
        # A line alone between blank lines, or one in capitals that is set off from the paragraph below it.
        head = self.text[slice(*lines[0])].strip() if len(lines) == 1 or borders == [1] else ""
        level = self._plain_level(head) if head and (len(lines) == 1 or head.isupper()) else 0
        for border in borders:
            yield lines[first][0], lines[border - 1][1], True, 0 if first else level
            first = border
        yield lines[first][0], lines[-1][1], True, 0 if first else level

    def _plain_level(self, head: str) -> int:
        return plain_level_of(head, head in self.in_capitals and len(self.in_capitals) > 1)

    def _borders(self, lines: list[Line]) -> list[int]:
        """Return the indices of the lines of a paragraph that begin a block of their own."""
        texts = [self.text[start:end].strip() for start, end in lines]
        everywhere = list(range(1, len(lines)))
        long = {i for i, line in enumerate(texts) if _is_paragraph(line)}
        if 2 * sum(len(texts[i]) for i in long) >= sum(map(len, texts)):
            return everywhere
        if len(lines) > 2 and all(len(line.split()) <= 2 and not _STOP.search(line) for line in texts):
            return everywhere
        borders = {i for i in everywhere if i in long or i - 1 in long} | _speakers(texts)
        if borders:
            return sorted(borders - {0})
        head, then = texts[0], texts[1]
        if head.isupper() and len(head) <= _CAPITALS_WIDTH and not then.isupper() and not then[:1].islower():
            return [1] if not head.endswith(",") else []
        return []


def _speakers(texts: list[str]) -> set[int]:
    """Return lines that begin with a speaker's or a field's name: one alone, or a few in much prose, is chance."""
    labels = {
        i: match.group().strip()
        for i, line in enumerate(texts)
        if (match := _LABEL.match(line)) and match.end() <= _LABEL_WIDTH
    }
    if len(labels) * 4 < len(texts):
        often = Counter(labels.values())
        labels = {i: label for i, label in labels.items() if label.isupper() or often[label] > 1}
    return set(labels) if len(labels) > 1 else set()


def _is_paragraph(line: str) -> bool:
    """Return whether a line is too long to be hard-wrapped, so that line breaks next to it have meaning."""
    return len(line) > _WRAP_WIDTH and (len(line.split()) >= _WRAP_WORDS or "。" in line)


CONTINUED = 9
"""Level of what follows a heading on its own line: "The Boat" in "Chapter 1. The Boat"."""
_HEADING_WIDTH = 80
_HEADING_WORDS = 8
"""A line that begins like a heading, has more words and ends like a sentence is a sentence."""
_NUMBER = r"(?:\d{1,3}|[IVXLC]{1,7}|one|two|three|four|five|six|seven|eight|nine|ten|the \w+)\b"
_PLAIN_HEADINGS = (
    (1, re.compile(rf"(?:part|book|volume|teil|buch|band|partie|livre|tome|parte|libro)\s+{_NUMBER}", re.IGNORECASE)),
    (2, re.compile(rf"(?:chapter|kapitel|chapitre|cap[ií]tulo|capitolo|hoofdstuk|глава)\s+{_NUMBER}", re.IGNORECASE)),
    (1, re.compile(r"第[一二三四五六七八九十百千零〇两\d]{1,6}[部卷編编篇](?!分)")),
    (2, re.compile(r"第[一二三四五六七八九十百千零〇两\d]{1,6}[章回]")),
    (3, re.compile(r"第[一二三四五六七八九十百千零〇两\d]{1,6}[節节]")),
)
_SECTION = re.compile(r"(\d{1,2}(?:\.\d{1,2})+)\.?\s+[^\W\d_]")
_HEADING_ENDED = re.compile(r"[.!?:;,…。！？：；，、][\"'”’»)\]]*$")
_HEADING_MARKS = re.compile(r"#{1,6}")
_MAX_TITLE = 1000
"""Every passage below a heading repeats it; a longer one is a text that lost its line ends."""
_CAPITALS = 3
"""Level of a line in capitals, and letters that it needs at least."""


def level_of(block: str) -> int:
    """Return level of a Markdown heading, 1 to 6: `## Tides`, or a line that is underlined."""
    line = block.strip()
    marks = _HEADING_MARKS.match(line)
    if marks:
        return len(marks[0])
    return 1 if line.endswith("=") else 2


def plain_level_of(line: str, in_capitals: bool) -> int:
    """Return level of a stripped line that stands alone, 0 for none: chapters by word and number, or 2.1.

    `in_capitals`: it is in capitals, and no label.
    """
    if len(line) > _HEADING_WIDTH:
        return 0
    ended = _HEADING_ENDED.search(line)
    for level, pattern in _PLAIN_HEADINGS:
        if pattern.match(line) and not (ended and len(line.split()) >= _HEADING_WORDS):
            return level
    if ended:
        return 0
    section = _SECTION.match(line)
    if section:
        return 2 + section[1].count(".")
    letters = sum(map(str.isalpha, line))
    return _CAPITALS if in_capitals and letters >= _CAPITALS else 0


def title_of(heading: str) -> str:
    """Return the wording of a heading, without marks or underline, its white space made single."""
    lines = heading.strip().splitlines()
    if len(lines) > 1 and not lines[-1].strip("=- \t"):
        lines.pop()
    line = " ".join(" ".join(lines).split())
    marks = _HEADING_MARKS.match(line)
    return (line[marks.end() :].rstrip("#") if marks else line).strip()


def units(levels: Iterable[int]) -> list[tuple[int, int]]:
    """Return first and last sentence of what stays together: a sentence with the headings that lead to it.

    A heading leads to what follows unless that is a heading of its own level or above. `levels` are those of sentences,
    0 for no heading.
    """
    groups: list[tuple[int, int]] = []
    above = 0
    for index, level in enumerate(levels):
        if above and (level == 0 or level > above or level == CONTINUED):
            groups[-1] = (groups[-1][0], index)
        else:
            groups.append((index, index))
        above = level
    return groups


class HeadingPath:
    """The headings in force while a text is read from its beginning."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def read(self, level: int, heading: str) -> None:
        """Read a heading; it closes those of its own level and below."""
        title = title_of(heading)
        if level == CONTINUED and self._open:
            level, begun = self._open.pop()
            title = f"{begun} {title}"
        while self._open and self._open[-1][0] >= level:
            self._open.pop()
        self._open.append((level, title if len(title) <= _MAX_TITLE else ""))

    @property
    def titles(self) -> tuple[str, ...]:
        """Their wordings, the widest first; a heading without words, or of over 1,000 characters, is left out."""
        return tuple(title for _, title in self._open if title)
