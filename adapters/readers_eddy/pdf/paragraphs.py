"""Join lines of pages into paragraphs, without line ends, hyphens and page borders; keep rows and lines of code."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from readers_eddy.pdf.lines import Line

SOFT_HYPHEN = "\u00ad"
"""The soft hyphen."""

_LEADER = re.compile(r"(?:(?:\.[ \xa0]?){4,}|(?:\u2026[ \xa0]?){2,})\s*[^\s.]\S{0,9}(?: \S{1,4})?$")
"""Dots that lead to a page number or a price, at the end of a line."""

_STOP = re.compile(r"[.!?:…。！？：][\"'”’»)\]¹²³⁴⁵⁶⁷⁸⁹⁰*†]*$")
_REMARK = re.compile(r"#{1,6}(?:\s|$)")
_BULLET = re.compile(r"[•‣◦▪■●○·☐☒\uf0b7\uf0a7]")
_ITEM = re.compile(r"(?:[-–—*]|\(?(?:\d{1,3}|[a-zA-Z])[.)]|\[\d{1,3}\]|\w{1,2}(?:\.\d{1,3})+\.?)\s")
_TITLE = re.compile(r"[A-Z]\w*\b.*\s[A-Z][^.!?]*\w{3}[^.!?]*")
_PROSE = re.compile(r"(?<![^\s(“\"'-])(?!(?:from|with|into|over|about)\b)[a-z][\w-]{3,}")
"""A line that begins and goes on with capitals, and a word that a title in English would begin with one."""
_NOTE = re.compile(r"[¹²³⁴⁵⁶⁷⁸⁹⁰*†‡]|\d{1,3}\s")
_BROKEN = re.compile(rf"([^\W\d_]+)[-\u2010{SOFT_HYPHEN}]$")
_WIDE = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")  # Korean has spaces
_WORD = re.compile(r"[^\W\d_]+")
_COMPOUND = re.compile(r"(?=(?<![^\W\d_])([^\W\d_]+)[-\u2010]([^\W\d_]+))")

_MAX_GAP = 1.15
"""Ratio to the typical distance between lines; a larger gap begins a paragraph."""
_MAX_SIZE_CHANGE = 0.06
"""Relative difference of sizes above which lines belong to different paragraphs, as a heading or a footnote does."""
_HEADING = 60
"""Characters in the longest line that is a heading by its capitals."""
_LOOK_BACK, _PAGES = 12, 2
"""Paragraphs and pages that may stand between the halves of a sentence, at most."""


@dataclass(eq=False)
class _Paragraph:
    lines: list[Line]
    kind: str = ""  # row, code, header, or prose

    @property
    def last(self) -> Line:
        return self.lines[-1]


def reflow(lines: Sequence[Line], n_pages: int) -> tuple[str, tuple[int, ...]]:
    """Join lines in reading order into paragraphs with a blank line between them; return also the offset of each page.

    A sentence that a page, a column, a footnote, a caption or a box interrupts is joined; what stood between its
    halves comes before or after the paragraph, on its own page. A word broken at a line end is joined; its hyphen
    stays if the document has the word elsewhere with a hyphen and nowhere without, or if the second part does not begin
    in lower case and the joined word occurs nowhere else.
    """
    paragraphs = _Flow(lines).paragraphs()
    vocabulary = _Vocabulary(lines)
    text, starts, before = "", list[int](), None
    for paragraph in paragraphs:
        if before is not None:
            text += "\n" if before.kind == paragraph.kind == "row" else "\n\n"
        for piece, page in _texts(paragraph, vocabulary):
            starts += [len(text)] * (page + 1 - len(starts))
            text += piece
        before = paragraph
    return text, (*starts, *([len(text)] * (n_pages - len(starts))))


def _texts(paragraph: _Paragraph, vocabulary: _Vocabulary) -> Iterator[tuple[str, int]]:
    """Yield the text of each line, with what joins it to the next one, and its page."""
    if paragraph.kind == "code":
        yield from _code(paragraph.lines)
        return
    for line, after in zip(paragraph.lines, [*paragraph.lines[1:], None], strict=True):
        text = line.text if after is None else vocabulary.join(line.text, after.text)
        if line is paragraph.lines[0]:
            if line.level > 0:
                text = f"{'#' * line.level} {text}"
            elif _REMARK.match(text):  # a remark of a program, for no heading of a PDF file begins as one of Markdown
                text = f"    {text}"
        yield text, line.page


def _code(lines: list[Line]) -> Iterator[tuple[str, int]]:
    left = min(line.x for line in lines)
    fence = "````" if any("```" in line.text for line in lines) else "```"
    for line in lines:
        indent = round((line.x - left) * len(line.text) / max(line.end - line.x, 0.1))
        first, last = f"{fence}\n" if line is lines[0] else "", f"\n{fence}" if line is lines[-1] else "\n"
        yield f"{first}{' ' * indent}{line.text}{last}", line.page


class _Flow:
    """Typical distance of the lines of each size of type, and how far the lines of each column reach."""

    def __init__(self, lines: Sequence[Line]) -> None:
        sizes: Counter[float] = Counter()
        for line in lines:
            sizes[round(line.size, 1)] += len(line.text)
        self._body = max(sizes, key=sizes.__getitem__, default=1.0)
        code = sum(len(line.text) for line in lines if line.is_code)
        self._has_code = code < 0.9 * sum(len(line.text) for line in lines)
        self.lines = lines
        gaps: dict[int, list[float]] = defaultdict(list)
        for before, line in pairwise(lines):
            gap = before.y - line.y
            if _in_flow(before, line) and _size_key(before) == _size_key(line) and gap < 3 * line.size:
                gaps[_size_key(line)].append(gap)
        self._gap = {key: sorted(distances)[len(distances) // 4] for key, distances in gaps.items()}
        self._reach: dict[Line, float] = {}
        pages: dict[tuple[int, float], list[Line]] = defaultdict(list)
        for line in lines:
            pages[line.page, line.angle].append(line)
        for page_lines in pages.values():
            self._reach |= _reach(page_lines)

    def paragraphs(self) -> list[_Paragraph]:
        """Return the paragraphs in reading order."""
        out: list[_Paragraph] = []
        current: _Paragraph | None = None
        for line in self.lines:
            kind = "code" if line.is_code and self._has_code else ""
            kind = "row" if line.is_row or _LEADER.search(line.text) else kind  # of a table, or one of contents
            kind = "header" if line.level < 0 else kind
            if current and kind == current.kind and self._goes_on(current, line):
                current.lines.append(line)
            elif not kind and line.level == 0 and (back := self._other_half(out, line)):
                current = out[-back]
                current.lines.append(line)
                # What stood between the halves goes before the paragraph if it is on the page of its beginning.
                between, page = out[len(out) - back + 1 :], current.lines[0].page
                aside = [other for other in between if other.last.page == page < line.page]
                out[-back:] = [*aside, current, *(other for other in between if other not in aside)]
            else:
                current = _Paragraph([line], kind)
                out.append(current)
        return out

    def _goes_on(self, paragraph: _Paragraph, line: Line) -> bool:
        """Whether a line continues the paragraph of the one above it."""
        before, gap = paragraph.last, paragraph.last.y - line.y
        if paragraph.kind == "code":
            return (line.page, line.angle) == (before.page, before.angle) and 0 < gap < 3 * line.size
        if paragraph.kind == "row" or line.opens or max(before.level, line.level) > 0 or not _in_flow(before, line):
            return False
        ended = bool(_STOP.search(before.text))
        if _unlike(before, line) or _is_item(line, ended, bool(_ITEM.match(paragraph.lines[0].text))):
            return False
        typical = self._gap.get(_size_key(line), 1.3 * line.size)
        if _is_lower(line.text) and not ended:
            return gap < 2 * typical
        heading = line.font != before.font and all(earlier.font == before.font for earlier in paragraph.lines)
        if len(before.text) < _HEADING and not ended and _PROSE.search(line.text):
            heading = (
                heading
                or before.text.isupper()
                or all(
                    _TITLE.fullmatch(earlier.text) and not _PROSE.search(earlier.text) for earlier in paragraph.lines
                )
            )
        indented = line.x > before.x + 0.7 * line.size and (ended or len(paragraph.lines) > 1)
        return gap <= _MAX_GAP * typical and not heading and not indented and self._is_full(before, line)

    def _is_full(self, line: Line, after: Line) -> bool:
        """Whether a line ends where its column does, so that the first word of the next one had no room."""
        word = len(after.text.split(maxsplit=1)[0]) * (after.end - after.x) / max(len(after.text), 1)
        return line.end + word + 0.2 * line.size > self._reach[line]

    def _other_half(self, out: list[_Paragraph], line: Line) -> int:
        """Return how far back the paragraph is whose unfinished sentence a line of another block goes on, or 0."""
        lower = _is_lower(line.text)
        if _is_item(line, True, True):
            return 0
        for back, paragraph in enumerate(out[: -_LOOK_BACK - 1 : -1], 1):
            before, is_long = paragraph.last, len(paragraph.lines) > 1
            if back == 1 and not lower and _in_flow(before, line):
                return 0
            fonts, broken = {part.font for part in paragraph.lines}, bool(_BROKEN.search(before.text))
            ended = _STOP.search(before.text) or (back > 1 and _NOTE.match(paragraph.lines[0].text))
            apart = paragraph.kind or before.level or line.opens or line.page - before.page > _PAGES or ended
            if apart or _unlike(before, line) or before.angle != line.angle or not (broken or line.font in fonts):
                continue
            if broken or (lower and (is_long or self._is_full(before, line))):
                return back
            between = out[len(out) - back + 1 :]
            full = before.end > before.x + 0.6 * (self._reach[before] - before.x) and line.size < 1.1 * self._body
            small = all(other.kind or (_unlike(other.last, line) and other.last.size < line.size) for other in between)
            if full and is_long and small and before.font == line.font:
                return back
        return 0


def _reach(lines: list[Line]) -> dict[Line, float]:
    """Return where the column of each line of a page ends: its block, or if it is small, all that begin as it does."""
    reach: dict[Line, float] = {}
    text = [line for line in lines if line.parts == 1]
    block: list[Line] = []
    for line in [*lines, None]:
        near = line and block and _in_flow(block[-1], line) and not _unlike(block[-1], line)
        if line and near and abs(line.x - block[-1].x) < 3 * line.size and not line.is_row:
            block.append(line)
            continue
        if block:
            most = max(other.end for other in block)
            if len(block) < 3:
                like = [o.end for o in text if abs(o.x - block[0].x) < 3 * o.size and not _unlike(o, block[0])]
                most = max([most, *like])
            reach |= dict.fromkeys(block, most)
        block = [line] if line else []
    return reach


def _is_lower(text: str) -> bool:
    return text.lstrip("([“‘«\"'")[:1].islower()


def _is_item(line: Line, ended: bool, among_items: bool) -> bool:
    return bool(_BULLET.match(line.text)) or ((ended or among_items) and bool(_ITEM.match(line.text)))


def _unlike(before: Line, line: Line) -> bool:
    return abs(before.size - line.size) > _MAX_SIZE_CHANGE * max(before.size, line.size)


def _in_flow(before: Line, line: Line) -> bool:
    """Whether a line is below another in the same column."""
    over = min(before.end, line.end) > max(before.x, line.x) or before.end == before.x
    return (before.page, before.angle) == (line.page, line.angle) and before.y - line.y > 0.3 * line.size and over


def _size_key(line: Line) -> int:
    return round(2 * line.size)


class _Vocabulary:
    """Words of a document, which decide about a hyphen at a line end."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._whole: set[str] = set()
        self._compounds: set[tuple[str, str]] = set()
        for line in lines:
            text = line.text.lower()
            self._whole.update(_WORD.findall(text))
            self._compounds.update(_COMPOUND.findall(text))

    def join(self, before: str, after: str) -> str:
        """Return a line without a dropped hyphen, and with what separates it from the next one."""
        broken, word = _BROKEN.search(before), _WORD.match(after)
        if before.endswith(SOFT_HYPHEN):
            return before[:-1]
        if broken and word and "://" not in before.split()[-1]:
            left, right = broken[1].lower(), word[0].lower()
            whole = left + right in self._whole
            keep = not whole and ((left, right) in self._compounds or not word[0][0].islower())
            return before if keep else before[:-1]
        if re.search(r"\S[-\u2010—]$|\d–$|://\S*[/_=&?]$", before):  # numbers, dashes without spaces, addresses
            return before
        return before if _WIDE.match(before[-1]) and _WIDE.match(after[0]) else f"{before} "
