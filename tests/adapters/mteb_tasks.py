"""MTEB's own tasks with small data of ours in place of theirs, so that nothing is downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from datasets import Dataset

from mteb_eddy.tasks import find_task

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

TEXTS = [
    *("The ferry leaves at noon.", "A boat needs a mooring.", "Sailors watch the tide.", "The harbour is calm."),
    *("Bread needs flour.", "Steam keeps the crust soft.", "Dough rises in the warmth.", "The oven is hot."),
]
PAIRS = [(TEXTS[at], TEXTS[(at + step) % 8], 5 - step) for at in range(3) for step in range(1, 4)]


def stand_in(spec: str) -> AbsTask:
    """A task as MTEB defines it, its data already there."""
    task = find_task(spec)
    data = KINDS[task.metadata.type](task)
    task.dataset = {"default": data} if task.metadata.type == "Retrieval" else data
    task.data_loaded = True
    return task


def _retrieval(task: AbsTask) -> dict[str, Any]:
    split = {
        "corpus": Dataset.from_list([{"id": f"d{at}", "title": "", "text": text} for at, text in enumerate(TEXTS)]),
        "queries": Dataset.from_list([{"id": "q0", "text": "When does a boat leave?"}, {"id": "q1", "text": "Flour"}]),
        "relevant_docs": {"q0": {"d0": 1, "d1": 1}, "q1": {"d4": 1}},
        "top_ranked": None,
    }
    return dict.fromkeys(task.eval_splits, split)


def _pairs(task: AbsTask) -> dict[str, Any]:
    first, second, scores = zip(*PAIRS, strict=True)
    rows = Dataset.from_dict({"sentence1": first, "sentence2": second, "score": scores})
    return dict.fromkeys(task.eval_splits, rows)


KINDS = {"Retrieval": _retrieval, "STS": _pairs}
