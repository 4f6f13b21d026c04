"""Systems on tasks: what shares passes is embedded together, and what is known already is not computed again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eddy_embed import __version__, methods
from eddy_embed.analysis.evaluate import baselines
from eddy_embed.analysis.evaluate.metrics import accuracy, cross_validated, ndcg, odd_one_out, recall, reciprocal_rank
from eddy_embed.analysis.evaluate.results import Cost, ResultStore, TaskResult
from eddy_embed.analysis.evaluate.systems import WORDS, System
from eddy_embed.analysis.evaluate.task_vectors import TaskVectors, embed
from eddy_embed.analysis.evaluate.tasks import OddOneOut, Pairs, Retrieval, digest
from eddy_embed.model.fingerprint import digest as hashed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddy_embed.analysis.evaluate.tasks import Task
    from eddy_embed.embedder import Embedder

    Doubles = NDArray[np.float64]
    Todo = dict[str, dict[str, list[System]]]
    Identities = dict[tuple[System, str], dict[str, Any]]

Step = Callable[[str, int, int], None]
"""Told what is under way, and how many sequences of it are done of how many."""
Said = Callable[[str], None]
"""Told of every outcome, in a line."""


@dataclass(eq=False)
class Evaluation:
    """Runs systems on tasks.

    Attributes:
        open_embedder: Gives an embedder for a method without post-processing.
        passage_size: Most tokens in a passage; a document is found by its best passage.
        journal: Keeps outcomes.
        said: Told of every outcome, in a line.
        step: Told of progress.
    """

    open_embedder: Callable[[str], Embedder]
    passage_size: int = 256
    journal: ResultStore | None = None
    said: Said = lambda _: None
    step: Step = lambda *_: None

    def run(self, systems: list[System], tasks: list[Task]) -> list[TaskResult]:
        """Outcomes of every system on every task, except where one has nothing to say on a kind of task.

        So have baselines of another kind, and, where words are asked for, methods that read one token only.

        Args:
            systems: Each once.
            tasks: Each once.
        """
        journal = self.journal or ResultStore(None)
        known = {task.name: task for task in tasks}
        wanted = [(system, task) for system in systems for task in tasks if applies(system, task)]
        identities, backbone = self._identified(wanted)
        todo: Todo = {}
        for system, task in wanted:
            if journal.find(system, task.name, identities[system, task.name]) is None:
                if journal.holds(system, task.name):
                    self.said(f"{task.name}: {system.label}: model, data or settings have changed, measured again")
                family = system.text if system.text in WORDS else system.family
                todo.setdefault(family, {}).setdefault(task.name, []).append(system)
            else:
                self.said(f"{task.name}: {system.label}: measured before")
        for group in todo.values():
            for name, outcome in self._group(group, known, identities, backbone):
                journal.add(outcome)
                self.said(f"{name}: {outcome.system.label}: {outcome.metric} {outcome.score():.4f}")
        found = (journal.find(system, task.name, identities[system, task.name]) for system, task in wanted)
        return [outcome for outcome in found if outcome is not None]

    def identities(self, systems: list[System], tasks: list[Task]) -> Identities:
        """What the outcome of every system on every task that it applies to would follow from, without measuring it."""
        return self._identified([(system, task) for system in systems for task in tasks if applies(system, task)])[0]

    def _identified(self, wanted: list[tuple[System, Task]]) -> tuple[Identities, Any]:
        with self.open_embedder("plain") as embedder:
            backbone = embedder.backbone
            model = {"fingerprint": embedder.fingerprint, "backbone": backbone, **_where(embedder)}
        data = {task.name: digest(task) for task in {task.name: task for _, task in wanted}.values()}
        found = {(system, task.name): self._identity(system, task, data[task.name], model) for system, task in wanted}
        return found, backbone

    def _identity(self, system: System, task: Task, data: str, model: dict[str, Any]) -> dict[str, Any]:
        about: dict[str, Any] = {"version": __version__, "data": data}
        if system.text in WORDS:
            return about
        resolved = methods.resolve(system.method, model["backbone"])
        about |= {key: value for key, value in model.items() if key != "backbone"}
        about["method"] = hashed(resolved.settings)
        if isinstance(task, Retrieval):
            about["passage_size"] = self.passage_size
        return about

    def _group(self, group: dict[str, list[System]], tasks: dict[str, Task], identities: Any, backbone: Any) -> Any:
        first = next(iter(group.values()))[0]
        if first.text in WORDS:
            for name, systems in group.items():
                for system in systems:
                    yield name, self._words(system, tasks[name], identities[system, name])
            return
        layers = {
            system: methods.resolve(system.method, backbone).exit_layer
            for systems in group.values()
            for system in systems
        }
        deepest = max(layers, key=lambda system: layers[system])
        text = str(methods.with_post(deepest.method, None))
        with self.open_embedder(text) as embedder:
            for name, systems in group.items():
                needed = sorted({layers[system] for system in systems})
                about = f"{name}: {text}"
                self.step(about, 0, 0)
                found = embed(
                    embedder,
                    needed,
                    tasks[name],
                    self.passage_size,
                    lambda done, total, _, about=about: self.step(about, done, total),  # type: ignore[misc]
                )
                at = dict(zip(needed, found, strict=True))
                for system in systems:
                    vectors = len(at[layers[system]].library)
                    if (system.fit_on or 0) > vectors:
                        self.said(f"{name}: {system.label}: left out, there are only {vectors} vectors to fit on")
                        continue
                    yield name, _judged(system, tasks[name], at[layers[system]], identities[system, name])

    def _words(self, system: System, task: Task, identity: dict[str, Any]) -> TaskResult:
        if isinstance(task, Retrieval):
            metrics = _retrieval(task, baselines.bm25(task))
        else:
            pairs = cast("Pairs", task)
            metrics = {"spearman": np.stack([baselines.overlap(pairs), np.array(pairs.gold)], axis=1)}
        return TaskResult(system, task.name, metrics, Cost(), identity)


def applies(system: System, task: Task) -> bool:
    """Whether a system has anything to say on a kind of task."""
    kinds = {"bm25": Retrieval, "overlap": Pairs}
    if system.text in kinds:
        return isinstance(task, kinds[system.text])
    if isinstance(task, OddOneOut) and not system.method.reads_words:
        return False
    return not system.query_mean or isinstance(task, Retrieval)


def _where(embedder: Embedder) -> dict[str, str]:
    """What changes digits and times, and is not in a fingerprint."""
    host = embedder._pipeline.open_runner.host
    return {"dtype": str(host.dtype).removeprefix("torch."), "device": host.device.type}


def _judged(system: System, task: Task, vectors: TaskVectors, identity: dict[str, Any]) -> TaskResult:
    post = system.method.post
    if post is not None:
        vectors = vectors.processed(post, query_mean=system.query_mean, fit_on=system.fit_on)
    library, asked = vectors.library, vectors.asked
    if isinstance(task, Pairs):
        cosines = np.einsum("nd,nd->n", library[vectors.pairs[:, 0]], library[vectors.pairs[:, 1]])
        metrics = {"spearman": np.stack([cosines, np.array(task.gold)], axis=1)}
    elif isinstance(task, Retrieval):
        first_passages = np.flatnonzero(np.diff(vectors.owners, prepend=-1))
        metrics = _retrieval(task, np.maximum.reduceat(asked @ library.T, first_passages, axis=1))
    elif isinstance(task, OddOneOut):
        metrics = {"accuracy": odd_one_out(library, vectors.owners, np.array(task.answers))}
    elif task.test_texts:
        metrics = {"accuracy": accuracy(library, task.labels, asked, task.test_labels)}
    else:
        metrics = {"accuracy": cross_validated(library, task.labels)}
    return TaskResult(system, task.name, metrics, vectors.cost, identity)


def _retrieval(task: Retrieval, scores: Doubles) -> dict[str, Doubles]:
    """Metrics of every query, from the scores of all documents, shape (queries, documents)."""
    rows: dict[str, list[float]] = {}
    for grades, row in zip(task.grades, scores, strict=True):
        order = np.argsort(-row, kind="stable")[:100]
        found = np.array([grades.get(task.ids[at], 0.0) for at in order])
        ideal = np.array(list(grades.values()))
        values = {"ndcg@10": ndcg(found, ideal), "recall@10": recall(found, ideal, 10)}
        if len(task.ids) > 100:
            values["recall@100"] = recall(found, ideal, 100)
        values["mrr@10"] = reciprocal_rank(found)
        for metric, value in values.items():
            rows.setdefault(metric, []).append(value)
    return {metric: np.array(values) for metric, values in rows.items()}
