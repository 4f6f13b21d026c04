"""MTEB's own tasks with small data of ours in place of theirs, so that nothing is downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from datasets import Dataset

from mteb_eddy.runner import find_task

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

TOPICS = {
    "boats": [
        "The ferry leaves at noon.",
        "A boat needs a mooring.",
        "Sailors watch the tide.",
        "The harbour is calm.",
    ],
    "bread": ["Bread needs flour.", "Steam keeps the crust soft.", "Dough rises in the warmth.", "The oven is hot."],
}
TEXTS = [text for texts in TOPICS.values() for text in texts]
LABELS = [label for label, texts in TOPICS.items() for _ in texts]
PAIRS = [(TEXTS[at], TEXTS[(at + step) % 8], 5 - step) for at in range(3) for step in range(1, 4)]


def stand_in(spec: str) -> AbsTask:
    """A task as MTEB defines it, its data already there."""
    task = find_task(spec)
    data = KINDS[task.metadata.type](task)
    nested = task.metadata.is_multilingual or task.metadata.type in ("Retrieval", "Reranking")
    subsets = task.hf_subsets if task.metadata.is_multilingual else ["default"]
    task.dataset = {subset: data for subset in subsets} if nested else data
    task.data_loaded = True
    return task


def _each_split(task: AbsTask, rows: Any) -> dict[str, Any]:
    return {split: rows for split in task.eval_splits}


def _retrieval(task: AbsTask) -> dict[str, Any]:
    ids = [f"d{at}" for at in range(len(TEXTS))]
    split = {
        "corpus": Dataset.from_list([{"id": i, "title": "", "text": t} for i, t in zip(ids, TEXTS, strict=True)]),
        "queries": Dataset.from_list([{"id": "q0", "text": "When does a boat leave?"}, {"id": "q1", "text": "Flour"}]),
        "relevant_docs": {"q0": {"d0": 1, "d1": 1}, "q1": {"d4": 1}},
        "top_ranked": {"q0": ids[:6], "q1": ids[2:]} if task.metadata.type == "Reranking" else None,
    }
    return _each_split(task, split)


def _pairs(task: AbsTask) -> dict[str, Any]:
    first, second, scores = zip(*PAIRS, strict=True)
    rows = {"sentence1": first, "sentence2": second, "score": scores}
    return _each_split(task, Dataset.from_dict(rows))


def _same(task: AbsTask) -> dict[str, Any]:
    first, second, scores = zip(*PAIRS, strict=True)
    rows = {"sentence1": first, "sentence2": second, "labels": [int(score > 3) for score in scores]}
    return _each_split(task, Dataset.from_dict(rows))


def _classes(task: Any) -> dict[str, Any]:
    task.n_experiments = 2
    rows = {task.input_column_name: TEXTS, task.label_column_name: [int(label == "boats") for label in LABELS]}
    return {task.train_split: Dataset.from_dict(rows), **_each_split(task, Dataset.from_dict(rows))}


def _clusters(task: AbsTask) -> dict[str, Any]:
    return _each_split(task, Dataset.from_dict({"sentences": [TEXTS], "labels": [LABELS]}))


def _summaries(task: AbsTask) -> dict[str, Any]:
    rows = {
        "text": TEXTS[:2],
        "human_summaries": [TEXTS[:2], TEXTS[4:6]],
        "machine_summaries": [TEXTS[1:4], TEXTS[3:6]],
        "relevance": [[3.0, 2.0, 1.0], [1.0, 2.0, 4.0]],
    }
    return _each_split(task, Dataset.from_dict(rows))


KINDS = {
    "Retrieval": _retrieval,
    "Reranking": _retrieval,
    "STS": _pairs,
    "PairClassification": _same,
    "Classification": _classes,
    "Clustering": _clusters,
    "Summarization": _summaries,
}
