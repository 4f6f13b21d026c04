"""An index's own post-processing: stored beside its vectors, and inverted to compute raw vectors."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chroma_eddy.errors import ForeignCollection
from chroma_eddy.storage.names import TRANSFORM
from chroma_eddy.storage.settings import FORMAT
from chroma_eddy.storage.store import Store
from eddy_embed.integrations import Fitted, Post, unit


def round_to_float32(fitted: Fitted) -> Fitted:
    """Round to float32, which the database stores exactly, so that all writers and readers use equal values."""
    arrays = {name: getattr(fitted, name) for name in ("mean", "matrix", "query_mean")}
    rounded: dict[str, Any] = {
        name: None if array is None else array.astype(np.float32).astype(np.float64) for name, array in arrays.items()
    }
    return replace(fitted, **rounded)


def save_transform(store: Store, fitted: Fitted) -> None:
    """Store the fitted post-processing, in place of what an interrupted call left."""
    store.drop(TRANSFORM)
    rows = {"mean": fitted.mean[None]}
    if fitted.query_mean is not None:
        rows["query_mean"] = fitted.query_mean[None]
    if fitted.matrix is not None:
        rows["matrix"] = fitted.matrix.T
    numbered = [(name, number) for name, array in rows.items() for number in range(len(array))]
    values = {"post": json.dumps(asdict(fitted.post)), "count": fitted.count, "maker": json.dumps(fitted.made_by)}
    # The number of rows tells a complete transform from one whose writing was interrupted.
    metadata = {"eddy_format": FORMAT, "eddy_kind": TRANSFORM, "eddy_rows": len(numbered)}
    store.open_or_create(TRANSFORM, {**metadata, **{f"eddy_{name}": value for name, value in values.items()}})
    store.upsert(
        TRANSFORM,
        [f"{name}/{number}" for name, number in numbered],
        np.concatenate(list(rows.values())).astype(np.float32),
        [{"eddy_array": name, "eddy_index": number} for name, number in numbered],
    )


def load_transform(store: Store) -> Fitted | None:
    """Read the stored post-processing; None without one; ForeignCollection if rows are missing."""
    found = store.find(TRANSFORM)
    if found is None:
        return None
    metadata = dict(found.metadata or {})
    rows = store.get(TRANSFORM, metadatas=True, embeddings=True)
    if len(rows.ids) != metadata.get("eddy_rows"):
        raise ForeignCollection(
            f"collection {found.name!r} holds {len(rows.ids)} rows of post-processing, not {metadata.get('eddy_rows')}"
            ": something else has changed it; embed the documents again into another index"
        )
    arrays: dict[str, Any] = {}
    for name in ("mean", "query_mean", "matrix"):
        numbers = [number for number, row in enumerate(rows.metadatas) if row["eddy_array"] == name]
        numbers.sort(key=lambda number: rows.metadatas[number]["eddy_index"])
        arrays[name] = rows.vectors[numbers].astype(np.float64) if numbers else None
    query_mean = arrays["query_mean"]
    return Fitted(
        Post(**json.loads(metadata["eddy_post"])),
        arrays["mean"][0],
        None if arrays["matrix"] is None else arrays["matrix"].T,
        int(metadata["eddy_count"]),
        None if query_mean is None else query_mean[0],
        json.loads(metadata["eddy_maker"]),
    )


def is_invertible(fitted: Fitted) -> bool:
    """Whether raw vectors can be computed from processed ones; else the index stores both."""
    return fitted.post.kind in ("centre", "whiten") and fitted.dimension == len(fitted.mean)


def invert(fitted: Fitted, vectors: NDArray[np.float32], normalized: bool) -> NDArray[np.float64]:
    """Compute raw vectors, of length 1, from processed ones, shape (vectors, dimension), that may be `normalized`.

    Normalisation removes a length, which follows from the raw vector's own: exactly one positive length gives
    mean + length * direction the length 1, since the mean of vectors of length 1 is shorter.
    """
    y = np.asarray(vectors, np.float64)
    directions = y if fitted.matrix is None else np.linalg.solve(fitted.matrix.T, y.T).T
    if not normalized:
        return unit(fitted.mean + directions)
    directions = unit(directions)
    half = directions @ fitted.mean
    length = -half + np.sqrt(np.maximum(half**2 + 1 - fitted.mean @ fitted.mean, 0))
    return unit(fitted.mean + length[:, None] * directions)
