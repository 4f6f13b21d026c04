"""Read EPUB books: an archive of pages in HTML, each chapter a page."""

from __future__ import annotations

import html.entities
import io
import posixpath
import re
import zipfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag

from lxml import etree

from readers_eddy.charsets import decode
from readers_eddy.content import Content, choose_title, join_pages
from readers_eddy.errors import Unreadable
from readers_eddy.markup import read_html, read_tree

_HEADING = re.compile(r"#{1,6} (.+)")
_XML = etree.XMLParser(resolve_entities="internal", no_network=True)
_EPUB_TYPE = "{http://www.idpf.org/2007/ops}type"
_ENTITY = re.compile(rb"&([A-Za-z][A-Za-z0-9]*);")
_XML_NAMES = (b"amp", b"lt", b"gt", b"quot", b"apos")


def read_epub(data: bytes) -> Content:
    """Extract the chapters in the book's order, without its contents page."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        root = _parsed(archive, "META-INF/container.xml").find(".//{*}rootfile").get("full-path")
        package = _parsed(archive, root)
        paths = list(dict.fromkeys(_chapters(package, posixpath.dirname(root))))
        if "META-INF/encryption.xml" in archive.namelist():
            encrypted = _parsed(archive, "META-INF/encryption.xml").iter("{*}CipherReference")
            if {unquote(reference.get("URI", "")) for reference in encrypted} & set(paths):
                raise Unreadable("its chapters are encrypted for one reading program; take a copy without protection")
        chapters, lost = list[Content](), list[str]()
        for path in paths:
            try:
                chapters.append(_chapter(archive.read(path)))
            except (KeyError, Unreadable) as error:
                lost.append(f"{path} ({error if isinstance(error, Unreadable) else 'missing in the file'})")
    title, notes = choose_title(
        [" ".join((package.findtext(".//{http://purl.org/dc/elements/1.1/}title") or "").split())]
    )
    notes += (f"chapters are not read: {'; '.join(lost)}",) if lost else ()
    chapters = [chapter for chapter in chapters if chapter.text.strip()]
    text, starts = join_pages(chapter.text for chapter in chapters)
    notes = tuple(dict.fromkeys([*notes, *(note for chapter in chapters for note in chapter.notes)]))
    labels = tuple(_label(number, chapter) for number, chapter in enumerate(chapters, start=1))
    return Content(title, text, starts, page_labels=labels, notes=notes)


def _label(number: int, chapter: Content) -> str:
    """Return a chapter's heading, else the title of its file, which many books repeat in all of them."""
    heading = _HEADING.match(chapter.text)
    title = heading[1].strip() if heading else chapter.title
    return f"“{title}”" if title else f"part {number}"


def _chapter(data: bytes) -> Content:
    """Read a page as XML, which it should be, with the entities that it declares; else as browsers read HTML."""
    try:
        root = etree.fromstring(_ENTITY.sub(_character, data), _XML)
    except etree.XMLSyntaxError:
        return read_html(decode(data, html=True))
    for element in root.iter(etree.Element):
        element.tag = etree.QName(element).localname
        if kind := element.attrib.pop(_EPUB_TYPE, ""):
            element.set("epub-type", kind)
    return read_tree(etree.tostring(root, method="html", encoding="unicode"))


def _character(entity: re.Match[bytes]) -> bytes:
    """Return the number of a character that HTML names, as XML knows it by that alone."""
    text = html.entities.html5.get(f"{entity[1].decode()};", "") if entity[1] not in _XML_NAMES else ""
    return "".join(f"&#{ord(each)};" for each in text).encode() or entity[0]


def _parsed(archive: zipfile.ZipFile, name: str) -> Any:
    return etree.fromstring(archive.read(name), _XML)


def _chapters(package: Any, folder: str) -> Iterator[str]:
    """Yield the paths of the chapters in order; of one that the book does not list, its name there."""
    items = {item.get("id"): item for item in package.iterfind("{*}manifest/{*}item")}
    for reference in package.iterfind("{*}spine/{*}itemref"):
        item = items.get(reference.get("idref"))
        if item is None:
            yield str(reference.get("idref"))
        elif "nav" not in item.get("properties", "").split():
            yield posixpath.normpath(posixpath.join(folder, unquote(urldefrag(item.get("href", ""))[0])))
