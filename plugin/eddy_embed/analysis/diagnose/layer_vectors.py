"""Vectors of texts at every layer of a method, out of one pass each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from eddy_embed.encoding.finalize import VectorFinalizer
from eddy_embed.encoding.pipeline import Counts, Pipeline
from eddy_embed.errors import InvalidParameter, NotFinite
from eddy_embed.parts.postprocess import Post, RunningCovariance, fit
from eddy_embed.utils.arrays import Doubles, Floats

TOGETHER = 64
"""Texts whose states are held in double precision at once."""


@dataclass(frozen=True, eq=False)
class Read:
    """Pooled states of texts at each layer, shape (layers, texts, width); the last one is the exit's.

    `layers` are l of each h[l]; `reason` says why there is the exit's layer alone, None where there are all.
    """

    states: Floats
    layers: tuple[int, ...]
    reason: str | None

    def vectors(self, pipeline: Pipeline, post: Post | None) -> Doubles:
        """The method's vectors of length 1, shape (texts, dimension), post-processed by a fit on these very texts."""
        finish = replace(pipeline.finish, normalize=True, post=None, fitted=None)
        found = finish(self.states[-1].astype(np.float64), 0)
        if post is None:
            return found
        fitted = fit(post, RunningCovariance.of(found)) if post.learns else None
        return VectorFinalizer(normalize=True, post=post, fitted=fitted)(found, 0)


def read(pipeline: Pipeline, texts: list[str], told: Callable[[int, int], None], *, every: bool = True) -> Read:
    """Pooled states of texts at every layer up to the exit, or at the exit alone.

    `told` is called with the number of texts read and their total.
    """
    runner = pipeline.open_runner
    exit_layer = runner.host.exit_layer
    layers, reason = tuple(range(exit_layer + 1)) if every else (exit_layer,), None
    if len(layers) > 1:
        try:
            runner = runner.at_layers(layers)
        except InvalidParameter as error:
            layers, reason = (exit_layer,), str(error)
    reading = replace(
        pipeline,
        runner=runner,
        finish=VectorFinalizer(normalize=False, filtered=pipeline.finish.filtered),
        counts=Counts(),
    )
    states = np.empty((len(layers), len(texts), runner.host.width), np.float32)
    for first in range(0, len(texts), TOGETHER):
        part = texts[first : first + TOGETHER]
        for at, raw in reading.vectors(part, "document"):
            states[:, first + at] = raw.reshape(len(layers), -1)
        told(min(first + TOGETHER, len(texts)), len(texts))
    if not np.isfinite(states).all():
        raise NotFinite("a text's states hold NaN or infinity; load the model with dtype='float32'")
    return Read(states, layers, reason)
