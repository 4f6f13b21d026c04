"""Limits of the server; it refuses what exceeds them with a plain message."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one server."""

    upload_bytes: int = 64 * 2**20  # of an uploaded file
    queued_files: int = 500  # that are being received, wait, or failed
    body_bytes: int = 64 * 2**10  # of any other request body
    question_characters: int = 2_000
    questions: int = 200  # that run or wait for an answer
    concurrent_searches: int = 4  # at the same time
    listeners: int = 32  # open pages that receive progress events
    parse_seconds: float = 120.0  # for reading one file
    parse_bytes: int = 2 * 2**30  # memory of the process that reads a file
    pages: int = 5_000  # of a PDF file
    page_seconds: float = 20.0  # for drawing one page of it
    waiting_pages: int = 32  # that are drawn, one at a time, or wait for it
    characters: int = 20_000_000  # of a document's text
    batch_characters: int = 20_000_000  # from which the writer takes no more files into a batch
    comparison_characters: int = 200_000  # of a document for a comparison of two methods
    explained_characters: int = 600  # of a text to explain
