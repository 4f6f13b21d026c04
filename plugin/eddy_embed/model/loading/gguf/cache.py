"""The cache of converted models: what it holds, and digests of the files that they were made from."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eddy_embed.utils.atomic_files import atomic_write

CACHE = "EDDY_CACHE"
"""The variable that names the folder of the cache."""
FORMAT = 1
"""Version of what a conversion writes; entries of other versions are not read."""
ABOUT = "eddy.json"
"""The file in an entry that describes it."""


def cache_folder() -> Path:
    """Where converted models are kept: EDDY_CACHE, else `eddy` in the user's cache."""
    if named := os.environ.get(CACHE):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "eddy"


@dataclass(frozen=True)
class CacheEntry:
    """A converted model: where it came from, its digest (sha256), type of weights, and files with their sizes."""

    source: str
    digest: str
    dtype: str
    files: dict[str, int]
    format: int = FORMAT

    @classmethod
    def read(cls, folder: Path) -> CacheEntry | None:
        """The entry in a folder; None if it is damaged, of another version, or none."""
        try:
            entry = cls(**json.loads((folder / ABOUT).read_text(encoding="utf-8")))
            whole = all((folder / name).stat().st_size == size for name, size in entry.files.items())
        except (OSError, ValueError, TypeError, AttributeError):
            return None
        return entry if whole and entry.format == FORMAT else None

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(self.files.values())


@dataclass(frozen=True)
class DigestNote:
    """A file's digest (sha256), for as long as its size and time of change stay."""

    path: str
    state: list[int]
    digest: str

    @classmethod
    def read(cls, note: Path) -> DigestNote | None:
        """The note in a file; None if it is damaged, or its file has changed or is gone."""
        try:
            found = cls(**json.loads(note.read_text(encoding="utf-8")))
            return found if found.state == _state(Path(found.path)) else None
        except (OSError, ValueError, TypeError):
            return None


def digest_of(path: Path) -> str:
    """The file's sha256, from a note where there is one."""
    note = cache_folder() / "digests" / hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    if known := DigestNote.read(note):
        return known.digest
    state, sha = _state(path), hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            sha.update(block)
    with suppress(OSError):  # where the cache may only be read, the file is hashed each time
        note.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(note) as out:
            out.write(json.dumps(vars(DigestNote(str(path), state, sha.hexdigest()))).encode())
    return sha.hexdigest()


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]
