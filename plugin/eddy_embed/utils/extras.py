"""Packages of extras: where one is missing, the error names the extra that installs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from eddy_embed.errors import MissingExtra


@contextmanager
def importing(extra: str) -> Iterator[None]:
    """Name the extra where an import inside the block finds a package missing.

    Raises:
        MissingExtra: It does.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise _missing(error.name or str(error), extra) from None


def import_lazily(package: str, modules: Mapping[str, str], name: str, extra: str) -> Any:
    """Return a package's attribute from the module that defines it, for the package's `__getattr__`.

    A command line that imports the package at every start need not wait for what its modules import.

    Raises:
        AttributeError: `modules` does not name the module of such an attribute.
        MissingExtra: The module needs a package of the extra.
    """
    if name not in modules:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    with importing(extra):
        return getattr(import_module(f"{package}.{modules[name]}"), name)


def check_installed(extra: str, *packages: str) -> None:
    """Refuse to go on without the packages of an extra, none of which is imported.

    Raises:
        MissingExtra: One is missing.
    """
    for package in packages:
        spec = find_spec(package)
        if spec is None or spec.origin is None:  # a folder of the user's with the package's name has no origin
            raise _missing(package, extra)


def _missing(package: str, extra: str) -> MissingExtra:
    return MissingExtra(f'{package} is not installed; pip install "eddy-embed[{extra}]"')
