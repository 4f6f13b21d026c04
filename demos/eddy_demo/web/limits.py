"""Limits of the server; it refuses what exceeds them with a plain message."""

from __future__ import annotations

from dataclasses import dataclass

from readers_eddy.content import ReadingLimits


@dataclass(frozen=True)
class Limits(ReadingLimits):
    """Limits of one server, also of the files that it receives."""

    queued_files: int = 500  # that are being received, wait, or failed
    watched_folders: int = 20
    body_bytes: int = 64 * 2**10  # of any other request body
    question_characters: int = 2_000
    questions: int = 200  # that run or wait for an answer
    concurrent_searches: int = 4  # at the same time
    listeners: int = 32  # open pages that receive progress events
    page_seconds: float = 20.0  # for drawing one page of a PDF file
    waiting_pages: int = 32  # that are drawn, one at a time, or wait for it
