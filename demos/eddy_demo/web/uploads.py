"""Uploads: files that are saved into the library's own folder, which is followed as others are."""

from __future__ import annotations

import os
import re
import secrets
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from filelock import FileLock, Timeout

from chroma_eddy.database import translated_errors
from eddy_demo.errors import DemoError
from eddy_demo.library.settings import FILES_FOLDER, SERVER_LOCK, check_available, holds_library
from eddy_embed.utils.atomic_files import sync

_MAX_BYTES = 150
"""Of a name, which with the digest before it must fit into the 255 bytes of a file system."""
# Control characters, and those that change the direction of writing: "gpj.exe" must not appear as "exe.jpg".
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def clean_name(given: str) -> str:
    """Make a file name safe: its last part, without invisible characters, of at most 150 bytes."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", _INVISIBLE.sub("", given)))[-1]
    name = " ".join(last.split()).strip(". ")
    suffix = PurePosixPath(name).suffix
    stem = name.removesuffix(suffix).encode()[: max(_MAX_BYTES - len(suffix.encode()), 0)]
    return f"{stem.decode(errors='ignore').rstrip()}{suffix}"


class Uploads:
    """The uploaded files of one library, `files/<digest>-<name>`; the same bytes twice are one file."""

    def __init__(self, library: Path) -> None:
        self.library, self.folder = library, library / FILES_FOLDER
        self._lock = threading.Lock()

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Be the only server of this library; a library that cannot be written to may have several.

        What an earlier server had not received whole is deleted.
        """
        if holds_library(self.library) and not os.access(self.library, os.W_OK):
            yield
            return
        if not holds_library(self.library):
            check_available(self.library)
        self.folder.mkdir(parents=True, exist_ok=True)
        sync(self.library)
        lock = FileLock(self.library / SERVER_LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise DemoError(
                f"{self.library} is served by another process: use its page, stop it first, or name another folder "
                "with --library"
            ) from None
        try:
            for part in self.folder.glob(".*.part"):
                part.unlink(missing_ok=True)
            yield
        finally:
            lock.release()

    def new_part(self) -> Path:
        """Return the path of a new hidden file that is to receive an upload; StorageError if there can be none."""
        part = self.folder / f".{secrets.token_hex(16)}.part"
        with translated_errors(self.library):
            self.folder.mkdir(parents=True, exist_ok=True)
            part.touch()
        return part

    def keep(self, part: Path, digest: str, name: str) -> tuple[Path, bool]:
        """Give a received file its name, or delete it if its bytes are there; return the file, and if it is new."""
        with self._lock:
            if known := next(self.folder.glob(f"{digest}-*"), None):
                part.unlink(missing_ok=True)
                return known, False
            sync(part)  # its content before its name, so that a power failure leaves no name without content
            file = self.folder / f"{digest}-{name}"
            part.replace(file)
            sync(self.folder)
            return file, True
