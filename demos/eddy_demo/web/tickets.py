"""Uploaded files until they are in the library: kept in its folder under the hash of their content."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from chroma_eddy import IndexInUse
from chroma_eddy.storage.locks import Lock
from eddy_demo.errors import ServedAlready
from eddy_demo.reading import UPLOADS as SUFFIXES
from eddy_demo.recipe import UPLOADS, check_free, holds_library
from eddy_embed.files import whole

ORIGIN = "upload:"
_ID = re.compile(r"[0-9a-f]{64}")
_LONGEST = 150
# Control characters, and those that turn the direction of writing: "gpj.exe" must not be shown as "exe.jpg".
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


@dataclass(frozen=True)
class Ticket:
    """A file that waits to be written to the library, or could not be.

    Attributes:
        id: Hash of its content, under which it is kept.
        name: What its user calls it; shown, never used as a path.
        size: Bytes.
        added: Seconds since 1970.
        error: Why it was not written; "" while it waits.
    """

    id: str
    name: str
    size: int
    added: float
    error: str = ""

    @property
    def origin(self) -> str:
        """Of its document."""
        return f"{ORIGIN}{self.id}"


def key_of(origin: str) -> str:
    """Id of the document of an origin, as `Document.key` makes it."""
    return hashlib.sha256(origin.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def clean_name(given: str) -> str:
    """A file's name as it may be shown: its last part, without characters that cannot be seen, and not too long."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", _UNSEEN.sub("", given)))[-1]
    name = " ".join(last.split()).strip(". ")
    suffix = PurePosixPath(name).suffix
    return f"{name[: _LONGEST - len(suffix)].rstrip()}{suffix}" if len(name) > _LONGEST else name


def refusal(name: str) -> str:
    """Why a file of that name is not taken; "" if it is."""
    if PurePosixPath(name).suffix.lower() in SUFFIXES:
        return ""
    return f"is of a type that is not read; readable are {' '.join(SUFFIXES)}"


class Tickets:
    """The uploads of one library."""

    def __init__(self, library: Path) -> None:
        """Make nothing yet.

        Args:
            library: Its folder.
        """
        self.folder = library / UPLOADS

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the only server that takes uploads for this library.

        Raises:
            ServedAlready: Another one does.
            LibraryMismatch: The folder holds something else.
        """
        library = self.folder.parent
        if not holds_library(library):
            check_free(library)
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(Lock(self.folder))
            except IndexInUse:
                raise ServedAlready(
                    f"{library} is served by another process: use its page, stop it first, or name another folder "
                    "with --library"
                ) from None
            yield

    def begin(self) -> Path:
        """A new file to receive an upload."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{secrets.token_hex(16)}.part"

    def keep(self, part: Path, ticket: Ticket) -> None:
        """Keep what was received whole."""
        part.replace(self.file(ticket.id))
        self.write(ticket)

    def write(self, ticket: Ticket) -> None:
        """Write what is known of an upload."""
        with whole(self.folder / f"{_checked(ticket.id)}.json") as file:
            file.write(json.dumps(asdict(ticket)).encode())

    def fail(self, ticket: Ticket, error: str) -> Ticket:
        """Note why an upload was not written."""
        failed = replace(ticket, error=error)
        self.write(failed)
        return failed

    def file(self, id_: str) -> Path:
        """Where an upload's content is kept."""
        return self.folder / _checked(id_)

    def forget(self, id_: str) -> None:
        """Delete an upload."""
        self.file(id_).with_suffix(".json").unlink(missing_ok=True)
        self.file(id_).unlink(missing_ok=True)

    def stored(self) -> Iterator[Ticket]:
        """Every upload that is kept, the oldest first; what was cut short is deleted."""
        if not self.folder.is_dir():
            return
        for part in self.folder.glob("*.part"):
            part.unlink(missing_ok=True)
        found = [ticket for path in self.folder.glob("*.json") if (ticket := self._read(path)) is not None]
        kept = {ticket.id for ticket in found}
        for path in self.folder.iterdir():  # received whole, and then the machine stopped
            if _ID.fullmatch(path.name) and path.name not in kept:
                path.unlink(missing_ok=True)
        yield from sorted(found, key=lambda ticket: ticket.added)

    def _read(self, path: Path) -> Ticket | None:
        try:
            told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            ticket = Ticket(**told)
            return ticket if self.file(ticket.id).is_file() and path.stem == ticket.id else None
        except (OSError, ValueError, TypeError):
            return None


def ticket_of(id_: str, name: str, size: int) -> Ticket:
    """A new ticket."""
    return Ticket(id_, name, size, time.time())


def _checked(id_: str) -> str:
    """An id, which becomes a path: nothing else ever does."""
    if not _ID.fullmatch(id_):
        raise ValueError(f"{id_!r:.80} is no hash")
    return id_
