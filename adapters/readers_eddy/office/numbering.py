"""What Word's styles and lists say of a paragraph: its heading level, its label such as `(a)` or `Article VII`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from readers_eddy.scripts import numeral

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_PLACE = re.compile("%([1-9])")
_CODE = re.compile(r"\bcode|preformatted|\blisting", re.IGNORECASE)
_CODE_FONT = re.compile(r"courier|consolas|menlo|monaco|lucida console|\bmono", re.IGNORECASE)


def value(element: Any, path: str, default: str | None = None) -> str | None:
    """Return the value of the element at a path such as `pPr/pStyle`; `default` without one."""
    at = None if element is None else element.find("/".join(f"{W}{name}" for name in path.split("/")))
    return default if at is None else at.get(f"{W}val", "1")


def is_on(element: Any, path: str) -> bool:
    """Whether a switch at a path is on."""
    return value(element, path, "0") not in ("0", "false", "off", "none")


class Styles:
    """The styles of a Word file, each with those that it is based on."""

    def __init__(self, root: Any) -> None:
        styles = [] if root is None else root.findall(f"{W}style")
        self._styles = {style.get(f"{W}styleId"): style for style in styles}
        default = [style for style in styles if (style.get(f"{W}type"), style.get(f"{W}default")) == ("paragraph", "1")]
        self._default = default[0].get(f"{W}styleId") if default else None

    def of(self, element: Any) -> Iterator[Any]:
        """Yield a paragraph or run, its style and what that is based on, the nearest first."""
        yield element
        name = value(element, "pPr/pStyle", self._default) if element.tag == f"{W}p" else value(element, "rPr/rStyle")
        seen = set()
        while name in self._styles and name not in seen:
            seen.add(name)
            yield self._styles[name]
            name = value(self._styles[name], "basedOn")

    def heading(self, paragraph: Any) -> int:
        """Return a paragraph's heading level, from 1; 0 for none."""
        for element in self.of(paragraph):
            if (level := value(element, "pPr/outlineLvl")) is not None:
                return int(level) % 9 + 1 if level in "012345678" else 0
            if named := re.fullmatch("heading ([1-9])", (value(element, "name") or "").lower()):
                return int(named[1])
        return 0

    def is_hidden(self, run: Any) -> bool:
        """Whether a run is hidden, by itself, by its style or by its paragraph's."""
        paragraph = next(run.iterancestors(f"{W}p"), None)
        chain = [*self.of(run), *(list(self.of(paragraph))[1:] if paragraph is not None else ())]
        return next((is_on(part, "rPr/vanish") for part in chain if value(part, "rPr/vanish") is not None), False)

    def is_code(self, paragraph: Any) -> bool:
        """Whether a paragraph is code: by its style's name, or all of it in a font for code unlike the body's."""
        styles = [style for style in list(self.of(paragraph))[1:] if style.get(f"{W}styleId") != self._default]
        if any(_CODE.search(value(style, "name") or "") for style in styles):
            return True
        runs = [run for run in paragraph.iter(f"{W}r") if run.find(f"{W}t") is not None]
        return bool(runs) and all(any(map(_has_code_font, (*self.of(run), *styles))) for run in runs)


def _has_code_font(element: Any) -> bool:
    fonts = element.find(f"{W}rPr/{W}rFonts")
    return fonts is not None and bool(_CODE_FONT.search(fonts.get(f"{W}ascii", "")))


class Numbering:
    """The lists of a Word file, and how far each has counted."""

    def __init__(self, root: Any, styles: Styles) -> None:
        self._styles = styles
        self._lists = {} if root is None else {num.get(f"{W}numId"): num for num in root.findall(f"{W}num")}
        abstract = [] if root is None else root.findall(f"{W}abstractNum")
        self._abstract = {definition.get(f"{W}abstractNumId"): definition for definition in abstract}
        self._linked = {value(definition, "styleLink"): definition for definition in abstract}
        self._counts: dict[Any, dict[int, int]] = {}
        self._begun: set[tuple[str, int]] = set()

    def label(self, paragraph: Any) -> str | None:
        """Count a paragraph, and return its label; "" for a bullet, " " for an empty one, None if it is in no list."""
        chain = list(self._styles.of(paragraph))
        number = next((id_ for element in chain if (id_ := value(element, "pPr/numPr/numId")) is not None), None)
        levels = self._levels(number)
        if not levels:
            return None
        set_level = next((level for element in chain if (level := value(element, "pPr/numPr/ilvl")) is not None), None)
        styles = [style.get(f"{W}styleId") for style in chain[1:]]
        by_style = (at for at, level in levels.items() if value(level, "pStyle") in styles)
        at = int(set_level) if set_level is not None else next(by_style, 0)
        if at not in levels:
            return None
        counts = self._count(str(number), levels, at)
        if value(levels[at], "numFmt") == "bullet":
            return ""

        def shown(place: re.Match[str]) -> str:
            level = int(place[1]) - 1
            style = "decimal" if is_on(levels[at], "isLgl") else value(levels.get(level), "numFmt", "decimal") or ""
            count = counts.get(level, self._start(levels, level))
            return "" if style == "none" else f"{count:02}" if style == "decimalZero" else numeral(count, style)

        return _PLACE.sub(shown, value(levels[at], "lvlText", "") or "").strip() or " "

    def _levels(self, number: str | None) -> dict[int, Any]:
        """Return the levels of a list, its own before those that it shares."""
        num = self._lists.get(number)
        abstract = self._abstract.get(value(num, "abstractNumId"))
        if abstract is not None and (link := value(abstract, "numStyleLink")) is not None:
            abstract = self._linked.get(link, abstract)
        if num is None or abstract is None:
            return {}
        levels = {int(level.get(f"{W}ilvl")): level for level in abstract.findall(f"{W}lvl")}
        return levels | {int(level.get(f"{W}ilvl")): level for level in num.findall(f"{W}lvlOverride/{W}lvl")}

    def _count(self, number: str, levels: dict[int, Any], at: int) -> dict[int, int]:
        counts = self._counts.setdefault(value(self._lists[number], "abstractNumId"), {})
        for override in self._lists[number].findall(f"{W}lvlOverride"):
            level, start = int(override.get(f"{W}ilvl")), value(override, "startOverride")
            if start is not None and level <= at and (number, level) not in self._begun:
                counts[level] = int(start) - 1
                self._begun.add((number, level))
        counts[at] = counts[at] + 1 if at in counts else self._start(levels, at)
        for level in [level for level in counts if level > at]:
            if at < int(value(levels.get(level), "lvlRestart", str(level)) or 0):
                del counts[level]
        return counts

    @staticmethod
    def _start(levels: dict[int, Any], at: int) -> int:
        return int(value(levels.get(at), "start", "1") or 1)
