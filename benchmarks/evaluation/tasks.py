"""Tasks read from a folder: pairs in `sts/`, collections in `retrieval/`, labels in `classification/`."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eddy_embed.errors import InvalidParameter


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts with the similarity that people gave them; scored by Spearman's correlation."""

    name: str
    first: list[str]
    second: list[str]
    gold: list[float]


@dataclass(frozen=True)
class Retrieval:
    """Documents, queries, and grades of the relevant ones; scored by nDCG@10, recall and MRR@10.

    A document's text begins with its title. Each query has a relevant document; its grades, all above 0, are by the
    document's id. No system can find the blank documents, which have no text; they stay in the grades.
    """

    name: str
    ids: list[str]
    texts: list[str]
    queries: list[str]
    grades: list[dict[str, float]]
    blank: int


@dataclass(frozen=True)
class Classification:
    """Labelled texts; scored by accuracy, by cross-validation where there is no test set."""

    name: str
    texts: list[str]
    labels: list[str]
    test_texts: list[str]
    test_labels: list[str]


Task = Pairs | Retrieval | Classification


def digest(task: Task) -> str:
    """Hash of a task's texts and gold."""
    return hashlib.sha256(json.dumps(asdict(task), sort_keys=True).encode()).hexdigest()[:16]


def find_tasks(folder: Path, names: list[str] | None = None) -> list[Task]:
    """Tasks of a folder, in the order of their names, or those named."""
    readers: dict[str, Any] = {}
    for path in sorted((folder / "sts").glob("*.jsonl*")):
        readers[_stem(path)] = (_pairs, path)
    for path in sorted((folder / "retrieval").glob("*/corpus.jsonl*")):
        readers[path.parent.name] = (_retrieval, path.parent)
    for path in sorted((folder / "classification").glob("*.jsonl*")):
        if not _stem(path).endswith("_test"):
            readers[_stem(path).removesuffix("_train")] = (_classification, path)
    if not readers:
        raise InvalidParameter(f"no tasks in {folder}; it needs sts/, retrieval/ or classification/")
    unknown = [name for name in names or [] if name not in readers]
    if unknown:
        raise InvalidParameter(f"no task {unknown[0]!r} in {folder}; there are {', '.join(readers)}")
    return [read(path) for name, (read, path) in readers.items() if not names or name in names]


def _pairs(path: Path) -> Pairs:
    rows = list(_rows(path))
    gold = [float(row["score"]) for row in rows]
    return Pairs(_stem(path), [row["a"] for row in rows], [row["b"] for row in rows], gold)


def _retrieval(folder: Path) -> Retrieval:
    corpus = [
        (str(row["id"]), "\n\n".join(part for part in (row.get("title", "").strip(), row["text"].strip()) if part))
        for row in _rows(min(folder.glob("corpus.jsonl*")))
    ]
    ids, texts = [key for key, text in corpus if text], [text for _, text in corpus if text]
    grades: dict[str, dict[str, float]] = {}
    with (folder / "qrels.tsv").open(encoding="utf-8", newline="") as table:
        for query, document, grade in list(csv.reader(table, delimiter="\t"))[1:]:
            if float(grade) > 0:
                grades.setdefault(query, {})[document] = float(grade)
    queries = {str(row["id"]): row["text"] for row in _rows(folder / "queries.jsonl")}
    asked = [key for key in queries if key in grades]
    if not asked:
        raise InvalidParameter(f"no query of {folder} has a relevant document; check that the ids agree")
    blank = len(corpus) - len(ids)
    return Retrieval(folder.name, ids, texts, [queries[key] for key in asked], [grades[key] for key in asked], blank)


def _classification(path: Path) -> Classification:
    train = list(_rows(path))
    test = list(_rows(path.with_name(path.name.replace("_train", "_test")))) if "_train" in path.name else []
    return Classification(
        _stem(path).removesuffix("_train"),
        [row["text"] for row in train],
        [str(row["label"]) for row in train],
        [row["text"] for row in test],
        [str(row["label"]) for row in test],
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise InvalidParameter(f"{path}, line {number}: {error}") from None


def _stem(path: Path) -> str:
    return path.name.split(".jsonl")[0]
