"""Vectors to the body of an answer."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from starlette.responses import Response

from openai_eddy.errors import ApiError, failed

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from starlette.types import Receive, Scope, Send

    from openai_eddy.engine import Made
    from openai_eddy.request_schema import Encoding

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


PART = 256 * 2**10
"""Bytes of an answer that are handed over at a time, each when its client has taken in most of those before."""


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Plain values as JSON."""
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


def error_response(error: ApiError) -> Response:
    """An error as clients expect it."""
    return json_response(error.body, error.status, error.headers)


class Answers:
    """All answers that are being sent.

    Attributes:
        held: Bytes of them, whether some of an answer was sent or not.
    """

    def __init__(self) -> None:
        """Nothing is sent yet."""
        self.held = 0


class Counted(Response):
    """An answer that is counted until it is sent, or nobody is there any more to read it."""

    def __init__(self, content: bytes, headers: Mapping[str, str], among: Answers) -> None:
        """Take what is ready.

        Args:
            content: JSON.
            headers: Beside the usual ones.
            among: What counts it.
        """
        super().__init__(content, headers=dict(headers), media_type="application/json")
        self._among = among

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, part by part."""
        self._among.held += len(self.body)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for first in range(0, len(self.body), PART):
                part, more = self.body[first : first + PART], first + PART < len(self.body)
                await send({"type": "http.response.body", "body": part, "more_body": more})
        finally:
            self._among.held -= len(self.body)
