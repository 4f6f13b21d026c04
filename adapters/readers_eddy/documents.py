"""Read files and folders as documents, and say which files were skipped and why."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eddy_embed.integrations.documents import LEFT_OUT, NOTES, PAGES
from readers_eddy.content import Content
from readers_eddy.errors import NothingToRead, Unreadable
from readers_eddy.formats import DOCUMENT_SUFFIXES, READABLE_SUFFIXES, check_unicode, suffix_of
from readers_eddy.limits import ReadingLimits
from readers_eddy.process import LocalReader, ReaderProcess

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_SHOWN_ROWS, _SHOWN_TYPES = 20, 8


@dataclass(frozen=True)
class SourceDocument:
    """One document to ingest."""

    origin: str  # absolute path, with `#id` for a row of a .jsonl file
    name: str  # path below the given folder, or the row's id
    title: str  # title or first heading, "" without one
    text: str
    page_starts: tuple[int, ...] = ()  # offset in `text` of each page's first character
    page_labels: tuple[str, ...] = ()  # what the pages are called, if not 1, 2, 3
    left_out: tuple[tuple[int, int], ...] = ()  # parts of the text that are no passages
    notes: tuple[str, ...] = ()  # what the reader left out or repaired
    row: str = ""  # id of a row of a .jsonl file
    file_digest: str = ""  # of a PDF file at `origin`, by which its pages are shown only while it is unchanged

    @property
    def key(self) -> str:
        """Id of the document, which depends on its origin alone."""
        return document_key(self.origin)

    @property
    def metadata(self) -> dict[str, Any]:
        """What a framework's document says of it: file, title, and in JSON what holds for the document alone."""
        labels = self.page_labels or tuple(str(number + 1) for number in range(len(self.page_starts)))
        pages, path = list(zip(self.page_starts, labels, strict=True)), self.origin.removesuffix(f"#{self.row}")
        named = {"file_path": path, "file_name": os.path.basename(path), "title": self.title}
        of_document = {PAGES: pages, LEFT_OUT: self.left_out, NOTES: self.notes}
        return named | {key: json.dumps(value, ensure_ascii=False) for key, value in of_document.items() if value}


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
    is_row: bool = False
    origin: str = ""  # absolute path of the file, "" for a folder


FileVersion = tuple[int, ...]
"""Inode, size and times of a file, which change when it is written or replaced."""


def file_version(status: os.stat_result) -> FileVersion:
    """Return the version of a file with this status."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@dataclass
class ReadResult:
    """Result of reading files and folders."""

    documents: list[SourceDocument] = field(default_factory=list)  # in the order of the paths, folders sorted by name
    skipped: list[SkippedFile] = field(default_factory=list)
    versions: dict[str, FileVersion] = field(default_factory=dict)  # of the files found, by absolute path
    unchanged: set[str] = field(default_factory=set)  # paths of files that were not read again
    deferred: set[str] = field(default_factory=set)  # paths of changed files that another call is to read
    other_types: Counter[str] = field(default_factory=Counter)  # files in folders that are not read, by suffix or ""


PathLike = str | os.PathLike[str]
Paths = PathLike | Iterable[PathLike]


def read_documents(paths: Paths, *, limits: ReadingLimits | None = None, isolated: bool = True) -> ReadResult:
    """Read files and folders; what cannot be read is among the result's `skipped`, and the others are read.

    Args:
        paths: Files and folders. Hidden files and folders are left out, links to folders are not followed.
        limits: Of reading one file.
        isolated: Whether a child process reads, with limited time and memory, which a hostile file may end.

    Raises:
        NothingToRead: A path is missing, a given file is of another type, or there is no document at all.
    """
    result = ReadResult()
    result.documents.extend(iter_documents(paths, result, limits=limits, isolated=isolated))
    return result


def iter_documents(
    paths: Paths, result: ReadResult, *, limits: ReadingLimits | None = None, isolated: bool = True
) -> Iterator[SourceDocument]:
    """Yield what `read_documents` reads, one document after another; `result` gets all but the documents.

    Raises:
        NothingToRead: As in `read_documents`.
    """
    wanted = [Path(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    limits, n_read = limits or ReadingLimits(), 0
    with ReaderProcess(limits) if isolated else LocalReader(limits) as reader:
        for document in _read_paths(reader, wanted, {}, result):
            n_read += 1
            yield document
    if not n_read:
        raise NothingToRead(nothing_read(wanted, result))


def read_changed(
    paths: list[Path],
    known: Mapping[str, FileVersion],
    limits: ReadingLimits | None = None,
    exclude: PathLike | None = None,
    check: Callable[[], None] = lambda: None,
    begin: Callable[[str, ReadResult], bool] = lambda *_: True,
) -> ReadResult:
    """Read what `read_documents` reads, but files whose version is not the known one; there may be no document.

    An exception from `check`, called regularly, ends the reading. `begin` is called with the path of each file that is
    to be read, and with what was read before it; where it returns False, the file is left to another call.

    Raises:
        NothingToRead: A path is missing, or a given file is of another type.
    """
    result = ReadResult()
    with ReaderProcess(limits or ReadingLimits(), check) as reader:
        for document in _read_paths(reader, paths, known, result, exclude, begin):
            result.documents.append(document)
    return result


def read_document(
    path: PathLike,
    *,
    name: str = "",
    origin: str = "",
    limits: ReadingLimits | None = None,
    check: Callable[[], None] = lambda: None,
    isolated: bool = True,
) -> SourceDocument:
    """Read a file that is one document.

    Args:
        path: The file.
        name: Name of the document, whose suffix selects the reader; by default the file's.
        origin: What identifies the document, by default the file's absolute path.
        limits: Of reading it.
        check: Called regularly by an isolated reading, which an exception from it ends.
        isolated: As in `read_documents`; the process reads no other file.

    Raises:
        Unreadable: The file cannot be read; the message says why.
    """
    path = Path(path)
    name, limits = name or path.name, limits or ReadingLimits()
    suffix = suffix_of(name)
    if suffix not in DOCUMENT_SUFFIXES:
        raise Unreadable(f"{name}: of a type that is not read here; convert it to one of {' '.join(DOCUMENT_SUFFIXES)}")
    with ReaderProcess(limits, check) if isolated else LocalReader(limits) as reader:
        (content,) = reader.read(path, suffix)
    assert isinstance(content, Content)
    return _document(origin or Path(os.path.realpath(path)).as_posix(), name, content)


def _document(origin: str, name: str, content: Content) -> SourceDocument:
    return SourceDocument(origin, name, **vars(content))


def warn_of_skipped(result: ReadResult) -> None:
    """Name in one warning the files that were not read, and why."""
    lines = list_skipped(result.skipped) + ([list_other_types(result.other_types)] if result.other_types else [])
    if lines:
        warnings.warn("not read:\n  " + "\n  ".join(lines), stacklevel=3)


def list_skipped(skipped: Sequence[SkippedFile]) -> list[str]:
    """Return the reason for every skipped file, and for the first skipped rows."""
    files, rows = ([item for item in skipped if item.is_row == is_row] for is_row in (False, True))
    lines = [f"{item.name}: {item.reason}" for item in (*files, *rows[:_SHOWN_ROWS])]
    more = len(rows) - _SHOWN_ROWS
    return [*lines, f"… and {more:,} more rows"] if more > 0 else lines


def list_other_types(types: Counter[str]) -> str:
    """Return how many files are of types that are not read, as in "3 files of other types (.odt 2, .png 1)"."""
    shown = [f"{suffix or 'no suffix'} {count}" for suffix, count in types.most_common(_SHOWN_TYPES)]
    more = f" and {len(types) - _SHOWN_TYPES} more types" if len(types) > _SHOWN_TYPES else ""
    files = "1 file" if types.total() == 1 else f"{types.total():,} files"
    return f"{files} of other types ({', '.join(shown)}{more})"


def nothing_read(paths: list[Path], result: ReadResult) -> str:
    """Say that there is no document at some paths, and why."""
    where = ", ".join(map(str, paths))
    if result.skipped:
        reasons = "\n  ".join(list_skipped(result.skipped))
        return f"nothing to read in {where}; all {len(result.skipped)} were skipped:\n  {reasons}"
    other = f"; it has {list_other_types(result.other_types)}" if result.other_types else ""
    return f"no file to read in {where}{other}; readable are {' '.join(READABLE_SUFFIXES)}"


def _read_paths(
    reader: ReaderProcess | LocalReader,
    paths: list[Path],
    known: Mapping[str, FileVersion],
    result: ReadResult,
    exclude: PathLike | None = None,
    begin: Callable[[str, ReadResult], bool] = lambda *_: True,
) -> Iterator[SourceDocument]:
    for path in paths:
        check_path(path)
        if os.path.isdir(path):  # unlike `Path.is_dir`, without an error for loops of links
            for file in _walk(path, result, os.path.realpath(exclude) if exclude else None):
                yield from _read_file(reader, file, file.relative_to(path).as_posix(), known, result, begin)
        else:
            yield from _read_file(reader, path, path.name, known, result, begin)


def check_path(path: Path) -> None:
    """Check that a path is a folder, or a file of a type that is read.

    Raises:
        NothingToRead: It is not.
    """
    if not os.path.lexists(path):
        raise NothingToRead(f"{path} does not exist; give a file or a folder that does")
    if not os.path.isdir(path) and not suffix_of(path.name):
        raise NothingToRead(f"{path} is of a type that is not read; convert it to one of {' '.join(READABLE_SUFFIXES)}")


def _walk(folder: Path, result: ReadResult, exclude: str | None) -> Iterator[Path]:
    """Yield the readable files below a folder, those of a folder before those of its folders."""
    waiting = [folder]
    while waiting:
        parent, folders = waiting.pop(), list[Path]()
        try:
            with os.scandir(parent) as listing:
                entries = sorted((e for e in listing if not e.name.startswith(".")), key=lambda entry: entry.name)
        except OSError as error:
            result.skipped.append(SkippedFile(str(parent), f"the folder cannot be opened: {error.strerror}"))
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                folders += [path] if os.path.realpath(path) != exclude else []
            elif suffix_of(entry.name) or os.path.isdir(path):
                yield path
            else:
                result.other_types[Path(entry.name).suffix.lower()] += 1
        waiting += reversed(folders)


def _read_file(
    reader: ReaderProcess | LocalReader,
    path: Path,
    name: str,
    known: Mapping[str, FileVersion],
    result: ReadResult,
    begin: Callable[[str, ReadResult], bool],
) -> Iterator[SourceDocument]:
    origin = Path(os.path.realpath(path)).as_posix()
    try:
        check_unicode("name", name)
        status = path.stat()
        _check_regular(status.st_mode)
        if origin in result.versions:  # by another path
            return
        version = file_version(status)
        if known.get(origin) == version:
            result.unchanged.add(origin)
        elif not begin(origin, result):
            result.deferred.add(origin)
            return
        result.versions[origin] = version
        if origin in result.unchanged:
            return
        for item in reader.read(path, suffix_of(name) or ""):
            if isinstance(item, Content):
                digest = file_digest(path.read_bytes()) if suffix_of(name) == ".pdf" else ""
                yield replace(_document(origin, name, item), file_digest=digest)
            elif item.content is None:
                result.skipped.append(SkippedFile(f"{name}, line {item.line}", item.reason, True, origin))
            else:
                yield replace(_document(f"{origin}#{item.id}", item.id, item.content), row=item.id)
    except Unreadable as error:
        result.skipped.append(SkippedFile(name, str(error), origin=origin))
    except OSError as error:
        result.skipped.append(SkippedFile(name, error.strerror or str(error), origin=origin))


def _check_regular(mode: int) -> None:
    """Check before opening, which would wait for the other end of a pipe, and may make a device act."""
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFDIR:
        raise Unreadable("a link to a folder, which is not followed; name that folder itself")
    if kind != stat.S_IFREG:
        raise Unreadable(f"{_KINDS.get(kind, 'something else')}, not a regular file; copy what it gives to one")
