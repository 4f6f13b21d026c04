"""Systems on tasks: every base method embeds a task once, whatever post-processing follows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from eddy_embed import methods
from eddy_embed.evaluate import baselines
from eddy_embed.evaluate.metrics import Interval, accuracy, bootstrap, cross_validated, ndcg, odd_one_out, spearman
from eddy_embed.evaluate.tasks import Classification, OddOneOut, Pairs, Retrieval
from eddy_embed.finish import Finish, unit
from eddy_embed.postprocess import Moments, fit

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from eddy_embed.embedder import Embedder
    from eddy_embed.evaluate.tasks import Task

    Doubles = NDArray[np.float64]

METRICS = {Pairs: "spearman", Retrieval: "ndcg@10", Classification: "accuracy", OddOneOut: "accuracy"}


@dataclass(frozen=True, eq=False)
class Outcome:
    """One system on one task.

    Attributes:
        system: A method's text form, or "bm25", "overlap".
        task: Name of the task.
        metric: What is scored.
        items: What the score is made of, one row for each query or item, shape (items, ..); see `score`.
        seconds: Spent embedding; 0 for systems without a model.
        tokens: Tokens of text embedded.
    """

    system: str
    task: str
    metric: str
    items: Doubles
    seconds: float
    tokens: int

    def score(self, index: NDArray[np.int64] | None = None) -> float:
        """The score over all items, or over these: Spearman of two columns, or the mean of one."""
        items = self.items if index is None else self.items[index]
        return spearman(items[:, 0], items[:, 1]) if self.metric == "spearman" else float(items.mean())

    @property
    def interval(self) -> Interval:
        """The score with its bootstrap interval."""
        return bootstrap(self.score, len(self.items))

    def difference(self, other: Outcome) -> Interval:
        """This score minus another's on the same items, with its paired bootstrap interval."""
        return bootstrap(lambda index: self.score(index) - other.score(index), len(self.items))


@dataclass(frozen=True, eq=False)
class _Embedded:
    """A task's texts under one base method: vectors of length 1.

    Attributes:
        library: What post-processing is fitted on, shape (vectors, width).
        owners: For retrieval, the document of each library vector; for words, its question.
        asked: Queries, or test texts, or second texts, shape (texts, width).
        seconds: Spent embedding.
        tokens: Tokens of text embedded.
    """

    library: Doubles
    owners: NDArray[np.int64]
    asked: Doubles
    seconds: float
    tokens: int


@dataclass(eq=False)
class Evaluation:
    """Runs systems on tasks.

    Attributes:
        open_embedder: Gives an embedder for a method without post-processing.
        passage_size: Most tokens in a passage; a document is found by its best passage.
    """

    open_embedder: Callable[[str], Embedder]
    passage_size: int = 256
    _embedders: dict[str, Embedder] = field(default_factory=dict)
    _embedded: dict[tuple[str, str], _Embedded] = field(default_factory=dict)

    def run(self, system: str, task: Task) -> Outcome | None:
        """One system on one task; None for one that has nothing to say on this kind of task.

        So have a baseline of another kind, and, where words are asked for, a method that reads one token only.
        """
        if system == "bm25":
            return self._outcome(system, task, baselines.bm25(task)) if isinstance(task, Retrieval) else None
        if system == "overlap":
            return self._outcome(system, task, baselines.overlap(task)) if isinstance(task, Pairs) else None
        method = methods.parse(system)
        base = str(methods.with_post(method, None))
        if isinstance(task, OddOneOut) and not self._embedder(base).reads_words:
            return None
        if (base, task.name) not in self._embedded:
            self._embedded[base, task.name] = self._embed(base, task)
        held = self._embedded[base, task.name]
        library, asked = held.library, held.asked
        if method.post is not None:
            moments = Moments(library.shape[1])
            moments.add(library)
            finish = Finish(normalize=True, post=method.post, fitted=fit(method.post, moments))
            library, asked = finish(library, 0), finish(asked, 0)
        return self._outcome(str(method), task, _judge(task, library, asked, held.owners), held)

    def forget(self, task: Task) -> None:
        """Let go of a task's vectors."""
        self._embedded = {key: held for key, held in self._embedded.items() if key[1] != task.name}

    def _embedder(self, base: str) -> Embedder:
        if base not in self._embedders:
            self._embedders[base] = self.open_embedder(base)
        return self._embedders[base]

    def _embed(self, base: str, task: Task) -> _Embedded:
        embedder = self._embedder(base)
        started, before = time.perf_counter(), embedder.counts.tokens
        if isinstance(task, Retrieval):
            documents = embedder.encode_long(task.texts, passage_size=self.passage_size, late=embedder.reads_spans)
            library = np.stack([passage.vector for each in documents for passage in each.passages])
            owners = np.repeat(np.arange(len(documents)), [len(each.passages) for each in documents])
            asked = embedder.encode_query(task.queries)
        elif isinstance(task, OddOneOut):
            words = zip(task.texts, task.spans, strict=True)
            library = np.concatenate([embedder.encode_words(text, [span]) for text, span in words])
            owners, asked = np.array(task.questions), library[:0]
        else:
            texts, others = (task.first, task.second) if isinstance(task, Pairs) else (task.texts, task.test_texts)
            both = embedder.encode_document(texts + others)
            # People's similarities of a task's own sentences are never looked at: the texts alone are its library.
            library, asked = (both, both) if isinstance(task, Pairs) else (both[: len(texts)], both[len(texts) :])
            owners = np.arange(len(library))
        seconds, tokens = time.perf_counter() - started, embedder.counts.tokens - before
        return _Embedded(unit(library.astype(np.float64)), owners, unit(asked.astype(np.float64)), seconds, tokens)

    def _outcome(self, system: str, task: Task, judged: Doubles, held: _Embedded | None = None) -> Outcome:
        metric = METRICS[type(task)]
        items = judged
        if isinstance(task, Pairs):
            items = np.stack([judged, np.array(task.gold)], axis=1)
        elif isinstance(task, Retrieval):
            items = np.array([_ndcg(task, query, scores) for query, scores in enumerate(judged)])
        return Outcome(system, task.name, metric, items, held.seconds if held else 0.0, held.tokens if held else 0)


def _judge(task: Task, library: Doubles, asked: Doubles, owners: NDArray[np.int64]) -> Doubles:
    if isinstance(task, Pairs):
        half = len(task.first)
        return np.asarray(np.einsum("nd,nd->n", library[:half], asked[half:]))
    if isinstance(task, Retrieval):
        first_passages = np.flatnonzero(np.diff(owners, prepend=-1))
        return np.asarray(np.maximum.reduceat(asked @ library.T, first_passages, axis=1))
    if isinstance(task, OddOneOut):
        return odd_one_out(library, owners, np.array(task.answers))
    if task.test_texts:
        return accuracy(library, task.labels, asked, task.test_labels)
    return cross_validated(library, task.labels)


def _ndcg(task: Retrieval, query: int, scores: Doubles) -> float:
    grades = task.grades[query]
    order = np.argsort(-scores, kind="stable")[:10]
    found = np.array([grades.get(task.ids[at], 0.0) for at in order])
    return ndcg(found, np.array(list(grades.values())))
