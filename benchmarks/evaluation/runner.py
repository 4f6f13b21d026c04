"""Systems on tasks: what shares passes is embedded together, and what is known already is not computed again."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from eddy_embed import methods
from eddy_embed.embedder import Embedder
from eddy_embed.encoding.encoder import Counts, Encoder, VectorFinalizer
from eddy_embed.encoding.validation import PASSAGE_SIZE, PASSAGES
from eddy_embed.errors import InvalidParameter
from eddy_embed.model.backbone import Backbone
from eddy_embed.parts.layout import TextRole
from eddy_embed.text.calibration import calibration_text
from eddy_embed.utils.arrays import Doubles, Floats, Ints
from eddy_embed.utils.progress import Progress
from eddy_embed.utils.settings import digest as hashed
from eddy_embed.utils.version import __version__
from evaluation.metrics import accuracy, cross_validated, ndcg, recall, reciprocal_rank
from evaluation.results import WORDS, Cost, ResultStore, System, TaskResult
from evaluation.tasks import Pairs, Retrieval, Task, digest

Identities = dict[tuple[System, str], dict[str, Any]]


# --- A task's texts as vectors


@dataclass(frozen=True, eq=False)
class TaskVectors:
    """A task's texts at one exit layer: pooled states, and once `finished` vectors of length 1, in float64.

    Attributes:
        library: Passages of the documents, the distinct texts of pairs, or the texts to be classified, shape
            (vectors, width); of states, the layers of a vector side by side.
        owners: For retrieval, the document of each library vector, shape (vectors,).
        asked: Queries, or test texts; empty for pairs, shape (texts, width).
        pairs: For pairs, the library's vectors of each, shape (pairs, 2).
        cost: Of the vectors.
    """

    library: Doubles
    owners: Ints
    asked: Doubles
    pairs: Ints
    cost: Cost

    def finished(self, finish: VectorFinalizer, role: TextRole = "document") -> TaskVectors:
        """The same texts as vectors, those that are asked in a role."""
        asked = finish(self.asked, 0, role) if len(self.asked) else self.asked[:, :0]
        return replace(self, library=finish(self.library, 0), asked=asked)


def embed(embedder: Embedder, layers: list[int], task: Task, passage_size: int) -> list[TaskVectors]:
    """A task's pooled states at each of several exit layers, by an embedder that runs all of them.

    On a terminal, a bar shows the sequences that were run.
    """
    counts = Counts()
    runner = embedder._pipeline.open_runner
    ran = runner.host.exit_layer
    pipeline = replace(
        embedder._pipeline,
        runner=runner if layers == [ran] else runner.at_layers(tuple(layers)),
        finish=VectorFinalizer(normalize=False),
        counts=counts,
    )
    started = time.perf_counter()
    with Progress(sys.stderr.isatty()) as bar:
        library, owners, asked, pairs = _vectors(pipeline, task, passage_size, embedder.can_embed_spans, bar)
    seconds = time.perf_counter() - started
    libraries, queries = (np.split(side.astype(np.float64), len(layers), axis=1) for side in (library, asked))
    # The embeddings alone count as one layer: looking them up is work too.
    costs = [Cost(seconds, counts.tokens, counts.positions, max(layer, 1), max(ran, 1)) for layer in layers]
    return [
        TaskVectors(states, owners, other, pairs, cost)
        for states, other, cost in zip(libraries, queries, costs, strict=True)
    ]


def _vectors(
    pipeline: Encoder, task: Task, passage_size: int, late: bool, bar: Progress
) -> tuple[Floats, Ints, Floats, Ints]:
    """`library`, `owners`, `asked` and `pairs` of `TaskVectors`; a vector's layers stand side by side."""

    def flat(texts: list[str], role: TextRole = "document") -> Floats:
        rows = np.empty((len(texts), pipeline.open_runner.width), np.float32)
        for at, vector in pipeline.vectors(texts, role, bar):
            rows[at] = vector
        return rows

    no_pairs = np.zeros((0, 2), np.int64)
    if isinstance(task, Retrieval):
        documents = list(pipeline.documents(task.texts, passage_size, late, bar, PASSAGES))
        library = np.stack([passage.vector for document in documents for passage in document.passages])
        owners = np.repeat(np.arange(len(documents)), [len(document.passages) for document in documents])
        return library, owners, flat(task.queries, "query"), no_pairs
    if isinstance(task, Pairs):
        number: dict[str, int] = {}
        rows = [[number.setdefault(text, len(number)) for text in side] for side in (task.first, task.second)]
        library = flat(list(number))
        return library, np.arange(len(library)), library[:0], np.array(rows, np.int64).T
    both = flat(task.texts + task.test_texts)
    library = both[: len(task.texts)]
    return library, np.arange(len(task.texts)), both[len(task.texts) :], no_pairs


# --- The measurement


@dataclass(eq=False)
class Evaluation:
    """Runs systems on tasks, and keeps outcomes in a journal.

    `open_embedder` gives an embedder for a method without post-processing. `passage_size` is the most tokens in a
    passage: a document is found by its best one. Methods that read one token embed each passage by itself, others read
    it within its document. `said` is told of every outcome, in a line.
    """

    open_embedder: Callable[[str], Embedder]
    passage_size: int = PASSAGE_SIZE
    journal: ResultStore | None = None
    said: Callable[[str], None] = lambda _: None

    def run(self, systems: list[System], tasks: list[Task]) -> list[TaskResult]:
        """Outcomes of every system on every task of a kind that it can run."""
        journal = self.journal or ResultStore(None)
        known = {task.name: task for task in tasks}
        wanted = [(system, task) for system in systems for task in tasks if applies(system, task)]
        identities, backbone = self._identified(wanted)
        todo: dict[str, dict[str, list[System]]] = {}
        for system, task in wanted:
            if journal.find(system, task.name, identities[system, task.name]) is not None:
                self.said(f"{task.name}: {system.text}: measured before")
                continue
            if journal.holds(system, task.name):
                self.said(f"{task.name}: {system.text}: model, data or settings have changed, measured again")
            todo.setdefault(system.family, {}).setdefault(task.name, []).append(system)
        for group in todo.values():
            for outcome in self._group(group, known, identities, backbone):
                journal.add(outcome)
                self.said(f"{outcome.task}: {outcome.system.text}: {outcome.metric} {outcome.score():.4f}")
        outcomes = (journal.find(system, task.name, identities[system, task.name]) for system, task in wanted)
        return [outcome for outcome in outcomes if outcome is not None]

    def identities(self, systems: list[System], tasks: list[Task]) -> Identities:
        """What the outcome of every system on every task that it applies to would follow from, without measuring it."""
        return self._identified([(system, task) for system in systems for task in tasks if applies(system, task)])[0]

    def _identified(self, wanted: list[tuple[System, Task]]) -> tuple[Identities, Backbone]:
        """What each outcome follows from, and the model's backbone."""
        with self.open_embedder("plain") as embedder:
            backbone, host = embedder.backbone, embedder._pipeline.open_runner.host
            # The dtype and the device change digits and times, and are not in a fingerprint.
            dtype = str(host.dtype).removeprefix("torch.")
            model = {"fingerprint": embedder.fingerprint, "dtype": dtype, "device": host.device.type}
        data = {task.name: digest(task) for task in {task.name: task for _, task in wanted}.values()}
        identities: Identities = {}
        for system, task in wanted:
            about = identities[system, task.name] = {"version": __version__, "data": data[task.name]}
            if system.text not in WORDS:
                about |= {**model, "method": hashed(methods.resolve(system.method, backbone).settings)}
                if system.learns:
                    about["fitted"] = calibration_text().name
                if isinstance(task, Retrieval):
                    about["passage_size"] = self.passage_size
        return identities, backbone

    def _group(
        self, group: dict[str, list[System]], tasks: dict[str, Task], identities: Identities, backbone: Backbone
    ) -> Iterator[TaskResult]:
        """Outcomes of the systems of one family, by task."""
        family = [system for systems in group.values() for system in systems]
        if family[0].text in WORDS:
            for name, systems in group.items():
                for system in systems:
                    yield TaskResult(system, name, _shared_words(tasks[name]), Cost(), identities[system, name])
            return
        layers = {system: methods.resolve(system.method, backbone).exit_layer for system in family}
        deepest = max(layers, key=lambda system: layers[system])
        # Before another embedder is open, so that the model is in memory once.
        calibrated = {text: self._calibrated(text) for text in {system.text for system in family if system.learns}}
        with self.open_embedder(str(methods.with_post(deepest.method, None))) as embedder:
            bare = embedder._pipeline.finish
            for name, systems in group.items():
                needed = sorted({layers[system] for system in systems})
                at = dict(zip(needed, embed(embedder, needed, tasks[name], self.passage_size), strict=True))
                for system in systems:
                    finish = calibrated.get(system.text, replace(bare, post=system.method.post))
                    yield _scored(system, tasks[name], at[layers[system]], finish, identities[system, name])

    def _calibrated(self, text: str) -> VectorFinalizer:
        """What makes vectors of a method's pooled states where an `Embedder` is not fitted."""
        with self.open_embedder(text) as embedder:
            return embedder._calibrated.finish


def runnable(texts: Iterable[str], backbone: Backbone) -> tuple[list[str], dict[str, str]]:
    """Methods that a model can run, and the reasons of those that it cannot, such as an exit below the copies."""
    usable: list[str] = []
    reasons: dict[str, str] = {}
    for text in texts:
        try:
            methods.resolve(methods.parse(text), backbone)
        except InvalidParameter as error:
            reasons[text] = str(error)
        else:
            usable.append(text)
    return usable, reasons


def applies(system: System, task: Task) -> bool:
    """Whether a system can run a kind of task."""
    return isinstance(task, {"bm25": Retrieval, "overlap": Pairs}.get(system.text, object))


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


def _shared_words(task: Task) -> dict[str, Doubles]:
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
        ranked = np.array([grades.get(task.ids[at], 0.0) for at in order])
        ideal = np.array(list(grades.values()))
        values = {"ndcg@10": ndcg(ranked, ideal), "recall@10": recall(ranked, ideal, 10)}
        if len(task.ids) > 100:
            values["recall@100"] = recall(ranked, ideal, 100)
        values["mrr@10"] = reciprocal_rank(ranked)
        for metric, value in values.items():
            rows.setdefault(metric, []).append(value)
    return {metric: np.array(values) for metric, values in rows.items()}
