"""The folder of a library, and the choices that made its vectors. This imports neither torch nor Chroma."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from eddy_demo.errors import LibraryMismatch, NoLibrary
from eddy_embed.model.loading.catalog import CATALOG
from eddy_embed.utils.atomic_files import atomic_write

BUNDLED_MODEL = "eddy-tiny"
PREFERRED_MODEL = "smollm2"
DEFAULT_PASSAGE_SIZE = 128
"""Most tokens in a passage."""
_FORMAT = 1
DATABASE_FOLDER = "chroma"
"""Folder of the database."""
SETTINGS = "library.json"
"""File with the settings of a library."""
FILES_FOLDER = "files"
"""Folder of the files that the web page received: the only one in which Eddy deletes documents."""
FOLDERS_FILE = "folders.json"
"""File with the folders that the web page follows."""
READ_FILE = "read.json"
"""File that remembers which files were read, and which cannot be."""
SERVER_LOCK = ".server.lock"
"""Lock of the server that has the page of a library."""
_LIBRARY_FILES = {
    *(DATABASE_FOLDER, FILES_FOLDER, FOLDERS_FILE, READ_FILE, SERVER_LOCK),
    *("eddy.lock", "eddy.writer"),  # of the database's writer
}

Plan = Literal["chosen", "best", "fast"]
"""Why a library has its method: the user chose it, or it is recommended, with the model's layers or without."""


@dataclass(frozen=True)
class LibrarySettings:
    """The choices that made a library's vectors."""

    model: str  # absolute path, or another name that `eddy_embed.Embedder` takes
    method: str
    passage_size: int = DEFAULT_PASSAGE_SIZE  # maximum number of tokens
    plan: Plan = "chosen"
    next: LibrarySettings | None = None  # what the library is to be made anew with, or is being made anew with
    fingerprint: str = ""  # of the vectors of `next`, in those settings, once making them has begun

    @property
    def deepens(self) -> bool:
        """Whether the library is to be read more closely: the method with the model's layers is to take its place."""
        goal = self.next
        return self.plan == "fast" and goal is not None and (goal.model, goal.plan) == (self.model, "best")


PLAN_OPTIONS = {True: "--fast", False: "--best"}
"""Options that choose a recommended method."""


@dataclass(frozen=True)
class Choices:
    """What the user chose; None leaves a choice open.

    `fast` asks for a recommended method, without layers or with them; None: first without, then with them.
    """

    model: str | None = None
    method: str | None = None
    passage_size: int | None = None
    fast: bool | None = None

    def __post_init__(self) -> None:
        """Refuse a method together with the choice of a recommended one."""
        if self.fast is not None and self.method is not None:
            raise LibraryMismatch(
                f"{PLAN_OPTIONS[self.fast]} chooses the method, and so does --method {self.method}: leave out one of "
                "them"
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
        stored = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        if stored.pop("format") != _FORMAT:
            raise ValueError("written by another version")
        return _parse(stored)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NoLibrary(f"{folder / SETTINGS} cannot be read ({error}); ingest into another folder") from None


def _parse(stored: dict[str, Any]) -> LibrarySettings:
    settings = LibrarySettings(**stored)
    if settings.plan not in get_args(Plan):
        raise ValueError(f"unknown plan {settings.plan!r}")
    return settings if settings.next is None else replace(settings, next=_parse(stored["next"]))


def write_settings(folder: Path, settings: LibrarySettings) -> None:
    """Write the settings of a library atomically."""
    with atomic_write(folder / SETTINGS) as file:
        file.write(f"{json.dumps({'format': _FORMAT, **asdict(settings)}, indent=2)}\n".encode())


def upload_path(folder: Path, origin: str) -> Path | None:
    """Return the file of an uploaded document by its origin; None for a document that was read elsewhere."""
    place, _, name = origin.partition("/")
    parts = PurePosixPath(name).parts
    return folder / FILES_FOLDER / name if place == FILES_FOLDER and parts and not {"/", ".."} & {*parts} else None


def model_name(model: str) -> str:
    """Make the path of a model absolute, so that the library finds it from every folder."""
    path = Path(model)
    named = model.strip() and model != BUNDLED_MODEL  # the path of "" is the folder at hand
    return path.resolve().as_posix() if named and path.exists() else model


def default_model() -> str:
    """Return the preferred model if it is on this machine, else the bundled one."""
    return PREFERRED_MODEL if any(CATALOG[PREFERRED_MODEL].places()) else BUNDLED_MODEL


def method_in_full(model: str, method: str = "best") -> str:
    """Return a method's text form, with what is recommended for the model in place of a name that stands for it."""
    from eddy_embed import methods  # imports torch
    from eddy_embed.model.loading.pretrained import read_backbone

    requested = methods.parse(method)
    return str(requested if requested.recommended is None else methods.resolve(requested, read_backbone(model)))
