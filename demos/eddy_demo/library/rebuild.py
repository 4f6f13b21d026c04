"""Rebuild a library from its stored texts with another model, method or passage size."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from chroma_eddy import NoIndex, OutdatedIndex, WriteReport, open_index, reindex
from eddy_demo.library.defaults import default_method, method_in_full
from eddy_demo.library.index import INDEX_NAME
from eddy_demo.library.settings import DATABASE_FOLDER, NEXT_SETTINGS, LibrarySettings, model_name, write_settings
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch, IncompatibleMethods, InvalidParameter, NotFinite, ZeroVector
from eddy_embed.integrations import atomic_write


def next_settings(
    stored: LibrarySettings, model: str | None = None, method: str | None = None, passage_size: int | None = None
) -> LibrarySettings:
    """Return the settings of a rebuild; None leaves the choice to the library, or for `method` to the model."""
    name = stored.model if model is None else model_name(model)
    default = method is None and (stored.default or model is not None)
    chosen = default_method(name) if default else method_in_full(name, method or stored.method)
    return replace(stored, model=name, method=chosen, default=default, passage_size=passage_size or stored.passage_size)


def unfinished_rebuild(folder: Path) -> LibrarySettings | None:
    """Return the settings of an interrupted rebuild; None if there is none."""
    try:
        return LibrarySettings(**json.loads((folder / NEXT_SETTINGS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def rebuild_library(
    folder: Path, settings: LibrarySettings, embedder: Embedder, progress: Callable[[float, int], None] | None = None
) -> WriteReport | None:
    """Embed the stored texts again, also of a library that an earlier version wrote.

    The library answers from its old vectors until all new ones are written. The caller must hold the lock of the
    library. After an interruption, the same call continues; it returns None if only the settings were left to write. An
    error that a retry would meet again leaves no unfinished rebuild behind.
    """
    settings = replace(settings, late=settings.late and embedder.can_embed_spans)
    before = unfinished_rebuild(folder)
    if before == settings and _index_replaced(folder, embedder, settings):
        _write_new_settings(folder, settings)
        return None
    with atomic_write(folder / NEXT_SETTINGS) as file:
        file.write(json.dumps(asdict(settings)).encode())
    try:
        report = reindex(
            folder / DATABASE_FOLDER,
            INDEX_NAME,
            embedder,
            passage_size=settings.passage_size,
            late=settings.late,
            restart=before not in (None, settings),
            progress=progress,
        )
    except (InvalidParameter, IncompatibleMethods, NotFinite, ZeroVector, NoIndex):  # a retry would fail again
        (folder / NEXT_SETTINGS).unlink(missing_ok=True)
        raise
    _write_new_settings(folder, settings)
    return report


def _index_replaced(folder: Path, embedder: Embedder, settings: LibrarySettings) -> bool:
    """Whether the new index has replaced the old one already."""
    try:
        with open_index(
            folder / DATABASE_FOLDER, INDEX_NAME, embedder, passage_size=settings.passage_size, late=settings.late
        ):
            return True
    except (FingerprintMismatch, OutdatedIndex):
        return False


def _write_new_settings(folder: Path, settings: LibrarySettings) -> None:
    write_settings(folder, settings)
    (folder / NEXT_SETTINGS).unlink(missing_ok=True)
