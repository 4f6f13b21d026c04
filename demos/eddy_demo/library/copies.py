"""Snapshots of a library: whole copies that are libraries themselves, and that can replace it."""

from __future__ import annotations

import shutil
from pathlib import Path

from chroma_eddy import copy_database, open_index
from eddy_demo.errors import LibraryMismatch
from eddy_demo.library.index import INDEX_NAME, current_settings
from eddy_demo.library.settings import DATABASE_FOLDER, ORIGINALS_FOLDER, delete_library, write_settings
from eddy_embed.utils.atomic_files import sync_tree

_PART, _ORIGINALS_PART = ".chroma.part", ".originals.part"


def copy_library(folder: Path, target: Path) -> None:
    """Copy a library to a folder that does not exist; the caller must hold the lock of the library."""
    settings = current_settings(folder)
    if target.exists():
        raise LibraryMismatch(f"{target} exists; name a new folder for the copy")
    target.mkdir(parents=True)
    try:
        _copy(folder / DATABASE_FOLDER, target / DATABASE_FOLDER)
        _copy_originals(folder, target / ORIGINALS_FOLDER)
        write_settings(target, settings)  # last: without it, the folder is no library
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def restore_library(folder: Path, source: Path) -> None:
    """Replace a library by a copy of another one; the caller must hold the lock of the library.

    After an interruption, the same call replaces it; the copy is complete before the old library is deleted.

    Raises:
        StorageError: The other library is damaged; this one stays.
    """
    settings = current_settings(source)
    _copy(source / DATABASE_FOLDER, folder / _PART)
    with open_index(folder / _PART, INDEX_NAME) as index:
        index.status()  # opens all collections, which raises if the copy is damaged
    _copy_originals(source, folder / _ORIGINALS_PART)
    delete_library(folder)
    (folder / _PART).rename(folder / DATABASE_FOLDER)
    (folder / _ORIGINALS_PART).rename(folder / ORIGINALS_FOLDER)
    write_settings(folder, settings)


def _copy(database: Path, target: Path) -> None:
    """Copy a database, and wait until the copy is on the disk."""
    copy_database(database, target)
    sync_tree(target)


def _copy_originals(library: Path, target: Path) -> None:
    """Copy the uploaded PDF files of a library, if it has any; the target exists afterwards."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    if (library / ORIGINALS_FOLDER).is_dir():
        shutil.copytree(library / ORIGINALS_FOLDER, target, dirs_exist_ok=True)
    sync_tree(target)
