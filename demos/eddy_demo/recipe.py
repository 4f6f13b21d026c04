"""What made a library's vectors: written once, compared ever after."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from chroma_eddy.storage.locks import LOCK, WRITER
from eddy_demo.defaults import METHOD, measured
from eddy_demo.errors import LibraryMismatch, NoLibrary
from eddy_embed.files import whole

FORMAT = 2
MODEL = "eddy-tiny"
PASSAGE_SIZE = 128
CHROMA = "chroma"
"""The database."""
NEXT = "library.next.json"
"""The recipe that a rebuilding works towards."""
_OLD = "chroma.old"
"""One on its way out."""
UPLOADS = "uploads"
"""Files received by the web page and not yet written."""
_LEFT = {CHROMA, LOCK, WRITER, NEXT, _OLD, UPLOADS}
_CHOICES = (
    ("model", "--model"),
    ("method", "--method"),
    ("passage_size", "--passage-size"),
    ("late", "--late/--separate"),
)


@dataclass(frozen=True)
class Recipe:
    """What a library's vectors are made with; anything else is refused.

    Attributes:
        model: Bundled name, hub id, or absolute path.
        method: The method's text form.
        passage_size: Most tokens in a passage of several sentences.
        late: Whether passages are read out of the pass over their document, or embedded each by itself.
        default: The method that measured best for the model, where none was asked for: `method` is the same, or the
            same without post-processing where there was too little to fit it on. "" where one was asked for, or none
            was measured.
    """

    model: str
    method: str
    passage_size: int = PASSAGE_SIZE
    late: bool = True
    default: str = ""


def choose_recipe(
    folder: Path,
    model: str | None = None,
    method: str | None = None,
    passage_size: int | None = None,
    late: bool | None = None,
) -> Recipe:
    """The recipe of the library in a folder, or the one for a new library; None leaves a choice open.

    Raises:
        LibraryMismatch: The library there was made with another choice.
        InvalidDefaults: The file that names the model's default method does not.
        UnknownMethod: No method has that name.
        InvalidParameter: A parameter of the method is wrong.
    """
    from eddy_embed import methods

    asked = {
        "model": None if model is None else model_name(model),
        "method": None if method is None else str(methods.parse(method)),
        "passage_size": passage_size,
        "late": late,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    if not holds_library(folder):
        check_free(folder)
        best = measured(asked["model"] or MODEL) if method is None else None  # type: ignore[arg-type]
        unasked = Recipe(MODEL, METHOD) if best is None else Recipe(MODEL, best, default=best)
        return replace(unasked, **given)  # type: ignore[arg-type]
    stored = read_recipe(folder)
    check_recipe(folder, stored, replace(stored, **given))  # type: ignore[arg-type]
    return stored


def holds_library(folder: Path) -> bool:
    """Whether the folder holds a library."""
    return (folder / "library.json").is_file()


def check_free(folder: Path) -> None:
    """Refuse a folder that holds something else than a library, or than what an interrupted first ingestion left.

    Raises:
        LibraryMismatch: It does.
    """
    if folder.exists() and (not folder.is_dir() or not all(map(_is_left, folder.iterdir()))):
        raise LibraryMismatch(f"{folder} exists and is not a library; name another folder with --library")


def read_recipe(folder: Path) -> Recipe:
    """What made the library in a folder.

    Raises:
        NoLibrary: There is none, or not one that this version reads.
    """
    if not holds_library(folder):
        raise NoLibrary(f"no library in {folder}; make one with: eddy-demo ingest PATH --library {folder}")
    try:
        stored = json.loads((folder / "library.json").read_text(encoding="utf-8"))
        if stored.pop("format") != FORMAT:
            raise ValueError("written by another version")
        return Recipe(**stored)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NoLibrary(f"{folder / 'library.json'} cannot be read ({error}); ingest into another folder") from None


def check_recipe(folder: Path, stored: Recipe, asked: Recipe) -> None:
    """Refuse a recipe that differs from the stored one in what its user chooses.

    Raises:
        LibraryMismatch: It differs; the message says in what, and what to do.
    """
    for name, option in _CHOICES:
        here, there = getattr(stored, name), getattr(asked, name)
        if here != there:
            raise LibraryMismatch(
                f"the library in {folder} was made with {name.replace('_', ' ')} {here}, not {there}: leave out "
                f"{option}, ingest into another folder with --library, or make this library anew "
                "(eddy-demo ingest PATH --rebuild)"
            )


def delete(folder: Path) -> None:
    """Delete the library in a folder, and nothing else that may be there."""
    if holds_library(folder):
        # In this order, whatever is left by an interruption is still a library, or free for a new one.
        if (folder / CHROMA).exists():
            shutil.rmtree(folder / _OLD, ignore_errors=True)
            (folder / CHROMA).rename(folder / _OLD)
        (folder / NEXT).unlink(missing_ok=True)
        (folder / "library.json").unlink()
    shutil.rmtree(folder / _OLD, ignore_errors=True)


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the recipe of a new library, whole or not at all."""
    with whole(folder / "library.json") as file:
        file.write(f"{json.dumps({'format': FORMAT, **asdict(recipe)}, indent=2)}\n".encode())


def _is_left(entry: Path) -> bool:
    return entry.name in _LEFT or (entry.name.startswith(".") and entry.name.endswith(".part"))


def model_name(model: str) -> str:
    """A path by its absolute form, so that a library finds its model from every folder."""
    path = Path(model)
    return path.resolve().as_posix() if model != MODEL and path.is_dir() else model
