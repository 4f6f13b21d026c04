"""An index's own post-processing: kept beside its vectors, undone to get the raw ones back."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_eddy.errors import ForeignCollection
from chroma_eddy.storage.names import TRANSFORM
from chroma_eddy.storage.recipe import FORMAT
from eddy_embed.finish import unit
from eddy_embed.postprocess import Fitted, Post

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chroma_eddy.storage.store import Store

    Floats = NDArray[np.float32]


def round_to_float32(fitted: Fitted) -> Fitted:
    """The same with values that the database keeps bit by bit, so that all writers and readers use equal ones."""

    def again(array: Any) -> Any:
        return None if array is None else np.asarray(array, np.float32).astype(np.float64)

    return replace(fitted, mean=again(fitted.mean), matrix=again(fitted.matrix), query_mean=again(fitted.query_mean))


def save_transform(store: Store, fitted: Fitted) -> None:
    """Keep what was learned; what an interrupted beginning left is replaced."""
    store.drop(TRANSFORM)
    rows = {"mean": fitted.mean[None]}
    if fitted.query_mean is not None:
        rows["query_mean"] = fitted.query_mean[None]
    if fitted.matrix is not None:
        rows["matrix"] = fitted.matrix.T
    ids = [f"{name}/{at}" for name, array in rows.items() for at in range(len(array))]
    metadatas = [{"eddy_array": name, "eddy_index": at} for name, array in rows.items() for at in range(len(array))]
    told = {"post": json.dumps(asdict(fitted.post)), "count": fitted.count, "maker": json.dumps(fitted.maker)}
    # Metadata of the collection, and rows that say how many there are: a transform that is half there is none.
    about = {"eddy_format": FORMAT, "eddy_part": TRANSFORM, "eddy_rows": len(ids)}
    store.open_or_create(TRANSFORM, {**about, **{f"eddy_{name}": value for name, value in told.items()}})
    store.upsert(TRANSFORM, ids, np.concatenate(list(rows.values())).astype(np.float32), metadatas)


def load_transform(store: Store) -> Fitted | None:
    """What was kept; None where there is none.

    Raises:
        ForeignCollection: It is not whole.
    """
    found = store.find(TRANSFORM)
    if found is None:
        return None
    about = dict(found.metadata or {})
    rows = store.get(TRANSFORM, metadatas=True, embeddings=True)
    if len(rows.ids) != about.get("eddy_rows"):
        raise ForeignCollection(
            f"collection {found.name!r} holds {len(rows.ids)} rows of post-processing, not {about.get('eddy_rows')}: "
            "something else has changed it; embed the documents again into another index"
        )
    arrays: dict[str, Any] = {}
    for name in ("mean", "query_mean", "matrix"):
        own = [at for at, row in enumerate(rows.metadatas) if row["eddy_array"] == name]
        own.sort(key=lambda at: rows.metadatas[at]["eddy_index"])
        arrays[name] = rows.vectors[own].astype(np.float64) if own else None
    query_mean = arrays["query_mean"]
    return Fitted(
        Post(**json.loads(about["eddy_post"])),
        arrays["mean"][0],
        None if arrays["matrix"] is None else arrays["matrix"].T,
        int(about["eddy_count"]),
        None if query_mean is None else query_mean[0],
        json.loads(about["eddy_maker"]),
    )


def is_invertible(fitted: Fitted) -> bool:
    """Whether raw vectors can be had back; else they are kept beside the others."""
    return fitted.post.kind in ("centre", "whiten") and fitted.dimension == len(fitted.mean)


def invert(fitted: Fitted, vectors: Floats, normalized: bool) -> NDArray[np.float64]:
    """Raw vectors, of length 1, of processed ones.

    Normalising takes a length away, which the raw vector's own gives back: of mean + length * direction there is one
    positive length that makes it 1, since the mean of vectors of length 1 is shorter.

    Args:
        fitted: An invertible transform.
        vectors: Shape (vectors, width).
        normalized: Whether they were brought to length 1 after the transform.
    """
    y = np.asarray(vectors, np.float64)
    directions = y if fitted.matrix is None else np.linalg.solve(fitted.matrix.T, y.T).T
    if not normalized:
        return unit(fitted.mean + directions)
    directions = unit(directions)
    half = directions @ fitted.mean
    length = -half + np.sqrt(np.maximum(half**2 + 1 - fitted.mean @ fitted.mean, 0))
    return unit(fitted.mean + length[:, None] * directions)
