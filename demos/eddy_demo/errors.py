"""What can go wrong here that is not the engine's: each message says what, the offending value, and what to do next."""

from __future__ import annotations


class DemoError(Exception):
    """Base class: the command line prints the message and ends with a non-zero status."""


class NothingToRead(DemoError):
    """The paths given lead to no document."""


class NoLibrary(DemoError):
    """The folder holds no library, or one that cannot be read."""


class LibraryMismatch(DemoError):
    """The library was made with another model, method or setting than the one asked for."""


class MissingPart(DemoError):
    """A package that the page needs is not installed."""


class ServedAlready(DemoError):
    """Another server has the library's page, and its uploads."""


class InvalidQuestion(DemoError):
    """The question is empty or not valid Unicode."""


class InvalidDefaults(DemoError):
    """The file beside a model that names its default method cannot be understood."""


class InvalidTable(DemoError):
    """A file of queries or of relevant documents cannot be understood."""


class Unreadable(DemoError):
    """One file cannot be read; its reader says why, and the other files are read."""


def one_line(error: Exception, most: int = 200) -> str:
    """The message of an error that speaks of a damaged file, and may quote from it."""
    text = " ".join(str(error).split())
    return text if len(text) <= most else f"{text[:most]} …"
