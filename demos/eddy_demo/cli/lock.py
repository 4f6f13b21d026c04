"""The lock of a library for a command, which waits for a process that reads the library more closely."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.text import Text

from chroma_eddy import IndexInUse
from eddy_demo.cli.options import err
from eddy_demo.library.library_lock import lock_library
from eddy_demo.library.rebuild import awaits_rebuild, read_state
from eddy_demo.library.settings import holds_library, read_settings
from eddy_embed.utils.interrupts import Interrupted

_POLL = 1.0
"""Seconds between two looks at another process."""


@contextmanager
def lock_for_command(folder: Path) -> Iterator[None]:
    """Lock a library for a command, and add to an interruption the hint how to continue.

    Raises:
        IndexInUse: Another process writes, and is not rebuilding the library, which takes long.
    """
    try:
        with ExitStack() as held:
            _lock(held, folder)
            yield
    except (KeyboardInterrupt, Interrupted) as error:
        stop = error if isinstance(error, Interrupted) else Interrupted()
        stop.hint = stop.hint or "Run the same command again to go on where it stopped."
        raise stop from None


def _lock(held: ExitStack, folder: Path) -> None:
    try:
        held.enter_context(lock_library(folder))
    except IndexInUse as error:
        _wait(held, folder, error)


def _wait(held: ExitStack, folder: Path, error: IndexInUse) -> None:
    """Lock a library as soon as the process that rebuilds it is done."""
    if not holds_library(folder) or not awaits_rebuild(folder, settings := read_settings(folder)):
        raise error
    what = "is reading it more closely" if settings.plan == "deepen" else "is making it anew"
    err.print(Text(f"{folder}: {error.holder} {what}. Waiting until that is done; meanwhile the library can be asked."))
    with err.status("") as status:
        while True:
            status.update(f"Waiting, {read_state(folder).progress.done:.0%} …")
            time.sleep(_POLL)
            try:
                held.enter_context(lock_library(folder))
            except IndexInUse:
                continue
            return
