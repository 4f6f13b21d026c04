"""Errors of the demo. Each message names the problem, the offending value, and the remedy."""

from __future__ import annotations


class DemoError(Exception):
    """An error that the user can fix; the command line prints the message and exits with status 1."""


class NoLibrary(DemoError):
    """The folder holds no library, or one that cannot be read."""


class DamagedLibrary(DemoError):
    """Documents of the library are damaged."""


class LibraryMismatch(DemoError):
    """The library was made with another model, method or setting than the requested one."""


class InvalidQuestion(DemoError):
    """The question is empty or not valid Unicode."""
