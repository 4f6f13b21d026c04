"""Post-processing fitted on a library's vectors, never on labels: centring, removal of top components, whitening.

Vectors of an untuned language model lie in a narrow cone: their common direction says nothing about a text. What a
library's own vectors have in common can be measured and removed.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from eddy_embed.errors import FingerprintMismatch, InvalidParameter, NotFinite
from eddy_embed.parts.settings import settings_of
from eddy_embed.utils.arrays import Doubles
from eddy_embed.utils.atomic_files import atomic_write
from eddy_embed.utils.diff import differences

Floats = NDArray[np.floating[Any]]


LEAST = 1e-12
"""Smallest ratio of least to largest variance with which the shrunk covariance is meaningful in every direction."""

Kind = Literal["centre", "abtt", "whiten", "truncate"]


@dataclass(frozen=True)
class Post:
    """What is done to vectors after pooling, before they are normalised.

    Attributes:
        kind: "centre": minus the mean. "abtt": minus the mean and the projections on the top components (Mu and
            Viswanath 2018). "whiten": minus the mean, rotated to principal components, each divided by its standard
            deviation, shrunk (Su et al. 2021, with the shrinkage of Ledoit and Wolf 2004), to a `power`. "truncate":
            nothing that is learned.
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
        if self.kind not in get_args(Kind):
            raise InvalidParameter(f"post {self.kind!r} is unknown; choose one of {', '.join(get_args(Kind))}")
        if self.kind == "abtt" and self.components < 1:
            raise InvalidParameter(f"abtt: k={self.components} must be at least 1")
        if self.dims is not None and self.dims < 1:
            raise InvalidParameter(f"whiten: dims={self.dims} must be at least 1")
        if not 0 < self.power <= 1:
            raise InvalidParameter(f"whiten: power={self.power} must be above 0 and at most 1, such as 0.5")
        if self.keep is not None and self.keep < 1:
            raise InvalidParameter(f"truncate: dims={self.keep} must be at least 1")
        if self.keep is not None and self.dims is not None and self.keep > self.dims:
            raise InvalidParameter(f"truncate: dims={self.keep} were asked for, whiten keeps {self.dims}")

    @property
    def learns(self) -> bool:
        """Whether it has to be fitted on vectors before it can be applied."""
        return self.kind != "truncate"

    def joined(self, other: Post) -> Post | None:
        """Both, if one of them only truncates, which is done last; None if they exclude each other."""
        first, last = (other, self) if self.kind == "truncate" else (self, other)
        if last.kind != "truncate" or not first.learns or first.keep is not None:
            return None
        return replace(first, keep=last.keep)

    def dimension(self, width: int) -> int:
        """Width of the result for vectors of this width; InvalidParameter if they have too few dimensions."""
        wanted = max(self.components, self.dims or 0, self.keep or 0)
        if wanted > width:
            what = "components" if self.learns and self.keep != wanted else "dimensions"
            raise InvalidParameter(f"{self.kind}: {wanted} {what} were asked for, vectors have {width}")
        return self.keep or self.dims or width


class RunningCovariance:
    """Mean, covariance and shrinkage of vectors, in one pass and float64.

    Sums are taken around the first batch's mean: in a narrow cone, sums around zero would cancel.
    """

    def __init__(self, width: int) -> None:
        """Start for vectors of this width."""
        self.count = 0
        self._origin: Doubles | None = None
        self._sum = np.zeros(width)
        self._outer = np.zeros((width, width))
        self._cubic = np.zeros(width)
        self._quartic = 0.0

    @classmethod
    def of(cls, vectors: Floats) -> RunningCovariance:
        """Those of vectors of shape (vectors, width)."""
        moments = cls(vectors.shape[1])
        moments.add(vectors)
        return moments

    def add(self, vectors: Floats) -> None:
        """Add vectors of shape (vectors, width); NotFinite if one holds NaN or infinity."""
        x = np.asarray(vectors, np.float64)
        if not np.isfinite(x).all():
            raise NotFinite("a vector to fit on holds NaN or infinity; embed its text again")
        if len(x) == 0:
            return
        if self._origin is None:
            self._origin = x.mean(0)
        x = x - self._origin
        squares = np.einsum("nd,nd->n", x, x)
        self.count += len(x)
        self._sum += x.sum(0)
        self._outer += x.T @ x
        self._cubic += squares @ x
        self._quartic += float(squares @ squares)

    @property
    def mean(self) -> Doubles:
        """Shape (width,)."""
        self._require(1)
        origin = np.zeros(len(self._sum)) if self._origin is None else self._origin
        return np.asarray(origin + self._sum / self.count)

    @property
    def covariance(self) -> Doubles:
        """Divided by the number of vectors, shape (width, width)."""
        self._require(2)
        shift = self._sum / self.count
        return np.asarray(self._outer / self.count - np.outer(shift, shift))

    @property
    def shrinkage(self) -> float:
        """Ledoit and Wolf's weight of the spherical covariance, between 0 and 1 (2004, section 3.2)."""
        covariance, width, n = self.covariance, len(self._sum), self.count
        shift = self._sum / n
        square = float(shift @ shift)
        # Sum over vectors of |x - m|^4, expanded so that one pass suffices.
        fourth = self._quartic - 4 * float(self._cubic @ shift) + 4 * float(shift @ self._outer @ shift)
        fourth += 2 * square * float(np.trace(self._outer)) - 4 * n * square**2 + n * square**2
        scale = float(np.trace(covariance)) / width
        dispersion = float((covariance**2).sum()) / width - scale**2
        error = (fourth / n**2 - float((covariance**2).sum()) / n) / width
        return 0.0 if dispersion <= 0 else min(max(error, 0.0), dispersion) / dispersion

    def _require(self, count: int) -> None:
        if self.count < count:
            raise InvalidParameter(f"post-processing needs at least {count} vectors to fit on, not {self.count}")


@dataclass(frozen=True, eq=False)
class Fitted:
    """Post-processing with what it learned from a library.

    Attributes:
        post: What is done.
        mean: Subtracted, shape (width,).
        matrix: Applied after that, shape (width, components); None for none.
        count: Number of vectors it was fitted on.
        query_mean: Subtracted from queries instead of `mean`, shape (width,); None: queries are treated as documents.
        made_by: `Embedder.made_by` of the vectors that it was fitted on; None: unknown.
    """

    post: Post
    mean: Doubles
    matrix: Doubles | None
    count: int
    query_mean: Doubles | None = None
    made_by: dict[str, Any] | None = None

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
    def dimension(self) -> int:
        """Width of the processed vectors."""
        return self.post.dimension(len(self.mean))

    @property
    def digest(self) -> str:
        """Hash of the fitted values, rounded to float32."""
        sha = hashlib.sha256(json.dumps(settings_of(self.post), sort_keys=True).encode())
        for array in (self.mean, self.matrix):
            sha.update(b"none" if array is None else array.astype("<f4").tobytes())
        if self.query_mean is not None:
            sha.update(b"queries" + self.query_mean.astype("<f4").tobytes())
        return sha.hexdigest()

    def apply(self, vectors: Floats, role: Literal["document", "query"] = "document") -> Doubles:
        """Process unit vectors of documents or queries, shape (.., width), without normalising the result.

        Raises:
            InvalidParameter: They have another width.
        """
        x = np.asarray(vectors, np.float64)
        if x.shape[-1] != len(self.mean):
            raise InvalidParameter(
                f"vectors of width {x.shape[-1]} do not go with post-processing fitted on width {len(self.mean)}; "
                "fit it again with this model"
            )
        x = x - (self.query_mean if role == "query" and self.query_mean is not None else self.mean)
        return np.asarray((x if self.matrix is None else x @ self.matrix)[..., : self.post.keep])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a .npz file, atomically."""
        arrays: dict[str, Any] = {"mean": self.mean, "post": json.dumps(asdict(self.post)), "count": self.count}
        arrays |= {"maker": json.dumps(self.made_by), "matrix": self.matrix, "query_mean": self.query_mean}
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
                return cls(post, held["mean"], matrix, int(held["count"]), query_mean, made_by)
        except (OSError, EOFError, BadZipFile, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidParameter(f"no fitted post-processing at {path}: {error}; fit it first") from error


def fit(post: Post, moments: RunningCovariance, queries: RunningCovariance | None = None) -> Fitted:
    """Fit post-processing on statistics of vectors.

    Args:
        post: The post-processing.
        moments: Statistics of the library's passage vectors, as they leave the method.
        queries: Statistics of sample queries' vectors, for a mean of their own; None: queries are treated as documents.

    Raises:
        InvalidParameter: There are fewer than two vectors, or more components are asked for than there are.
    """
    if not post.learns:
        raise InvalidParameter(f"{post.kind} learns nothing from vectors; join centre, abtt or whiten")
    if moments.count < 2 or not np.trace(moments.covariance) > 0:
        raise InvalidParameter(
            f"{post.kind} needs at least 2 vectors that differ to be fitted on, not {moments.count} alike; give it "
            "more of the library's texts"
        )
    width = len(moments.mean)
    post.dimension(width)
    query_mean = None if queries is None else _query_mean(queries, moments)
    if post.kind == "centre":
        return Fitted(post, moments.mean, None, moments.count, query_mean)
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


def _query_mean(queries: RunningCovariance, library: RunningCovariance) -> Doubles:
    """The queries' mean, drawn towards the library's by as much as it may be off (James and Stein 1961).

    Its squared error is estimated by the queries' spread around it, the library's counted as one query more: a single
    query, or several that are alike, are then not reduced to nothing by their own mean.
    """
    spread = np.trace(library.covariance)
    if queries.count > 1:
        spread = spread / queries.count + np.trace(queries.covariance)
    difference = queries.mean - library.mean
    distance = float(difference @ difference)
    weight = 1.0 if distance == 0 else min(1.0, float(spread) / queries.count / distance)
    return np.asarray(queries.mean - weight * difference)


def _signed(axes: Doubles) -> Doubles:
    """The same axes with their largest entry positive, so that a fit is the same on every machine."""
    largest = axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])]
    return np.asarray(axes * np.where(largest < 0, -1.0, 1.0))
