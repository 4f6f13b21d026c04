"""The choices that made a library's vectors; every later use must agree with them."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

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

_FORMAT = 2
DATABASE_FOLDER = "chroma"
"""Folder of the database."""
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


@dataclass(frozen=True)
class LibrarySettings:
    """The choices that made a library's vectors."""

    model: str  # absolute path, or another name that `eddy_embed.Embedder` takes
    method: str
    passage_size: int = DEFAULT_PASSAGE_SIZE  # maximum number of tokens
    late: bool = True  # whether passage vectors come from the pass over their document
    default: bool = False  # whether the method was recommended for the model, rather than chosen by the user


def choose_settings(
    folder: Path,
    model: str | None = None,
    method: str | None = None,
    passage_size: int | None = None,
    late: bool | None = None,
) -> LibrarySettings:
    """Return the settings of the library in a folder, or those for a new one; None leaves a choice open."""
    stored = read_settings(folder) if holds_library(folder) else None
    own = default_model() if stored is None else stored.model
    chosen = {
        "model": own if model is None else model_name(model),
        "method": None if method is None else method_in_full(own if model is None else model_name(model), method),
        "passage_size": passage_size,
        "late": late,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    if stored is None:
        check_available(folder)
        own_method = {} if method is not None else {"method": default_method(str(chosen["model"])), "default": True}
        return LibrarySettings(**own_method, **given)  # type: ignore[arg-type]
    for name, option in _OPTIONS.items():
        here, there = getattr(stored, name), given.get(name)
        if there is not None and here != there:
            raise LibraryMismatch(
                f"the library in {folder} was made with {name.replace('_', ' ')} {here}, not {there}: leave out "
                f"{option}, ingest into another folder with --library, or make this library anew "
                "(eddy-demo ingest PATH --rebuild)"
            )
    return stored


def holds_library(folder: Path) -> bool:
    """Whether the folder holds a library."""
    return (folder / "library.json").is_file()


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
        stored = json.loads((folder / "library.json").read_text(encoding="utf-8"))
        if stored.pop("format") != _FORMAT:
            raise ValueError("written by another version")
        stored["default"] = bool(stored.get("default"))  # earlier versions wrote the recommended method
        return LibrarySettings(**stored)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NoLibrary(f"{folder / 'library.json'} cannot be read ({error}); ingest into another folder") from None


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
        (folder / "library.json").unlink()
    for name in (_OLD_DATABASE, ORIGINALS_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)


def write_settings(folder: Path, settings: LibrarySettings) -> None:
    """Write the settings of a library atomically."""
    with atomic_write(folder / "library.json") as file:
        file.write(f"{json.dumps({'format': _FORMAT, **asdict(settings)}, indent=2)}\n".encode())


def forget_settings(folder: Path) -> None:
    """Delete the settings of a library that has no rows, whose next ingestion may choose others."""
    (folder / "library.json").unlink(missing_ok=True)


def model_name(model: str) -> str:
    """Make the path of a model absolute, so that the library finds it from every folder."""
    path = Path(model)
    return path.resolve().as_posix() if model != BUNDLED_MODEL and path.exists() else model
