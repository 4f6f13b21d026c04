"""Load a model, and rebuild a library with it while the progress is shown; this imports torch and Chroma."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rich.text import Text

from eddy_demo.cli import console
from eddy_demo.cli.options import err
from eddy_demo.display_text import duration
from eddy_demo.library.defaults import BUNDLED_MODEL, PREFERRED_MODEL
from eddy_demo.library.rebuild import RebuildProgress, RebuildState, read_state, rebuild_library
from eddy_demo.library.settings import LibrarySettings, holds_library, read_settings
from eddy_embed import Embedder
from eddy_embed.errors import EddyError
from eddy_embed.utils.interrupts import Interrupted

_NOTICEABLE_TOKENS = 5_000
"""Tokens from which the user is told beforehand that they are read again."""
_LONG_SECONDS = 1800.0
"""Time from which the user is told what to do about it."""


def load_embedder(settings: LibrarySettings, device: str | None) -> Embedder:
    """Load the embedder of settings, and say so meanwhile."""
    if settings.model == BUNDLED_MODEL or Path(settings.model).is_dir():
        # Nothing is downloaded, and the bars for reading files would stay on the terminal.
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with err.status(f"Loading {settings.model} with {settings.method} …") as status:
        embedder = Embedder(settings.model, method=settings.method, device=device)
        if embedder.method.post is not None:
            status.update(f"Calibrating {settings.method} for {settings.model} …")
            _ = embedder.post  # which takes some seconds the first time
        return embedder


def rebuild(
    library: Path, settings: LibrarySettings, device: str | None, state: RebuildState, what: str = "Embedding"
) -> None:
    """Embed all documents again; the caller must hold the lock of the library, and have read its state since."""
    embedder = load_embedder(settings, device)
    told = False

    with console.rebuild_bar(err, what) as show:

        def report(now: RebuildProgress) -> None:
            nonlocal told
            show(now)
            if not told and now.left is not None:
                told = True
                if now.left > _LONG_SECONDS:
                    err.print(Text(_long(now, settings), "yellow"))

        rebuild_library(library, settings, embedder, report, state)


def deepen(library: Path, device: str | None) -> None:
    """Rebuild a library that is to be deepened; it can be asked meanwhile, and after an interruption."""
    settings = read_settings(library) if holds_library(library) else None
    if settings is None or settings.plan != "deepen":
        return
    state = read_state(library)
    following = state.due(settings)
    if following is None:
        return
    began, before = time.monotonic(), state.progress
    noticeable = before.tokens * (1 - before.done) >= _NOTICEABLE_TOKENS
    if noticeable:
        ask = f'{console.program_name()} ask "..."{console.library_option(library)}'
        err.print(Text.assemble("Searchable now: ", (ask, "bold"), ", in another terminal. Ctrl-C leaves it so."))
    try:
        rebuild(library, following, device, state, "Reading more closely")
    except (KeyboardInterrupt, Interrupted) as error:
        stop = error if isinstance(error, Interrupted) else Interrupted()
        stop.hint = (
            "The library answers from its fast index. Run the same command again to read on, or with --fast to leave "
            "it so."
        )
        raise stop from None
    except EddyError:
        err.print(Text("The library answers from its fast index; --fast leaves it so.", "yellow"))
        raise
    if noticeable:
        err.print(Text(f"{library}: read more closely, with {following.method} ({time.monotonic() - began:.0f} s)."))


def _long(now: RebuildProgress, settings: LibrarySettings) -> str:
    """What else there is to do than to wait."""
    tokens, time_left = round(now.tokens * (1 - now.done)), duration(now.left or 0.0)
    if settings.model in (BUNDLED_MODEL, PREFERRED_MODEL):
        smaller = ""
    else:
        smaller = (
            f" A smaller model reads faster: eddy models get {PREFERRED_MODEL}, then {console.program_name()} library "
            f"rebuild --model {PREFERRED_MODEL}."
        )
    return (
        f"Reading {tokens:,} tokens takes about {time_left} on this machine ({now.speed or 0.0:,.0f} tokens a second). "
        f"Until then the library answers as before, also after Ctrl-C.{smaller}"
    )
