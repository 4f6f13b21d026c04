"""Files and folders to documents: what is read, what is left out, and why."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from eddy_demo.errors import NothingToRead, Unreadable
from eddy_demo.readers.content import Content

UPLOADS = (".txt", ".md", ".markdown", ".html", ".htm", ".pdf", ".docx")
"""Files that are one document each."""
SUFFIXES = (*UPLOADS, ".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class Document:
    """One document to ingest.

    Attributes:
        origin: Absolute path, with `#id` for a row of a .jsonl file; decides the document's identity.
        name: What a citation shows: the path below the folder given, or the row's id.
        title: Title or first heading, "" without one.
        text: What is embedded and cited, character by character.
        page_starts: Of a file with pages, where each one begins in the text.
        notes: What its reader left out or repaired, for the user to know.
    """

    origin: str
    name: str
    title: str
    text: str
    page_starts: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Stable id: the same for the same origin on every run."""
        return hashlib.sha256(self.origin.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def digest(self) -> str:
        """Hash of the content, which tells a changed document from an unchanged one."""
        pages = f"\0{self.page_starts}" if self.page_starts else ""
        return hashlib.sha256(f"{self.name}\0{self.title}\0{self.text}{pages}".encode()).hexdigest()


@dataclass(frozen=True)
class Skipped:
    """A file or row that was left out, with the reason."""

    name: str
    reason: str


@dataclass
class Reading:
    """Everything found below the paths given.

    Attributes:
        documents: In the order of the paths, folders sorted by name.
        skipped: What should have been read and could not be.
        other_types: How many files in folders are of types that are not read.
    """

    documents: list[Document] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    other_types: int = 0


def read(paths: list[Path]) -> Reading:
    """Read files and folders.

    Raises:
        NothingToRead: A path does not exist, a file named is of a type that is not read, or no document was found.
    """
    reading = Reading()
    for path in paths:
        if not path.exists():
            raise NothingToRead(f"{path} does not exist; give a file or a folder that does")
        if path.is_dir():
            for file in _walk(path, reading):
                _read_file(file, file.relative_to(path).as_posix(), reading)
        elif _suffix(path):
            _read_file(path, path.name, reading)
        else:
            raise NothingToRead(f"{path} is of a type that is not read; convert it to one of {' '.join(SUFFIXES)}")
    reading.documents = list({document.key: document for document in reading.documents}.values())
    if not reading.documents:
        raise NothingToRead(_nothing(paths, reading))
    return reading


def read_bytes(data: bytes, name: str) -> Content:
    """Read one document out of a file's bytes.

    Args:
        data: The file.
        name: Its name, whose end says how it is read.

    Raises:
        Unreadable: It cannot be read, or holds nothing that can be embedded.
    """
    suffix = _suffix(Path(name))
    if suffix not in UPLOADS:
        raise Unreadable(f"of a type that is not read here; convert it to one of {' '.join(UPLOADS)}")
    content = _content(data, suffix)
    if reason := _unusable(Document("", name, content.title, content.text)):
        raise Unreadable(reason)
    return content


def _nothing(paths: list[Path], reading: Reading) -> str:
    where = ", ".join(map(str, paths))
    if reading.skipped:
        reasons = "\n".join(f"  {skipped.name}: {skipped.reason}" for skipped in reading.skipped)
        return f"nothing to read in {where}; all {len(reading.skipped)} were skipped:\n{reasons}"
    other = f"; it has {reading.other_types} files of other types" if reading.other_types else ""
    return f"no file to read in {where}{other}; readable are {' '.join(SUFFIXES)}"


def _suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), None)


def _walk(folder: Path, reading: Reading) -> Iterator[Path]:
    def unreadable(error: OSError) -> None:
        reading.skipped.append(Skipped(str(error.filename), f"the folder cannot be opened: {error.strerror}"))

    for parent, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(parent, name)
            if _suffix(path):
                yield path
            elif not name.startswith("."):
                reading.other_types += 1


def _read_file(path: Path, name: str, reading: Reading) -> None:
    origin = path.resolve().as_posix()
    suffix = _suffix(path)
    try:
        data = path.read_bytes()
        if suffix in (".jsonl", ".jsonl.gz"):
            rows = _decode(gzip.decompress(data) if suffix == ".jsonl.gz" else data)
            _read_rows(rows, origin, name, reading)
            return
        content = _content(data, suffix)
    except (OSError, EOFError, zlib.error, Unreadable) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reading.skipped.append(Skipped(name, reason))
        return
    _add(Document(origin, name, content.title, content.text, content.page_starts, content.notes), name, reading)


def _content(data: bytes, suffix: str | None) -> Content:
    if not data:
        raise Unreadable("empty")
    if suffix == ".pdf":
        from eddy_demo.readers.pdf import read_pdf

        return read_pdf(data)
    if suffix == ".txt":
        return Content("", _decode(data))
    from eddy_demo.readers.markup import read_docx, read_html, read_markdown

    if suffix == ".docx":
        return read_docx(data)
    return read_html(_decode(data, html=True)) if suffix in (".html", ".htm") else read_markdown(_decode(data))


def _decode(data: bytes, html: bool = False) -> str:
    """Bytes as text, strictly: a wrong guess would shift every citation."""
    encoding = "utf-8"
    if html:
        from bs4.dammit import EncodingDetector

        encoding = EncodingDetector.find_declared_encoding(data, is_html=True) or encoding
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise Unreadable(
            f"not {encoding.upper()}: byte 0x{byte:02x} at position {error.start} cannot be decoded; "
            "convert it first, for instance with iconv"
        ) from None
    except LookupError:
        raise Unreadable(f"declares the unknown encoding {encoding!r}; convert it to UTF-8") from None
    return text.removeprefix("\ufeff")


def _read_rows(text: str, origin: str, name: str, reading: Reading) -> None:
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            reading.skipped.append(Skipped(where, f"not JSON: {error}"))
            continue
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            reading.skipped.append(Skipped(where, 'not a row {"id": ..., "title": ..., "text": ...}'))
            continue
        row_id = str(row.get("id", number))
        if row_id in seen:
            reading.skipped.append(Skipped(where, f"the id {row_id!r} is used twice"))
            continue
        seen.add(row_id)
        _add(Document(f"{origin}#{row_id}", row_id, str(row.get("title") or ""), row["text"]), where, reading)


def _add(document: Document, where: str, reading: Reading) -> None:
    if reason := _unusable(document):
        reading.skipped.append(Skipped(where, reason))
    else:
        reading.documents.append(document)


def _unusable(document: Document) -> str | None:
    text = document.text
    if not text.strip():
        return "empty" if not text else "blank: nothing but white space"
    if "\0" in text:
        return f"character {text.index(chr(0))} is NUL: binary, or UTF-16 without its mark"
    for part in ("text", "title", "name"):
        try:
            getattr(document, part).encode()
        except UnicodeEncodeError as error:
            return f"character {error.start} of its {part} is half of a surrogate pair: not valid Unicode"
    return None
