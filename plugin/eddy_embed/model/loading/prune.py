"""What may go from the cache: what earlier versions converted, leftovers of downloads, or all models."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from eddy_embed.model.loading.cache import cache_folder
from eddy_embed.model.loading.catalog import CATALOG
from eddy_embed.model.loading.fetch import PART

# Nothing else is touched: the cache may be a folder that holds further things.
_CONVERTED = re.compile(r"\.?[0-9a-f]{32}-b?float\d+(\.lock|\.\d+\.part)?")
_NOTE = re.compile(r"[0-9a-f]{32}")


class Removed(NamedTuple):
    """Something that was removed, or may be: what it was, why, and its size on disk."""

    what: str
    reason: str
    bytes: int


def conversions() -> list[Path]:
    """What earlier versions made of GGUF files, which are read as they are now: folders of models, and their locks."""
    return [path for path in _listed(cache_folder() / "models") if _CONVERTED.fullmatch(path.name)]


def prune(*, everything: bool = False) -> list[Removed]:
    """Remove what earlier versions converted and what broken downloads left; with `everything` fetched models too.

    What another process is fetching stays.

    Raises:
        OSError: The cache cannot be written to.
    """
    models, files, digests = (cache_folder() / name for name in ("models", "files", "digests"))
    reason = "converted by an earlier version, and not read any more"
    removed = [_remove(path, path.name, reason) for path in conversions()]
    for note in (path for path in _listed(digests) if _NOTE.fullmatch(path.name)):
        note.unlink()
    for model in CATALOG.values():
        removed += _prune_file(model.fetched, everything)
    for folder in (models, digests, *((files, cache_folder()) if everything else ())):
        if folder.is_dir() and not _listed(folder):
            folder.rmdir()
    return [each for each in removed if not each.what.endswith(".lock")]


def _prune_file(file: Path, everything: bool) -> Iterator[Removed]:
    if not file.parent.is_dir():
        return
    try:
        with FileLock(f"{file}.lock", timeout=0):
            parts = (*file.parent.glob(f"{PART}*"), *file.parent.glob(f".{file.name}.*.part"))
            for part in parts:
                yield _remove(part, part.name, "left by a download that broke off")
            if everything and file.is_file():
                yield _remove(file, str(file), "as all of the cache")
            if not file.exists():
                Path(f"{file}.lock").unlink(missing_ok=True)
    except Timeout:  # another process is fetching it
        return


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files if each.is_file())


def _remove(path: Path, what: str, reason: str) -> Removed:
    size = size_of(path)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return Removed(what, reason, size)


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
