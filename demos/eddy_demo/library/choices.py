"""What a command or the page asks for, and whether a library can have it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eddy_demo.errors import LibraryMismatch
from eddy_demo.library.defaults import DEFAULT_PASSAGE_SIZE, default_method, default_model, method_in_full
from eddy_demo.library.index import current_settings
from eddy_demo.library.settings import LibrarySettings, Plan, check_available, holds_library, model_name

_OPTIONS = {"model": "--model", "method": "--method", "passage_size": "--passage-size", "late": "--late/--separate"}
_PLANS = {True: "--fast", False: "--best"}


def choose_settings(
    folder: Path,
    model: str | None = None,
    method: str | None = None,
    passage_size: int | None = None,
    late: bool | None = None,
    fast: bool | None = None,
) -> LibrarySettings:
    """Return the settings of the library in a folder, or those for a new one; None leaves a choice open.

    `fast` asks for a recommended method, without layers or with them; None: first without, then with them.
    """
    refuse_both(method, fast)
    stored = current_settings(folder) if holds_library(folder) else None
    own = default_model() if stored is None else stored.model
    name = own if model is None else model_name(model)
    full = None if method is None else method_in_full(name, method)
    if stored is None:
        check_available(folder)
        chosen, plan = _first_method(name, fast) if full is None else (full, "chosen")
        return LibrarySettings(name, chosen, passage_size or DEFAULT_PASSAGE_SIZE, late, plan)
    _check(folder, stored, "model", name)
    _check(folder, stored, "method", full)
    _check(folder, stored, "passage_size", passage_size)
    if stored.late is not None:
        _check(folder, stored, "late", late)
    elif late is not None:
        stored = replace(stored, late=late)  # the index refuses what it was not made with
    return stored if fast is None else _replanned(folder, stored, fast)


def refuse_both(method: str | None, fast: bool | None) -> None:
    """Refuse a method together with the choice of a recommended one."""
    if fast is not None and method is not None:
        raise LibraryMismatch(
            f"{_PLANS[fast]} chooses the method, and so does --method {method}: leave out one of them"
        )


def _first_method(model: str, fast: bool | None) -> tuple[str, Plan]:
    """Return the method that a new library begins with."""
    quick, best = default_method(model, "fast"), default_method(model)
    if fast is None and quick != best:
        return quick, "deepen"
    return (quick, "fast") if fast else (best, "best")


def _replanned(folder: Path, stored: LibrarySettings, fast: bool) -> LibrarySettings:
    wanted = default_method(stored.model, "fast" if fast else "best")
    if stored.plan in ("fast", "deepen"):
        return replace(stored, plan="fast" if fast else "best" if stored.method == wanted else "deepen")
    _check(folder, stored, "method", wanted, _PLANS[fast])
    return stored


def _check(folder: Path, stored: LibrarySettings, name: str, wanted: object, option: str | None = None) -> None:
    """Refuse a choice, if it is one (not None), that is not the library's."""
    here = getattr(stored, name)
    if wanted is not None and here != wanted:
        given = option or f"{_OPTIONS[name]} {wanted}"
        change = "give --rebuild, which deletes it first" if name == "late" else f"`eddy-demo library rebuild {given}`"
        raise LibraryMismatch(
            f"the library in {folder} was made with {name.replace('_', ' ')} {here}, not {wanted}: leave out "
            f"{option or _OPTIONS[name]}, ingest into another folder with --library, or change the library: {change}"
        )
