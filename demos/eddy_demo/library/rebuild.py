"""Embed a library's stored texts again, with another model, method or passage size, or with the model's layers.

A new library is searchable at once by a method that runs no layer; then it is rebuilt with the one that finds more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from chroma_eddy import DocumentRow, NoIndex, OutdatedIndex, WriteReport, reindex
from eddy_demo.library.defaults import default_method, method_in_full
from eddy_demo.library.index import INDEX_NAME, open_stored
from eddy_demo.library.settings import (
    DATABASE_FOLDER,
    NEXT_SETTINGS,
    LibrarySettings,
    holds_library,
    model_name,
    parse_settings,
    read_settings,
    refuse_both,
    settings_data,
    write_settings,
)
from eddy_embed import Embedder
from eddy_embed.errors import IncompatibleMethods, InvalidParameter, NotFinite, ZeroVector
from eddy_embed.integrations import atomic_write

_MEASURED_SECONDS = 2.0
"""Time from which the speed is known."""


@dataclass(frozen=True)
class RebuildProgress:
    """How far a rebuild is."""

    tokens: int = 0  # of all documents; 0: unknown, in a library of an earlier version
    done: float = 0.0  # share of them that is embedded, 0 to 1
    total: int = 0  # number of documents
    written: int = 0  # number of them that are written
    speed: float | None = None  # tokens a second; None until it is measured

    @property
    def left(self) -> float | None:
        """Seconds that it will still take; None until the speed is known."""
        return None if not self.speed else self.tokens * (1 - self.done) / self.speed


Report = Callable[[RebuildProgress], None]


def next_settings(
    stored: LibrarySettings,
    model: str | None = None,
    method: str | None = None,
    passage_size: int | None = None,
    fast: bool | None = None,
) -> LibrarySettings:
    """Return the settings of a rebuild; None leaves the choice to the library, or for `method` to the model.

    Of a library that is to be deepened, they are those with the model's layers.
    """
    refuse_both(method, fast)
    name = stored.model if model is None else model_name(model)
    sized = replace(stored, model=name, passage_size=passage_size or stored.passage_size)
    if method is None and (fast is not None or model is not None or stored.plan != "chosen"):
        plan: Literal["best", "fast"] = "fast" if fast or (fast is None and stored.plan == "fast") else "best"
        return replace(sized, method=default_method(name, plan), plan=plan)
    return replace(sized, method=method_in_full(name, method or stored.method), plan="chosen")


def due_rebuild(folder: Path, settings: LibrarySettings) -> LibrarySettings | None:
    """Return the settings of the rebuild that a library waits for: an interrupted one, or that with layers."""
    unfinished = unfinished_rebuild(folder)
    if unfinished is None and settings.plan == "deepen" and holds_library(folder) and _documents(folder)[0]:
        return next_settings(settings)
    return unfinished


def unfinished_rebuild(folder: Path) -> LibrarySettings | None:
    """Return the settings of an interrupted rebuild; None if there is none."""
    return _unfinished(folder)[0]


def _unfinished(folder: Path) -> tuple[LibrarySettings | None, str]:
    """The settings of an interrupted rebuild, and the fingerprint of its vectors."""
    try:
        stored = json.loads((folder / NEXT_SETTINGS).read_text(encoding="utf-8"))
        fingerprint = stored.pop("fingerprint")
        return parse_settings(stored), fingerprint
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None, ""


def rebuild_progress(folder: Path) -> RebuildProgress:
    """Return how far the rebuild of a library is, which may be in progress in another process."""
    return _progress(*_documents(folder))


def rebuild_library(
    folder: Path, settings: LibrarySettings, embedder: Embedder, report: Report | None = None
) -> WriteReport | None:
    """Embed the stored texts again, also of a library that an earlier version wrote.

    The library answers from its old vectors until all new ones are written. The caller must hold the lock of the
    library. After an interruption, the same call continues; it returns None if only the settings were left to write. An
    error that a retry would meet again leaves no unfinished rebuild behind.
    """
    if settings.late is not None:
        settings = replace(settings, late=settings.late and embedder.can_embed_spans)
    restart = _unfinished(folder) != (settings, embedder.fingerprint)
    if finish_rebuild(folder) and not restart:
        return None
    with atomic_write(folder / NEXT_SETTINGS) as file:
        file.write(json.dumps({**settings_data(settings), "fingerprint": embedder.fingerprint}).encode())
    try:
        done = reindex(
            folder / DATABASE_FOLDER,
            INDEX_NAME,
            embedder,
            passage_size=settings.passage_size,
            late=settings.late,
            restart=restart,
            progress=None if report is None else _Meter(folder, report, restart),
        )
    except (InvalidParameter, IncompatibleMethods, NotFinite, ZeroVector, NoIndex):  # a retry would fail again
        (folder / NEXT_SETTINGS).unlink(missing_ok=True)
        raise
    _write_new_settings(folder, settings)
    return done


def finish_rebuild(folder: Path) -> bool:
    """Write the settings of a rebuild whose index is in place already; return whether there was one."""
    following, fingerprint = _unfinished(folder)
    if following is None:
        return False
    try:
        with open_stored(folder) as index:
            replaced = index.settings.fingerprint == fingerprint
            replaced &= index.settings.passage_size == following.passage_size
            replaced &= following.late in (None, index.settings.late)
    except (NoIndex, OutdatedIndex):
        return False
    if replaced:
        _write_new_settings(folder, following)
    return replaced


def change_plan(folder: Path, settings: LibrarySettings) -> None:
    """Store another plan of a library; one that shall stay as it is forgets an unfinished rebuild."""
    stored = read_settings(folder)
    if stored.plan == settings.plan:
        return
    if settings.plan == "fast":
        discard_rebuild(folder)
    write_settings(folder, replace(stored, plan=settings.plan))


def discard_rebuild(folder: Path) -> None:
    """Delete what an unfinished rebuild has done."""
    (folder / NEXT_SETTINGS).unlink(missing_ok=True)
    with open_stored(folder) as index:
        index.discard_rebuilt()


def _write_new_settings(folder: Path, settings: LibrarySettings) -> None:
    write_settings(folder, settings)
    (folder / NEXT_SETTINGS).unlink(missing_ok=True)


def _documents(folder: Path) -> tuple[dict[str, DocumentRow], dict[str, DocumentRow]]:
    """Return the entries of the documents, and of those that an unfinished rebuild has written as they are now."""
    try:
        with open_stored(folder) as index:
            entries = {id_: entry for id_, entry in index.read(index.entries).items() if entry.digest}
            rebuilt = index.read(index.rebuilt)
    except (NoIndex, OutdatedIndex):
        return {}, {}
    return entries, {id_: row for id_, row in rebuilt.items() if id_ in entries and row.digest == entries[id_].digest}


def _progress(entries: Mapping[str, DocumentRow], rebuilt: Container[str]) -> RebuildProgress:
    done = [entry.tokens for id_, entry in entries.items() if id_ in rebuilt]
    tokens = sum(entry.tokens for entry in entries.values())
    return RebuildProgress(tokens, sum(done) / max(tokens, 1), len(entries), len(done))


class _Meter:
    """Makes `RebuildProgress` of what an index reports."""

    def __init__(self, folder: Path, report: Report, restart: bool) -> None:
        entries, rebuilt = _documents(folder)
        rebuilt = {} if restart else rebuilt
        self._report, self._before = report, _progress(entries, rebuilt)
        self._characters = sum(entry.characters for id_, entry in entries.items() if id_ not in rebuilt)
        self._began = time.monotonic()

    def __call__(self, characters: float, written: int) -> None:
        before = self._before
        now = min(characters / max(self._characters, 1), 1.0) * (1 - before.done)
        seconds = time.monotonic() - self._began
        speed = now * before.tokens / seconds if seconds >= _MEASURED_SECONDS else None
        self._report(replace(before, done=before.done + now, written=before.written + written, speed=speed or None))
