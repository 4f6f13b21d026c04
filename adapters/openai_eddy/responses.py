"""Responses with vectors or scores: writing their JSON, and sending it in chunks."""

from __future__ import annotations

import base64
import math
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from eddy_embed.integrations import Floats
from openai_eddy.errors import server_error
from openai_eddy.request import EmbeddingRequest, RerankRequest

if TYPE_CHECKING:
    from openai_eddy.engine import InputVectors

CHUNK_BYTES = 256 * 2**10
"""Bytes of a response sent at a time; the next chunk waits until the client has read most of the earlier ones."""


def truncate_dimensions(vectors: Floats, dimensions: int | None, normalize: bool) -> Floats:
    """Keep the first components of vectors, shape (vectors, width), and scale unit vectors to length 1 again."""
    if dimensions is None or dimensions == vectors.shape[1]:
        return vectors
    kept = vectors[:, :dimensions].astype(np.float64)
    if normalize:
        lengths = np.linalg.norm(kept, axis=1, keepdims=True)
        if not lengths.all():
            raise server_error(f"the first {dimensions} numbers of a vector are all 0; ask for more dimensions")
        kept /= lengths
    return kept.astype(np.float32)


def embeddings_json(results: list[InputVectors], request: EmbeddingRequest, tokens: int, normalize: bool) -> bytes:
    """Serialize the response of `/v1/embeddings`; "base64" encodes the bytes of little-endian float32."""
    # Row by row: a single call for all rows would hold the GIL, and with it the event loop.
    rows = b",".join(_rows(results, request, normalize))
    head = orjson.dumps({"object": "list", "model": request.model, "usage": _usage(tokens)})
    # One join: each + would copy all rows.
    return b"".join((head[:-1], b',"data":[', rows, b"]}"))


def rerank_json(scores: Sequence[float], request: RerankRequest, tokens: int) -> bytes:
    """Serialize the response of `/v1/rerank`, best first, from mean log-probabilities of the question's tokens."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: request.top_n]
    results = [
        {
            "index": index,
            "relevance_score": math.exp(scores[index]),
            **({"document": {"text": request.documents[index]}} if request.return_documents else {}),
        }
        for index in order
    ]
    named = {"id": f"rerank-{uuid.uuid4().hex}", "model": request.model, "usage": _usage(tokens)}
    return orjson.dumps({**named, "results": results})


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def _rows(results: list[InputVectors], request: EmbeddingRequest, normalize: bool) -> Iterator[bytes]:
    index = 0
    for number, result in enumerate(results):
        for row, vector in enumerate(truncate_dimensions(result.vectors, request.dimensions, normalize)):
            if request.encoding_format == "base64":
                encoded: Any = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            else:
                encoded = np.ascontiguousarray(vector)
            data = {"object": "embedding", "index": index, "embedding": encoded}
            if result.spans is not None:
                start, end, tokens = result.spans[row].tolist()
                data |= {"input": number, "start": start, "end": end, "tokens": tokens}
            yield orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)
            index += 1


@dataclass
class UnsentResponses:
    """Counts the bytes of responses not fully sent, their sent chunks included."""

    size: int = 0


class CountedResponse(StreamingResponse):
    """JSON sent in chunks, and counted in `UnsentResponses` until it is sent or its client has disconnected."""

    def __init__(self, content: bytes, headers: Mapping[str, str], unsent: UnsentResponses) -> None:
        length = {"content-length": str(len(content))}
        super().__init__(_chunks(content), headers={**headers, **length}, media_type="application/json")
        self._size, self._unsent = len(content), unsent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        self._unsent.size += self._size
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._unsent.size -= self._size


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), CHUNK_BYTES):
        yield content[start : start + CHUNK_BYTES]
