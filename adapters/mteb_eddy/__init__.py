"""Eddy in MTEB: an encoder, the tables of the methods' papers as suites, LoCoV1, and the cost of a run."""

from __future__ import annotations

import importlib
from typing import Any

from eddy_embed.utils.extras import importing

# Imported on first use: mteb takes seconds, and the command line lists its commands without it.
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
    with importing("mteb"):
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
