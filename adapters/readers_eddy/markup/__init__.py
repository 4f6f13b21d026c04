"""Read HTML and Markdown files as Markdown text: `# headings`, `- items`, `| table | rows |`."""

from __future__ import annotations

import copy
import re
from itertools import chain, product
from typing import Any

import yaml
from bs4 import BeautifulSoup
from bs4.element import NavigableString, PreformattedString, Tag
from markdown_it import MarkdownIt
from markdownify import MarkdownConverter
from selectolax.lexbor import LexborHTMLParser

from eddy_embed.text.sentences import headings
from readers_eddy.content import MAX_TITLE, Content, Unreadable, choose_title
from readers_eddy.markup.unseen import HEADINGS, leave_out_unseen, mark_hidden_by_styles
from readers_eddy.scripts import lowered, numeral, raised

_HIDDEN = ("script style template noscript head title svg iframe object audio video canvas img input select rp").split()
_SURROUNDINGS = ["navigation", "banner", "contentinfo", "search"]
"""Roles of elements around a page's main content."""
_MAIN_SHARE = 0.2
"""Least share of a page's text in what it calls its main content; a placeholder has less."""
_PLAIN = "a abbr b code em i kbd samp strong".split()
_BLOCKS = "address aside center fieldset figure footer form header hgroup main summary details".split()
_LAYOUT = ["table", *HEADINGS]
"""A table that contains one of these, or lines of code, only arranges a page."""
_ROLES = {
    **dict.fromkeys(("table", "grid", "treegrid"), "table"),
    **dict.fromkeys(("cell", "gridcell"), "td"),
    **dict.fromkeys(("columnheader", "rowheader"), "th"),
    **{"row": "tr", "rowgroup": "tbody", "list": "ul", "listitem": "li"},
}
_LINE_NUMBERS = re.compile(r"(?:^|[\s_-])(?:ln|lineno|linenos|linenumbers?|line-?numbers?|line-?nums?)(?:$|[\s_-])")
_LIST_STYLES = {"a": "lower-alpha", "A": "upper-alpha", "i": "lower-roman", "I": "upper-roman"}
_TABLE_PARTS = ["caption", "thead", "tbody", "tfoot", "tr", "td", "th"]
_FILLED = ("text", "email", "tel", "number", "url", "date", "time")
_MOST_COPIED = 1_000_000
"""Characters and cells that merged cells may add to a file."""
_SPACE = re.compile(r"[ \t\r\n\f]+")
_FRONT_MATTER = re.compile(r"---[ \t]*(?:\r\n?|\n)(.*?)(?<=[\r\n])---[ \t]*(?:\r\n?|\n|\Z)", re.DOTALL)
_FRACTION = re.compile(r"(?<=(\d))?<sup[^>]*>(\d+)</sup>[/⁄]<sub[^>]*>(\d+)</sub>")
"""A raised number, a stroke and a lowered one, perhaps behind a whole number."""
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight-source)-([\w+#.-]+)")
_SEARCHED_CHARACTERS = 100_000
"""Length of the beginning of a Markdown file that is searched for front matter and a title."""
_YAML_NULL = "tag:yaml.org,2002:null"


def read_html(markup: str) -> Content:
    """Extract the visible text of an HTML document, and its title or else its first heading."""
    if "\0" in markup:  # the parser would drop it
        raise Unreadable(f"character {markup.index(chr(0))} is NUL: binary, or UTF-16 without its mark")
    page = LexborHTMLParser(markup)
    mark_hidden_by_styles(page)
    return read_tree(page.html or "")


def read_tree(markup: str) -> Content:
    """Do the same with markup in which every tag is closed, as a parser writes it."""
    markup = _FRACTION.sub(lambda match: f"{' ' if match[1] else ''}{match[2]}/{match[3]}", markup)
    soup = BeautifulSoup(markup, "html.parser")
    for tag in [*soup.find_all("noframes"), *soup.find_all("iframe", srcdoc=True)]:
        tag.replace_with(BeautifulSoup(str(tag.get("srcdoc", tag.get_text())), "html.parser"))
    try:
        hidden = leave_out_unseen(soup)
        titles = soup.find_all(lambda tag: tag.name == "title" and tag.find_parent("svg") is None)  # a picture's own
        named, headings = [tag.get_text() for tag in titles[:1]], soup.find_all(HEADINGS, limit=1)
        named += [_Converter().convert_soup(tag).strip().lstrip("#") for tag in headings]
        title, notes = choose_title([_SPACE.sub(" ", name).strip() for name in named])
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
    titles_below = headings(text[begun:_SEARCHED_CHARACTERS])
    plain = (_plain(heading) if len(heading) <= MAX_TITLE else heading for heading in titles_below)
    title, too_long = choose_title(chain(titles, plain))
    return Content(title, text, notes=notes + too_long)


def _plain(heading: str) -> str:
    tokens = MarkdownIt("commonmark").parseInline(heading)[0].children or []
    pieces = (" " if token.type == "softbreak" else token.content for token in tokens if token.type != "html_inline")
    return _SPACE.sub(" ", "".join(pieces)).strip()


def _leave_out_surroundings(soup: BeautifulSoup) -> tuple[str, ...]:
    """Take out menus, and all around the main content if the page says which that is; say so."""
    before = soup.get_text(" ", strip=True)
    main = soup.find_all(lambda tag: "main" in (tag.name, tag.get("role")))
    title = next((copy.copy(tag) for tag in soup.find_all("h1") if tag.find_parent("nav") is None), None)
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
    if soup.body is not None and title is not None and soup.find("h1") is None:
        soup.body.insert(0, title)
    lost = soup.get_text(" ", strip=True) != before
    return ("menus and what else is around the main content are left out",) if lost else ()


def _prepare(soup: BeautifulSoup) -> None:
    _write_controls(soup)
    _name_roles(soup)
    for tag in soup.find_all(_HIDDEN):
        tag.decompose()
    for string in soup.find_all(string=lambda s: isinstance(s, PreformattedString)):  # comments, doctypes
        string.extract()
    for tag in soup.find_all("rt"):
        tag.insert(0, "(")
        tag.append(")")
    for tag in [tag for tag in soup.find_all(HEADINGS) if not tag.get_text(strip=True)]:
        tag.decompose()
    for tag in soup.find_all("pre"):
        _leave_out_line_numbers(tag)
    tables, added = soup.find_all("table"), 0
    for table in tables:
        _arrange(table)
    for table in tables:
        added = _fill_table(table, added) if table.name == "table" else added
    _number_items(soup)
    for br in soup.find_all("br"):
        after = br.next_sibling
        if isinstance(after, NavigableString) and not br.find_parent("pre"):
            after.replace_with(after.lstrip(" \t\r\n\f"))


def _name_roles(soup: BeautifulSoup) -> None:
    for tag in soup.find_all(role=True):
        if tag["role"] == "heading":
            tag.name = f"h{min(max(_number(tag.get('aria-level'), 2), 1), 6)}"
        elif tag.name not in ("ul", "ol", "li"):
            tag.name = _ROLES.get(str(tag["role"]), tag.name)


def _arrange(table: Tag) -> None:
    """Make blocks of a table that only arranges a page; else put its caption first, as browsers do."""
    has_code = any("\n" in pre.get_text().strip("\n") for pre in table.find_all("pre"))
    if table.get("role") in ("presentation", "none") or table.find(_LAYOUT) or has_code:
        for part in table.find_all(_TABLE_PARTS):
            if part.find_parent("table") is table:
                part.name = "div"
        table.name = "div"
    elif (caption := table.find("caption")) is not None:
        table.insert(0, caption)


def _write_controls(soup: BeautifulSoup) -> None:
    """Write what is chosen and filled in; a list without a choice, as of languages, is left out."""
    for tag in soup.find_all("input"):
        kind = str(tag.get("type", "text")).lower()
        if kind in ("checkbox", "radio"):
            tag.replace_with("☒" if tag.has_attr("checked") else "☐")
        elif kind in _FILLED and tag.get("value"):
            tag.replace_with(str(tag["value"]))
    for tag in soup.find_all("select"):
        tag.replace_with(", ".join(" ".join(item.get_text().split()) for item in tag.find_all("option", selected=True)))


def _leave_out_line_numbers(pre: Tag) -> None:
    for tag in pre.find_all("span", class_=_LINE_NUMBERS):
        if tag.get_text(strip=True).isdecimal():
            tag.decompose()
    cell, numbers = pre.find_parent(["td", "th"]), pre.get_text().split()
    code = None if cell is None else cell.find_next_sibling(["td", "th"])
    first = _number(numbers[0] if numbers else "", 0)
    if code is not None and code.find("pre") and len(numbers) > 1 and cell is not None:
        if numbers == [str(number) for number in range(first, first + len(numbers))]:
            cell.decompose()


def _number_items(soup: BeautifulSoup) -> None:
    for ol in soup.find_all("ol"):
        items = ol.find_all("li", recursive=False)
        step = -1 if ol.has_attr("reversed") else 1
        number = _number(ol.get("start"), len(items) if step < 0 else 1)
        style = _LIST_STYLES.get(str(ol.get("type")), str(ol.get("style", "")))
        for li in items:
            number = _number(li.get("value"), number)
            li["mark"] = li.get("mark") or f"{numeral(number, style)}."
            number += step


def _number(value: Any, default: int) -> int:
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value) else default


def _fill_table(table: Tag, added: int) -> int:
    """Give every row as many cells, a merged cell's text in each that it covers, within limits for the page.

    Returns:
        How much was added to the page so far.
    """
    rows = [row for row in table.find_all("tr") if row.find_parent("table") is table]
    grid: list[dict[int, Tag]] = [{} for _ in rows]  # the cells of each row by column
    for at, row in enumerate(rows):
        column = 0
        for cell in row.find_all(["td", "th"], recursive=False):
            while column in grid[at]:
                column += 1
            grid[at][column] = cell
            across = min(max(_number(cell.get("colspan"), 1), 1), 1000)
            down = min(max(_number(cell.get("rowspan"), 1), 0) or 1000, 1000)
            size = 1 + len(cell.get_text()) if across > 1 or down > 1 else 0
            for place in product(grid[at : at + down], range(column, column + across)):
                if added > _MOST_COPIED:
                    break
                if place[1] not in place[0]:
                    added += size
                    place[0][place[1]] = copy.copy(cell) if added <= _MOST_COPIED else Tag(name="td")
            column += across
    width = max((max(cells, default=-1) + 1 for cells in grid), default=0)
    for row, cells in zip(rows, grid, strict=True):
        has_text = any(cell.get_text(strip=True) for cell in cells.values())
        if has_text and added + width <= _MOST_COPIED:
            added += width - len(cells)
            cells |= {column: Tag(name="td") for column in range(width) if column not in cells}
        for column in sorted(cells):
            row.append(cells[column].extract())
    return added


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
        return f"\n\n{code}\n\n" if (code := fenced(text, _language(el))) else ""

    def convert_li(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        mark = f"{el.get('mark', '-')} "
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


def fenced(text: str, language: str = "") -> str:
    """Return code between fences that are longer than any in it; "" without code."""
    code = text.strip("\n").rstrip()
    fence = "`" * (max(map(len, re.findall("`{3,}", code)), default=2) + 1)
    return f"{fence}{language}\n{code}\n{fence}" if code else ""


def _language(pre: Tag) -> str:
    tags = (tag for tag in (pre, pre.find("code"), pre.parent) if isinstance(tag, Tag))
    matches = (_LANGUAGE.search(" ".join(tag.get("class") or [])) for tag in tags)
    return next((match[1] for match in matches if match), "")
