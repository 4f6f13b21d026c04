"""Eddy in MTEB: a conforming encoder, the tables of the methods' papers as suites, LoCoV1, and what a run cost."""

from __future__ import annotations

import importlib
from typing import Any

# Each is imported when it is asked for: mteb takes seconds, and the command line has to list its commands without it.
_HOMES = {
    "EddyEncoder": "encoder",
    "LoCoV1": "locov1",
    "evaluate": "runner",
    "run_suite": "runner",
    "instructions": "suites",
    "suite": "suites",
    "suite_names": "suites",
}

__all__ = ["EddyEncoder", "LoCoV1", "evaluate", "instructions", "run_suite", "suite", "suite_names"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
