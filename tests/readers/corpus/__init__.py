"""Small files, each of a kind, with what a reader sees of them, or why they are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """A file with what is right of it; None stands for what its kind is not about."""

    suffix: str
    data: bytes | Callable[[], bytes]
    text: str | None = None
    title: str | None = None
    notes: tuple[str, ...] | None = None
    pages: tuple[str, ...] | None = None  # first line of each
    page_labels: tuple[str, ...] | None = None
    reason: str | None = None  # how it begins, of a file that is refused
