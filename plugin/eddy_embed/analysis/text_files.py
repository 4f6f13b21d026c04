"""Plain text and Markdown in files and folders."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from eddy_embed.errors import InvalidParameter, InvalidText

SUFFIXES = (".txt", ".md")


def read_text_files(path: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of a file, of all files of a folder and those below it, or of standard input, named -.

    A folder's other files are left alone.

    Raises:
        InvalidParameter: Nothing that can be read is there.
        InvalidText: A file is not UTF-8.
        OSError: The file cannot be opened.
    """
    known = " or ".join(SUFFIXES)
    if str(path) == "-":
        yield "-", decoded("standard input", sys.stdin.buffer.read())
    elif path.is_dir():
        inside = sorted(each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES and each.is_file())
        if not inside:
            raise InvalidParameter(f"the folder {path} has no {known} files; name one that has, or a file")
        yield from ((each.relative_to(path).as_posix(), decoded(str(each), each.read_bytes())) for each in inside)
    elif path.exists() and path.suffix.lower() not in SUFFIXES:
        raise InvalidParameter(f"{path} must be a {known} file or a folder of them; convert it to text first")
    else:
        yield path.name, decoded(str(path), path.read_bytes())


def decoded(name: str, raw: bytes) -> str:
    """The text of a file in UTF-8, without a byte order mark."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidText(f"{name}: byte {error.start} is not UTF-8; convert the file first") from None
