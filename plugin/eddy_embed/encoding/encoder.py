"""From checked texts to vectors: planned, run, finished."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Sequence as Seq
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from eddy_embed.encoding.document import LongDocument, Part, PassageUnit, assemble, front, group_sentences, sections_of
from eddy_embed.encoding.planner import Planner, TextPlan
from eddy_embed.encoding.runner import PooledSums, Runner
from eddy_embed.encoding.validation import chunks
from eddy_embed.errors import EddyError, InvalidParameter, NotFinite, ZeroVector
from eddy_embed.parts.layout import Repetition, TextRole
from eddy_embed.parts.postprocess import Fitted, Post
from eddy_embed.text.sequence import LazyWindow, Role, Window
from eddy_embed.utils.arrays import Doubles, Floats, Ints, unit
from eddy_embed.utils.progress import Progress

if TYPE_CHECKING:
    from eddy_embed.model.loading.sentence_transformers import Head


@dataclass(frozen=True)
class VectorFinalizer:
    """Makes vectors of pooled states: filter, head, post-processing, normalisation.

    Attributes:
        normalize: Whether vectors end with length 1.
        post: Post-processing of the method, None for none.
        fitted: The same with what it learned, None if it has not been fitted.
        filtered: Orthonormal directions that are taken out of pooled states first, shape (width, directions).
        head: Layers that a fine-tuned model applies to its pooled states, None for none.
        layers: Number of the model's layers that are pooled apart, and stand side by side in pooled states.
    """

    normalize: bool
    post: Post | None = None
    fitted: Fitted | None = None
    filtered: Doubles | None = None
    head: Head | None = None
    layers: int = 1

    def __call__(self, raw: Doubles, text: int, role: TextRole = "document") -> Doubles:
        """Return vectors of pooled states, shape (width,) or (vectors, width); messages give the index of the text."""
        _check_finite(raw, text)  # a head's activation may make infinity finite
        states = self.states(raw)
        _check_finite(states, text)
        if self.post is None or not self.post.learns:
            vectors = _averaged(states)
        else:
            assert self.fitted is not None, f"{self.post.kind} is applied before it is fitted"
            vectors = self.fitted.apply(self.for_post(states), role)
            _check_finite(vectors, text)
            if self.post.by_layer:
                vectors = _averaged(vectors.reshape(states.shape))
        if self.post is not None:
            vectors = vectors[..., : self.post.keep]
        if not vectors.any(axis=-1).all():
            raise ZeroVector(
                f"text {text}: the model, or the post-processing, gave a vector of zeros, which is similar to nothing; "
                "choose another exit layer, fit on more texts, or fetch the model again, whose weights may be damaged"
            )
        return unit(vectors) if self.normalize else vectors

    def for_post(self, states: Doubles) -> Doubles:
        """Return what post-processing takes of `states`: unit vectors, a vector's layers side by side if it asks so."""
        if self.post is not None and self.post.by_layer:
            return unit(states).reshape(*states.shape[:-2], states.shape[-2] * states.shape[-1])  # also of no vectors
        return unit(_averaged(states))

    def states(self, raw: Doubles) -> Doubles:
        """Return pooled states through filter and head, shape (.., layers, width)."""
        raw = raw.reshape(*raw.shape[:-1], self.layers, raw.shape[-1] // self.layers)
        if self.filtered is not None:
            raw = raw - (raw @ self.filtered) @ self.filtered.T
        return raw if self.head is None else self.head(raw)


def _averaged(states: Doubles) -> Doubles:
    """Return the mean of layers' unit vectors, or the only layer as it is, of states (.., layers, width)."""
    return np.asarray(states[..., 0, :] if states.shape[-2] == 1 else unit(states).mean(axis=-2))


def _check_finite(raw: Doubles, text: int) -> None:
    if not np.isfinite(raw).all():
        raise NotFinite(
            f"text {text}: the model, or the post-processing, gave NaN or infinity; load the model with "
            "dtype='float32' or 'bfloat16', choose an earlier exit layer, or fit again"
        )


ALONE_CHARACTERS = 100_000
"""Characters of documents whose parts, each embedded by itself, share batches: enough to fill these."""
AHEAD_CHARACTERS = 128_000
"""Characters of texts that are planned together beside an accelerator's passes: enough for two."""
FINISHED = 1024
"""Vectors of a text's spans that are finished together."""


@dataclass
class Counts:
    """What an embedder has read so far.

    Attributes:
        texts: Texts.
        tokens: Tokens of the texts, without prompts and placeholders.
        windows: Windows of the texts.
        windowed_texts: Texts that exceeded the window and were read in several.
        truncated_texts: Texts whose end was cut, as asked.
        truncated_tokens: Tokens cut.
        positions: Positions run through the model: tokens, prompts, placeholders, copies, overlaps of windows.
    """

    texts: int = 0
    tokens: int = 0
    windows: int = 0
    windowed_texts: int = 0
    truncated_texts: int = 0
    truncated_tokens: int = 0
    positions: int = 0

    def add(self, planned: Iterable[TextPlan]) -> None:
        """Count texts."""
        for plan in planned:
            self.texts += 1
            self.tokens += plan.tokens
            self.windows += plan.window_count
            self.windowed_texts += plan.window_count > 1
            self.truncated_texts += plan.truncated > 0
            self.truncated_tokens += plan.truncated


@dataclass(eq=False)
class Encoder:
    """Texts to sequences, to sums of states (None once it is closed), to vectors; and counts of what was read."""

    planner: Planner
    runner: Runner | None
    finish: VectorFinalizer
    counts: Counts = field(default_factory=Counts)

    @property
    def open_runner(self) -> Runner:
        """The runner; EddyError if it was closed."""
        if self.runner is None:
            raise EddyError("this embedder is closed; make a new one")
        return self.runner

    def vectors(self, texts: list[str], role: TextRole, bar: Progress | None = None) -> Iterator[tuple[int, Doubles]]:
        """Yield index and vector of every text, in the full precision of the sums."""
        for index, sums in enumerate(self.sums(texts, role, bar)):
            yield index, self.finish(sums.document, index, role)

    def sums(self, texts: list[str], role: TextRole, bar: Progress | None = None) -> Iterator[PooledSums]:
        """Yield the sums of every text."""
        for _, _, planned in self._planned(texts, role):
            yield from self._run(planned, None, bar, role)

    def _planned(
        self, texts: list[str], role: TextRole, sentences: bool = False
    ) -> Iterator[tuple[int, list[str], list[TextPlan]]]:
        """Yield chunks of texts with the index of their first and their plans, counted.

        While an accelerator runs a chunk, the processor plans the next.
        """
        plan = partial(self.planner.plan, role=role, sentences=sentences)
        made: Iterator[tuple[int, list[str], list[TextPlan]]]
        if self.open_runner.host.device.type == "cpu":
            made = ((first, chunk, plan(chunk, first=first)) for first, chunk in chunks(texts))
        else:
            made = _ahead(plan, chunks(texts, AHEAD_CHARACTERS))
        for first, chunk, planned in made:
            self.counts.add(planned)
            yield first, chunk, planned

    def passages(self, texts: list[str], size: int) -> Iterator[str]:
        """Yield the passages of texts, of at most so many tokens."""
        for first, chunk in chunks(texts):
            planned = self.planner.plan(chunk, "document", first=first, sentences=True)
            for text, plan in zip(chunk, planned, strict=True):
                (spans,) = _divisions(plan, _passages(plan, size, "tokens"), (1,))
                yield from (text[start:end] for start, end in spans.tolist())

    def documents(
        self,
        texts: list[str],
        passage_size: int,
        late: bool,
        bar: Progress | None,
        parts: Collection[Part],
        passage_unit: PassageUnit = "tokens",
        headings: bool = True,
    ) -> Iterator[LongDocument]:
        """Yield every text with the vectors of its parts; see `Embedder.encode_long` for the arguments."""
        for first, chunk, planned in self._planned(texts, "document", sentences=True):
            if not headings:
                planned = [replace(plan, levels=np.zeros_like(cast("Ints", plan.levels))) for plan in planned]
            groups = [_passages(plan, passage_size, passage_unit) for plan in planned]
            # Passages are read in any case: a sentence without tokens has its passage's vector.
            kinds = (0, 1) if "sentences" in parts else (1,) if "passages" in parts or not late else ()
            divisions = [_divisions(plan, passages, kinds) for plan, passages in zip(planned, groups, strict=True)]
            grouped = zip(chunk, planned, groups, strict=True)
            sections = [sections_of(*planned_text) if kinds else [] for planned_text in grouped]
            if late:
                read: Iterable[PooledSums] = self._run(planned, divisions, bar)
            else:
                read = self._alone(chunk, planned, divisions, groups, sections, bar)
            texts_read = zip(chunk, planned, groups, sections, read, strict=True)
            for index, (text, plan, passages, inside, sums) in enumerate(texts_read, first):
                vectors = {
                    kind: (self._means(total, weights, index), sizes)
                    for kind, total, weights, sizes in zip(kinds, sums.parts, sums.weights, sums.sizes, strict=True)
                }
                whole = self.finish(sums.document, index).astype(np.float32)
                yield assemble(text, plan, passages, vectors.get(0), vectors.get(1), whole, inside, parts)

    def _run(
        self,
        planned: Seq[TextPlan],
        divisions: Seq[Seq[Ints]] | None = None,
        bar: Progress | None = None,
        role: TextRole = "document",
    ) -> list[PooledSums]:
        repetition = self.planner.layout.repetition
        for plan in planned:
            self.counts.positions += sum(w.length + repeated_tokens(w, repetition) for w in plan.windows)
        return self.open_runner.run(planned, [[] for _ in planned] if divisions is None else divisions, bar, role)

    def words(self, texts: list[str], spans: list[list[tuple[int, int]]], bar: Progress | None = None) -> list[Floats]:
        """Return vectors of spans of each text's characters, which may overlap, each of shape (spans, width)."""
        planned = self.planner.plan(texts, "document")
        self.counts.add(planned)
        divisions = [_divided(pairs) for pairs in spans]
        vectors = []
        for number, sums in enumerate(self._run(planned, divisions, bar)):
            for index in np.flatnonzero(np.concatenate([*sums.sizes, [1]]) == 0).tolist():
                tokens = planned[number].truncated
                cut = f", of which the last {tokens} tokens are cut" if tokens else ""
                raise InvalidParameter(
                    f"span {index}, {spans[number][index]}, has no token in the text that is read{cut}; choose another "
                    "span or a longer max_length"
                )
            means = [part / weights[:, None] for part, weights in zip(sums.parts, sums.weights, strict=True)]
            raw = np.concatenate([np.zeros((0, len(sums.document))), *means])
            vectors.append(self.finish(raw, number).astype(np.float32))
        return vectors

    def _means(self, total: Doubles, weights: Doubles, text: int) -> Floats:
        # In groups: several copies in double precision of all sentences of a long text would take more than the text.
        groups = np.split(np.arange(len(total)), range(FINISHED, len(total), FINISHED))
        means = (total[rows] / np.where(weights[rows], weights[rows], 1)[:, None] for rows in groups)
        # A part without tokens gets the vector of what holds it later; zeros would be refused.
        filled = (np.where(weights[rows, None], mean, 1.0) for rows, mean in zip(groups, means, strict=True))
        return np.concatenate([self.finish(raw, text).astype(np.float32) for raw in filled])

    def _alone(
        self,
        texts: list[str],
        planned: list[TextPlan],
        divisions: list[list[Ints]],
        groups: list[list[tuple[int, int]]],
        sections: list[list[list[tuple[int, tuple[str, ...]]]]],
        bar: Progress | None,
    ) -> Iterator[PooledSums]:
        """Yield sums of each text whose passages, the last of its divisions, are each embedded by themselves.

        A passage is read after the headings above it, whose tokens count for nothing, unless the model was trained
        to embed, the method reads half of whatever stands there, or they would cut the passage. Sentences, the first of
        two divisions, are read out of their passages, or embedded by themselves if the method reads one token.
        """
        inside = self.open_runner.readout.spans
        for begin, group in chunks(texts, ALONE_CHARACTERS):
            rows = slice(begin, begin + len(group))
            sizes = [cast("Ints", plan.sizes) for plan in planned[rows]]
            firsts = [[first for first, _ in passages] for passages in groups[rows]]
            tokens = [np.add.reduceat(size, first) for size, first in zip(sizes, firsts, strict=True)]
            wholes = [spans[-1] for spans in divisions[rows]]
            sentences = [spans[0] for spans in divisions[rows] if len(spans) > 1]
            within = [np.split(spans, at[1:]) for spans, at in zip(sentences, firsts, strict=False)] if inside else []
            plain = self.planner.closed or self.open_runner.readout.half
            fronts = [] if plain else [[front(first[1]) for first, *_ in text] for text in sections[rows]]
            sums = self._each(group, wholes, tokens, within, fronts, bar)
            if sentences and not inside:
                for together, apart in zip(sums, self._each(group, sentences, sizes, [], [], bar), strict=True):
                    together.put_first(apart)
            yield from sums

    def _each(
        self,
        texts: list[str],
        spans: list[Ints],
        sizes: list[Ints],
        within: list[list[Ints]],
        fronts: list[list[str]],
        bar: Progress | None,
    ) -> list[PooledSums]:
        """Return sums of texts whose spans, of so many tokens, are embedded by themselves, without those of none.

        `within` holds the spans of the text that are wanted of each span's own pass, and `fronts` what is read ahead of
        each span; empty for none.
        """
        pieces, inner, after = [], [], []
        for number, text in enumerate(texts):
            for at, (start, end) in enumerate(spans[number].tolist()):
                ahead = fronts[number][at] if fronts else ""
                if ahead and self.planner.cuts(ahead + text[start:end]):
                    ahead = ""
                pieces.append(ahead + text[start:end])
                inner.append([within[number][at] - start + len(ahead)] if within else [])
                after.append(len(ahead))
        counted = np.flatnonzero(np.concatenate(sizes)).tolist()
        planned = [
            _ignore_tokens_before(after[at], plan, len(self.planner.layout.wordings))
            for at, plan in zip(counted, self.planner.plan([pieces[at] for at in counted], "document"), strict=True)
        ]
        read = [PooledSums.zero(self.open_runner.width, divisions) for divisions in inner]
        tokens = np.zeros(len(pieces), np.int64)
        for at, plan, sums in zip(
            counted, planned, self._run(planned, [inner[at] for at in counted], bar), strict=True
        ):
            read[at], tokens[at] = sums, plan.tokens
        ends = np.cumsum([len(rows) for rows in spans])
        bounds = zip([0, *ends.tolist()], ends.tolist(), strict=False)
        return [PooledSums.of_pieces(read[start:end], tokens[start:end]) for start, end in bounds]


def _ahead(
    plan: Callable[..., list[TextPlan]], runs: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str], list[TextPlan]]]:
    """Yield chunks and their plans, one of which is always in the making."""
    waiting: deque[tuple[int, list[str], Future[list[TextPlan]]]] = deque()
    with ThreadPoolExecutor(1) as beside:
        for first, chunk in runs:
            waiting.append((first, chunk, beside.submit(plan, chunk, first=first)))
            if len(waiting) > 1:
                begin, done, planned = waiting.popleft()
                yield begin, done, planned.result()
        for begin, done, planned in waiting:
            yield begin, done, planned.result()


def _divided(spans: Seq[tuple[int, int]]) -> list[Ints]:
    """Return spans as ordered, disjoint divisions of a text: as one if they are so, else each by itself."""
    bounds = [bound for span in spans for bound in span]
    parts = [list(spans)] if bounds == sorted(bounds) and spans else [[span] for span in spans]
    return [np.array(part, np.int64) for part in parts]


def _passages(plan: TextPlan, size: int, unit: PassageUnit) -> list[tuple[int, int]]:
    sizes = cast("Ints", plan.sizes)
    counted = sizes if unit == "tokens" else np.ones_like(sizes)
    return group_sentences(counted.tolist(), size, cast("Ints", plan.levels).tolist())


def _divisions(plan: TextPlan, passages: list[tuple[int, int]], kinds: Seq[int]) -> list[Ints]:
    """Return the spans of sentences (kind 0) and of passages (1), from first sentence's start to last's end."""
    spans = cast("Ints", plan.spans)
    around = [(spans[first, 0], spans[last, 1]) for first, last in passages]
    both = spans, np.array(around, np.int64).reshape(-1, 2)
    return [both[kind] for kind in kinds]


def _ignore_tokens_before(start: int, plan: TextPlan, wordings: int) -> TextPlan:
    """Return a plan in which the characters before `start` are read, and their tokens count for nothing."""
    if not start:
        return plan
    windows: list[Window | LazyWindow] = []
    for window in plan.windows:
        laid = window.materialize()
        counted = laid.counted[laid.sequence.ends[laid.counted] > start]
        if len(counted) == window.count:
            windows.append(window)
        elif len(counted):
            windows.append(replace(laid, counted=counted))
    total = sum(window.count for window in windows)
    if plan.window_count > 1:
        windows = [replace(window, share=window.count / total) for window in windows]
    return replace(plan, windows=windows, tokens=total // wordings)


def repeated_tokens(window: Window | LazyWindow, repetition: Repetition | None) -> int:
    """Return tokens of all pieces of a text, which run besides its own sequence."""
    if repetition is None or repetition.piece is None:
        return 0
    sequence = window.sequence
    size, front = len(sequence.text), int((sequence.roles == Role.SPECIAL).sum())
    return repetition.times * size - (-size // repetition.piece) * front
