"""What cosines are like where a question and a text have nothing in common, for levels that fit any model."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from eddy_embed.encoding.calibration import unrelated

if TYPE_CHECKING:
    from eddy_embed.embedder import Embedder

_known: weakref.WeakKeyDictionary[Embedder, tuple[float, float]] = weakref.WeakKeyDictionary()


def unrelated_cosines(embedder: Embedder) -> tuple[float, float]:
    """Mean and standard deviation of the cosines of queries with documents about other things.

    Of general text, which is read when this is first asked for of a model and method; then kept in the cache.
    """
    if embedder not in _known:
        _known[embedder] = unrelated(embedder._calibrated, embedder.settings, embedder.dtype, None)
    return _known[embedder]
