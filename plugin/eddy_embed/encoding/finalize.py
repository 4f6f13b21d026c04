"""Pooled states to vectors: checked, normalised, post-processed, normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddy_embed.errors import NotFinite, NotFitted, ZeroVector
from eddy_embed.parts.layout import TextRole
from eddy_embed.parts.postprocess import Fitted, Post
from eddy_embed.utils.arrays import Doubles

if TYPE_CHECKING:
    from eddy_embed.model.loading.dense_head import Head  # imports torch


@dataclass(frozen=True)
class VectorFinalizer:
    """Makes vectors of pooled states: filter, head, post-processing, normalisation.

    Attributes:
        normalize: Whether vectors end with length 1.
        post: Post-processing of the method, None for none.
        fitted: The same with what it learned, None if it has not been fitted.
        filtered: Orthonormal directions that are taken out of pooled states first, shape (width, directions).
        head: Layers that a fine-tuned model applies to its pooled states, None for none.
    """

    normalize: bool
    post: Post | None = None
    fitted: Fitted | None = None
    filtered: Doubles | None = None
    head: Head | None = None

    def __call__(self, raw: Doubles, text: int, role: TextRole = "document") -> Doubles:
        """Vectors of pooled states, shape (width,) or (vectors, width); messages give the index of the text."""
        _check_finite(raw, text)  # a head's activation may make infinity finite
        raw = self.before_post(raw)
        _check_finite(raw, text)
        if self.post is not None and not self.post.learns:
            raw = raw[..., : self.post.keep]
        elif self.post is not None:
            if self.fitted is None:
                raise NotFitted(
                    f"{self.post.kind} has learned nothing yet: call fit(texts) with the library's texts, or pass "
                    "fitted= what an earlier fit saved"
                )
            # Unit vectors, so that it can also be fitted on, and applied to, stored ones.
            raw = self.fitted.apply(unit(raw), role)
            _check_finite(raw, text)
        if not raw.any(axis=-1).all():
            raise ZeroVector(
                f"text {text}: the model, or the post-processing, gave a vector of zeros, which is similar to nothing; "
                "choose another exit layer, fit on more texts, or fetch the model again, whose weights may be damaged"
            )
        return unit(raw) if self.normalize else raw

    def before_post(self, raw: Doubles) -> Doubles:
        """Pooled states through filter and head, shape (.., width)."""
        if self.filtered is not None:
            raw = raw - (raw @ self.filtered) @ self.filtered.T
        return raw if self.head is None else self.head(raw)


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
