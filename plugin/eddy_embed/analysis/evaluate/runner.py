"""Systems on tasks: what shares passes is embedded together, and what is known already is not computed again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from eddy_embed import methods
from eddy_embed.analysis.evaluate.metrics import accuracy, cross_validated, ndcg, odd_one_out, recall, reciprocal_rank
from eddy_embed.analysis.evaluate.results import Cost, ResultStore, TaskResult
from eddy_embed.analysis.evaluate.systems import WORDS, System
from eddy_embed.analysis.evaluate.task_vectors import TaskVectors, embed
from eddy_embed.analysis.evaluate.tasks import OddOneOut, Pairs, Retrieval, Task, digest
from eddy_embed.embedder import Embedder
from eddy_embed.encoding.finalize import VectorFinalizer
from eddy_embed.encoding.validation import PASSAGE_SIZE
from eddy_embed.errors import InvalidParameter
from eddy_embed.model.fingerprint import digest as hashed
from eddy_embed.reranker import LIKELIHOOD, PROMPT, Reranker
from eddy_embed.text.general import general_text
from eddy_embed.utils.arrays import Doubles, Ints
from eddy_embed.utils.version import __version__

Identities = dict[tuple[System, str], dict[str, Any]]
Step = Callable[[str, int, int], None]
"""Told what is under way, and how many sequences of it are done of how many."""
Said = Callable[[str], None]
"""Told of every outcome, in a line."""


@dataclass(eq=False)
class Evaluation:
    """Runs systems on tasks, and keeps outcomes in a journal.

    `open_embedder` gives an embedder for a method without post-processing; `passage_size` is the most tokens in a
    passage: a document is found by its best one. `late` and `passage_size` are those of `Embedder.encode_long`; methods
    that read one token always embed each passage by itself. `open_reranker` gives the judge of systems that re-rank.
    """

    open_embedder: Callable[[str], Embedder]
    passage_size: int = PASSAGE_SIZE
    journal: ResultStore | None = None
    said: Said = lambda _: None
    step: Step = lambda *_: None
    late: bool = True
    open_reranker: Callable[[], Reranker] | None = None

    def run(self, systems: list[System], tasks: list[Task]) -> list[TaskResult]:
        """Outcomes of every system on every task, each given once, except where one has nothing to say on a task.

        So have baselines of another kind, and, where words are asked for, methods that read one token only.
        """
        journal = self.journal or ResultStore(None)
        known = {task.name: task for task in tasks}
        wanted = [(system, task) for system in systems for task in tasks if applies(system, task)]
        identities, backbone = self._identified(wanted)
        todo: dict[str, dict[str, list[System]]] = {}
        for system, task in wanted:
            if journal.find(system, task.name, identities[system, task.name]) is not None:
                self.said(f"{task.name}: {system.label}: measured before")
                continue
            if journal.holds(system, task.name):
                self.said(f"{task.name}: {system.label}: model, data or settings have changed, measured again")
            family = system.text if system.text in WORDS else system.family
            todo.setdefault(family, {}).setdefault(task.name, []).append(system)
        for group in todo.values():
            for outcome in self._group(group, known, identities, backbone):
                journal.add(outcome)
                self.said(f"{outcome.task}: {outcome.system.label}: {outcome.metric} {outcome.score():.4f}")
        found = (journal.find(system, task.name, identities[system, task.name]) for system, task in wanted)
        return [outcome for outcome in found if outcome is not None]

    def identities(self, systems: list[System], tasks: list[Task]) -> Identities:
        """What the outcome of every system on every task that it applies to would follow from, without measuring it."""
        return self._identified([(system, task) for system in systems for task in tasks if applies(system, task)])[0]

    def _identified(self, wanted: list[tuple[System, Task]]) -> tuple[Identities, Any]:
        """What each outcome follows from, and the model's backbone."""
        with self.open_embedder("plain") as embedder:
            backbone, host = embedder.backbone, embedder._pipeline.open_runner.host
            # The dtype and the device change digits and times, and are not in a fingerprint.
            dtype = str(host.dtype).removeprefix("torch.")
            model = {"fingerprint": embedder.fingerprint, "dtype": dtype, "device": host.device.type}
        data = {task.name: digest(task) for task in {task.name: task for _, task in wanted}.values()}
        found: Identities = {}
        for system, task in wanted:
            about = found[system, task.name] = {"version": __version__, "data": data[task.name]}
            if system.text not in WORDS:
                about |= {**model, "method": hashed(methods.resolve(system.method, backbone).settings)}
                if system.learns:
                    about["fitted"] = general_text().name if system.fit_on is None else "on its texts"
                if isinstance(task, Retrieval):
                    about["passage_size"] = self.passage_size
                    if not self.late and system.method.can_embed_spans:
                        about["late"] = False
                if system.judged:
                    about["judged"] = {"first": system.judged, "prompt": PROMPT, "likelihood": LIKELIHOOD}
        return found, backbone

    def _group(
        self, group: dict[str, list[System]], tasks: dict[str, Task], identities: Identities, backbone: Any
    ) -> Iterator[TaskResult]:
        """Outcomes of the systems of one family, by task."""
        every = [system for systems in group.values() for system in systems]
        if every[0].text in WORDS:
            for name, systems in group.items():
                for system in systems:
                    metrics = _shared_words(system, tasks[name])
                    yield TaskResult(system, name, metrics, Cost(), identities[system, name])
            return
        layers = {system: methods.resolve(system.method, backbone).exit_layer for system in every}
        deepest = max(layers, key=lambda system: layers[system])
        # Before another embedder is open, so that the model is in memory once.
        calibrated = {text: self._calibrated(text) for text in {each.text for each in every if each.learns}}
        if any(each.judged for each in every):
            _ = self._reranker  # a model that cannot judge is refused before the work
        text = str(methods.with_post(deepest.method, None))
        with self.open_embedder(text) as embedder:
            bare = embedder._pipeline.finish
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
                    late=self.late,
                )
                at = dict(zip(needed, found, strict=True))
                for system in systems:
                    vectors = at[layers[system]]
                    if isinstance(system.fit_on, int) and system.fit_on > len(vectors.library):
                        few = f"left out, there are only {len(vectors.library)} vectors to fit on"
                        self.said(f"{name}: {system.label}: {few}")
                        continue
                    finish = calibrated.get(system.text, replace(bare, post=system.method.post))
                    if system.fit_on is not None:
                        finish = vectors.fitted(finish, None if system.fit_on == "all" else system.fit_on)
                    if system.judged:
                        yield self._reranked(system, cast("Retrieval", tasks[name]), vectors, finish, identities)
                    else:
                        yield _scored(system, tasks[name], vectors, finish, identities[system, name])

    @cached_property
    def _reranker(self) -> Reranker:
        if self.open_reranker is None:
            raise InvalidParameter("systems that re-rank need open_reranker=")
        return self.open_reranker()

    def _reranked(
        self, system: System, task: Retrieval, vectors: TaskVectors, finish: VectorFinalizer, identities: Identities
    ) -> TaskResult:
        """A system's outcome where the model judges each query's first passages, as `Index.query(rerank=True)`."""
        judge, began, positions = self._reranker, time.perf_counter(), 0
        finished = vectors.finished(finish, "query")
        scores = finished.asked @ finished.library.T
        for at, query in enumerate(task.queries):
            self.step(f"{task.name}: {system.label}", at, len(task.queries))
            order = np.argsort(-scores[at], kind="stable")
            first = [vectors.passages[place] for place in order[: system.judged]]
            likelihoods = judge.scores(query, first, show_progress=False)
            scores[at, order] = judge.joined(scores[at, order], likelihoods)
            positions += sum(judge.count_tokens(query, first))
        seconds = vectors.cost.seconds + time.perf_counter() - began
        cost = replace(vectors.cost, seconds=seconds, judged=positions * judge._likelihood.host.kept)
        metrics = retrieval_metrics(task, by_document(scores, vectors.owners))
        return TaskResult(system, task.name, metrics, cost, identities[system, task.name])

    def _calibrated(self, text: str) -> VectorFinalizer:
        """What makes vectors of a method's pooled states where an `Embedder` is not fitted."""
        with self.open_embedder(text) as embedder:
            return embedder._calibrated.finish


def applies(system: System, task: Task) -> bool:
    """Whether a system can run a kind of task."""
    kinds = {"bm25": Retrieval, "overlap": Pairs}
    if system.judged and not isinstance(task, Retrieval):
        return False
    if system.text in kinds:
        return isinstance(task, kinds[system.text])
    return not isinstance(task, OddOneOut) or system.method.can_embed_words


def overlap(task: Pairs) -> Doubles:
    """Jaccard overlap of the lower-cased words of each pair, shape (pairs,)."""
    sets = [[set(re.findall(r"\w+", text.lower())) for text in side] for side in (task.first, task.second)]
    return np.array([len(a & b) / max(len(a | b), 1) for a, b in zip(*sets, strict=True)])


def bm25(task: Retrieval) -> Doubles:
    """BM25 of every document for every query, shape (queries, documents).

    Lucene's variant with k1 = 1.5 and b = 0.75, English stop words left out, words not stemmed.
    """
    import bm25s

    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index(bm25s.tokenize(task.texts, stopwords="en", show_progress=False), show_progress=False)
    queries = bm25s.tokenize(task.queries, stopwords="en", show_progress=False, return_ids=False)
    return np.stack([index.get_scores(words) for words in queries]).astype(np.float64)


def _shared_words(system: System, task: Task) -> dict[str, Doubles]:
    """Metrics of a system without a language model."""
    if isinstance(task, Retrieval):
        return retrieval_metrics(task, bm25(task))
    pairs = cast("Pairs", task)
    return {"spearman": np.stack([overlap(pairs), np.array(pairs.gold)], axis=1)}


def _scored(
    system: System, task: Task, vectors: TaskVectors, finish: VectorFinalizer, identity: dict[str, Any]
) -> TaskResult:
    vectors = vectors.finished(finish, "query" if isinstance(task, Retrieval) else "document")
    library, asked = vectors.library, vectors.asked
    if isinstance(task, Pairs):
        cosines = np.einsum("nd,nd->n", library[vectors.pairs[:, 0]], library[vectors.pairs[:, 1]])
        metrics = {"spearman": np.stack([cosines, np.array(task.gold)], axis=1)}
    elif isinstance(task, Retrieval):
        metrics = retrieval_metrics(task, by_document(asked @ library.T, vectors.owners))
    elif isinstance(task, OddOneOut):
        metrics = {"accuracy": odd_one_out(library, vectors.owners, np.array(task.answers))}
    elif task.test_texts:
        metrics = {"accuracy": accuracy(library, task.labels, asked, task.test_labels)}
    else:
        metrics = {"accuracy": cross_validated(library, task.labels)}
    return TaskResult(system, task.name, metrics, vectors.cost, identity)


def by_document(cosines: Doubles, owners: Ints) -> Doubles:
    """Each document's largest cosine, shape (queries, documents); `owners` of passages ascend from 0."""
    first_passages = np.flatnonzero(np.diff(owners, prepend=-1))
    return np.asarray(np.maximum.reduceat(cosines, first_passages, axis=1))


def retrieval_metrics(task: Retrieval, scores: Doubles) -> dict[str, Doubles]:
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
