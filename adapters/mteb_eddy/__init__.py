"""Eddy in MTEB: an encoder, the tables of the methods' papers as suites, LoCoV1, and the cost of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddy_embed.utils.extras import import_lazily

if TYPE_CHECKING:
    from mteb_eddy.encoder import EddyEncoder
    from mteb_eddy.locov1 import LoCoV1
    from mteb_eddy.runner import evaluate, run_suite
    from mteb_eddy.suites import instructions, suite, suite_names

__all__ = ["EddyEncoder", "LoCoV1", "evaluate", "instructions", "run_suite", "suite", "suite_names"]
_MODULES = {
    "EddyEncoder": "encoder",
    "LoCoV1": "locov1",
    "evaluate": "runner",
    "run_suite": "runner",
    "instructions": "suites",
    "suite": "suites",
    "suite_names": "suites",
}


def __getattr__(name: str) -> Any:
    return import_lazily(__name__, _MODULES, name, "mteb")
