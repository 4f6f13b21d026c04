"""What a browser shows of a page, and what it hides."""

from __future__ import annotations

import html
import re
from itertools import chain

from bs4 import BeautifulSoup
from bs4.element import NavigableString, Tag, TemplateString
from selectolax.lexbor import LexborHTMLParser

from readers_eddy.formulas import mathml_text

_EDIT = re.compile(r"[¶#§🔗]|\[\s*(?:edit|bearbeiten|modifier|editar|modifica|править)[^\]]*\]", re.IGNORECASE)
"""What pages put behind their headings, to link or change them."""
_UNSEEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)", re.IGNORECASE)
_SHOWN_STYLE = re.compile(r"(?:display|visibility)\s*:", re.IGNORECASE)
_NOT_PLAIN_RULES = re.compile(r"/\*.*?\*/|@[^{};]*(?:;|\{(?:[^{}]|\{[^{}]*\})*\})", re.DOTALL)
"""Comments and at-rules of a style sheet, with the rules for some media in them."""
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_SELECTOR = re.compile(r"(?:[.#]?[a-zA-Z_-][\w-]*)+")
_SHOWING = re.compile(rf"\*|{_SELECTOR.pattern}")
_HIDDEN_BY_STYLE = "data-hidden-by-style"
_NEVER_HIDDEN = ("html", "head", "body", "main", "article", "h1")
_FORMULA_CLASS = re.compile(r"math|latex|\btex\b", re.IGNORECASE)
_WRAPPERS = ("span", "mjx-container", "mjx-assistive-mml")
HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]


def leave_out_unseen(soup: BeautifulSoup) -> tuple[str, ...]:
    """Take out what a browser does not show, and say so where it has text; show what it does."""
    for template in soup.find_all("template", attrs={"shadowrootmode": True}):
        template.name = "div"
        for string in template.find_all(string=lambda text: isinstance(text, TemplateString)):
            string.replace_with(NavigableString(string))
    _write_formulas(soup)
    unseen = [tag for tag in soup.find_all(_is_unseen) if tag.get_text(strip=True)]
    for tag in unseen:
        if not tag.decomposed:
            tag.decompose()
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
    if tag.has_attr(_HIDDEN_BY_STYLE) or (tag.name == "dialog" and not tag.has_attr("open")):
        return True
    hidden = tag.has_attr("hidden") and tag["hidden"] != "until-found" and not str(tag.get("id", "")).startswith("S:")
    if hidden and "note" in str(tag.get("epub-type", tag.get("epub:type", ""))):
        return False  # books show it where the text refers to it
    return hidden or tag.has_attr("popover") or bool(_UNSEEN_STYLE.search(str(tag.get("style", ""))))


def mark_hidden_by_styles(page: LexborHTMLParser) -> None:
    """Mark as hidden what the page's own style sheets hide by tag, class or id, and no rule of theirs shows again."""
    sheets = page.css("style:not([media]), style[media=''], style[media=all], style[media=screen]")
    css = _NOT_PLAIN_RULES.sub("", "".join(sheet.text() for sheet in sheets))
    rules = [
        (selector.strip(), bool(_UNSEEN_STYLE.search(body)))
        for selectors, body in _RULE.findall(css)
        if _SHOWN_STYLE.search(body)
        for selector in selectors.split(",")
    ]
    hiding = ",".join(selector for selector, hides in rules if hides and _SELECTOR.fullmatch(selector))
    for node in page.css(hiding) if hiding else ():
        if node.tag not in _NEVER_HIDDEN and node.css_first("main, article, h1") is None:
            node.attrs[_HIDDEN_BY_STYLE] = ""
    for selector, hides in rules:
        last = re.sub(r"::?[\w-]+(?:\([^)]*\))?|\[[^]]*\]", "", re.split(r"[\s>+~]+", selector)[-1]) or "*"
        if not hides and hiding and _SHOWING.fullmatch(last):
            for node in page.css(last):
                if _HIDDEN_BY_STYLE in node.attrs:
                    del node.attrs[_HIDDEN_BY_STYLE]


def _write_formulas(soup: BeautifulSoup) -> None:
    """Write each formula as one line, without what draws it again for the eye."""
    for math in soup.find_all("math"):
        if math.parent is None or math.find_parent("math") is not None:
            continue
        place = math
        while (others := _beside(place)) is not None:
            for twin in others:
                twin.decompose()
            if others:
                del place["style"]  # pages hide the one of the two that a browser does not need
            place = place.parent
        text = mathml_text(math)
        if math.get("display") == "block":
            math.name = "div"
            math.string = text
        else:
            math.replace_with(text)
    _write_sources(soup)


def _write_sources(soup: BeautifulSoup) -> None:
    """Write formulas that a page has only in TeX, for a script, or as a picture with its source."""
    for script in soup.find_all("script", type=re.compile("^math/(?:tex|asciimath)")):
        drawn = [
            near for near in script.find_previous_siblings(limit=3) if "MathJax" in "".join(near.get("class") or [])
        ]
        if not any(near.find(class_="MJX_Assistive_MathML") for near in drawn):
            for near in drawn:
                near.decompose()
            script.replace_with(html.unescape(script.get_text()).strip())
    for image in soup.find_all("img", alt=True, class_=_FORMULA_CLASS):
        image.replace_with(re.sub(r"^\{\\displaystyle (.*)\}$", r"\1", str(image["alt"]).strip(), flags=re.DOTALL))


def _beside(place: Tag) -> list[Tag] | None:
    """Return what draws a formula again beside an element that holds it; None if anything else stands there."""
    if place.parent is None or place.parent.name not in _WRAPPERS:
        return None
    twins = []
    for near in chain(place.previous_siblings, place.next_siblings):
        if isinstance(near, Tag) and (
            near.get("aria-hidden") == "true" or (near.name == "img" and near.has_attr("alt"))
        ):
            twins.append(near)
        elif isinstance(near, Tag) or str(near).strip():
            return None
    return twins


def _is_read(button: Tag) -> bool:
    """Whether a button is part of a heading or a sentence, as one that opens an answer is."""
    if button.parent is None or button.find_parent([*HEADINGS, "summary", "dt", "legend", "th"]):
        return button.parent is not None
    strings = (str(string) for string in button.parent.find_all(string=True) if button not in string.parents)
    return button.parent.name in ("p", "li", "td", "dd", "span") and any(map(str.strip, strings))
