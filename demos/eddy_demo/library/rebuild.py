"""Embed a library's stored texts again, with another model, method or passage size, or with the model's layers.

A new library is searchable at once by a method that runs no layer; then it is rebuilt with the one that finds more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from chroma_eddy import NoIndex, StoredDocument, WriteReport, reindex
from eddy_demo.library.choices import refuse_both
from eddy_demo.library.defaults import default_method, method_in_full
from eddy_demo.library.index import INDEX_NAME, exchanged_settings, is_exchanged, open_stored
from eddy_demo.library.settings import (
    DATABASE_FOLDER,
    NEXT_SETTINGS,
    LibrarySettings,
    holds_library,
    model_name,
    read_next_settings,
    read_settings,
    write_next_settings,
    write_settings,
)
from eddy_embed import Embedder
from eddy_embed.errors import IncompatibleMethods, InvalidParameter, NotFinite, ZeroVector

_MEASURED_SECONDS = 20.0
"""Time over which the speed is measured; the first passes are slow, and what else runs changes."""


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


@dataclass(frozen=True)
class RebuildState:
    """What an interruption may have left of a rebuild. The index in place answers in each of these states.

    =================  ===================  ====================  ======================================================
    library.json       library.next.json    index in place        what it is, and what comes next
    =================  ===================  ====================  ======================================================
    none               any                  any or none           no library: the first ingestion was interrupted
    plan "deepen"      none                 of library.json       to be deepened by `ingest` or the page, once it has
                                                                  a document
    any                there                of library.json       interrupted: the same command or the page goes on, and
                                                                  begins anew if model or settings are others, or what
                                                                  it had done (`<index>-next`) lost its vectors
    any                there                of library.next.json  exchanged: readers go by library.next.json, and the
                                                                  next writer makes that library.json
    any other plan     none                 of library.json       finished
    any                any                  without its vectors   damaged: `library rebuild` reads texts alone; all else
                                                                  says so
    =================  ===================  ====================  ======================================================

    Attributes:
        unfinished: Settings of the rebuild that is not finished; None without one.
        fingerprint: Of its vectors.
        exchanged: Whether its index is in place.
        entries: Of the complete documents, by id.
        rebuilt: Of those that are in the new index as they are now.
    """

    unfinished: LibrarySettings | None
    fingerprint: str
    exchanged: bool
    entries: Mapping[str, StoredDocument]
    rebuilt: Mapping[str, StoredDocument]

    def due(self, settings: LibrarySettings) -> LibrarySettings | None:
        """Return the settings of the rebuild that a library of these settings waits for; None if for none."""
        if self.unfinished is None and settings.plan == "deepen" and self.entries:
            return next_settings(settings)
        return self.unfinished

    @property
    def progress(self) -> RebuildProgress:
        """How far the rebuild is."""
        tokens = sum(entry.tokens for entry in self.entries.values())
        done = sum(entry.tokens for id_, entry in self.entries.items() if id_ in self.rebuilt)
        return RebuildProgress(tokens, done / max(tokens, 1), len(self.entries), len(self.rebuilt))


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


def read_state(folder: Path) -> RebuildState:
    """Read how far the rebuild of a library is, which may be in progress in another process."""
    unfinished, fingerprint = read_next_settings(folder)
    try:
        with open_stored(folder, texts_only=True) as index:
            entries = {id_: entry for id_, entry in index.read(index.entries).items() if entry.digest}
            rebuilt = index.read(index.rebuilt)
            exchanged = is_exchanged(index, unfinished, fingerprint)
    except NoIndex:
        entries, rebuilt, exchanged = {}, {}, False
    same = {id_: row for id_, row in rebuilt.items() if id_ in entries and row.digest == entries[id_].digest}
    return RebuildState(unfinished, fingerprint, exchanged, entries, same)


def awaits_rebuild(folder: Path, settings: LibrarySettings) -> bool:
    """Whether a library is to be rebuilt once it has a document; this opens nothing."""
    return holds_library(folder) and (settings.plan == "deepen" or (folder / NEXT_SETTINGS).exists())


def rebuild_library(
    folder: Path,
    settings: LibrarySettings,
    embedder: Embedder,
    report: Report | None = None,
    state: RebuildState | None = None,
) -> WriteReport | None:
    """Embed the stored texts again, also of a library that an earlier version wrote.

    The library answers from its old vectors until all new ones are written. The caller must hold the lock of the
    library, also when it read the `state`. After an interruption, the same call continues; it returns None if only the
    settings were left to write. An error that a retry would meet again leaves no unfinished rebuild behind.
    """
    if settings.late is not None:
        settings = replace(settings, late=settings.late and embedder.can_embed_spans)
    state = state or read_state(folder)
    restart = (state.unfinished, state.fingerprint) != (settings, embedder.fingerprint)
    if state.exchanged and state.unfinished is not None:
        _write_new_settings(folder, state.unfinished)
        if not restart:
            return None
    write_next_settings(folder, settings, embedder.fingerprint)
    try:
        done = reindex(
            folder / DATABASE_FOLDER,
            INDEX_NAME,
            embedder,
            passage_size=settings.passage_size,
            late=settings.late,
            restart=restart,
            progress=None if report is None else _Meter(replace(state, rebuilt={}) if restart else state, report),
        )
    except (InvalidParameter, IncompatibleMethods, NotFinite, ZeroVector, NoIndex):  # a retry would fail again
        (folder / NEXT_SETTINGS).unlink(missing_ok=True)
        raise
    _write_new_settings(folder, settings)
    return done


def finish_rebuild(folder: Path) -> None:
    """Write the settings of a rebuild whose index is in place already."""
    exchanged = exchanged_settings(folder)
    if exchanged is not None:
        _write_new_settings(folder, exchanged)


def change_plan(folder: Path, settings: LibrarySettings) -> None:
    """Store another plan of a library; one that shall stay as it is forgets an unfinished rebuild."""
    stored = read_settings(folder)
    if stored.plan == settings.plan:
        return
    if settings.plan == "fast":
        (folder / NEXT_SETTINGS).unlink(missing_ok=True)
        with open_stored(folder) as index:
            index.discard_rebuilt()
    write_settings(folder, replace(stored, plan=settings.plan))


def _write_new_settings(folder: Path, settings: LibrarySettings) -> None:
    write_settings(folder, settings)
    (folder / NEXT_SETTINGS).unlink(missing_ok=True)


class _Meter:
    """Makes `RebuildProgress` of what an index reports."""

    def __init__(self, state: RebuildState, report: Report) -> None:
        self._report, self._before = report, state.progress
        self._characters = sum(entry.characters for id_, entry in state.entries.items() if id_ not in state.rebuilt)
        self._marks = deque([(time.monotonic(), 0.0)])  # when which share was done

    def __call__(self, characters: float, written: int) -> None:
        before, marks = self._before, self._marks
        now, seconds = min(characters / max(self._characters, 1), 1.0) * (1 - before.done), time.monotonic()
        if now > marks[-1][1]:
            marks.append((seconds, now))
        while len(marks) > 2 and marks[1][0] <= seconds - _MEASURED_SECONDS:
            marks.popleft()
        (since, first), (until, last) = marks[0], marks[-1]
        measured = until - since
        speed = (last - first) * before.tokens / measured if measured >= _MEASURED_SECONDS else None
        self._report(replace(before, done=before.done + now, written=before.written + written, speed=speed or None))
