"""What a browser shows of a page, and what it hides."""

from __future__ import annotations

import re

from bs4 import BeautifulSoup
from bs4.element import NavigableString, Tag, TemplateString

_EDIT = re.compile(r"[¶#§🔗]|\[\s*(?:edit|bearbeiten|modifier|editar|modifica|править)[^\]]*\]", re.IGNORECASE)
"""What pages put behind their headings, to link or change them."""
_UNSEEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)", re.IGNORECASE)
HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]


def is_title(tag: Tag) -> bool:
    """Whether an element is the title of its page."""
    return tag.name == "title" and tag.find_parent("svg") is None  # a picture has its own


def leave_out_unseen(soup: BeautifulSoup) -> tuple[str, ...]:
    """Take out what a browser does not show, and say so where it has text; show what it does."""
    for template in soup.find_all("template", attrs={"shadowrootmode": True}):
        template.name = "div"
        for string in template.find_all(string=lambda each: isinstance(each, TemplateString)):
            string.replace_with(NavigableString(string))
    unseen = [tag for tag in soup.find_all(_is_unseen) if tag.get_text(strip=True)]
    for tag in unseen:
        if not tag.decomposed:
            tag.decompose()
    _write_formulas_once(soup)
    edits = (tag for heading in soup.find_all(HEADINGS) for tag in heading.find_all(["a", "span"]))
    for tag in [tag for tag in edits if _EDIT.fullmatch(tag.get_text(strip=True))]:
        tag.extract()
    for button in soup.find_all("button"):
        if _is_read(button):
            button.name = "span"
        else:
            button.decompose()
    return (f"{len(unseen)} elements that a browser hides are left out",) if unseen else ()


def _is_unseen(tag: Tag) -> bool:
    """Whether attributes hide an element; streaming pages hide their article until a script moves it."""
    if tag.name == "dialog" and not tag.has_attr("open"):
        return True
    hidden = tag.has_attr("hidden") and tag["hidden"] != "until-found" and not str(tag.get("id", "")).startswith("S:")
    return hidden or tag.has_attr("popover") or bool(_UNSEEN_STYLE.search(str(tag.get("style", ""))))


def _write_formulas_once(soup: BeautifulSoup) -> None:
    """Take out what draws a formula in MathML again for the eye, and raise and lower its signs."""
    for math in soup.find_all("math"):
        place = math.parent if math.parent is not None and math.parent.name == "span" else math
        hidden = {"aria-hidden": "true"}
        for twin in [*place.find_next_siblings(attrs=hidden), *place.find_previous_siblings(attrs=hidden)]:
            twin.decompose()
        for script in math.find_all(["msup", "msub"]):
            parts = script.find_all(True, recursive=False)
            if len(parts) == 2:
                parts[1].name = script.name.removeprefix("m")


def _is_read(button: Tag) -> bool:
    """Whether a button is part of a heading or a sentence, as one that opens an answer is."""
    if button.parent is None or button.find_parent([*HEADINGS, "summary", "dt", "legend", "th"]):
        return button.parent is not None
    strings = (str(each) for each in button.parent.find_all(string=True) if button not in each.parents)
    return button.parent.name in ("p", "li", "td", "dd", "span") and any(map(str.strip, strings))
