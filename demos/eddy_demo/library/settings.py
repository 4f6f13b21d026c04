"""The choices that made a library's vectors; every later use must agree with them."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from chroma_eddy import LOCK, WRITER
from eddy_demo.errors import LibraryMismatch, NoLibrary
from eddy_demo.library.defaults import BUNDLED_MODEL, DEFAULT_PASSAGE_SIZE
from eddy_embed.utils.atomic_files import atomic_write

_FORMAT, _EARLIER_FORMAT = 3, 2
DATABASE_FOLDER = "chroma"
"""Folder of the database."""
SETTINGS = "library.json"
"""File with the settings of a library."""
NEXT_SETTINGS = "library.next.json"
"""File with the settings of a rebuild in progress."""
_OLD_DATABASE = "chroma.old"
"""A database that is being deleted."""
UPLOADS_FOLDER = "uploads"
"""Folder of files that the web page received and has not written yet."""
ORIGINALS_FOLDER = "originals"
"""Folder of uploaded PDF files, whose pages the web page shows."""
"""File with the questions that were asked last on the web page."""
FOLDERS_FILE = "folders.json"
"""File with the folders that the web page watches."""
_LIBRARY_FILES = {
    *(LOCK, WRITER, NEXT_SETTINGS, FOLDERS_FILE),
    *(DATABASE_FOLDER, _OLD_DATABASE, UPLOADS_FOLDER, ORIGINALS_FOLDER),
}

Plan = Literal["chosen", "best", "fast", "deepen"]
"""Why a library has its method: the user chose it, or it is recommended, with the model's layers or without.

"deepen": it has the recommended method without layers, and the one with layers is to take its place.
"""


@dataclass(frozen=True)
class LibrarySettings:
    """The choices that made a library's vectors."""

    model: str  # absolute path, or another name that `eddy_embed.Embedder` takes
    method: str
    passage_size: int = DEFAULT_PASSAGE_SIZE  # maximum number of tokens
    late: bool | None = None  # whether passages are read within their document; None: as the method does by default
    plan: Plan = "chosen"


def holds_library(folder: Path) -> bool:
    """Whether the folder holds a library."""
    return (folder / SETTINGS).is_file()


def check_available(folder: Path) -> None:
    """Check that a folder can hold a new library: it is empty, or an interrupted first ingestion left files in it."""

    def is_ours(name: str) -> bool:
        return name in _LIBRARY_FILES or (name.startswith(".") and name.endswith(".part"))

    if folder.exists() and (not folder.is_dir() or not all(is_ours(entry.name) for entry in folder.iterdir())):
        raise LibraryMismatch(f"{folder} exists and is not a library; name another folder with --library")


def read_settings(folder: Path) -> LibrarySettings:
    """Read the settings of the library in a folder."""
    if not holds_library(folder):
        raise NoLibrary(f"no library in {folder}; make one with: eddy-demo ingest PATH --library {folder}")
    try:
        return _parse(json.loads((folder / SETTINGS).read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NoLibrary(f"{folder / SETTINGS} cannot be read ({error}); ingest into another folder") from None


def read_next_settings(folder: Path) -> tuple[LibrarySettings | None, str]:
    """Read the settings of a rebuild that is not finished, None without one, and the fingerprint of its vectors."""
    try:
        stored = json.loads((folder / NEXT_SETTINGS).read_text(encoding="utf-8"))
        fingerprint = stored.pop("fingerprint")
        return _parse(stored), fingerprint
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None, ""


def write_next_settings(folder: Path, settings: LibrarySettings, fingerprint: str) -> None:
    """Write the settings of a rebuild that begins, and the fingerprint of its vectors, atomically."""
    with atomic_write(folder / NEXT_SETTINGS) as file:
        file.write(json.dumps({**_data(settings), "fingerprint": fingerprint}).encode())


def _parse(stored: dict[str, Any]) -> LibrarySettings:
    written = stored.pop("format")
    if written == _EARLIER_FORMAT:
        # It wrote a choice of late that nobody had made, and for the plan whether the method was recommended.
        stored["late"] = None if stored.get("late", True) else False
        stored["plan"] = "best" if stored.pop("default", False) else "chosen"
    elif written != _FORMAT:
        raise ValueError("written by another version")
    settings = LibrarySettings(**stored)
    if settings.plan not in get_args(Plan):
        raise ValueError(f"unknown plan {settings.plan!r}")
    return settings


def _data(settings: LibrarySettings) -> dict[str, Any]:
    return {"format": _FORMAT, **asdict(settings)}


def original_path(folder: Path, key: str) -> Path:
    """Return where the library in a folder keeps the uploaded PDF file of a document with this id."""
    return folder / ORIGINALS_FOLDER / f"{key}.pdf"


def delete_library(folder: Path) -> None:
    """Delete the library in a folder, and no other files there."""
    if holds_library(folder):
        # In this order, an interruption leaves a library, or a folder that can hold a new one.
        if (folder / DATABASE_FOLDER).exists():
            shutil.rmtree(folder / _OLD_DATABASE, ignore_errors=True)
            (folder / DATABASE_FOLDER).rename(folder / _OLD_DATABASE)
        (folder / NEXT_SETTINGS).unlink(missing_ok=True)
        (folder / SETTINGS).unlink()
    for name in (_OLD_DATABASE, ORIGINALS_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)


def write_settings(folder: Path, settings: LibrarySettings) -> None:
    """Write the settings of a library atomically."""
    with atomic_write(folder / SETTINGS) as file:
        file.write(f"{json.dumps(_data(settings), indent=2)}\n".encode())


def forget_settings(folder: Path) -> None:
    """Delete the settings of a library that has no rows, whose next ingestion may choose others."""
    (folder / SETTINGS).unlink(missing_ok=True)


def model_name(model: str) -> str:
    """Make the path of a model absolute, so that the library finds it from every folder."""
    path = Path(model)
    named = model.strip() and model != BUNDLED_MODEL  # the path of "" is the folder at hand
    return path.resolve().as_posix() if named and path.exists() else model
