"""The choices that made a library's vectors; every later use must agree with them."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from chroma_eddy import LOCK, WRITER
from eddy_demo.errors import LibraryMismatch, NoLibrary
from eddy_demo.library.defaults import (
    BUNDLED_MODEL,
    DEFAULT_PASSAGE_SIZE,
    default_method,
    default_model,
    method_in_full,
)
from eddy_embed.integrations import atomic_write

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
QUESTIONS_FILE = "questions.json"
"""File with the questions that were asked last on the web page."""
_LIBRARY_FILES = {
    *(LOCK, WRITER, NEXT_SETTINGS, QUESTIONS_FILE),
    *(DATABASE_FOLDER, _OLD_DATABASE, UPLOADS_FOLDER, ORIGINALS_FOLDER),
}
_OPTIONS = {"model": "--model", "method": "--method", "passage_size": "--passage-size", "late": "--late/--separate"}
_PLANS = {True: "--fast", False: "--best"}

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


def choose_settings(
    folder: Path,
    model: str | None = None,
    method: str | None = None,
    passage_size: int | None = None,
    late: bool | None = None,
    fast: bool | None = None,
) -> LibrarySettings:
    """Return the settings of the library in a folder, or those for a new one; None leaves a choice open.

    `fast` asks for a recommended method, without layers or with them; None: first without, then with them.
    """
    refuse_both(method, fast)
    stored = read_settings(folder) if holds_library(folder) else None
    own = default_model() if stored is None else stored.model
    name = own if model is None else model_name(model)
    full = None if method is None else method_in_full(name, method)
    if stored is None:
        check_available(folder)
        chosen, plan = _first_method(name, fast) if full is None else (full, "chosen")
        return LibrarySettings(name, chosen, passage_size or DEFAULT_PASSAGE_SIZE, late, plan)
    _check(folder, stored, "model", name)
    _check(folder, stored, "method", full)
    _check(folder, stored, "passage_size", passage_size)
    if stored.late is not None:
        _check(folder, stored, "late", late)
    elif late is not None:
        stored = replace(stored, late=late)  # the index refuses what it was not made with
    return stored if fast is None else _replanned(folder, stored, fast)


def refuse_both(method: str | None, fast: bool | None) -> None:
    """Refuse a method together with the choice of a recommended one."""
    if fast is not None and method is not None:
        raise LibraryMismatch(
            f"{_PLANS[fast]} chooses the method, and so does --method {method}: leave out one of them"
        )


def _first_method(model: str, fast: bool | None) -> tuple[str, Plan]:
    """Return the method that a new library begins with."""
    quick, best = default_method(model, "fast"), default_method(model)
    if fast is None and quick != best:
        return quick, "deepen"
    return (quick, "fast") if fast else (best, "best")


def _replanned(folder: Path, stored: LibrarySettings, fast: bool) -> LibrarySettings:
    wanted = default_method(stored.model, "fast" if fast else "best")
    if stored.plan in ("fast", "deepen"):
        return replace(stored, plan="fast" if fast else "best" if stored.method == wanted else "deepen")
    _check(folder, stored, "method", wanted, _PLANS[fast])
    return stored


def _check(folder: Path, stored: LibrarySettings, name: str, wanted: object, option: str | None = None) -> None:
    """Refuse a choice, if it is one (not None), that is not the library's."""
    here = getattr(stored, name)
    if wanted is not None and here != wanted:
        raise LibraryMismatch(
            f"the library in {folder} was made with {name.replace('_', ' ')} {here}, not {wanted}: leave out "
            f"{option or _OPTIONS[name]}, ingest into another folder with --library, or make this library anew "
            "(eddy-demo ingest PATH --rebuild)"
        )


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
        return parse_settings(json.loads((folder / SETTINGS).read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NoLibrary(f"{folder / SETTINGS} cannot be read ({error}); ingest into another folder") from None


def parse_settings(stored: dict[str, Any]) -> LibrarySettings:
    """Return settings from their data."""
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


def settings_data(settings: LibrarySettings) -> dict[str, Any]:
    """Return the data of settings, for `parse_settings`."""
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
        for name in (NEXT_SETTINGS, QUESTIONS_FILE):
            (folder / name).unlink(missing_ok=True)
        (folder / SETTINGS).unlink()
    for name in (_OLD_DATABASE, ORIGINALS_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)


def write_settings(folder: Path, settings: LibrarySettings) -> None:
    """Write the settings of a library atomically."""
    with atomic_write(folder / SETTINGS) as file:
        file.write(f"{json.dumps(settings_data(settings), indent=2)}\n".encode())


def forget_settings(folder: Path) -> None:
    """Delete the settings of a library that has no rows, whose next ingestion may choose others."""
    (folder / SETTINGS).unlink(missing_ok=True)


def model_name(model: str) -> str:
    """Make the path of a model absolute, so that the library finds it from every folder."""
    path = Path(model)
    return path.resolve().as_posix() if model != BUNDLED_MODEL and path.exists() else model
