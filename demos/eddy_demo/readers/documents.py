"""Read files and folders as documents, and say which files were skipped and why."""

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

DOCUMENT_SUFFIXES = (".txt", ".md", ".markdown", ".html", ".htm", ".pdf", ".docx")
"""Types of files that are one document each."""
READABLE_SUFFIXES = (*DOCUMENT_SUFFIXES, ".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class SourceDocument:
    """One document to ingest."""

    origin: str  # absolute path, with `#id` for a row of a .jsonl file
    name: str  # path below the given folder, or the row's id
    title: str  # title or first heading, "" without one
    text: str
    page_starts: tuple[int, ...] = ()  # offset in `text` of each page's first character
    notes: tuple[str, ...] = ()  # what the reader left out or repaired
    file_digest: str = ""  # of a PDF file at `origin`, by which its pages are shown only while it is unchanged

    @property
    def key(self) -> str:
        """Id of the document, which depends on its origin alone."""
        return document_key(self.origin)


def document_key(origin: str) -> str:
    """Return the id of the document with an origin: 16 hexadecimal digits."""
    return hashlib.sha256(origin.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def file_digest(data: bytes) -> str:
    """Return the hash of a file: 32 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:32]


@dataclass(frozen=True)
class SkippedFile:
    """A file or row that could not be read, and the reason."""

    name: str
    reason: str


@dataclass
class ReadResult:
    """Result of reading files and folders."""

    documents: list[SourceDocument] = field(default_factory=list)  # in the order of the paths, folders sorted by name
    skipped: list[SkippedFile] = field(default_factory=list)
    other_types: int = 0  # number of files in folders whose types are not read


def read_documents(paths: list[Path]) -> ReadResult:
    """Read files and folders; a missing path, a given file of another type, or no document at all is an error."""
    result = ReadResult()
    for path in paths:
        if not path.exists():
            raise NothingToRead(f"{path} does not exist; give a file or a folder that does")
        if path.is_dir():
            for file in _walk(path, result):
                _read_file(file, file.relative_to(path).as_posix(), result)
        elif _suffix(path):
            _read_file(path, path.name, result)
        else:
            raise NothingToRead(
                f"{path} is of a type that is not read; convert it to one of {' '.join(READABLE_SUFFIXES)}"
            )
    result.documents = list({document.key: document for document in result.documents}.values())
    if not result.documents:
        raise NothingToRead(_nothing_read(paths, result))
    return result


def read_content(data: bytes, name: str) -> Content:
    """Read the bytes of a file that is one document; the suffix of its name selects the reader."""
    suffix = _suffix(Path(name))
    if suffix not in DOCUMENT_SUFFIXES:
        raise Unreadable(f"of a type that is not read here; convert it to one of {' '.join(DOCUMENT_SUFFIXES)}")
    content = _content(data, suffix)
    if reason := _unusable(SourceDocument("", name, content.title, content.text)):
        raise Unreadable(reason)
    return content


def _nothing_read(paths: list[Path], result: ReadResult) -> str:
    where = ", ".join(map(str, paths))
    if result.skipped:
        reasons = "\n".join(f"  {skipped.name}: {skipped.reason}" for skipped in result.skipped)
        return f"nothing to read in {where}; all {len(result.skipped)} were skipped:\n{reasons}"
    other = f"; it has {result.other_types} files of other types" if result.other_types else ""
    return f"no file to read in {where}{other}; readable are {' '.join(READABLE_SUFFIXES)}"


def _suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next((suffix for suffix in sorted(READABLE_SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), None)


def _walk(folder: Path, result: ReadResult) -> Iterator[Path]:
    def unreadable(error: OSError) -> None:
        result.skipped.append(SkippedFile(str(error.filename), f"the folder cannot be opened: {error.strerror}"))

    for parent, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(parent, name)
            if _suffix(path):
                yield path
            elif not name.startswith("."):
                result.other_types += 1


def _read_file(path: Path, name: str, result: ReadResult) -> None:
    origin = path.resolve().as_posix()
    suffix = _suffix(path)
    try:
        data = path.read_bytes()
        if suffix in (".jsonl", ".jsonl.gz"):
            rows = _decode(gzip.decompress(data) if suffix == ".jsonl.gz" else data)
            _read_rows(rows, origin, name, result)
            return
        content = _content(data, suffix)
    except (OSError, EOFError, zlib.error, Unreadable) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        result.skipped.append(SkippedFile(name, reason))
        return
    digest = file_digest(data) if suffix == ".pdf" else ""
    document = SourceDocument(origin, name, content.title, content.text, content.page_starts, content.notes, digest)
    _add(document, name, result)


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
    """Decode strictly: a wrong guess would shift every citation."""
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


def _read_rows(text: str, origin: str, name: str, result: ReadResult) -> None:
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            result.skipped.append(SkippedFile(where, f"not JSON: {error}"))
            continue
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            result.skipped.append(SkippedFile(where, 'not a row {"id": ..., "title": ..., "text": ...}'))
            continue
        row_id = str(row.get("id", number))
        if row_id in seen:
            result.skipped.append(SkippedFile(where, f"the id {row_id!r} is used twice"))
            continue
        seen.add(row_id)
        _add(SourceDocument(f"{origin}#{row_id}", row_id, str(row.get("title") or ""), row["text"]), where, result)


def _add(document: SourceDocument, where: str, result: ReadResult) -> None:
    if reason := _unusable(document):
        result.skipped.append(SkippedFile(where, reason))
    else:
        result.documents.append(document)


def _unusable(document: SourceDocument) -> str | None:
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
