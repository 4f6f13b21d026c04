"""MTEB's tasks by name, those that each method's paper reports, and the instructions that HTP puts before texts."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import mteb
from mteb.abstasks import AbsTask

from eddy_embed.errors import InvalidParameter

_SPEC = re.compile(r"(?P<name>[^\[\]]+)(\[(?P<subset>[^\[\]]+)\])?")


def find_task(spec: str) -> AbsTask:
    """Find a task of MTEB, "STS12", or "STS17[en-en]" for one subset, limited to its test split if it has one.

    Raises:
        InvalidParameter: There is no such task.
    """
    match = _SPEC.fullmatch(spec)
    name, subset = (match["name"], match["subset"]) if match else (spec, None)
    try:
        task: AbsTask = mteb.get_task(name, hf_subsets=None if subset is None else [subset])
    except (KeyError, ValueError) as error:
        raise InvalidParameter(f"MTEB has no task {spec!r}: {str(error)[:200]}") from None
    if "test" in task.eval_splits:
        task.filter_eval_splits(["test"])
    return task


def suite(name: str) -> tuple[str, ...]:
    """The tasks that a method's paper reports: "htp", "kv", "reba", "tempscale" or "tp"; else InvalidParameter."""
    return tuple(_read("suites", name))


def instructions(name: str) -> dict[str, str]:
    """Instructions by MTEB's names of the tasks: "htp", tables 10 and 11 of Ding et al. 2025; else InvalidParameter."""
    return dict(_read("instructions", name))


def _read(kind: str, name: str) -> Any:
    sets = json.loads((files("mteb_eddy") / f"{kind}.json").read_text(encoding="utf-8"))
    if name not in sets:
        raise InvalidParameter(f"there are no {kind} of {name!r}; choose one of {', '.join(sets)}")
    return sets[name]["tasks"]
