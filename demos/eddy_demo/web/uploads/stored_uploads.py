"""Uploaded files on disk, each under the hash of its content, until the library has their documents."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

from chroma_eddy import IndexInUse, WriterLock, translated_errors
from eddy_demo.errors import DemoError
from eddy_demo.library.settings import UPLOADS_FOLDER, check_available, holds_library, original_path
from eddy_embed.utils.atomic_files import atomic_write, sync
from readers_eddy.documents import document_key

_ID = re.compile(r"[0-9a-f]{64}")
_MAX_NAME = 150
UPLOAD_ORIGIN = "upload:"
"""Beginning of the origin of an uploaded document."""
# Control characters, and those that change the direction of writing: "gpj.exe" must not appear as "exe.jpg".
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


@dataclass(frozen=True)
class Upload:
    """A file that waits to be written to the library, or failed."""

    id: str  # SHA-256 of its content in hexadecimal; the name of the stored file
    name: str  # the user's name for it; shown, never used as a path
    size: int
    added: float = field(default_factory=time.time)  # seconds since 1970
    error: str = ""  # "" while it waits

    @property
    def origin(self) -> str:
        """Origin of its document."""
        return f"{UPLOAD_ORIGIN}{self.id}"

    @property
    def document_id(self) -> str:
        """Id of its document."""
        return document_key(self.origin)


def clean_name(given: str) -> str:
    """Make a file name safe to show: its last part, without invisible characters, at most 150 characters."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", _INVISIBLE.sub("", given)))[-1]
    name = " ".join(last.split()).strip(". ")
    suffix = PurePosixPath(name).suffix
    return f"{name[: _MAX_NAME - len(suffix)].rstrip()}{suffix}" if len(name) > _MAX_NAME else name


class StoredUploads:
    """The stored uploads of one library."""

    def __init__(self, library: Path) -> None:
        self.folder = library / UPLOADS_FOLDER

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only server that takes uploads for this library; one that cannot be written to takes none."""
        library = self.folder.parent
        if holds_library(library) and not os.access(library, os.W_OK):
            yield
            return
        if not holds_library(library):
            check_available(library)
        self.folder.mkdir(parents=True, exist_ok=True)
        sync(library)
        with ExitStack() as stack:
            try:
                stack.enter_context(WriterLock(self.folder))
            except IndexInUse:
                raise DemoError(
                    f"{library} is served by another process: use its page, stop it first, or name another folder "
                    "with --library"
                ) from None
            yield

    def new_part(self) -> Path:
        """Return the path of a new file that is to receive an upload; StorageError if there can be none."""
        part = self.folder / f"{secrets.token_hex(16)}.part"
        with translated_errors(self.folder.parent):
            self.folder.mkdir(parents=True, exist_ok=True)
            part.touch()
        return part

    def keep(self, part: Path, upload: Upload) -> None:
        """Store a completely received file."""
        sync(part)
        part.replace(self.content_path(upload.id))
        self.write(upload)  # which syncs the folder

    def write(self, upload: Upload) -> None:
        """Write the description of an upload."""
        with atomic_write(self.folder / f"{_checked(upload.id)}.json") as file:
            file.write(json.dumps(asdict(upload)).encode())

    def content_path(self, id_: str) -> Path:
        """Return the path of an upload's content."""
        return self.folder / _checked(id_)

    def delete(self, id_: str) -> None:
        """Delete an upload."""
        self.content_path(id_).with_suffix(".json").unlink(missing_ok=True)
        self.content_path(id_).unlink(missing_ok=True)

    def keep_original(self, upload: Upload) -> None:
        """Move a PDF file, whose pages the page shows, to the library's originals; delete an upload of another type."""
        if upload.name.lower().endswith(".pdf"):
            original = original_path(self.folder.parent, upload.document_id)
            original.parent.mkdir(exist_ok=True)
            self.content_path(upload.id).replace(original)
        self.delete(upload.id)

    def load(self) -> list[Upload]:
        """Return all stored uploads, oldest first, and delete what an interruption left incomplete."""
        if not self.folder.is_dir():
            return []
        for part in self.folder.glob("*.part"):
            part.unlink(missing_ok=True)
        found = [upload for path in self.folder.glob("*.json") if (upload := self._read(path)) is not None]
        ids = {upload.id for upload in found}
        for path in self.folder.iterdir():  # content without a description, or the reverse
            if _ID.fullmatch(path.stem) and path.stem not in ids:
                path.unlink(missing_ok=True)
        return sorted(found, key=lambda upload: upload.added)

    def _read(self, path: Path) -> Upload | None:
        try:
            upload = Upload(**json.loads(path.read_text(encoding="utf-8")))
            return upload if self.content_path(upload.id).is_file() and path.stem == upload.id else None
        except (OSError, ValueError, TypeError):
            return None


def _checked(id_: str) -> str:
    """Check an id, the only text from outside that becomes a path."""
    if not _ID.fullmatch(id_):
        raise ValueError(f"{id_!r:.80} is no hash")
    return id_
