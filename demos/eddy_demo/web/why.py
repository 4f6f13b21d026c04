"""Why a text is found: what the model does with it, two methods side by side, and what length does to vectors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_eddy.storage.names import DOCUMENTS, MAIN, SENTENCES
from eddy_demo.errors import DemoError
from eddy_demo.show import printable
from eddy_demo.web.reader import MARKS
from eddy_demo.web.shelf import cosines
from eddy_embed import Embedder
from eddy_embed.inputs import PASSAGES
from eddy_embed.methods import parse

if TYPE_CHECKING:
    from chroma_eddy import Index
    from eddy_demo.web.limits import Limits
    from eddy_demo.web.shelf import Book, Shelf
    from eddy_embed.document import LongDocument
    from eddy_embed.explanation import Explanation

SHOWN = 6
"""Passages of each method."""
_EMBEDDERS = 2
SAMPLE = 1_500
"""Vectors of each kind that the picture of lengths looks at."""
_KINDS = (
    ("sentence", SENTENCES, "eddy_n_tokens"),
    ("passage", MAIN, "eddy_n_tokens"),
    ("document", DOCUMENTS, "eddy_tokens"),
)
_FEWEST = 20
"""Vectors below which a picture of lengths would show chance."""


class CannotCompare(DemoError):
    """Two methods cannot be held side by side here."""


@dataclass(frozen=True)
class Ranked:
    """A passage in the order of one method.

    Attributes:
        rank: From 1.
        other: Its rank under the other method.
        cosine: With the question.
        text: The passage.
        link: Where it stands.
    """

    rank: int
    other: int
    cosine: float
    text: str
    link: str


@dataclass(frozen=True)
class Point:
    """A text of the library.

    Attributes:
        kind: sentence, passage or document.
        tokens: Its length.
        cosine: Of its vector with the mean of all vectors of the sample.
    """

    kind: str
    tokens: int
    cosine: float


@dataclass(frozen=True)
class Lengths:
    """What length does to vectors.

    Attributes:
        points: A sample of the library.
        bins: For each range of lengths: its middle, the mean cosine of two vectors in it, and how many it has.
    """

    points: tuple[Point, ...]
    bins: tuple[tuple[float, float, int], ...]


class Methods:
    """Further methods of the library's model, the last ones kept, and what is drawn of the library as it is."""

    def __init__(self) -> None:
        """Load none."""
        self._kept: OrderedDict[str, Embedder] = OrderedDict()
        self._lengths: tuple[int, Lengths | None] | None = None
        self._loading, self._comparing = threading.Lock(), threading.Lock()

    def get(self, shelf: Shelf, method: str) -> Embedder:
        """An embedder.

        Raises:
            CannotCompare: Another one is at work, or the method has something to fit.
            UnknownMethod: There is no such method.
            InvalidParameter: A parameter of it is wrong.
        """
        asked = parse(method)
        name = str(asked)
        if asked.post is not None and asked.post.learns:
            raise CannotCompare(
                f"{method} learns from a whole library, which one document is not: leave out what stands behind the +"
            )
        with self._loading:
            if name not in self._kept:
                while len(self._kept) >= _EMBEDDERS:  # before another one takes memory
                    self._kept.popitem(last=False)
                self._kept[name] = shelf.other(name)
            return self._kept[name]

    def lengths(self, shelf: Shelf) -> Lengths | None:
        """As the function, once for each state of the library."""
        version = shelf.version
        if self._lengths is None or self._lengths[0] != version:
            self._lengths = (version, shelf.steadily(lengths))
        return self._lengths[1]

    def explain(self, shelf: Shelf, text: str, method: str) -> Explanation:
        """What becomes of a text; the model does not run.

        Raises:
            CannotCompare: The method has something to fit.
            UnknownMethod: There is no such method.
            InvalidParameter: A parameter of it is wrong.
            InvalidText: The text is blank.
        """
        return self.get(shelf, method).explain(text)

    def compare(self, shelf: Shelf, book: Book, question: str, method: str, limits: Limits) -> list[list[Ranked]]:
        """The nearest passages of a document under the library's method and under another.

        Raises:
            CannotCompare: The document is long, another comparison is under way, or the method has something to fit.
        """
        size = len(book.content.text)
        if size > limits.compared:
            raise CannotCompare(
                f"{book.name} has {size:,} characters, and at most {limits.compared:,} are embedded anew to compare "
                "methods; choose a shorter document"
            )
        if not self._comparing.acquire(blocking=False):
            raise CannotCompare("another comparison is under way; try again when it has finished")
        try:
            other = self.get(shelf, method)
            late = shelf.recipe.late and other.reads_spans
            size = shelf.recipe.passage_size
            content = other.encode_long(
                book.content.text, passage_size=size, late=late, parts=PASSAGES, show_progress=False
            )
            vector = other.encode_query(question, show_progress=False)
        finally:
            self._comparing.release()
        mine = book.near(question, book.content.passages)
        return side_by_side(book, mine, content, cosines(vector, content.passages))


def side_by_side(book: Book, mine: Any, other: LongDocument, theirs: Any) -> list[list[Ranked]]:
    """Both orders; passages are cut at the same characters, as the model and the size are the same."""
    passages = book.content.passages
    places = [(each.start, each.end) for each in passages]
    if places != [(each.start, each.end) for each in other.passages]:
        raise CannotCompare("the two methods cut this document into other passages; choose another method")
    orders = [np.argsort(-np.asarray(values), kind="stable") for values in (mine, theirs)]
    ranks = [np.argsort(order, kind="stable") for order in orders]
    found = []
    for at, values in enumerate((mine, theirs)):
        rows = []
        for number in orders[at][:SHOWN].tolist():
            passage = passages[number]
            text = MARKS.sub("", printable(book.content.text[passage.start : passage.end]))
            link = f"/documents/{book.entry.id}#s-{book.entry.id}-{passage.start}-{passage.end}"
            own, there = (int(ranks[each][number]) + 1 for each in (at, 1 - at))
            rows.append(Ranked(own, there, float(values[number]), " ".join(text.split()), link))
        found.append(rows)
    return found


def lengths(index: Index | None) -> Lengths | None:
    """How near the library's vectors are to their mean, by the length of their texts; None for too few."""
    if index is None:
        return None
    random = np.random.default_rng(0)
    kinds: list[str] = []
    tokens: list[int] = []
    vectors = []
    for kind, part, name in _KINDS:
        ids = index.store.get(part).ids
        if not ids:
            continue
        chosen = random.choice(len(ids), min(SAMPLE, len(ids)), replace=False)
        rows = index.store.get(part, ids=[ids[at] for at in chosen.tolist()], metadatas=True, embeddings=True)
        kinds += [kind] * len(rows.ids)
        tokens += [max(int(row[name]), 1) for row in rows.metadatas]
        vectors.append(rows.vectors)
    if len(kinds) < _FEWEST:
        return None
    every = np.concatenate(vectors).astype(np.float64)
    every /= np.maximum(np.linalg.norm(every, axis=1, keepdims=True), 1e-12)
    mean = every.mean(axis=0)
    near = every @ (mean / max(float(np.linalg.norm(mean)), 1e-12))
    points = tuple(Point(*row) for row in zip(kinds, tokens, near.tolist(), strict=True))
    return Lengths(points, _bins(np.asarray(tokens), every))


def _bins(tokens: Any, vectors: Any) -> tuple[tuple[float, float, int], ...]:
    """Mean cosine of two different vectors, in ranges of length that double."""
    found = []
    exponents = np.floor(np.log2(tokens)).astype(int)
    for exponent in np.unique(exponents).tolist():
        own = vectors[exponents == exponent]
        if len(own) >= 5:
            total = own.sum(axis=0)
            pairs = (float(total @ total) - len(own)) / (len(own) * (len(own) - 1))
            found.append((2 ** (exponent + 0.5), pairs, len(own)))
    return tuple(found)
