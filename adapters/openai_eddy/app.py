"""The ASGI application: its paths, and what happens to a request on the way from body to response."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from eddy_embed import __version__
from eddy_embed.integrations.http_guard import LOOPBACK, HttpGuard, RequestRefused
from eddy_embed.utils.arrays import Floats
from openai_eddy.batcher import Batcher
from openai_eddy.engine import Engine, refusal_of
from openai_eddy.request import EmbeddingRequest, Limits, RerankRequest, parse_request

if TYPE_CHECKING:
    from eddy_embed import Embedder, Reranker

RERANK_PATHS = ("/v1/rerank", "/v2/rerank", "/rerank")
"""Where clients ask for re-ranking: Jina's and most others', Cohere's, and LiteLLM's of a vLLM server."""
WAIT = 0.002
"""Seconds without a new request after which a batch is complete, while several clients ask."""
RETRY_SECONDS = 2
"""Time after which a client may ask again that was refused because too much waits."""


def create_app(
    embedders: Mapping[str, Embedder],
    names: Sequence[str],
    *,
    reranker: Reranker | None = None,
    keys: Collection[str] = (),
    hosts: Collection[str] = LOOPBACK,
    allowed_origins: Collection[str] = (),
    limits: Limits | None = None,
    batch_tokens: int | None = None,
) -> FastAPI:
    """Build an ASGI application with OpenAI's API for embeddings.

    Args:
        embedders: By the text form of their methods; the first is the default.
        names: Names of the model for clients.
        reranker: Answers requests for re-ranking; it may share its loaded model with the embedders. None: they get 404.
        keys: API keys to accept; empty asks for none.
        hosts: Host names to accept in the Host header; empty accepts any.
        allowed_origins: Origins of pages whose scripts may ask, such as `http://localhost:3000`; `*` for any.
        limits: Limits on sizes and time.
        batch_tokens: Maximum number of input tokens in a batch; None: as many as the embedders take in a pass.
    """
    limits = limits or Limits()
    budget = batch_tokens or min(embedder.batch_tokens for embedder in embedders.values())
    service = _Service(Engine(embedders, limits, reranker), names, limits, budget)

    handlers: Any = dict.fromkeys((RequestRefused, HTTPException, ClientDisconnect, Exception), _handle_error)
    # No documentation pages: they would load scripts from other hosts.
    app = FastAPI(title="Eddy", version=__version__, exception_handlers=handlers, docs_url=None, redoc_url=None)
    app.state.service = service
    access: Any = {"hosts": hosts, "origins": allowed_origins, "keys": keys, "open_paths": ("/health",)}
    body: Any = {"body_bytes": lambda _: limits.body_bytes, "body_seconds": limits.body_seconds}
    app.add_middleware(HttpGuard, error_body=_error_body, **access, **body)
    if allowed_origins:  # in front of the keys, which a browser's first question does not have
        app.add_middleware(
            CORSMiddleware,
            allow_origins=allowed_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("x-eddy-method", "x-eddy-fingerprint", "retry-after"),
            allow_private_network=True,
        )
    for path in ("/v1/embeddings", *RERANK_PATHS):
        app.post(path)(service.answer)
    app.get("/v1/models")(service.models)
    app.get("/v1/models/{name:path}")(service.model)
    app.get("/health")(lambda: {"status": "ok"})
    return app


class _Service:
    def __init__(self, engine: Engine, names: Sequence[str], limits: Limits, budget: int) -> None:
        self._engine, self._names, self._limits = engine, list(dict.fromkeys(names)), limits
        self._threads = ThreadPoolExecutor(2, "eddy-request")  # counts tokens and writes answers beside the model
        self.batcher, self._created = Batcher(engine.run, budget, WAIT), int(time.time())

    async def answer(self, http: Request) -> Response:
        """Embed the inputs of a request, or sort its documents by how well they answer its question."""
        kind = RerankRequest if http.url.path.endswith("/rerank") else EmbeddingRequest
        kind_of_body = http.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind_of_body != "application/json" or "content-encoding" in http.headers:
            message = "Send JSON that is not compressed, with the header Content-Type: application/json."
            raise RequestRefused(415, message, code="unsupported_media_type")
        body = await http.body()
        work, left = asyncio.ensure_future(self._run(kind, body)), asyncio.ensure_future(http.receive())  # a disconnect
        try:
            await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else await _handle_error(http, ClientDisconnect())
        finally:
            work.cancel()
            left.cancel()

    async def _run(self, kind: type[EmbeddingRequest | RerankRequest], body: bytes) -> Response:
        in_thread = asyncio.get_running_loop().run_in_executor
        request = await in_thread(self._threads, parse_request, kind, body, self._limits)
        self.model(request.model)
        job, texts, counts = await in_thread(self._threads, self._engine.prepare, request)
        tokens = sum(counts)
        if self.batcher.pending and self.batcher.pending + tokens > self._limits.pending_tokens:
            message = f"The server has as much waiting as it accepts. Please try again in {RETRY_SECONDS}s."
            later = {"retry-after": str(RETRY_SECONDS)}
            raise RequestRefused(429, message, later, type="requests", code="rate_limit_exceeded")
        results = await self.batcher.submit(job, texts, counts)
        for index, result in enumerate(results):
            if isinstance(result, Exception):
                raise refusal_of(result, request.plural, index)
        head = {"model": request.model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
        if isinstance(request, RerankRequest):
            return Response(_rerank_json(results, request, head), media_type="application/json")
        normalize = self._engine.embedders[job.method].normalize
        content = await in_thread(self._threads, _embeddings_json, results, request, head, normalize)
        fingerprint = self._engine.fingerprints[job.method]
        headers = {"x-eddy-method": json.dumps(job.method)[1:-1], "x-eddy-fingerprint": fingerprint}
        return Response(content, headers=headers, media_type="application/json")

    def models(self) -> dict[str, Any]:
        """List the names of the model."""
        return {"object": "list", "data": [self.model(name) for name in self._names]}

    def model(self, name: str) -> dict[str, Any]:
        """Describe the model under one of its names."""
        if name not in self._names:
            message = f"The model `{name[:80]}` does not exist or you do not have access to it. Served here: "
            raise RequestRefused(404, f"{message}{', '.join(self._names)}.", param="model", code="model_not_found")
        engine, default = self._engine, self._engine.embedders[self._engine.default]
        about = {"id": name, "object": "model", "created": self._created, "owned_by": "eddy"}
        about |= {"dimension": default.dimension, "max_length": default.max_length, "method": engine.default}
        return {**about, "methods": engine.fingerprints, "rerank": engine.reranker is not None}


def _embeddings_json(vectors: list[Floats], request: EmbeddingRequest, head: dict[str, Any], normalize: bool) -> bytes:
    """Serialize the response of `/v1/embeddings`; "base64" encodes the bytes of little-endian float32."""
    rows = []
    for index, whole in enumerate(vectors):  # one by one: a single call for all would hold the GIL
        vector = whole[: request.dimensions]
        if normalize and len(vector) < len(whole):
            length = np.linalg.norm(vector.astype(np.float64))
            vector = (vector / max(length, np.finfo(np.float32).tiny)).astype(np.float32)
        coded = request.encoding_format == "base64"
        encoded = base64.b64encode(vector.astype("<f4").tobytes()).decode() if coded else vector
        row = {"object": "embedding", "index": index, "embedding": encoded}
        rows.append(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY))
    return b"".join((orjson.dumps({"object": "list", **head})[:-1], b',"data":[', b",".join(rows), b"]}"))


def _rerank_json(scores: list[float], request: RerankRequest, head: dict[str, Any]) -> bytes:
    """Serialize the response of `/v1/rerank`, best first."""
    results = []
    for index in sorted(range(len(scores)), key=lambda index: -scores[index])[: request.top_n]:
        document = {"document": {"text": request.documents[index]}} if request.return_documents else {}
        results.append({"index": index, "relevance_score": scores[index], **document})
    return orjson.dumps({"id": f"rerank-{uuid.uuid4().hex}", **head, "results": results})


def _error_body(refused: RequestRefused) -> dict[str, Any]:
    """An error as clients read it: OpenAI's `error` with message, type, param and code; Jina's and vLLM's `detail`."""
    error = {"type": "server_error" if refused.status >= 500 else "invalid_request_error", "param": None, "code": None}
    return {"error": {"message": str(refused), **error, **refused.more}, "detail": str(refused)}


async def _handle_error(http: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)  # which nobody gets
    if isinstance(error, HTTPException):
        paths = ", ".join(("/v1/embeddings", "/v1/models", *RERANK_PATHS, "/health"))
        message = f"{error.detail} ({http.method} {http.url.path[:80]}). Served here: {paths}; a client's base URL ends"
        error = RequestRefused(error.status_code, f"{message} in /v1.", dict(error.headers or {}))
    elif not isinstance(error, RequestRefused):
        # uvicorn logs the traceback; the client has no use for it.
        error = RequestRefused(500, "The server had an error while processing your request.")
    content = json.dumps(_error_body(error))  # in ASCII: a message may hold half a character that a client sent
    return Response(content, error.status, error.headers, "application/json")
