"""Pooled states to vectors: checked, normalised, post-processed, normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddy_embed.errors import NotFinite, NotFitted
from eddy_embed.parts.layout import TextRole
from eddy_embed.parts.postprocess import Fitted, Post
from eddy_embed.utils.arrays import Doubles

if TYPE_CHECKING:
    from eddy_embed.model.loading.dense_head import Head  # imports torch


@dataclass(frozen=True)
class VectorFinalizer:
    """Makes vectors of pooled states: head, post-processing, normalisation.

    Attributes:
        normalize: Whether vectors end with length 1.
        post: Post-processing of the method, None for none.
        fitted: The same with what it learned, None if it has not been fitted.
        head: Layers that a fine-tuned model applies to its pooled states first, None for none.
    """

    normalize: bool
    post: Post | None = None
    fitted: Fitted | None = None
    head: Head | None = None

    def __call__(self, raw: Doubles, text: int, role: TextRole = "document") -> Doubles:
        """Vectors of pooled states, shape (width,) or (vectors, width); messages give the index of the text."""
        _check_finite(raw, text)
        if self.head is not None:
            raw = self.head(raw)
            _check_finite(raw, text)
        if self.post is not None and not self.post.learns:
            raw = raw[..., : self.post.keep]
        elif self.post is not None:
            if self.fitted is None:
                raise NotFitted(
                    f"{self.post.kind} has learned nothing yet: call fit(texts) with the library's texts, or pass "
                    "post= what an earlier fit saved"
                )
            # Unit vectors, so that it can also be fitted on, and applied to, stored ones.
            raw = self.fitted.apply(unit(raw), role)
            _check_finite(raw, text)
        return unit(raw) if self.normalize else raw


def _check_finite(raw: Doubles, text: int) -> None:
    if not np.isfinite(raw).all():
        raise NotFinite(
            f"text {text}: the model, or the post-processing, gave NaN or infinity; load the model with "
            "dtype='float32' or 'bfloat16', choose an earlier exit layer, or fit again"
        )


def unit(vectors: Doubles) -> Doubles:
    """Vectors of shape (.., width) divided by their length; zeros stay zeros."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, np.finfo(np.float64).tiny))
