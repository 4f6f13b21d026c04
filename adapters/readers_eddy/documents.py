"""Read files and folders as documents, and say which files were skipped and why."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from readers_eddy.content import Content
from readers_eddy.errors import NothingToRead, Unreadable
from readers_eddy.formats import DOCUMENT_SUFFIXES, READABLE_SUFFIXES, check_unicode, suffix_of
from readers_eddy.limits import ReadingLimits
from readers_eddy.process import ReaderProcess

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_SHOWN_ROWS = 20
_SHOWN_TYPES = 8


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
    is_row: bool = False
    origin: str = ""  # absolute path of the file, "" for a folder


FileVersion = tuple[int, ...]
"""Inode, size and times of a file, which change when it is written or replaced."""


@dataclass
class ReadResult:
    """Result of reading files and folders."""

    documents: list[SourceDocument] = field(default_factory=list)  # in the order of the paths, folders sorted by name
    skipped: list[SkippedFile] = field(default_factory=list)
    versions: dict[str, FileVersion] = field(default_factory=dict)  # of the files found, by absolute path
    unchanged: set[str] = field(default_factory=set)  # paths of files that were not read again
    left: set[str] = field(default_factory=set)  # paths of changed files that another call is to read
    other_types: Counter[str] = field(default_factory=Counter)  # files in folders that are not read, by suffix or ""


def read_documents(paths: list[Path], limits: ReadingLimits | None = None, without: Path | None = None) -> ReadResult:
    """Read files and folders within limits, in a process of their own.

    Hidden files and folders and the folder `without` are left out, and links to folders are not followed.

    Raises:
        NothingToRead: A path is missing, a given file is of another type, or there is no document at all.
    """
    result = read_changed(paths, {}, limits, without)
    if not result.documents:
        raise NothingToRead(_nothing_read(paths, result))
    return result


def read_changed(
    paths: list[Path],
    known: Mapping[str, FileVersion],
    limits: ReadingLimits | None = None,
    without: Path | None = None,
    check: Callable[[], None] = lambda: None,
    is_enough: Callable[[ReadResult], bool] = lambda _: False,
) -> ReadResult:
    """Read what `read_documents` reads, but files whose version is not the known one; there may be no document.

    An exception from `check`, called regularly, ends the reading; once it `is_enough`, files are left to another call.

    Raises:
        NothingToRead: A path is missing, or a given file is of another type.
    """
    result = ReadResult()
    with ReaderProcess(limits or ReadingLimits(), check) as process:
        for path in paths:
            if not os.path.lexists(path):
                raise NothingToRead(f"{path} does not exist; give a file or a folder that does")
            if os.path.isdir(path):  # unlike `Path.is_dir`, without an error for loops of links
                for file in _walk(path, result, os.path.realpath(without) if without else None):
                    _read_file(process, file, file.relative_to(path).as_posix(), known, result, is_enough)
            elif suffix_of(path.name):
                _read_file(process, path, path.name, known, result, is_enough)
            else:
                raise NothingToRead(
                    f"{path} is of a type that is not read; convert it to one of {' '.join(READABLE_SUFFIXES)}"
                )
    result.documents = list({document.key: document for document in result.documents}.values())
    return result


def read_document(
    file: Path, name: str, origin: str, limits: ReadingLimits, check: Callable[[], None]
) -> SourceDocument:
    """Read a file that is one document, in a process that reads no other; the suffix of its name selects the reader.

    An exception from `check`, called regularly, ends the reading.
    """
    suffix = suffix_of(name)
    if suffix not in DOCUMENT_SUFFIXES:
        raise Unreadable(f"of a type that is not read here; convert it to one of {' '.join(DOCUMENT_SUFFIXES)}")
    with ReaderProcess(limits, check) as process:
        (content,) = process.read(file, suffix)
    assert isinstance(content, Content)
    return _document(origin, name, content)


def _document(origin: str, name: str, content: Content) -> SourceDocument:
    return SourceDocument(origin, name, **vars(content))


def list_skipped(skipped: Sequence[SkippedFile]) -> list[str]:
    """Return the reason for every skipped file, and for the first skipped rows."""
    files, rows = ([each for each in skipped if each.is_row == is_row] for is_row in (False, True))
    lines = [f"{each.name}: {each.reason}" for each in (*files, *rows[:_SHOWN_ROWS])]
    more = len(rows) - _SHOWN_ROWS
    return [*lines, f"… and {more:,} more rows"] if more > 0 else lines


def list_other_types(types: Counter[str]) -> str:
    """Return how many files are of types that are not read, as in "3 files of other types (.odt 2, .png 1)"."""
    shown = [f"{suffix or 'no suffix'} {count}" for suffix, count in types.most_common(_SHOWN_TYPES)]
    more = f" and {len(types) - _SHOWN_TYPES} more types" if len(types) > _SHOWN_TYPES else ""
    files = "1 file" if types.total() == 1 else f"{types.total():,} files"
    return f"{files} of other types ({', '.join(shown)}{more})"


def _nothing_read(paths: list[Path], result: ReadResult) -> str:
    where = ", ".join(map(str, paths))
    if result.skipped:
        reasons = "\n  ".join(list_skipped(result.skipped))
        return f"nothing to read in {where}; all {len(result.skipped)} were skipped:\n  {reasons}"
    other = f"; it has {list_other_types(result.other_types)}" if result.other_types else ""
    return f"no file to read in {where}{other}; readable are {' '.join(READABLE_SUFFIXES)}"


def _walk(folder: Path, result: ReadResult, without: str | None) -> Iterator[Path]:
    """Yield the readable files below a folder, those of a folder before those of its folders."""
    waiting = [folder]
    while waiting:
        parent, folders = waiting.pop(), list[Path]()
        try:
            with os.scandir(parent) as found:
                entries = sorted((each for each in found if not each.name.startswith(".")), key=lambda each: each.name)
        except OSError as error:
            result.skipped.append(SkippedFile(str(parent), f"the folder cannot be opened: {error.strerror}"))
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                folders += [path] if os.path.realpath(path) != without else []
            elif suffix_of(entry.name) or os.path.isdir(path):
                yield path
            else:
                result.other_types[Path(entry.name).suffix.lower()] += 1
        waiting += reversed(folders)


def _read_file(
    process: ReaderProcess,
    path: Path,
    name: str,
    known: Mapping[str, FileVersion],
    result: ReadResult,
    is_enough: Callable[[ReadResult], bool],
) -> None:
    origin = Path(os.path.realpath(path)).as_posix()
    try:
        check_unicode("name", name)
        status = path.stat()
        _check_regular(status.st_mode)
        version = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if known.get(origin) == version:
            result.unchanged.add(origin)
        elif is_enough(result):
            result.left.add(origin)
            return
        result.versions[origin] = version
        if origin in result.unchanged:
            return
        for found in process.read(path, suffix_of(name) or ""):
            if isinstance(found, Content):
                digest = file_digest(path.read_bytes()) if suffix_of(name) == ".pdf" else ""
                result.documents.append(replace(_document(origin, name, found), file_digest=digest))
            elif found.content is None:
                result.skipped.append(SkippedFile(f"{name}, line {found.line}", found.reason, True, origin))
            else:
                result.documents.append(_document(f"{origin}#{found.id}", found.id, found.content))
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
