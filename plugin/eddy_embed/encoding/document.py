"""A long document's vectors: the whole, its passages, its sentences."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eddy_embed.encoding.finalize import VectorFinalizer
from eddy_embed.encoding.planner import TextPlan
from eddy_embed.encoding.windows import Window
from eddy_embed.parts.postprocess import Fitted
from eddy_embed.text.sentences.blocks import Path, units
from eddy_embed.text.sequence import Ints, last_overlapping, owners

Vector = NDArray[np.float32]
SpanVectors = tuple[Vector, Ints]


Part = Literal["document", "passages", "sentences"]
PassageUnit = Literal["tokens", "sentences"]


@dataclass(frozen=True, eq=False)
class Span:
    """A part of a document.

    Attributes:
        start: Its first character in the document's text.
        end: The character after its last.
        n_tokens: Tokens averaged in its vector; 0 where the tokenizer drops all of its characters, and the vector is
            that of the passage or document around it.
        vector: Shape (dimension,), float32, normalised where the embedder normalises.
    """

    start: int
    end: int
    n_tokens: int
    vector: Vector


@dataclass(frozen=True, eq=False)
class Passage(Span):
    """Consecutive sentences.

    Attributes:
        first_sentence: Index of its first sentence in the document's.
        last_sentence: Index of its last sentence, included.
        headings: What it stands under, the widest first: the headings in force at its first sentence that is none.
    """

    first_sentence: int
    last_sentence: int
    headings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class LongDocument:
    """A document with the vectors of its parts.

    Attributes:
        text: The document.
        vector: Of the whole, the same as `encode_document` gives, shape (dimension,); (0,) where it was not asked for.
        passages: In order; they cover every sentence. Empty where they were not asked for.
        sentences: In order; between two of them there is only white space. Empty where they were not asked for.
        n_tokens: Tokens of the text, without prompt and placeholders.
        n_windows: Passes over the text; above 1, it exceeds the model's window.
        n_truncated: Tokens at its end that were not read (only with overflow="truncate").
    """

    text: str
    vector: Vector
    passages: list[Passage]
    sentences: list[Span]
    n_tokens: int
    n_windows: int
    n_truncated: int

    def processed(self, fitted: Fitted, normalize: bool = True) -> LongDocument:
        """The same document under post-processing that was fitted after it was embedded.

        Args:
            fitted: What was learned.
            normalize: Whether the vectors get length 1.
        """
        finish = VectorFinalizer(normalize=normalize, post=fitted.post, fitted=fitted)

        def again(vector: Vector) -> Vector:
            return finish(vector.astype(np.float64), 0).astype(np.float32)

        passages = [replace(passage, vector=again(passage.vector)) for passage in self.passages]
        sentences = [replace(sentence, vector=again(sentence.vector)) for sentence in self.sentences]
        vector = again(self.vector) if len(self.vector) else self.vector
        return replace(self, vector=vector, passages=passages, sentences=sentences)


def group_sentences(sizes: Seq[int], most: int, levels: Seq[int]) -> list[tuple[int, int]]:
    """First and last sentence of each passage: as many whole sentences as fit, at least one.

    A heading stays with the sentence behind it, in a passage that is longer if need be.

    Args:
        sizes: Tokens of each sentence.
        most: Most tokens in a passage.
        levels: Level of each sentence as a heading, 0 where it is none.
    """
    groups: list[tuple[int, int]] = []
    total = 0
    for first, last in units(levels):
        size = sum(sizes[first : last + 1])
        if groups and total + size <= most:
            groups[-1] = (groups[-1][0], last)
            total += size
        else:
            groups.append((first, last))
            total = size
    return groups


def paths(text: str, spans: Ints, levels: Seq[int], groups: Seq[tuple[int, int]]) -> list[tuple[str, ...]]:
    """The headings that each passage stands under.

    Args:
        text: The document.
        spans: Rows (start, end) of its sentences, shape (sentences, 2).
        levels: Level of each sentence as a heading, 0 where it is none.
        groups: First and last sentence of each passage.
    """
    path, found = Path(), []
    for first, last in groups:
        titles: tuple[str, ...] | None = None
        for at in range(first, last + 1):
            if levels[at]:
                path.read(levels[at], text[slice(*spans[at])])
            elif titles is None:
                titles = path.titles
        found.append(path.titles if titles is None else titles)
    return found


def heading_path(headings: Seq[str]) -> str:
    """Headings as one line of metadata, such as "Part One > Chapter 2 > The boat"."""
    return " > ".join(headings)


def positions_by_span(job: Window, spans: Ints) -> tuple[Ints, list[Ints]]:
    """The counted tokens of a job that belong to each span.

    Args:
        job: A sequence of the text that the spans divide.
        spans: Rows (start, end), ordered and disjoint, shape (spans, 2).

    Returns:
        Indices of the spans that have tokens here, and the positions of each.
    """
    starts, ends = job.sequence.starts[job.counted], job.sequence.ends[job.counted]
    # Only the spans that the job touches: with all of them, the work on a long text would grow with its square.
    low = int(np.searchsorted(spans[:, 1], starts[0], side="right"))
    spans = spans[low : int(np.searchsorted(spans[:, 0], ends.max() + 1))]
    owner = owners(starts, ends, spans)
    inside = np.flatnonzero(owner >= 0)
    runs = np.split(inside, np.flatnonzero(np.diff(owner[inside])) + 1) if len(inside) else []
    found = {int(owner[run[0]]): job.counted[run] for run in runs}
    # A span all of whose characters lie in a token of its left neighbour reads that token.
    for span, last in enumerate(last_overlapping(starts, ends, spans).tolist()):
        if last >= 0 and span not in found:
            found[span] = job.counted[last : last + 1]
    order = sorted(found)
    return np.array(order, np.int64) + low, [found[span] for span in order]


def assemble(
    text: str,
    plan: TextPlan,
    groups: Seq[tuple[int, int]],
    sentences: SpanVectors | None,
    passages: SpanVectors | None,
    vector: Vector | None,
    parts: Collection[Part],
) -> LongDocument:
    """A document out of the vectors of its parts.

    Args:
        text: The document.
        plan: Its plan, with its sentences.
        groups: First and last sentence of each passage.
        sentences: Vectors of the sentences, and the tokens averaged in each; None where they were not made.
        passages: The same of the passages.
        vector: Of the whole; None where it was not made.
        parts: What the document shall hold.
    """
    spans = np.zeros((0, 2), np.int64) if plan.spans is None else plan.spans
    nothing = np.zeros(0, np.float32)
    around = nothing if vector is None else vector
    found: list[Passage] = []
    inside = np.zeros(len(spans), np.int64)
    levels = [] if plan.levels is None else plan.levels.tolist()
    headings = paths(text, spans, levels, groups) if passages is not None else []
    for at, (first, last) in enumerate(groups):
        inside[first : last + 1] = at
        if passages is not None:
            size = int(passages[1][at])
            own = passages[0][at] if size else around
            found.append(Passage(int(spans[first, 0]), int(spans[last, 1]), size, own, first, last, headings[at]))
    lines: list[Span] = []
    if sentences is not None and "sentences" in parts:
        rows = zip(spans.tolist(), sentences[1].tolist(), sentences[0], inside.tolist(), strict=True)
        for (start, end), size, own, passage in rows:
            lines.append(Span(start, end, size, own if size else found[passage].vector))
    return LongDocument(
        text,
        around if "document" in parts else nothing,
        found if "passages" in parts else [],
        lines,
        plan.tokens,
        plan.window_count,
        plan.truncated,
    )
