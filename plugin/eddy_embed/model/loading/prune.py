"""What may go from the cache: converted models whose GGUF file is gone, leftovers, or all of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from eddy_embed.model.loading.catalog import CATALOG
from eddy_embed.model.loading.fetch import PART
from eddy_embed.model.loading.gguf.cache import CacheEntry, DigestNote, cache_folder

# Nothing else is touched: the cache may be a folder that holds further things.
_ENTRY = re.compile(r"\.?([0-9a-f]{32}-b?float\d+)(?:\.lock|\.\d+\.part)?")
_NOTE = re.compile(r"[0-9a-f]{32}")
_ALL = "as all of the cache"


class Removed(NamedTuple):
    """Something that was removed: what it was, why, and its size on disk."""

    what: str
    reason: str
    bytes: int


def prune(*, everything: bool = False) -> list[Removed]:
    """Remove converted models whose GGUF file is gone, and what broken conversions and downloads left; or everything.

    What another process is at work on stays.

    Raises:
        OSError: The cache cannot be written to.
    """
    models, files, digests = (cache_folder() / name for name in ("models", "files", "digests"))
    notes = {path: DigestNote.read(path) for path in _listed(digests) if _NOTE.fullmatch(path.name)}
    known = {note.path: note.digest for note in notes.values() if note is not None}
    removed: list[Removed] = []
    for name in sorted({match[1] for path in _listed(models) if (match := _ENTRY.fullmatch(path.name))}):
        removed += _prune_entry(models / name, known, everything)
    for model in CATALOG.values():
        removed += _prune_file(model.fetched, everything)
    for note in (path for path, read in notes.items() if everything or read is None):
        note.unlink(missing_ok=True)
    if everything:
        for folder in (models, files, digests, cache_folder()):
            if folder.is_dir() and not _listed(folder):
                folder.rmdir()
    return removed


def _prune_entry(folder: Path, known: dict[str, str], everything: bool) -> Iterator[Removed]:
    try:
        with FileLock(f"{folder}.lock", timeout=0):
            entry = CacheEntry.read(folder)
            if folder.exists():
                if reason := _ALL if everything else _reason(entry, known):
                    yield _remove(folder, f"converted from {entry.source}" if entry else folder.name, reason)
            for part in folder.parent.glob(f".{folder.name}.*.part"):
                yield _remove(part, part.name, "left by a conversion that broke off")
            if not folder.exists():
                Path(f"{folder}.lock").unlink(missing_ok=True)
    except Timeout:  # another process is converting it
        return


def _reason(entry: CacheEntry | None, known: dict[str, str]) -> str:
    """Why an entry may go; "" if its source is there, whether where it was or elsewhere, or renamed."""
    if entry is None:
        return "damaged, or of another version"
    if entry.digest in known.values() or (entry.source not in known and Path(entry.source).is_file()):
        return ""
    return "its GGUF file has changed" if entry.source in known else "its GGUF file is gone"


def _prune_file(file: Path, everything: bool) -> Iterator[Removed]:
    if not file.parent.is_dir():
        return
    try:
        with FileLock(f"{file}.lock", timeout=0):
            parts = (*file.parent.glob(f"{PART}*"), *file.parent.glob(f".{file.name}.*.part"))
            for part in parts:
                yield _remove(part, part.name, "left by a download that broke off")
            if everything and file.is_file():
                yield _remove(file, str(file), _ALL)
            if not file.exists():
                Path(f"{file}.lock").unlink(missing_ok=True)
    except Timeout:  # another process is fetching it
        return


def _remove(path: Path, what: str, reason: str) -> Removed:
    files = path.rglob("*") if path.is_dir() else [path]
    size = sum(each.stat().st_size for each in files if each.is_file())
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return Removed(what, reason, size)


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
