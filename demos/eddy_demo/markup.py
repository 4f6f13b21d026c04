"""HTML to the text that a reader sees: blocks apart, inline whitespace collapsed, scripts and styles left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HIDDEN = frozenset(("script", "style", "template", "noscript", "head", "title", "svg", "iframe", "object"))
_BLOCKS = frozenset(
    "address article aside blockquote body caption dd details div dl dt fieldset figcaption figure footer form h1 h2 "
    "h3 h4 h5 h6 header hr html li main nav ol p pre section summary table tbody tfoot thead tr ul".split()
)
_SPACE = re.compile(r"[ \t\r\n\f]+")


def read_html(markup: str) -> tuple[str, str]:
    """Extract what can be read.

    Args:
        markup: An HTML document or fragment.

    Returns:
        The title ("" without one) and the text: blocks with a blank line between them.
    """
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(markup, "html.parser")
    title = _SPACE.sub(" ", soup.title.get_text()).strip() if soup.title else ""
    blocks: list[str] = []
    run: list[str] = []
    for event, value in _events(soup):
        if event == "text":
            run.append(value)
        elif run:
            blocks.append("".join(run))
            run = []
    blocks.append("".join(run))
    return title, "\n\n".join(text for block in blocks if (text := _tidy(block)))


def _events(soup: object) -> Iterator[tuple[str, str]]:
    """Runs of text and the block borders between them, in reading order; a stack, as pages may nest without end."""
    from bs4.element import NavigableString, PreformattedString, Tag

    stack: list[tuple[object, bool]] = [(soup, False)]
    while stack:
        node, preformatted = stack.pop()
        if node is None:
            yield "border", ""
        elif isinstance(node, NavigableString):
            if not isinstance(node, PreformattedString):  # comments, doctypes and the like
                yield "text", str(node).replace("\r\n", "\n") if preformatted else _SPACE.sub(" ", str(node))
        elif isinstance(node, Tag) and node.name not in _HIDDEN:
            if node.name == "br":
                yield "text", "\n"
                continue
            if node.name in _BLOCKS:
                yield "border", ""
                stack.append((None, False))
            if node.name == "li":
                yield "text", "- "
            elif node.name in ("td", "th"):
                yield "text", " "
            inside = preformatted or node.name in ("pre", "textarea")
            stack.extend((child, inside) for child in reversed(node.contents))


def _tidy(block: str) -> str:
    lines = [line.strip(" ") if not line.startswith("    ") else line.rstrip() for line in block.split("\n")]
    return re.sub(r"(?<=\S) {2,}", " ", "\n".join(lines)).strip("\n").rstrip()
