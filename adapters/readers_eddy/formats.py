"""Read one file of any format within limits. Runs in the process of `worker`: a hostile file may end it."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path

from readers_eddy.content import MAX_TITLE, Content, ReadingLimits, Row, Unreadable, choose_title, one_line
from readers_eddy.page_lists import page_lists
from readers_eddy.plain_text import decode

_OLE_SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""First bytes of an encrypted .docx, .pptx or .xlsx, and of any .doc, .ppt or .xls."""

_XML_NO_MEMORY = 2
"""Code of lxml's errors where memory is exhausted."""
_ARCHIVES = (".docx", ".pptx", ".xlsx", ".epub")  # in the ZIP format
_READERS = {
    ".txt": ("plain_text", "read_text"),
    **dict.fromkeys((".md", ".markdown"), ("markup", "read_markdown")),
    **dict.fromkeys((".html", ".htm"), ("markup", "read_html")),
    ".pdf": ("pdf", "read_pdf"),
    ".docx": ("office.word", "read_docx"),
    ".pptx": ("office.slides", "read_pptx"),
    ".xlsx": ("office.sheets", "read_xlsx"),
    ".epub": ("markup.containers", "read_epub"),
    **dict.fromkeys((".csv", ".tsv"), ("office.sheets", "read_csv")),
    ".ipynb": ("markup.containers", "read_notebook"),
    ".eml": ("markup.containers", "read_mail"),
}
"""Module and function that read each type; a module is loaded with the first file of its type."""
DOCUMENT_SUFFIXES = tuple(_READERS)
"""Types of files that are one document each."""
_ROW_SUFFIXES = (".jsonl", ".jsonl.gz")
_GIT_LFS = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*oid sha256:[0-9a-f]{64}\n")
_GIT_LFS_BYTES = 1024
"""Most bytes of a file of Git LFS that stands for another one."""
READABLE_SUFFIXES = (*DOCUMENT_SUFFIXES, *_ROW_SUFFIXES)


def suffix_of(name: str) -> str | None:
    """Return the suffix that selects the reader of a file; None if its type is not read."""
    return next((suffix for suffix in READABLE_SUFFIXES if name.lower().endswith(suffix)), None)


def read_file(
    path: Path, suffix: str, limits: ReadingLimits, alive: Callable[[], None] = lambda: None
) -> Iterator[Content | Row]:
    """Yield the one document of a file, or the rows of a .jsonl file; `alive` as in `read_pdf`.

    Raises:
        Unreadable: The file, or its rest, cannot be read.
        MemoryError: Reading takes more memory than there is.
    """
    try:
        yield from _read(path, suffix, limits, alive)
    except RecursionError:
        raise MemoryError from None
    except (Unreadable, MemoryError):
        raise
    except (EOFError, zlib.error) as error:
        raise Unreadable(str(error)) from None
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from None
    except Exception as error:  # a hostile file must not end the reading of others
        raise Unreadable(f"it cannot be read ({type(error).__name__}: {one_line(error)})") from None


def _read(path: Path, suffix: str, limits: ReadingLimits, alive: Callable[[], None]) -> Iterator[Content | Row]:
    with path.open("rb") as file:
        data = file.read(_GIT_LFS_BYTES)
        if _GIT_LFS.match(data):
            raise Unreadable("a Git LFS pointer, not the document: run `git lfs pull` in its folder and read it again")
        if suffix in _ROW_SUFFIXES:
            yield from _read_rows(path, suffix, limits)
            return
        data += file.read(limits.file_bytes)  # the size that a system names may be wrong, as in /proc
    if len(data) > limits.file_bytes:
        raise Unreadable(f"larger than {_megabytes(limits.file_bytes)}; split it")
    yield _checked(_content(data, suffix, limits, alive), limits)


def _megabytes(size: int) -> str:
    return f"{size / 2**20:g} MB"


def _content(data: bytes, suffix: str, limits: ReadingLimits, alive: Callable[[], None]) -> Content:
    if not data:
        raise Unreadable("empty")
    module, name = _READERS[suffix]
    read = getattr(import_module(f"readers_eddy.{module}"), name)
    if suffix == ".pdf":
        content = read(data, limits.pages, alive)
    elif suffix in _ARCHIVES:
        with _reading_archive(data, suffix, limits.unpacked_bytes):
            content = read(data)
    else:
        content = read(data if suffix == ".eml" else decode(data, html=suffix in (".html", ".htm")))
    assert isinstance(content, Content)
    return content


@contextmanager
def _reading_archive(data: bytes, suffix: str, most_bytes: int) -> Iterator[None]:
    """Check an archive, and turn the errors of many types that damage causes into one.

    Raises:
        Unreadable: The file is encrypted, of an older type, damaged, or unpacks to more than `most_bytes`.
    """
    if data.startswith(_OLE_SIGNATURE):
        raise Unreadable(
            "protected by a password, or of an older type under another name: open it in an office program and save "
            f"it as {suffix} without a password"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:  # which unpacks no more of a part than is declared
            size = sum(part.file_size for part in archive.infolist())
        if size > most_bytes:
            raise Unreadable(
                f"unpacks to {size / 2**20:,.0f} MB, and at most {most_bytes / 2**20:g} MB are read; split it"
            )
        yield
    except (Unreadable, MemoryError, RecursionError):
        raise
    except Exception as error:
        if getattr(error, "code", None) == _XML_NO_MEMORY:
            raise MemoryError from None
        raise Unreadable(
            f"broken, or no {suffix} file ({one_line(error)}): open it in the program that made it and save it again"
        ) from None


def _read_rows(path: Path, suffix: str, limits: ReadingLimits) -> Iterator[Row]:
    seen: set[str] = set()
    n_bytes = 0
    with gzip.open(path) if suffix == ".jsonl.gz" else path.open("rb") as file:
        is_utf16 = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        file.seek(0)
        lines = codecs.EncodedFile(file, "utf-8", "utf-16") if is_utf16 else file
        for number in count(1):
            line = lines.readline(limits.file_bytes + 1)
            if not line:
                return
            n_bytes += len(line)
            if limit := _exceeded(number, len(line), n_bytes, limits):
                raise Unreadable(f"line {number} and what follows are not read: {limit}; split the file")
            try:
                if text := decode(line).strip():
                    yield _read_row(text, number, seen, limits)
            except Unreadable as error:
                yield Row(number, reason=str(error))


def _exceeded(number: int, line_bytes: int, n_bytes: int, limits: ReadingLimits) -> str:
    if line_bytes > limits.file_bytes:
        return f"a row has at most {_megabytes(limits.file_bytes)}"
    if number > limits.rows:
        return f"a file has at most {limits.rows:,} rows"
    return f"a file has at most {_megabytes(limits.unpacked_bytes)} unpacked" if n_bytes > limits.unpacked_bytes else ""


def _read_row(line: str, number: int, seen: set[str], limits: ReadingLimits) -> Row:
    """Read a row, and add its id to those seen."""
    try:
        row = json.loads(line)
        if not isinstance(row, dict):
            raise Unreadable('not a row {"id": ..., "title": ..., "text": ...}')
        if "text" not in row:
            raise Unreadable(f'it has no "text", which a row needs; its fields: {", ".join(map(json.dumps, row)):.80}')
        if not isinstance(row["text"], str):
            raise Unreadable(f'its "text" must be a string, not {json.dumps(row["text"]):.40}')
        row_id, title = row.get("id"), str(row.get("title") or "")
        if row_id is None:
            row_id = next(name for n in count() if (name := f"(line {number}{'′' * n})") not in seen)
        row_id = str(row_id)
    except RecursionError:
        raise Unreadable("its JSON is nested hundreds of levels deep") from None
    except ValueError as error:
        raise Unreadable(f"not JSON: {error}") from None
    if len(row_id) > MAX_TITLE:
        raise Unreadable(f"its id has {len(row_id):,} characters, and at most {MAX_TITLE:,} are read; shorten it")
    check_unicode("id", row_id)
    if row_id in seen:
        raise Unreadable(f"the id {row_id!r} is used twice")
    seen.add(row_id)
    title, notes = choose_title([title])
    return Row(number, row_id, _checked(Content(title, row["text"], notes=notes), limits))


def _checked(content: Content, limits: ReadingLimits) -> Content:
    """Return a document whose text can be embedded, with notes of bounded length."""
    text = content.text
    if not text.strip():
        raise Unreadable("empty" if not text else "blank: nothing but white space")
    if "\0" in text:
        raise Unreadable(f"character {text.index(chr(0))} is NUL: binary, or UTF-16 without its mark")
    if len(text) > limits.characters:
        raise Unreadable(f"its text has {len(text):,} characters, and at most {limits.characters:,} are read; split it")
    check_unicode("text", text)
    check_unicode("title", content.title)
    labels = (int(label) for label in content.page_labels if label.isdecimal())
    lists = page_lists(text, max(len(content.page_starts), *labels, 0))
    notes = tuple(one_line(note, MAX_TITLE) for note in content.notes)
    if lists:
        notes += (f"lists of page numbers ({len(lists)}, as of contents) stay in the text and are no passages",)
    return replace(content, left_out=lists, notes=notes)


def check_unicode(part: str, text: str) -> None:
    """Check that a part of a document can be stored; `part` names it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Unreadable(
            f"character {error.start} of its {part} is half of a surrogate pair: not valid Unicode"
        ) from None
