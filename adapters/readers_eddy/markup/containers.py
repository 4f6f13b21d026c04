"""Files that hold pages or cells of markup: books (EPUB), e-mails, notebooks."""

from __future__ import annotations

import email
import html.entities
import io
import json
import posixpath
import re
import zipfile
from collections.abc import Iterator
from email.message import EmailMessage, MIMEPart
from email.policy import default
from typing import Any
from urllib.parse import unquote, urldefrag

from lxml import etree

from readers_eddy.content import Content, Unreadable, choose_title, join_pages
from readers_eddy.markup import fenced, read_html, read_markdown, read_tree
from readers_eddy.plain_text import decode

_HEADING = re.compile(r"#{1,6} (.+)")
_XML = etree.XMLParser(resolve_entities="internal", no_network=True)
_EPUB_TYPE = "{http://www.idpf.org/2007/ops}type"
_ENTITY = re.compile(rb"&([A-Za-z][A-Za-z0-9]*);")
_XML_NAMES = (b"amp", b"lt", b"gt", b"quot", b"apos")
_SHOWN = ("From", "To", "Cc", "Date", "Subject")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


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


def read_mail(data: bytes) -> Content:
    """Extract sender, receivers, date, subject and body; attachments are named in the notes."""
    message = email.message_from_bytes(data, policy=default)
    notes, names = list[str](), list[str]()
    body = [text for text in _texts(message, notes, names) if text]
    header = _header(message)
    if not header or not body:
        raise Unreadable("no e-mail, or without a text that can be read, as an encrypted one: save its text as .txt")
    title, title_notes = choose_title([" ".join(str(message["Subject"] or "").split())])
    attached = (f"attachments are not read: {', '.join(names)}",) if names else ()
    return Content(title, "\n\n".join([header, *body]), notes=(*title_notes, *attached, *notes))


def _header(message: MIMEPart) -> str:
    return "\n".join(f"{name}: {' '.join(str(message[name]).split())}" for name in _SHOWN if message[name])


def _texts(part: MIMEPart, notes: list[str], names: list[str]) -> Iterator[str]:
    """Yield the texts of a part in their order, and of messages that it forwards."""
    kind, inside = part.get_content_type(), list(part.iter_parts()) if part.is_multipart() else []
    if kind == "message/rfc822" and isinstance(inner := part.get_content(), EmailMessage):
        yield from ("Forwarded:", _header(inner), *_texts(inner, notes, names))
    elif kind == "multipart/alternative":
        versions = ([text for text in _texts(version, notes, names) if text] for version in reversed(inside))
        yield from next(filter(None, versions), [])
    elif part.is_multipart():
        for inner_part in inside:
            yield from _texts(inner_part, notes, names)
    elif kind in ("text/plain", "text/html") and not part.get_filename() and not part.is_attachment():
        payload, label = part.get_payload(decode=True), part.get_content_charset()
        assert isinstance(payload, bytes)
        label = None if label in ("ascii", "us-ascii") else label  # what many programs say of any text
        text = decode(payload, kind == "text/html", label).replace("\r\n", "\n")
        content = read_html(text) if kind == "text/html" else Content("", text.strip())
        notes += content.notes
        yield content.text
    else:
        names.append(part.get_filename() or kind)


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
