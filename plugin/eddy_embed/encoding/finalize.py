"""Pooled states to vectors: checked, normalised, post-processed, normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eddy_embed.errors import NotFinite, NotFitted
from eddy_embed.model.loading.dense_head import Head
from eddy_embed.parts.postprocess import Fitted, Post

Doubles = NDArray[np.float64]
Role = Literal["document", "query"]


@dataclass(frozen=True)
class VectorFinalizer:
    """What happens to states after pooling.

    Attributes:
        normalize: Whether vectors end with length 1.
        post: Post-processing of the method, None for none.
        fitted: The same with what it learned, None where it has not been fitted.
        head: What a fine-tuned model does to its pooled states first, None for nothing.
    """

    normalize: bool
    post: Post | None = None
    fitted: Fitted | None = None
    head: Head | None = None

    def __call__(self, raw: Doubles, text: int, role: Role = "document") -> Doubles:
        """Vectors of pooled states.

        Post-processing takes vectors of length 1, so that it can also be fitted on, and applied to, stored ones.

        Args:
            raw: Shape (width,) or (vectors, width).
            text: Index of the text, for messages.
            role: What the texts are.

        Raises:
            NotFinite: A state is NaN or infinite.
            NotFitted: The method has post-processing that has not been fitted.
        """
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
    """Vectors of shape (.., width) divided by their length; a vector of zeros stays one."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, np.finfo(np.float64).tiny))
