"""Post-processing fitted on vectors, never on labels: centring, standardising, removal of top components, whitening.

Vectors of an untuned language model lie in a narrow cone: their common direction says nothing about a text. What
vectors have in common can be measured, on general text or on a library's own, and removed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args
from zipfile import BadZipFile

import numpy as np

from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.utils.arrays import Doubles
from eddy_embed.utils.atomic_files import atomic_write
from eddy_embed.utils.checks import check_choice, check_count
from eddy_embed.utils.moments import Floats, RunningCovariance, RunningMoments
from eddy_embed.utils.settings import differences, part_settings

LEAST = 1e-12
"""Smallest ratio of least to largest variance with which the shrunk covariance is meaningful in every direction."""

LEAST_DEVIATION = 1e-3
"""Least deviation by which a dimension is divided, relative to their root mean square: less is rounding, or chance."""

Kind = Literal["centre", "standardise", "abtt", "whiten", "truncate"]


@dataclass(frozen=True)
class Post:
    """What is done to vectors after pooling, before they are normalised.

    Attributes:
        kind: "centre": minus the mean. "standardise": minus the mean, each dimension divided by its standard deviation,
            of several layers in one vector each by itself. "abtt": minus the mean and the projections on the top
            components (Mu and Viswanath 2018). "whiten": minus the mean, rotated to principal components, each divided
            by its standard deviation, shrunk (Su et al. 2021, with the shrinkage of Ledoit and Wolf 2004), to a
            `power`. "truncate": nothing that is learned.
        components: Top components that "abtt" removes.
        dims: Components that "whiten" keeps, None for all.
        keep: Leading dimensions of the result that are kept, None for all.
        power: Of the standard deviations by which "whiten" divides, above 0: 1 gives all components the same spread.

    Raises:
        InvalidParameter: A value is outside its range.
    """

    kind: Kind
    components: int = 0
    dims: int | None = None
    keep: int | None = None
    power: float = 1.0

    def __post_init__(self) -> None:
        check_choice("post", self.kind, get_args(Kind))
        check_count("abtt: k", self.components, least=int(self.kind == "abtt"))
        check_count("whiten: dims", self.dims)
        if not 0 < self.power <= 1:
            raise InvalidParameter(f"whiten: power={self.power} must be above 0 and at most 1, such as 0.5")
        check_count("truncate: dims", self.keep)
        if self.keep is not None and self.dims is not None and self.keep > self.dims:
            raise InvalidParameter(f"truncate: dims={self.keep} were asked for, whiten keeps {self.dims}")

    @property
    def learns(self) -> bool:
        """Whether it has to be fitted on vectors before it can be applied."""
        return self.kind != "truncate"

    @property
    def by_layer(self) -> bool:
        """Whether it takes the layers of a vector side by side, before they are averaged."""
        return self.kind == "standardise"

    def joined(self, other: Post) -> Post | None:
        """Return both, if one of them only truncates, which is done last; None if they exclude each other."""
        first, last = (other, self) if self.kind == "truncate" else (self, other)
        if last.kind != "truncate" or not first.learns or first.keep is not None:
            return None
        return replace(first, keep=last.keep)

    def dimension(self, width: int) -> int:
        """Return the width of the result for vectors of this width; InvalidParameter if they have too few."""
        wanted = max(self.components, self.dims or 0, self.keep or 0)
        if wanted > width:
            what = "components" if self.learns and self.keep != wanted else "dimensions"
            raise InvalidParameter(f"{self.kind}: {wanted} {what} were asked for, vectors have {width}")
        return self.keep or self.dims or width


@dataclass(frozen=True, eq=False)
class Fitted:
    """Post-processing with what it learned: a model's calibration on general text, or on a library's.

    Attributes:
        post: What is done.
        mean: Subtracted, shape (width,); for `standardise`, the layers of a vector side by side.
        matrix: Applied after that, shape (width, components), or (width,) for a diagonal one; None for none.
        count: Number of vectors it was fitted on.
        query_mean: Subtracted from queries instead of `mean`, shape (width,); None: queries are treated as documents.
        made_by: `Embedder.made_by` of the vectors that it was fitted on; None: unknown.
        general: Digest of the general text that it was fitted on; "" if it was fitted on a user's.
    """

    post: Post
    mean: Doubles
    matrix: Doubles | None
    count: int
    query_mean: Doubles | None = None
    made_by: dict[str, Any] | None = None
    general: str = ""

    def check_made_by(self, made_by: dict[str, Any]) -> None:
        """Raise FingerprintMismatch if an `Embedder.made_by` differs from that of the vectors that it was fitted on."""
        if self.made_by is None:
            return
        # Without a query mean it was fitted on no query.
        ignored = ("query_instruction", "query_attached") if self.query_mean is None else ()
        theirs, ours = ({k: v for k, v in of.items() if k not in ignored} for of in (self.made_by, made_by))
        if differing := differences(theirs, ours):
            shown = "; ".join(f"{name} {there!r:.40}, here {here!r:.40}" for name, there, here in differing[:5])
            more = f"; and {len(differing) - 5} more" if len(differing) > 5 else ""
            # A method's exit layer decides which weights are read, so it is named before the model.
            parts = {name.split(".")[0] for name, _, _ in differing}
            named = [part for part in ("method", "text_instruction", "query_instruction") if part in parts]
            raise FingerprintMismatch(
                f"The post-processing was fitted with another {' and '.join(named) or 'model'}.\nFitted with {shown}"
                f"{more}. Use the model, method and settings that it was fitted with, or fit it again with these"
            )

    @property
    def digest(self) -> str:
        """Hash of the fitted values, rounded to float32, or of the general text that they follow from."""
        if self.general:
            return self.general
        sha = hashlib.sha256(json.dumps(part_settings(self.post), sort_keys=True).encode())
        for array in (self.mean, self.matrix):
            sha.update(b"none" if array is None else array.astype("<f4").tobytes())
        if self.query_mean is not None:
            sha.update(b"queries" + self.query_mean.astype("<f4").tobytes())
        return sha.hexdigest()

    def apply(self, vectors: Floats, role: Literal["document", "query"] = "document") -> Doubles:
        """Process unit vectors of documents or queries, shape (.., width), without normalising or truncating them."""
        mean = self.query_mean if role == "query" and self.query_mean is not None else self.mean
        x = np.asarray(vectors, np.float64) - mean
        if self.matrix is None:
            return x
        return np.asarray(x * self.matrix if self.matrix.ndim == 1 else x @ self.matrix)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a .npz file, atomically."""
        arrays: dict[str, Any] = {"mean": self.mean, "post": json.dumps(asdict(self.post)), "count": self.count}
        arrays |= {"maker": json.dumps(self.made_by), "matrix": self.matrix, "query_mean": self.query_mean}
        arrays["general"] = self.general
        with atomic_write(path) as file:
            np.savez(file, **{name: array for name, array in arrays.items() if array is not None})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Fitted:
        """Read what `save` wrote.

        Raises:
            InvalidParameter: The file is absent or holds something else.
        """
        try:
            with np.load(path, allow_pickle=False) as held:
                post = Post(**json.loads(str(held["post"])))
                matrix = held["matrix"] if "matrix" in held else None
                query_mean = held["query_mean"] if "query_mean" in held else None
                made_by = json.loads(str(held["maker"]))
                general = str(held["general"]) if "general" in held else ""
                return cls(post, held["mean"], matrix, int(held["count"]), query_mean, made_by, general)
        except (OSError, EOFError, BadZipFile, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidParameter(f"no fitted post-processing at {path}: {error}; fit it first") from error


def statistics(post: Post, groups: Iterable[Floats]) -> RunningMoments:
    """Return what post-processing needs to know of vectors, which come in groups of shape (vectors, width).

    Raises:
        InvalidParameter: There are none.
    """
    kind = RunningCovariance if post.kind in ("abtt", "whiten") else RunningMoments
    moments: RunningMoments | None = None
    for vectors in groups:
        moments = kind(vectors.shape[1]) if moments is None else moments
        moments.add(vectors)
    if moments is None:
        raise InvalidParameter(f"{post.kind} needs texts to be fitted on, and there are none")
    return moments


def fit(post: Post, moments: RunningMoments, queries: RunningMoments | None = None) -> Fitted:
    """Fit post-processing on statistics of vectors.

    Args:
        post: The post-processing.
        moments: Statistics of passages' vectors, of length 1, as they leave the method; a `RunningCovariance` for abtt
            and whiten.
        queries: Statistics of sample queries' vectors, for a mean of their own; None: queries are treated as documents.

    Raises:
        InvalidParameter: There are fewer than two vectors, or more components are asked for than there are.
    """
    if moments.count < 2 or not moments.variance.sum() > 0:
        raise InvalidParameter(
            f"{post.kind} needs at least 2 vectors that differ to be fitted on, not {moments.count} alike; give it "
            "more of the library's texts"
        )
    width = len(moments.mean)
    post.dimension(width)
    query_mean = None if queries is None else _query_mean(queries, moments)
    if post.by_layer:
        deviation = np.sqrt(moments.variance)
        least = LEAST_DEVIATION * np.sqrt(moments.variance.mean())
        return Fitted(post, moments.mean, 1 / np.maximum(deviation, least), moments.count, query_mean)
    if post.kind == "centre":
        return Fitted(post, moments.mean, None, moments.count, query_mean)
    if not isinstance(moments, RunningCovariance):
        raise AssertionError(f"{post.kind} is fitted on covariances")
    values, axes = np.linalg.eigh(moments.covariance)
    values, axes = values[::-1], _signed(axes[:, ::-1])
    if post.kind == "abtt":
        top = axes[:, : post.components]
        return Fitted(post, moments.mean, np.eye(width) - top @ top.T, moments.count, query_mean)
    shrinkage = moments.shrinkage
    shrunk = (1 - shrinkage) * np.maximum(values, 0) + shrinkage * values.mean()
    if shrunk[-1] < LEAST * shrunk[0]:
        # Two vectors, or two that occur equally often, differ along one line, which the estimate takes for exact.
        # All other directions would explode, so the covariance is shrunk to the sphere, and whitening only centres.
        shrunk = np.full(width, values.mean())
    return Fitted(post, moments.mean, (axes / shrunk ** (post.power / 2))[:, : post.dims], moments.count, query_mean)


def _query_mean(queries: RunningMoments, library: RunningMoments) -> Doubles:
    """Return the queries' mean, drawn towards the library's by as much as it may be off (James and Stein 1961).

    Its squared error is estimated by the queries' spread around it, the library's counted as one query more: a single
    query, or several that are alike, are then not reduced to nothing by their own mean.
    """
    spread = library.variance.sum()
    if queries.count > 1:
        spread = spread / queries.count + queries.variance.sum()
    difference = queries.mean - library.mean
    distance = float(difference @ difference)
    weight = 1.0 if distance == 0 else min(1.0, float(spread) / queries.count / distance)
    return np.asarray(queries.mean - weight * difference)


def _signed(axes: Doubles) -> Doubles:
    """Return the same axes with their largest entry positive, so that a fit is the same on every machine."""
    largest = axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])]
    return np.asarray(axes * np.where(largest < 0, -1.0, 1.0))
