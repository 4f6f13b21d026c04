"""From checked texts to vectors: planned, run, finished."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np

from eddy_embed.document import LongDocument, assemble, group_sentences
from eddy_embed.errors import EddyError
from eddy_embed.fingerprint import Counts
from eddy_embed.inputs import chunks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from eddy_embed.finish import Finish
    from eddy_embed.layout import TextRole
    from eddy_embed.plan import Planned, Planner
    from eddy_embed.progress import Progress
    from eddy_embed.runner import Runner
    from eddy_embed.sequence import Ints

    Vectors = NDArray[np.float32]
    Doubles = NDArray[np.float64]


@dataclass(eq=False)
class Pipeline:
    """The three stages, and what has passed through them.

    Attributes:
        planner: Texts to sequences.
        runner: Sequences to sums of states; None once it is closed.
        finish: Sums to vectors.
        counts: What was read so far.
    """

    planner: Planner
    runner: Runner | None
    finish: Finish
    counts: Counts = field(default_factory=Counts)

    @property
    def open_runner(self) -> Runner:
        """The runner.

        Raises:
            EddyError: It was closed.
        """
        if self.runner is None:
            raise EddyError("this embedder is closed; make a new one")
        return self.runner

    def vectors(self, texts: list[str], role: TextRole, bar: Progress) -> Iterator[tuple[int, Doubles]]:
        """Index and vector of every text, in the full precision of the sums."""
        for first, chunk in chunks(texts):
            planned = self.planner.plan(chunk, role, first=first)
            self.counts.add(planned)
            for at, sums in enumerate(self.open_runner.run(planned, [[] for _ in planned], bar, role), start=first):
                yield at, self.finish(sums.document, at)

    def documents(self, texts: list[str], passage_size: int, late: bool, bar: Progress) -> Iterator[LongDocument]:
        """Every text with the vectors of its parts.

        Args:
            texts: The documents.
            passage_size: Most tokens in a passage.
            late: Whether parts are read out of the pass over the whole.
            bar: Told of every window done.
        """
        for first, chunk in chunks(texts):
            planned = self.planner.plan(chunk, "document", first=first, sentences=True)
            self.counts.add(planned)
            groups = [group_sentences(cast("Ints", plan.sizes).tolist(), passage_size) for plan in planned]
            divisions = [_divisions(plan, passages) for plan, passages in zip(planned, groups, strict=True)]
            sums = self.open_runner.run(planned, divisions if late else [[] for _ in planned], bar)
            for at, (text, plan) in enumerate(zip(chunk, planned, strict=True)):
                vector = self.finish(sums[at].document, first + at).astype(np.float32)
                if late:
                    totals = zip(sums[at].parts, sums[at].sizes, strict=True)
                    parts = [self._means(total, sizes, first + at) for total, sizes in totals]
                else:
                    parts = [self._alone(text, spans, first + at, bar) for spans in divisions[at]]
                yield assemble(text, plan, groups[at], (parts[0], parts[1]), vector)

    def _means(self, total: Doubles, sizes: Ints, text: int) -> tuple[Vectors, Ints]:
        return self.finish(total / np.maximum(sizes, 1)[:, None], text).astype(np.float32), sizes

    def _alone(self, text: str, spans: Ints, number: int, bar: Progress) -> tuple[Vectors, Ints]:
        """Vectors and token counts of spans of a text, each embedded by itself."""
        planned = self.planner.plan([text[start:end] for start, end in spans.tolist()], "document")
        sums = self.open_runner.run(planned, [[] for _ in planned], bar)
        vectors = self.finish(np.stack([each.document for each in sums]), number)
        return vectors.astype(np.float32), np.array([plan.tokens for plan in planned], np.int64)


def _divisions(plan: Planned, passages: list[tuple[int, int]]) -> list[Ints]:
    """The sentences' spans, and the passages' from their first sentence's start to their last one's end."""
    spans = cast("Ints", plan.spans)
    around = [(spans[first, 0], spans[last, 1]) for first, last in passages]
    return [spans, np.array(around, np.int64).reshape(-1, 2)]
