"""Vectors to the body of an answer."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import orjson

from openai_eddy.errors import failed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from openai_eddy.asked import Encoding
    from openai_eddy.engine import Made

    Vectors = NDArray[np.float32]


def shortened(vectors: Vectors, dimensions: int | None, normalize: bool) -> Vectors:
    """The first numbers of vectors, with length 1 again.

    Args:
        vectors: Shape (vectors, width).
        dimensions: How many are kept; None or all of them: the vectors as they are.
        normalize: Whether the vectors had length 1.

    Raises:
        ApiError: What is kept of a vector is 0.
    """
    if dimensions is None or dimensions == vectors.shape[1]:
        return vectors
    kept = vectors[:, :dimensions].astype(np.float64)
    if normalize:
        lengths = np.linalg.norm(kept, axis=1, keepdims=True)
        if not lengths.all():
            raise failed(f"the first {dimensions} numbers of a vector are all 0; ask for more dimensions")
        kept /= lengths
    return kept.astype(np.float32)


def body(
    made: list[Made], *, model: str, tokens: int, encoding: Encoding, dimensions: int | None, normalize: bool
) -> bytes:
    """The answer as JSON.

    Args:
        made: The vectors of each input.
        model: The name that the client used.
        tokens: Of all inputs.
        encoding: Numbers, or the bytes of little-endian float32 in base64.
        dimensions: See `shortened`.
        normalize: See `shortened`.
    """
    # Row by row: one call for all of them would not let the event loop's thread in between.
    rows = b",".join(_rows(made, encoding, dimensions, normalize))
    name = orjson.dumps(model)
    usage = orjson.dumps({"prompt_tokens": tokens, "total_tokens": tokens})
    # In one go: each + would copy all rows.
    return b"".join((b'{"object":"list","data":[', rows, b'],"model":', name, b',"usage":', usage, b"}"))


def _rows(made: list[Made], encoding: Encoding, dimensions: int | None, normalize: bool) -> Iterator[bytes]:
    index = 0
    for number, each in enumerate(made):
        for at, vector in enumerate(shortened(each.vectors, dimensions, normalize)):
            shown = _base64(vector) if encoding == "base64" else np.ascontiguousarray(vector)
            row = {"object": "embedding", "index": index, "embedding": shown}
            if each.spans is not None:
                start, end, tokens = each.spans[at].tolist()
                row |= {"input": number, "start": start, "end": end, "tokens": tokens}
            yield orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)
            index += 1


def _base64(vector: Vectors) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
