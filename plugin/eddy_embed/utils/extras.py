"""Packages of others: those of extras, whose error names the extra that installs them, and what all say on import."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from eddy_embed.errors import MissingExtra

_ANY = r"(?s)(?#during an import).*"
"""Any message; no filter of the program's is written so."""


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


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Keep to itself what packages say of themselves when transformers is imported, which imports all it could use.

    One that is not used here, such as a torchao that does not fit torch, may warn in each process. What the program
    has set for its warnings and logs is as before after the block; once transformers is there, nothing is changed.
    """
    if "transformers.modeling_utils" in sys.modules:
        yield
        return
    before = logging.root.manager.disable
    # Not `catch_warnings`, which would also take away what packages such as numpy set for good.
    warnings.filterwarnings("ignore", message=_ANY)
    quiet, filters = warnings.filters[0], cast("list[Any]", warnings.filters)
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)
        if quiet in filters:
            filters.remove(quiet)


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
