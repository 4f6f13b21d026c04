"""Pooled states to vectors: checked, normalised, post-processed, averaged over layers, normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddy_embed.errors import NotFinite, ZeroVector
from eddy_embed.parts.layout import TextRole
from eddy_embed.parts.postprocess import Fitted, Post
from eddy_embed.utils.arrays import Doubles

if TYPE_CHECKING:
    from eddy_embed.model.loading.sentence_transformers import Head  # imports torch


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
        """Vectors of pooled states, shape (width,) or (vectors, width); messages give the index of the text."""
        _check_finite(raw, text)  # a head's activation may make infinity finite
        states = self._states(raw)
        _check_finite(states, text)
        if self.post is None or not self.post.learns:
            vectors = _averaged(states)
        elif self.fitted is None:
            raise AssertionError(f"{self.post.kind} is applied before it is fitted")
        else:
            vectors = self.fitted.apply(self._for_post(states), role)
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

    def for_post(self, raw: Doubles) -> Doubles:
        """What post-processing is fitted on and applied to: unit vectors, the layers of one side by side if it asks so.

        Args:
            raw: Pooled states, shape (.., layers * width).
        """
        return self._for_post(self._states(raw))

    def _for_post(self, states: Doubles) -> Doubles:
        by_layer = self.post is not None and self.post.by_layer
        return (
            unit(states).reshape(*states.shape[:-2], states.shape[-2] * states.shape[-1])
            if by_layer
            else unit(_averaged(states))
        )

    def _states(self, raw: Doubles) -> Doubles:
        """Pooled states through filter and head, shape (.., layers, width)."""
        raw = raw.reshape(*raw.shape[:-1], self.layers, raw.shape[-1] // self.layers)
        if self.filtered is not None:
            raw = raw - (raw @ self.filtered) @ self.filtered.T
        return raw if self.head is None else self.head(raw)


def _averaged(states: Doubles) -> Doubles:
    """The mean over layers of unit vectors, or the only layer as it is; of states of shape (.., layers, width)."""
    return np.asarray(states[..., 0, :] if states.shape[-2] == 1 else unit(states).mean(axis=-2))


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
