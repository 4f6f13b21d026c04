"""Rows of cells as text, one line per row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows as lines `| cell | cell |`; rows without text are left out."""
    lines = ([" ".join(cell.split()) for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines if any(cells))
