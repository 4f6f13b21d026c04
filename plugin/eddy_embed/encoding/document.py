"""A long document's vectors: the whole, its passages, its sentences."""

from __future__ import annotations

import reprlib
from collections.abc import Collection
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from html import escape
from typing import Literal, cast

import numpy as np

from eddy_embed.encoding.planner import TextPlan
from eddy_embed.text.sentences.blocks import HeadingPath, units
from eddy_embed.text.sequence import Window, last_overlapping, owners
from eddy_embed.utils.arrays import Floats, Ints

SpanVectors = tuple[Floats, Ints]
Section = tuple[int, tuple[str, ...]]
"""Number of the first sentence of a section within its passage, and the headings above it, the widest first."""
Part = Literal["document", "passages", "sentences"]
PassageUnit = Literal["tokens", "sentences"]
FRONT = 200
"""Most characters of the headings that are read ahead of a passage, which few paths exceed."""
ROWS, SHOWN = 20, 200
"""Passages of a document, and characters of each, that a notebook shows."""


@dataclass(frozen=True, eq=False)
class Span:
    """A part of a document.

    Attributes:
        start: Its first character in the document's text.
        end: The character after its last.
        n_tokens: Tokens averaged in its vector; 0 if the tokenizer drops all of its characters, and the vector is that
            of the passage or document around it.
        vector: Shape (dimension,), float32, normalised where the embedder normalises.
    """

    start: int
    end: int
    n_tokens: int
    vector: Floats = field(repr=False)


@dataclass(frozen=True, eq=False)
class Passage(Span):
    """Consecutive sentences.

    Attributes:
        first_sentence: Index of its first sentence in the document's.
        last_sentence: Index of its last sentence, included.
        headings: The headings above its first sentence that is none, the widest first; none of over 1,000 characters.
            Within a table (`| cell | cell |`), its first row is the last of them.
        sections: Those that begin further within the passage, under headings of their own.
    """

    first_sentence: int
    last_sentence: int
    headings: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class LongDocument:
    """A document with the vectors of its parts.

    Attributes:
        text: The document.
        vector: Of the whole, shape (dimension,); (0,) if not requested. Late, the same as `encode_document` gives; else
            the mean of its passages', before any post-processing, each by its tokens.
        passages: In order; they cover every sentence. Empty if not requested.
        sentences: In order; between two of them there is only white space. Empty if not requested.
        n_tokens: Tokens of the text, without prompt and placeholders.
        n_windows: Passes over the text; above 1, it exceeds the model's window.
        n_truncated: Tokens at its end that were not read (only with overflow="truncate").
        sentence_spans: First character of each sentence and the one after its last, also if their vectors were not
            requested.
    """

    text: str
    vector: Floats
    passages: list[Passage]
    sentences: list[Span]
    n_tokens: int
    n_windows: int
    n_truncated: int
    sentence_spans: Seq[tuple[int, int]] = ()

    def __repr__(self) -> str:
        counted = f"n_tokens={self.n_tokens}, n_windows={self.n_windows}, n_truncated={self.n_truncated}"
        parts = f"passages: {len(self.passages)}, sentences: {len(self.sentences)}, dimension={self.vector.size}"
        return f"LongDocument({reprlib.repr(self.text)}, {counted}, {parts})"

    def _repr_html_(self) -> str:
        """Return a table of the first passages, for notebooks."""
        rows = "".join(
            f"<tr><td>{part.start}–{part.end}<td>{part.n_tokens}<td>{escape(self.text[part.start : part.end][:SHOWN])}"
            for part in self.passages[:ROWS]
        )
        return f"<p>{escape(repr(self))}<table><tr><th>characters<th>tokens<th>passage, its beginning{rows}</table>"


def group_sentences(sizes: Seq[int], most: int, levels: Seq[int]) -> list[tuple[int, int]]:
    """Return first and last sentence of passages of at most `most` tokens, or of one sentence and its headings."""
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


def sections_of(text: str, plan: TextPlan, groups: Seq[tuple[int, int]]) -> list[list[Section]]:
    """Return the sections of each passage, which `groups` gives by its first and last sentence.

    Where a passage begins within a table, the last heading of its first section is the table's first row.
    """
    spans, levels = cast("Ints", plan.spans).tolist(), cast("Ints", plan.levels).tolist()
    path, sections, head, end = HeadingPath(), list[list[Section]](), "", 0
    for first, last in groups:
        inside, begun = list[Section](), False
        for index in range(first, last + 1):
            start, before = spans[index][0], end
            end = spans[index][1]
            begins = text[start] != "|" or text[before:start].count("\n") != 1
            if levels[index]:
                path.read(levels[index], text[start:end])
                begun = False
            elif not begun:
                inside.append((index - first, path.titles if inside or begins or not head else (*path.titles, head)))
                begun = True
            if begins:
                head = text[start:end].strip("| ") if text[start] == "|" and end - start <= FRONT else ""
        sections.append(inside or [(0, path.titles)])
    return sections


def heading_path(headings: Seq[str]) -> str:
    """Return headings as one line of metadata, such as "Part One > Chapter 2 > The boat"."""
    return " > ".join(headings)


def front(headings: Seq[str]) -> str:
    """Return the headings that are read ahead of a passage: the last that fit into `FRONT` characters."""
    last: list[str] = []
    for heading in reversed(headings):
        if sum(map(len, last)) + len(heading) > FRONT:
            break
        last.insert(0, heading)
    return f"{heading_path(last)}\n" if last else ""


def positions_by_span(window: Window, spans: Ints) -> tuple[Ints, list[Ints]]:
    """Return indices of the ordered, disjoint spans that have tokens in a window, and the counted positions of each."""
    starts, ends = window.sequence.starts[window.counted], window.sequence.ends[window.counted]
    # Only the spans that the window touches: with all of them, the work on a long text would grow with its square.
    low = int(np.searchsorted(spans[:, 1], starts[0], side="right"))
    spans = spans[low : int(np.searchsorted(spans[:, 0], ends.max() + 1))]
    owner = owners(starts, ends, spans)
    inside = np.flatnonzero(owner >= 0)
    runs = np.split(inside, np.flatnonzero(np.diff(owner[inside])) + 1) if len(inside) else []
    positions = {int(owner[run[0]]): window.counted[run] for run in runs}
    # A span all of whose characters lie in a token of its left neighbour reads that token.
    for span, last in enumerate(last_overlapping(starts, ends, spans).tolist()):
        if last >= 0 and span not in positions:
            positions[span] = window.counted[last : last + 1]
    order = sorted(positions)
    return np.array(order, np.int64) + low, [positions[span] for span in order]


def assemble(
    text: str,
    plan: TextPlan,
    groups: Seq[tuple[int, int]],
    sentences: SpanVectors | None,
    passages: SpanVectors | None,
    whole: Floats,
    sections: Seq[Seq[Section]],
    parts: Collection[Part],
) -> LongDocument:
    """Return a document out of the vectors of its parts and their token counts; None for parts that were not made."""
    spans = np.zeros((0, 2), np.int64) if plan.spans is None else plan.spans
    made: list[Passage] = []
    passage_of = np.zeros(len(spans), np.int64)
    for index, (first, last) in enumerate(groups):
        passage_of[first : last + 1] = index
        if passages is not None:
            size = int(passages[1][index])
            vector = passages[0][index] if size else whole
            (_, headings), *further = sections[index]
            span = (int(spans[first, 0]), int(spans[last, 1]))
            made.append(Passage(*span, size, vector, first, last, headings, tuple(further)))
    lines: list[Span] = []
    if sentences is not None and "sentences" in parts:
        rows = zip(spans.tolist(), sentences[1].tolist(), sentences[0], passage_of.tolist(), strict=True)
        lines = [Span(a, b, size, vector if size else made[passage].vector) for (a, b), size, vector, passage in rows]
    return LongDocument(
        text=text,
        vector=whole if "document" in parts else np.zeros(0, np.float32),
        passages=made if "passages" in parts else [],
        sentences=lines,
        n_tokens=plan.tokens,
        n_windows=plan.window_count,
        n_truncated=plan.truncated,
        sentence_spans=[(a, b) for a, b in spans.tolist()],
    )
