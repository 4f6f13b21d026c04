"""A task's texts as vectors: every text is embedded once, and several exit layers are read out of one pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from eddy_embed.analysis.evaluate.results import Cost
from eddy_embed.analysis.evaluate.tasks import OddOneOut, Pairs, Retrieval, Task
from eddy_embed.embedder import Embedder
from eddy_embed.encoding.finalize import VectorFinalizer
from eddy_embed.encoding.pipeline import Counts, Pipeline
from eddy_embed.encoding.validation import PASSAGES
from eddy_embed.parts.layout import TextRole
from eddy_embed.parts.postprocess import Post, fit
from eddy_embed.utils.arrays import Doubles, Floats, Ints
from eddy_embed.utils.moments import RunningCovariance
from eddy_embed.utils.progress import Progress

SEED = 0
"""Of the order in which vectors are drawn for fits, and of the queries' two halves."""
FITTED = 20_000
"""Most sentences that post-processing is fitted on."""


@dataclass(frozen=True, eq=False)
class TaskVectors:
    """A task's texts at one exit layer, vectors of length 1 in float64.

    Attributes:
        library: Passages of the documents, the distinct texts of pairs, the texts to be classified, or words, shape
            (vectors, width).
        sample: What post-processing is fitted on: sentences of the documents, or the library where texts are not read
            as parts of a document.
        owners: For retrieval, the document of each library vector, for words its question, shape (vectors,).
        asked: Queries, or test texts; empty for pairs and words, shape (texts, width).
        pairs: For pairs, the library's vectors of each, shape (pairs, 2).
        cost: Of the vectors.
    """

    library: Doubles
    sample: Doubles
    owners: Ints
    asked: Doubles
    pairs: Ints
    cost: Cost

    def processed(self, post: Post, *, query_mean: bool = False, fit_on: int | None = None) -> TaskVectors:
        """The same texts under post-processing fitted on the sample, or on so many of its vectors.

        Fewer vectors are among those of every larger number. With `query_mean`, queries lose a mean of their own: each
        half of them, drawn once for all, that of the other half, so that none takes part in what it loses.
        """
        fitted = moments = None
        if post.learns:
            order = np.random.default_rng(SEED).permutation(len(self.sample))
            moments = RunningCovariance.of(self.sample if fit_on is None else self.sample[order[:fit_on]])
            fitted = fit(post, moments)
        finish = VectorFinalizer(normalize=True, post=post, fitted=fitted)
        asked = self.asked
        if moments is not None and query_mean:
            half = np.zeros(len(asked), bool)
            half[np.random.default_rng(SEED).permutation(len(asked))[: len(asked) // 2]] = True
            after = []
            for mine in (half, ~half):
                own = replace(finish, fitted=fit(post, moments, RunningCovariance.of(asked[~mine])))
                after.append(own(asked[mine], 0, "query"))
            # Back into the order of the queries.
            asked = np.concatenate(after)[np.argsort(np.argsort(~half, kind="stable"))]
        elif len(asked):
            asked = finish(asked, 0)
        return replace(self, library=finish(self.library, 0), asked=asked)


def embed(
    embedder: Embedder,
    layers: list[int],
    task: Task,
    passage_size: int,
    on_progress: Callable[[int, int, str], None] | None = None,
    *,
    late: bool = True,
) -> list[TaskVectors]:
    """A task's texts at each of several exit layers, by an embedder without post-processing that runs all of them.

    `on_progress` is called with the number of sequences done, their total, and "embed". `late` is that of
    `Embedder.encode_long`, for methods that average.
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
    with Progress(show=False, callback=on_progress) as bar:
        library, sample, owners, asked, pairs = _vectors(
            pipeline, task, passage_size, late and embedder.can_embed_spans, bar
        )
    seconds = time.perf_counter() - started

    def by_layer(vectors: Floats) -> list[Doubles]:
        for_post = embedder._pipeline.finish.for_post
        return [for_post(each.astype(np.float64)) for each in np.split(vectors, len(layers), axis=1)]

    libraries, queries = by_layer(library), by_layer(asked)
    samples = libraries if sample is library else by_layer(sample)
    # The embeddings alone count as one layer: looking them up is work too.
    costs = [Cost(seconds, counts.tokens, counts.positions, max(layer, 1), max(ran, 1)) for layer in layers]
    return [
        TaskVectors(mine, fitted, owners, other, pairs, cost)
        for mine, fitted, other, cost in zip(libraries, samples, queries, costs, strict=True)
    ]


def _vectors(
    pipeline: Pipeline, task: Task, passage_size: int, late: bool, bar: Progress
) -> tuple[Floats, Floats, Ints, Floats, Ints]:
    """`library`, `sample`, `owners`, `asked` and `pairs` of `TaskVectors`; a vector's layers stand side by side."""

    def flat(texts: list[str], role: TextRole = "document") -> Floats:
        rows = np.empty((len(texts), pipeline.open_runner.width), np.float32)
        for at, vector in pipeline.vectors(texts, role, bar):
            rows[at] = vector
        return rows

    no_pairs = np.zeros((0, 2), np.int64)
    if isinstance(task, Retrieval):
        parts = ("passages", "sentences") if late else PASSAGES
        documents = list(pipeline.documents(task.texts, passage_size, late, bar, parts))
        library = np.stack([passage.vector for each in documents for passage in each.passages])
        owners = np.repeat(np.arange(len(documents)), [len(each.passages) for each in documents])
        finest = [part.vector for each in documents for part in each.finest]
        drawn = np.random.default_rng(SEED).permutation(len(finest))[:FITTED]
        return library, np.stack([finest[at] for at in drawn]), owners, flat(task.queries, "query"), no_pairs
    if isinstance(task, Pairs):
        number: dict[str, int] = {}
        rows = [[number.setdefault(text, len(number)) for text in side] for side in (task.first, task.second)]
        library = flat(list(number))
        return library, library, np.arange(len(library)), library[:0], np.array(rows, np.int64).T
    if isinstance(task, OddOneOut):
        words = zip(task.texts, task.spans, strict=True)
        library = np.concatenate([pipeline.words([text], [[span]], bar)[0] for text, span in words])
        return library, library, np.array(task.questions, np.int64), library[:0], no_pairs
    both = flat(task.texts + task.test_texts)
    library = both[: len(task.texts)]
    return library, library, np.arange(len(task.texts)), both[len(task.texts) :], no_pairs
