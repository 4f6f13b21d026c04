"""Read EPUB books: an archive of pages in HTML, each chapter a page."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from lxml import etree

from readers_eddy.charsets import decode
from readers_eddy.content import Content, choose_title, join_pages
from readers_eddy.errors import Unreadable
from readers_eddy.markup import read_html

_HEADING = re.compile(r"#{1,6} (.+)")
_HTML = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")


def read_epub(data: bytes) -> Content:
    """Extract the chapters in the book's order, without its contents page."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        root = _parsed(archive, "META-INF/container.xml").find(".//{*}rootfile").get("full-path")
        package = _parsed(archive, root)
        paths = list(dict.fromkeys(_chapters(package, posixpath.dirname(root))))
        there = set(archive.namelist())
        if "META-INF/encryption.xml" in there:
            encrypted = _parsed(archive, "META-INF/encryption.xml").iter("{*}CipherReference")
            if {unquote(each.get("URI", "")) for each in encrypted} & set(paths):
                raise Unreadable("its chapters are encrypted for one reading program; take a copy without protection")
        chapters = [read_html(decode(archive.read(path), html=True)) for path in paths if path in there]
    title, notes = choose_title(
        [" ".join((package.findtext(".//{http://purl.org/dc/elements/1.1/}title") or "").split())]
    )
    if missing := [path for path in paths if path not in there]:
        notes += (f"chapters are missing in the file: {', '.join(missing)}",)
    chapters = [chapter for chapter in chapters if chapter.text.strip()]
    text, starts = join_pages(chapter.text for chapter in chapters)
    notes = tuple(dict.fromkeys([*notes, *(note for each in chapters for note in each.notes)]))
    labels = tuple(_label(number, chapter) for number, chapter in enumerate(chapters, start=1))
    return Content(title, text, starts, page_labels=labels, notes=notes)


def _label(number: int, chapter: Content) -> str:
    """Return a chapter's heading, else the title of its file, which many books repeat in all of them."""
    heading = _HEADING.match(chapter.text)
    title = heading[1].strip() if heading else chapter.title
    return f"“{title}”" if title else f"part {number}"


def _parsed(archive: zipfile.ZipFile, name: str) -> Any:
    return etree.fromstring(archive.read(name), etree.XMLParser(resolve_entities=False, no_network=True))


def _chapters(package: Any, folder: str) -> Iterator[str]:
    items = {item.get("id"): item for item in package.iterfind("{*}manifest/{*}item")}
    for reference in package.iterfind("{*}spine/{*}itemref"):
        item = items.get(reference.get("idref"))
        if item is not None and item.get("media-type") in _HTML and "nav" not in item.get("properties", "").split():
            yield posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
