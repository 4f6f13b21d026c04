"""How much the page takes at a time; everything beyond is refused in plain words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What the server takes.

    Attributes:
        upload_bytes: Most bytes of a file.
        waiting: Most files that are received, wait to be written, or failed.
        body_bytes: Most bytes of any other request.
        question: Most characters of a question.
        askers: Most questions that wait for an answer.
        at_once: Questions that are embedded and searched at a time.
        listeners: Most open pages that are told of progress.
        parse_seconds: Most seconds of reading one file.
        parse_bytes: Most memory of the process that reads a file.
        pages: Most pages of a PDF file.
        characters: Most characters of a document's text.
        together: Characters of files read, from which on no more are read before these are written.
        compared: Most characters of a document that is embedded anew to compare two methods.
        explained: Most characters of a text that is explained.
    """

    upload_bytes: int = 64 * 2**20
    waiting: int = 500
    body_bytes: int = 64 * 2**10
    question: int = 2_000
    askers: int = 200
    at_once: int = 4
    listeners: int = 32
    parse_seconds: float = 120.0
    parse_bytes: int = 2 * 2**30
    pages: int = 5_000
    characters: int = 20_000_000
    together: int = 20_000_000
    compared: int = 200_000
    explained: int = 600
