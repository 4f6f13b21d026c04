"""Progress of long work: a bar on standard error, and a callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


def new_bar() -> Bar:
    """Return a bar on standard error that counts, with one task to come."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (*Bar.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    return Bar(*columns, console=Console(stderr=True))


_LABELS = {"calibrate": "Calibrating, once", "embed": "Embedding", "rerank": "Reranking"}


class Progress:
    """Counts sequences done of those known so far."""

    def __init__(
        self, show: bool, callback: Callable[[int, int, str], None] | None = None, stage: str = "embed"
    ) -> None:
        """Show a bar if asked, once there are two sequences; call back with done, total and stage after each pass."""
        self._show = show
        self._callback = callback
        self._stage = stage
        self._bar: Bar | None = None
        self._done = 0
        self._total = 0

    def expect(self, sequences: int) -> None:
        """Expect more sequences."""
        self._total += sequences
        if self._show and self._bar is None and self._total > 1:
            self._bar = new_bar()
            self._bar.add_task(_LABELS[self._stage], completed=self._done)
            self._bar.start()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], total=self._total)

    def advance(self, sequences: int) -> None:
        """Count sequences that were run."""
        self._done += sequences
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], sequences)
        if self._callback is not None:
            self._callback(self._done, self._total, self._stage)

    def __enter__(self) -> Progress:
        """Start."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, whatever happened."""
        if self._bar is not None:
            self._bar.stop()
