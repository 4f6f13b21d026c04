"""Limits of the server; it refuses what exceeds them with a plain message."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one server.

    Attributes:
        upload_bytes: Maximum size of an uploaded file.
        queued_files: Maximum number of files that are being received, wait, or failed.
        body_bytes: Maximum size of any other request body.
        question_characters: Maximum length of a question.
        questions: Maximum number of questions that run or wait for an answer.
        concurrent_searches: Number of questions that are embedded and searched at the same time.
        listeners: Maximum number of open pages that receive progress events.
        parse_seconds: Maximum time for reading one file.
        parse_bytes: Maximum memory of the process that reads a file.
        pages: Maximum number of pages of a PDF file.
        characters: Maximum length of a document's text.
        batch_characters: The writer stops collecting files for a batch once their texts have this many characters.
        comparison_characters: Maximum length of a document for a comparison of two methods.
        explained_characters: Maximum length of a text to explain.
    """

    upload_bytes: int = 64 * 2**20
    queued_files: int = 500
    body_bytes: int = 64 * 2**10
    question_characters: int = 2_000
    questions: int = 200
    concurrent_searches: int = 4
    listeners: int = 32
    parse_seconds: float = 120.0
    parse_bytes: int = 2 * 2**30
    pages: int = 5_000
    characters: int = 20_000_000
    batch_characters: int = 20_000_000
    comparison_characters: int = 200_000
    explained_characters: int = 600
