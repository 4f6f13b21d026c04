"""Sentences of files and folders."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from eddy_embed.errors import InvalidParameter, InvalidText
from eddy_embed.text.sentences import Segmenter

SUFFIXES = (".txt", ".md")
"""Files read: plain text and Markdown."""


def read_sentences(path: Path, *, lines: bool = False, language: str = "en") -> list[str]:
    """Sentences of a file, of all files of a folder and those below it, or of standard input.

    Args:
        path: A .txt or .md file in UTF-8, a folder with such files, or - for standard input. A folder's other files
            are left alone.
        lines: Every line that is not blank is a sentence. False: they are found as in documents.
        language: Language code for sentences.

    Raises:
        InvalidParameter: Nothing that can be read is there.
        InvalidText: A file is not UTF-8.
        OSError: The file cannot be opened.
    """
    segmenter = Segmenter(language)
    found: list[str] = []
    for name, raw in _files(path):
        text = decoded(name, raw)
        if lines:
            found += [line.strip() for line in text.split("\n") if line.strip()]
        else:
            found += [sentence.text for sentence in segmenter.sentences(text)]
    return found


def decoded(name: str, raw: bytes) -> str:
    """The text of a file in UTF-8, without a byte order mark."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidText(f"{name}: byte {error.start} is not UTF-8; convert the file first") from None


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents."""
    known = " or ".join(SUFFIXES)
    if str(path) == "-":
        yield "standard input", sys.stdin.buffer.read()
    elif path.is_dir():
        inside = sorted(each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES and each.is_file())
        if not inside:
            raise InvalidParameter(f"the folder {path} has no {known} files; name one that has, or a file")
        yield from ((str(each), each.read_bytes()) for each in inside)
    elif path.exists() and path.suffix.lower() not in SUFFIXES:
        raise InvalidParameter(f"{path} must be a {known} file or a folder of them; convert it to text first")
    else:
        yield str(path), path.read_bytes()
