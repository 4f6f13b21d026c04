"""Read Jupyter notebooks: Markdown as it is written, code and its results between fences."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from readers_eddy.content import Content
from readers_eddy.errors import Unreadable
from readers_eddy.markup import fenced, read_html, read_markdown

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def read_notebook(text: str) -> Content:
    """Extract the cells and the results that are text or tables; a title of the notebook's, else its first heading."""
    try:
        notebook = json.loads(text)
        cells, metadata = notebook["cells"], notebook.get("metadata", {})
        named = (metadata.get("kernelspec", {}).get("language"), metadata.get("language_info", {}).get("name"))
        language = str(next(filter(None, named), ""))
        parts = [part for cell in cells for part in _cell(cell, language)]
        title = str(metadata.get("title") or "")
    except RecursionError:
        raise Unreadable("its JSON is nested hundreds of levels deep") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unreadable("no notebook of format 4: open it in Jupyter and save it again") from None
    content = read_markdown("\n\n".join(filter(None, parts)))
    return Content(title or content.title, content.text, notes=content.notes)


def _cell(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _joined(cell.get("source", ""))
    if cell["cell_type"] != "code":
        yield source.strip("\n")
        return
    yield fenced(source, language)
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "text/html" in data and (text := read_html(_joined(data["text/html"])).text):
            yield text
        elif "text/markdown" in data:
            yield _joined(data["text/markdown"]).strip("\n")
        else:
            shown = output.get("text") or data.get("text/plain") or output.get("traceback", [])
            yield fenced(_COLOURS.sub("", _joined(shown, "\n" if "traceback" in output else "")))


def _joined(source: Any, between: str = "") -> str:
    return source if isinstance(source, str) else between.join(source)
