"""A task's texts as vectors: every text is embedded once, and several exit layers are read out of one pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from eddy_embed.analysis.evaluate.results import Cost
from eddy_embed.analysis.evaluate.tasks import OddOneOut, Pairs, Retrieval, Task
from eddy_embed.embedder import Embedder
from eddy_embed.encoding.document import heading_path
from eddy_embed.encoding.finalize import VectorFinalizer
from eddy_embed.encoding.pipeline import Counts, Pipeline
from eddy_embed.encoding.validation import PASSAGES
from eddy_embed.parts.layout import TextRole
from eddy_embed.parts.postprocess import fit, statistics
from eddy_embed.utils.arrays import Doubles, Floats, Ints
from eddy_embed.utils.progress import Progress

SEED = 0
"""Of the order in which vectors are drawn for fits."""


@dataclass(frozen=True, eq=False)
class TaskVectors:
    """A task's texts at one exit layer: pooled states, and once `finished` vectors of length 1, in float64.

    Attributes:
        library: Passages of the documents, the distinct texts of pairs, the texts to be classified, or words, shape
            (vectors, width); of states, the layers of a vector side by side.
        owners: For retrieval, the document of each library vector, for words its question, shape (vectors,).
        asked: Queries, or test texts; empty for pairs and words, shape (texts, width).
        pairs: For pairs, the library's vectors of each, shape (pairs, 2).
        cost: Of the vectors.
        passages: For retrieval, the text of each library vector, after the headings above it.
    """

    library: Doubles
    owners: Ints
    asked: Doubles
    pairs: Ints
    cost: Cost
    passages: list[str] = field(default_factory=list)

    def finished(self, finish: VectorFinalizer, role: TextRole = "document") -> TaskVectors:
        """The same texts as vectors, those that are asked in a role."""
        asked = finish(self.asked, 0, role) if len(self.asked) else self.asked[:, :0]
        return replace(self, library=finish(self.library, 0), asked=asked)

    def fitted(self, finish: VectorFinalizer, fit_on: int | None) -> VectorFinalizer:
        """Post-processing fitted on so many vectors of the library, None for all, as `Embedder.fit` does it.

        Fewer vectors are among those of every larger number. Queries keep their mean, which is that of general ones.
        """
        post = finish.post
        assert post is not None and finish.fitted is not None
        order = np.random.default_rng(SEED).permutation(len(self.library))[:fit_on]
        own = fit(post, statistics(post, [finish.for_post(self.library[order])]))
        return replace(finish, fitted=replace(own, query_mean=finish.fitted.query_mean))


def embed(
    embedder: Embedder,
    layers: list[int],
    task: Task,
    passage_size: int,
    on_progress: Callable[[int, int, str], None] | None = None,
    *,
    late: bool = True,
) -> list[TaskVectors]:
    """A task's pooled states at each of several exit layers, by an embedder that runs all of them.

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
        library, owners, asked, pairs, passages = _vectors(
            pipeline, task, passage_size, late and embedder.can_embed_spans, bar
        )
    seconds = time.perf_counter() - started
    libraries, queries = (np.split(each.astype(np.float64), len(layers), axis=1) for each in (library, asked))
    # The embeddings alone count as one layer: looking them up is work too.
    costs = [Cost(seconds, counts.tokens, counts.positions, max(layer, 1), max(ran, 1)) for layer in layers]
    return [
        TaskVectors(mine, owners, other, pairs, cost, passages)
        for mine, other, cost in zip(libraries, queries, costs, strict=True)
    ]


def _vectors(
    pipeline: Pipeline, task: Task, passage_size: int, late: bool, bar: Progress
) -> tuple[Floats, Ints, Floats, Ints, list[str]]:
    """`library`, `owners`, `asked`, `pairs` and `passages` of `TaskVectors`; a vector's layers stand side by side."""

    def flat(texts: list[str], role: TextRole = "document") -> Floats:
        rows = np.empty((len(texts), pipeline.open_runner.width), np.float32)
        for at, vector in pipeline.vectors(texts, role, bar):
            rows[at] = vector
        return rows

    no_pairs = np.zeros((0, 2), np.int64)
    if isinstance(task, Retrieval):
        documents = list(pipeline.documents(task.texts, passage_size, late, bar, PASSAGES))
        library = np.stack([passage.vector for each in documents for passage in each.passages])
        owners = np.repeat(np.arange(len(documents)), [len(each.passages) for each in documents])
        texts = [
            "\n".join([*filter(None, [heading_path(passage.headings)]), each.text[passage.start : passage.end]])
            for each in documents
            for passage in each.passages
        ]
        return library, owners, flat(task.queries, "query"), no_pairs, texts
    if isinstance(task, Pairs):
        number: dict[str, int] = {}
        rows = [[number.setdefault(text, len(number)) for text in side] for side in (task.first, task.second)]
        library = flat(list(number))
        return library, np.arange(len(library)), library[:0], np.array(rows, np.int64).T, []
    if isinstance(task, OddOneOut):
        words = zip(task.texts, task.spans, strict=True)
        library = np.concatenate([pipeline.words([text], [[span]], bar)[0] for text, span in words])
        return library, np.array(task.questions, np.int64), library[:0], no_pairs, []
    both = flat(task.texts + task.test_texts)
    library = both[: len(task.texts)]
    return library, np.arange(len(task.texts)), both[len(task.texts) :], no_pairs, []
