"""What a long command shows of its work."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from eddy_embed.utils.progress import new_bar

if TYPE_CHECKING:
    from rich.progress import Progress


class Bar:
    """Lines for what is done, and on a terminal a bar for what is under way, on standard error."""

    def __init__(self) -> None:
        self._bar: Progress | None = None

    def __enter__(self) -> Bar:
        if sys.stderr.isatty():
            self._bar = new_bar(transient=True)
            self._bar.add_task("", total=None)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, line: str) -> None:
        """A line that stays."""
        if self._bar is None:
            typer.echo(line, err=True)
        else:
            self._bar.console.print(line, markup=False, highlight=False)

    def step(self, what: str, done: int, total: int) -> None:
        """So much of this is done."""
        if self._bar is not None:
            # Sequences become known by and by, so the total grows.
            self._bar.update(self._bar.task_ids[0], description=what, completed=done, total=total or None)
