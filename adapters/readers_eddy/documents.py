"""Read files and folders as documents, and say which files were skipped and why."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from eddy_embed.integrations.documents import LEFT_OUT, NOTES, PAGES
from readers_eddy.content import Content, NothingToRead, ReadingLimits, Unreadable
from readers_eddy.formats import DOCUMENT_SUFFIXES, READABLE_SUFFIXES, check_unicode, suffix_of
from readers_eddy.process import Read, reading

_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_SHOWN_ROWS, _SHOWN_TYPES = 20, 8


@dataclass(frozen=True)
class SourceDocument(Content):
    """One document to ingest."""

    _: KW_ONLY
    origin: str  # absolute path, with `#id` for a row of a .jsonl file
    name: str  # path below the given folder, or the row's id
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
    n_read = 0
    with reading(limits or ReadingLimits(), isolated) as read:
        for document in _Walk(read, result).documents(wanted):
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
    with reading(limits or ReadingLimits(), check=check) as read:
        result.documents.extend(_Walk(read, result, known, exclude, begin).documents(paths))
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
    name = name or path.name
    suffix = suffix_of(name)
    if suffix not in DOCUMENT_SUFFIXES:
        raise Unreadable(f"{name}: of a type that is not read here; convert it to one of {' '.join(DOCUMENT_SUFFIXES)}")
    with reading(limits or ReadingLimits(), isolated, check) as read:
        (content,) = read(path, suffix)
    assert isinstance(content, Content)
    origin = origin or Path(os.path.realpath(path)).as_posix()
    return SourceDocument(origin=origin, name=name, **vars(content))


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


def check_path(path: Path) -> None:
    """Check that a path is a folder, or a file of a type that is read.

    Raises:
        NothingToRead: It is not.
    """
    if not os.path.lexists(path):
        raise NothingToRead(f"{path} does not exist; give a file or a folder that does")
    if not os.path.isdir(path) and not suffix_of(path.name):
        raise NothingToRead(f"{path} is of a type that is not read; convert it to one of {' '.join(READABLE_SUFFIXES)}")


@dataclass(frozen=True)
class _Walk:
    """A walk over files and folders; the parts are those of `read_changed`."""

    read: Read
    result: ReadResult
    known: Mapping[str, FileVersion] = field(default_factory=dict)
    exclude: PathLike | None = None
    begin: Callable[[str, ReadResult], bool] = lambda *_: True

    def documents(self, paths: list[Path]) -> Iterator[SourceDocument]:
        for path in paths:
            check_path(path)
            if os.path.isdir(path):  # unlike `Path.is_dir`, without an error for loops of links
                for file in self._files(path):
                    yield from self._file(file, file.relative_to(path).as_posix())
            else:
                yield from self._file(path, path.name)

    def _files(self, folder: Path) -> Iterator[Path]:
        """Yield the readable files below a folder, those of a folder before those of its folders."""
        waiting, exclude = [folder], os.path.realpath(self.exclude) if self.exclude else None
        while waiting:
            parent, folders = waiting.pop(), list[Path]()
            try:
                with os.scandir(parent) as listing:
                    entries = sorted((e for e in listing if not e.name.startswith(".")), key=lambda entry: entry.name)
            except OSError as error:
                self._skip(str(parent), f"the folder cannot be opened: {error.strerror}")
                continue
            for entry in entries:
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    folders += [path] if os.path.realpath(path) != exclude else []
                elif suffix_of(entry.name) or os.path.isdir(path):
                    yield path
                else:
                    self.result.other_types[Path(entry.name).suffix.lower()] += 1
            waiting += reversed(folders)

    def _file(self, path: Path, name: str) -> Iterator[SourceDocument]:
        origin, result = Path(os.path.realpath(path)).as_posix(), self.result
        try:
            check_unicode("name", name)
            status = path.stat()
            _check_regular(status.st_mode)
            if origin in result.versions:  # by another path
                return
            version = file_version(status)
            if self.known.get(origin) == version:
                result.unchanged.add(origin)
            elif not self.begin(origin, result):
                result.deferred.add(origin)
                return
            result.versions[origin] = version
            if origin in result.unchanged:
                return
            for item in self.read(path, suffix_of(name) or ""):
                if isinstance(item, Content):
                    digest = file_digest(path.read_bytes()) if suffix_of(name) == ".pdf" else ""
                    yield SourceDocument(origin=origin, name=name, file_digest=digest, **vars(item))
                elif item.content is None:
                    self._skip(f"{name}, line {item.line}", item.reason, origin, is_row=True)
                else:
                    row = item.id
                    yield SourceDocument(origin=f"{origin}#{row}", name=row, row=row, **vars(item.content))
        except Unreadable as error:
            self._skip(name, str(error), origin)
        except OSError as error:
            self._skip(name, error.strerror or str(error), origin)

    def _skip(self, name: str, reason: str, origin: str = "", is_row: bool = False) -> None:
        self.result.skipped.append(SkippedFile(name, reason, is_row, origin))


def _check_regular(mode: int) -> None:
    """Check before opening, which would wait for the other end of a pipe, and may make a device act."""
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFDIR:
        raise Unreadable("a link to a folder, which is not followed; name that folder itself")
    if kind != stat.S_IFREG:
        raise Unreadable(f"{_KINDS.get(kind, 'something else')}, not a regular file; copy what it gives to one")
