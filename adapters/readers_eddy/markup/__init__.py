"""Read HTML and Markdown files as Markdown text: `# headings`, `- items`, `| table | rows |`."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import yaml
from bs4 import BeautifulSoup
from bs4.element import NavigableString, PreformattedString, Tag
from markdown_it import MarkdownIt
from markdownify import MarkdownConverter

from eddy_embed.text.sentences import headings
from readers_eddy.content import MAX_TITLE, Content, choose_title
from readers_eddy.errors import Unreadable
from readers_eddy.markup.merged import fill_merged
from readers_eddy.markup.unseen import HEADINGS, is_title, leave_out_unseen
from readers_eddy.scripts import lowered, raised

_HIDDEN = (
    "script style template noscript head title svg iframe object audio video canvas img input select annotation "
    "annotation-xml"
).split()
_SURROUNDINGS = ["navigation", "banner", "contentinfo", "search"]
"""Roles of elements around a page's main content."""
_MAIN_SHARE = 0.2
"""Least share of a page's text in what it calls its main content; a placeholder has less."""
_PLAIN = "a abbr b code del em i kbd s samp strong".split()
_BLOCKS = "address aside center fieldset figure footer form header hgroup main summary details".split()
_LAYOUT = ["table", *HEADINGS]
"""A table that contains one of these only arranges a page."""
_TABLE_PARTS = ["caption", "thead", "tbody", "tfoot", "tr", "td", "th"]
_SPACE = re.compile(r"[ \t\r\n\f]+")
_FRONT_MATTER = re.compile(r"---[ \t]*(?:\r\n?|\n)(.*?)(?<=[\r\n])---[ \t]*(?:\r\n?|\n|\Z)", re.DOTALL)
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight-source)-([\w+#.-]+)")
_SEARCHED_CHARACTERS = 100_000
"""Length of the beginning of a Markdown file that is searched for front matter and a title."""
_YAML_NULL = "tag:yaml.org,2002:null"


def read_html(markup: str) -> Content:
    """Extract the visible text of an HTML document, and its title or else its first heading."""
    if "\0" in markup:  # the parser would stop there
        raise Unreadable(f"character {markup.index(chr(0))} is NUL: binary, or UTF-16 without its mark")
    soup = BeautifulSoup(markup, "lxml")
    hidden = leave_out_unseen(soup)
    titles, headings = soup.find_all(is_title, limit=1), soup.find_all(HEADINGS, limit=1)
    try:
        named = [tag.get_text() for tag in titles]
        named += [_Converter().convert_soup(tag).strip().lstrip("#") for tag in headings]
        title, notes = choose_title([_SPACE.sub(" ", each).strip() for each in named])
        notes += hidden + _leave_out_surroundings(soup)
        _prepare(soup)
        text = _Converter().convert_soup(soup)
    except RecursionError:
        raise Unreadable("its elements are nested hundreds of levels deep; mend the file, or save it as text") from None
    return Content(title, text.replace("\xad", "").strip("\n").rstrip(), notes=notes)


def read_markdown(text: str) -> Content:
    """Find the title and remove the front matter in YAML; the rest of the text is unchanged."""
    titles: list[str] = []
    notes: tuple[str, ...] = ()
    begun = 0
    if matter := _FRONT_MATTER.match(text, 0, _SEARCHED_CHARACTERS):
        begun = matter.end()
        try:
            # Nodes only: values of nodes that aliases repeat would grow without bounds.
            node = yaml.compose(matter[1], Loader=yaml.SafeLoader)
        except yaml.YAMLError:
            node = None
        except RecursionError:
            node, notes = None, ("its front matter stays in the text: it is nested hundreds of levels deep",)
        if isinstance(node, yaml.MappingNode):
            titles = [
                value.value.strip()
                for key, value in node.value
                if key.value == "title" and isinstance(value, yaml.ScalarNode) and value.tag != _YAML_NULL
            ]
            text, begun = text[begun:], 0
    # A heading that is too long is counted as it is written: to parse it may take long.
    own = headings(text[begun:_SEARCHED_CHARACTERS])
    plain = (_plain(heading) if len(heading) <= MAX_TITLE else heading for heading in own)
    title, too_long = choose_title(chain(titles, plain))
    return Content(title, text, notes=notes + too_long)


def _plain(heading: str) -> str:
    tokens = MarkdownIt("commonmark").parseInline(heading)[0].children or []
    pieces = (" " if token.type == "softbreak" else token.content for token in tokens if token.type != "html_inline")
    return _SPACE.sub(" ", "".join(pieces)).strip()


def _leave_out_surroundings(soup: BeautifulSoup) -> tuple[str, ...]:
    """Take out menus, and all around the main content if the page says which that is; say so."""
    before = soup.get_text(" ", strip=True)
    main = soup.find_all("main") or soup.find_all(attrs={"role": "main"})
    inside = sum(len(tag.get_text(" ", strip=True)) for tag in main)
    known = {id(tag) for tag in main}  # equal tags are the same to `in`, which compares all that they hold
    if soup.body is not None and id(soup.body) not in known and inside >= _MAIN_SHARE * len(before):
        outermost = [tag for tag in main if known.isdisjoint(map(id, tag.parents))]
        for tag in outermost:
            tag.extract()
        soup.body.clear()
        soup.body.extend(outermost)
    for tag in [*soup.find_all("nav"), *soup.find_all(attrs={"role": _SURROUNDINGS})]:
        tag.decompose()
    lost = soup.get_text(" ", strip=True) != before
    return ("menus and what else is around the main content are left out",) if lost else ()


def _prepare(soup: BeautifulSoup) -> None:
    for tag in soup.find_all(_HIDDEN):
        tag.decompose()
    for string in soup.find_all(string=lambda s: isinstance(s, PreformattedString)):  # comments, doctypes
        string.extract()
    for table in soup.find_all("table"):
        if table.get("role") in ("presentation", "none") or table.find(_LAYOUT):
            for part in table.find_all(_TABLE_PARTS):
                if part.find_parent("table") is table:
                    part.name = "div"
            table.name = "div"
    fill_merged(soup)
    _number_items(soup)
    for br in soup.find_all("br"):
        after = br.next_sibling
        if isinstance(after, NavigableString) and not br.find_parent("pre"):
            after.replace_with(after.lstrip(" \t\r\n\f"))


def _number_items(soup: BeautifulSoup) -> None:
    for ol in soup.find_all("ol"):
        number = _number(ol.get("start"), 1)
        for li in ol.find_all("li", recursive=False):
            number = _number(li.get("value"), number)
            li["value"] = str(number)
            number += 1


def _number(value: Any, default: int) -> int:
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value) else default


class _Converter(MarkdownConverter):
    """Convert HTML to Markdown without escapes, targets of links, emphasis, and separators of table heads."""

    class Options:
        autolinks = escape_asterisks = escape_underscores = False
        heading_style = "atx"
        strip = _PLAIN
        wrap = True  # turns line ends of the markup into spaces
        wrap_width = None  # wraps no line

    def convert_div(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        text = text.strip()
        if "_inline" in parent_tags:
            return f" {text} "
        return f"\n\n{text}\n\n" if text else ""

    def convert_br(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return " " if "_inline" in parent_tags else "\n"

    def convert_sup(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return raised(text)

    def convert_sub(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return lowered(text)

    def convert_pre(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        if "_inline" in parent_tags:
            return f" {text.strip()} "
        code = text.strip("\n").rstrip()
        longest = max(map(len, re.findall("`{3,}", code)), default=2)
        fence = "`" * (longest + 1)
        return f"\n\n{fence}{_language(el)}\n{code}\n{fence}\n\n" if code.strip() else ""

    def convert_li(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        ordered = el.parent is not None and el.parent.name == "ol"
        mark = f"{el['value']}. " if ordered else "- "
        first, *others = text.strip().split("\n")
        lines = [mark + first, *(" " * len(mark) + line if line else "" for line in others)]
        return "\n".join(lines) + "\n" if first else "\n"

    def convert_td(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return f" {_SPACE.sub(' ', text).strip()} |"

    convert_th = convert_td

    def convert_tr(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return f"|{text.rstrip(' ')}\n" if text.strip(" |\n") else ""

    def convert_hr(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return "\n\n"


for _name in _BLOCKS:
    setattr(_Converter, f"convert_{_name}", _Converter.convert_div)


def _language(pre: Tag) -> str:
    for tag in (pre, pre.find("code"), pre.parent):
        match = _LANGUAGE.search(" ".join(tag.get("class") or [])) if isinstance(tag, Tag) else None
        if match:
            return match[1]
    return ""
