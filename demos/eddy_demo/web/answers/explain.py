"""Explain search results: what the model does with a text, a comparison of two methods, and the effect of length."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from chroma_eddy import Index
from eddy_demo.display_text import printable
from eddy_demo.errors import DemoError
from eddy_demo.web.answers.answering import span_link
from eddy_demo.web.answers.blocks import HEADING_MARKS
from eddy_demo.web.library_reader import LibraryDocument, LibraryReader, span_cosines
from eddy_embed import Embedder
from eddy_embed.encoding.document import LongDocument
from eddy_embed.encoding.validation import PASSAGES
from eddy_embed.methods import parse

_SHOWN_PASSAGES = 6
"""Number of passages shown for each method."""
_CACHED_EMBEDDERS = 2
_SAMPLE_SIZE = 1_500
"""Number of vectors of each kind in an analysis of lengths."""
_KINDS = (
    ("sentence", "-sentences", "eddy_n_tokens"),
    ("passage", "", "eddy_n_tokens"),
    ("document", "-documents", "eddy_tokens"),
)
_MIN_TEXTS = 20
"""Number of texts below which an analysis of lengths would show chance."""


@dataclass(frozen=True)
class RankedPassage:
    """A passage in the ranking of one method."""

    rank: int  # counted from 1
    other: int  # rank with the other method
    cosine: float
    text: str
    link: str


@dataclass(frozen=True)
class LengthPoint:
    """A text of the library."""

    kind: str  # "sentence", "passage" or "document"
    tokens: int
    cosine: float  # with the mean vector of the sample


@dataclass(frozen=True)
class LengthAnalysis:
    """How cosines depend on the length of texts."""

    points: tuple[LengthPoint, ...]
    bins: tuple[tuple[float, float, int], ...]  # for each range of lengths: middle in tokens, mean cosine of two, size


class MethodExplorer:
    """Embedders of other methods, of which it caches the last ones, and the analysis of lengths."""

    def __init__(self) -> None:
        self._model = ""  # of the embedders
        self._embedders: OrderedDict[str, Embedder] = OrderedDict()
        self._lengths: tuple[int, LengthAnalysis | None] | None = None
        self._loading, self._comparing = threading.Lock(), threading.Lock()

    def get(self, reader: LibraryReader, method: str) -> Embedder:
        """Return an embedder of the library's model with another method."""
        parsed = parse(method)
        name = str(parsed)
        if parsed.post is not None and parsed.post.learns:
            raise DemoError(
                f"{method} learns from a whole library, which one document is not: leave out what stands behind the +"
            )
        with self._loading:
            if self._model != reader.recipe.model:
                self._embedders.clear()
                self._model = reader.recipe.model
            if name not in self._embedders:
                while len(self._embedders) >= _CACHED_EMBEDDERS:  # free memory before loading
                    self._embedders.popitem(last=False)
                self._embedders[name] = reader.embedder_for_comparison(name)
            return self._embedders[name]

    def lengths(self, reader: LibraryReader) -> LengthAnalysis | None:
        """Return `analyse_lengths` of the library, computed once for each of its versions."""
        version = reader.version
        if self._lengths is None or self._lengths[0] != version:
            self._lengths = (version, reader.read_consistently(analyse_lengths))
        return self._lengths[1]

    def compare(
        self, reader: LibraryReader, document: LibraryDocument, question: str, method: str, max_characters: int
    ) -> list[list[RankedPassage]]:
        """Rank the passages of a document with the library's method and with another, one comparison at a time."""
        text = document.content.text
        if len(text) > max_characters:
            raise DemoError(
                f"{document.name} has {len(text):,} characters, and at most {max_characters:,} are embedded anew to "
                "compare methods; choose a shorter document"
            )
        if not self._comparing.acquire(blocking=False):
            raise DemoError("another comparison is under way; try again when it has finished")
        try:
            embedder = self.get(reader, method)
            late, size = reader.recipe.late and embedder.reads_spans, reader.recipe.passage_size
            content = embedder.encode_long(text, passage_size=size, late=late, parts=PASSAGES, show_progress=False)
            vector = embedder.encode_query(question, show_progress=False)
        finally:
            self._comparing.release()
        own = document.cosines(question, document.content.passages)
        return compare_rankings(document, own, content, span_cosines(vector, content.passages))


def compare_rankings(
    document: LibraryDocument, own: Any, other: LongDocument, others: Any
) -> list[list[RankedPassage]]:
    """Return the best passages with each method by their cosines with the question, each of shape (n,)."""
    passages = document.content.passages
    spans = [(passage.start, passage.end) for passage in passages]
    if spans != [(passage.start, passage.end) for passage in other.passages]:
        raise DemoError("the two methods cut this document into other passages; choose another method")
    orders = [np.argsort(-np.asarray(cosines), kind="stable") for cosines in (own, others)]
    ranks = [np.argsort(order, kind="stable") for order in orders]
    columns = []
    for at, cosines in enumerate((own, others)):
        rows = []
        for number in orders[at][:_SHOWN_PASSAGES].tolist():
            start, end = spans[number]
            text = HEADING_MARKS.sub("", printable(document.content.text[start:end]))
            rank, other_rank = (int(ranks[which][number]) + 1 for which in (at, 1 - at))
            link = span_link(document.entry.id, start, end)
            rows.append(RankedPassage(rank, other_rank, float(cosines[number]), " ".join(text.split()), link))
        columns.append(rows)
    return columns


def analyse_lengths(index: Index | None) -> LengthAnalysis | None:
    """Compute the cosines of a sample of the library's vectors with their mean; None for too few texts."""
    if index is None:
        return None
    random = np.random.default_rng(0)
    kinds: list[str] = []
    tokens: list[int] = []
    vectors = []
    for kind, part, field in _KINDS:
        ids = index.store.get(part).ids
        if not ids:
            continue
        sample = random.choice(len(ids), min(_SAMPLE_SIZE, len(ids)), replace=False)
        rows = index.store.get(part, ids=[ids[at] for at in sample.tolist()], metadatas=True, embeddings=True)
        kinds += [kind] * len(rows.ids)
        tokens += [max(int(row[field]), 1) for row in rows.metadatas]
        vectors.append(rows.vectors)
    if len(kinds) < _MIN_TEXTS:
        return None
    unit = np.concatenate(vectors).astype(np.float64)
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    mean = unit.mean(axis=0)
    cosines = unit @ (mean / max(float(np.linalg.norm(mean)), 1e-12))
    points = tuple(LengthPoint(*row) for row in zip(kinds, tokens, cosines.tolist(), strict=True))
    return LengthAnalysis(points, _bins(np.asarray(tokens), unit))


def _bins(tokens: Any, unit: Any) -> tuple[tuple[float, float, int], ...]:
    """Mean cosine of two different unit vectors in ranges [2^k, 2^(k+1)) of length, for ranges of 5 texts or more."""
    bins = []
    exponents = np.floor(np.log2(tokens)).astype(int)
    for exponent in np.unique(exponents).tolist():
        own = unit[exponents == exponent]
        if len(own) >= 5:
            total = own.sum(axis=0)
            mean = (float(total @ total) - len(own)) / (len(own) * (len(own) - 1))
            bins.append((2 ** (exponent + 0.5), mean, len(own)))
    return tuple(bins)
