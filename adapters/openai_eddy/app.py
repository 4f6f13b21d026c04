"""The ASGI application: its paths, and what happens to a request on the way from body to response."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypeVar, cast

import anyio
import anyio.to_thread
from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from eddy_embed import Embedder, Reranker, __version__
from openai_eddy.engine import BatchKey, Engine, InputVectors, PreparedRequest, Question, to_api_error
from openai_eddy.errors import ApiError, rate_limited, server_error
from openai_eddy.limits import Limits
from openai_eddy.metrics import Metrics
from openai_eddy.middleware import LOOPBACK, PATHS, RERANK_PATHS, AccessMiddleware, Keys, check_origins
from openai_eddy.request import EmbeddingRequest, PendingBodies, RerankRequest, parse_request
from openai_eddy.responses import CountedResponse, UnsentResponses, embeddings_json, rerank_json
from openai_eddy.scheduler import Closing, ItemFailed, Overloaded, Scheduler

Result = TypeVar("Result")

WAIT = 0.002
"""Seconds that an idle server waits for further requests."""
SMALL_RESPONSE = 2**14
"""Numbers in a response up to which the event loop's thread writes it, faster than handing it to another thread."""
CLIENT_DISCONNECTED = 499
"""Status for the counters; no client gets it."""
log = logging.getLogger("openai_eddy")


def create_app(
    embedders: Mapping[str, Embedder],
    names: Sequence[str],
    *,
    reranker: Reranker | None = None,
    keys: Keys | None = None,
    hosts: Collection[str] = LOOPBACK,
    allowed_origins: Collection[str] = (),
    limits: Limits | None = None,
    batch_tokens: int | None = None,
    wait: float = WAIT,
) -> FastAPI:
    """Build an ASGI application with OpenAI's API for embeddings.

    Args:
        embedders: By the text form of their methods; the first is the default.
        names: Names of the model for clients.
        reranker: Answers requests for re-ranking; it may share its loaded model with the embedders. None: they get 404.
        keys: API keys to accept; None asks for none.
        hosts: Host names to accept in the Host header; empty accepts any.
        allowed_origins: Origins of pages whose scripts may ask and read answers, such as `http://localhost:3000`; `*`
            for any. Others are kept out by their browsers.
        limits: Limits on sizes, concurrency and time.
        batch_tokens: Maximum number of input tokens in a batch; a short request waits for one batch at most. None: as
            many as the embedders take in a pass.
        wait: Maximum time in seconds that an idle server waits for further requests.

    Raises:
        InvalidParameter: An origin is none.
        EddyError: Any error of an embedder, or of the reranker.
    """
    check_origins(allowed_origins)
    limits = limits or Limits()
    budget = batch_tokens or min(each.batch_tokens for each in embedders.values())
    service = _Service(Engine(embedders, limits, reranker), names, limits, budget, wait)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.scheduler.start()
        yield
        await service.scheduler.close()

    app = FastAPI(
        title="Eddy",
        version=__version__,
        lifespan=lifespan,
        exception_handlers=dict.fromkeys((ApiError, ClientDisconnect, HTTPException, Exception), _handle_error),
        # No documentation pages: they would load scripts from other hosts.
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.add_middleware(AccessMiddleware, keys=keys or Keys(), hosts=hosts, metrics=service.metrics)
    if allowed_origins:  # in front of the keys, which a browser's first question does not have
        app.add_middleware(
            CORSMiddleware,
            allow_origins=allowed_origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("x-eddy-method", "x-eddy-fingerprint", "retry-after"),
            allow_private_network=True,
        )
    app.post("/v1/embeddings", openapi_extra=_body_of(EmbeddingRequest))(service.embeddings)
    for path in RERANK_PATHS:
        app.post(path, openapi_extra=_body_of(RerankRequest))(service.rerank)
    app.get("/v1/models")(service.models)
    app.get("/v1/models/{name:path}")(service.model)
    app.get("/health")(service.health)
    app.get("/metrics")(service.render_metrics)
    return app


def _body_of(kind: type[EmbeddingRequest | RerankRequest]) -> dict[str, Any]:
    content = {"application/json": {"schema": kind.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


class _Service:
    def __init__(self, engine: Engine, names: Sequence[str], limits: Limits, batch_tokens: int, wait: float) -> None:
        self._engine = engine
        self._names = list(dict.fromkeys(names))
        self._limits = limits
        self._bodies = PendingBodies(limits)
        self._unsent = UnsentResponses()
        self._in_progress = 0
        self._created = int(time.time())
        # Threads beside the model's, so that counting tokens does not wait for the model.
        self._threads = anyio.CapacityLimiter(2)
        self.metrics = Metrics()
        self.scheduler: Scheduler[BatchKey | Question, str, InputVectors | float] = Scheduler(
            engine.run,
            budget=batch_tokens,
            wait=wait,
            max_pending=limits.pending_tokens,
            observe=self.metrics.count_batch,
        )
        self.metrics.set_model(self._names[0], engine.fingerprints)
        gauge = self.metrics.add_gauge
        gauge("eddy_pending_tokens", "Tokens accepted and not done.", lambda: self.scheduler.pending)
        gauge("eddy_pending_requests", "Requests read and not answered.", lambda: self._in_progress)
        gauge("eddy_pending_bytes", "Of bodies not checked yet.", lambda: self._bodies.size)
        gauge("eddy_unsent_bytes", "Of answers that are being sent.", lambda: self._unsent.size)
        gauge("eddy_windowed_inputs", "Inputs that exceeded the model's window.", engine.windowed_texts)

    async def embeddings(self, http: Request) -> Response:
        """Embed the inputs of a request."""
        return await self._answer(http, EmbeddingRequest)

    async def rerank(self, http: Request) -> Response:
        """Sort the documents of a request by how well they answer its question."""
        self._engine.required_reranker()
        return await self._answer(http, RerankRequest)

    async def _answer(self, http: Request, kind: type[EmbeddingRequest | RerankRequest]) -> Response:
        # A page of another origin cannot send this content type without asking first.
        content_type = http.headers.get("content-type", "").partition(";")[0]
        if content_type.strip().lower() != "application/json":
            raise ApiError(415, "The header Content-Type must be application/json.", code="unsupported_media_type")
        if (coding := http.headers.get("content-encoding", "identity").lower()) != "identity":
            message = f"The body is encoded ({coding:.40}), which this server does not read; send plain JSON."
            plain = {"accept-encoding": "identity"}
            raise ApiError(415, message, code="unsupported_media_type", headers=plain)
        body = bytearray()
        try:
            await self._bodies.receive(http, body)
            with self._admitted():
                request, prepared = await self._in_thread(self._prepare, kind, body)
                self._bodies.release(body)
                return await _unless_disconnected(http, partial(self._run, request, prepared))
        finally:
            self._bodies.release(body)

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        if self._in_progress >= self._limits.requests or self._unsent.size > self._limits.unsent_bytes:
            raise rate_limited(self.scheduler.seconds_left())
        self._in_progress += 1
        try:
            yield
        finally:
            self._in_progress -= 1

    async def _run(self, request: EmbeddingRequest | RerankRequest, prepared: PreparedRequest) -> Response:
        try:
            results = await self.scheduler.submit(prepared.key, prepared.texts, prepared.counts)
        except Overloaded as error:
            raise rate_limited(error.retry_after) from None
        except Closing:
            raise ApiError(503, "The server is shutting down.", kind="server_error") from None
        except ItemFailed as error:
            api_error = to_api_error(error.__cause__, request.plural, error.index)
            if api_error.status >= 500:
                log.error("the model failed on an input", exc_info=error.__cause__)
            raise api_error from None
        tokens, headers = sum(prepared.counts), dict[str, str]()
        if isinstance(request, RerankRequest):
            role, content = "judged", rerank_json(cast("list[float]", results), request, tokens)
        else:
            key, vectors = cast("BatchKey", prepared.key), cast("list[InputVectors]", results)
            write = partial(embeddings_json, vectors, request, tokens, self._engine.embedders[key.method].normalize)
            large = sum(each.vectors.size for each in vectors) > SMALL_RESPONSE
            role, content = key.role, await self._in_thread(write) if large else write()
            headers = {"x-eddy-method": json.dumps(key.method)[1:-1]}
            headers["x-eddy-fingerprint"] = self._engine.fingerprints[key.method]
        self.metrics.count_inputs(role, len(prepared.texts), tokens)
        return CountedResponse(content, headers, self._unsent)

    async def models(self) -> dict[str, Any]:
        """List the names of the model."""
        return {"object": "list", "data": [self._describe(name) for name in self._names]}

    async def model(self, name: str) -> dict[str, Any]:
        """Describe the model under one of its names."""
        return self._describe(name)

    async def health(self) -> dict[str, str]:
        """Confirm that the server answers requests."""
        return {"status": "ok"}

    async def render_metrics(self) -> Response:
        """Give the metrics to Prometheus."""
        return Response(self.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    def _prepare(
        self, kind: type[EmbeddingRequest | RerankRequest], body: bytearray
    ) -> tuple[EmbeddingRequest | RerankRequest, PreparedRequest]:
        request = parse_request(kind, body, self._limits)
        self._check_name(request.model)
        prepared = self._engine.prepare(request)
        if isinstance(request, EmbeddingRequest):
            # Without the inputs: token ids take several times as much memory as their text.
            request = request.model_copy(update={"input": ""})
        return request, prepared

    def _describe(self, name: str) -> dict[str, Any]:
        self._check_name(name)
        default = self._engine.embedders[self._engine.default]
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "eddy",
            "dimension": default.dimension,
            "max_length": default.max_length,
            "method": self._engine.default,
            "methods": self._engine.fingerprints,
            "rerank": self._engine.reranker is not None,
        }

    def _check_name(self, name: str) -> None:
        if name not in self._names:
            raise ApiError(
                404,
                f"The model `{name[:80]}` does not exist or you do not have access to it. Served here: "
                f"{', '.join(self._names)}.",
                param="model",
                code="model_not_found",
            )

    async def _in_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await anyio.to_thread.run_sync(function, *arguments, limiter=self._threads)


async def _unless_disconnected(http: Request, work: Callable[[], Awaitable[Response]]) -> Response:
    """Wait for a response; if the client disconnects before, cancel the work and raise `ClientDisconnect`."""
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            while (await http.receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            return await work()
        except ApiError as error:
            return error.response()
        finally:
            group.cancel_scope.cancel()
    raise ClientDisconnect


async def _handle_error(http: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_DISCONNECTED)
    if isinstance(error, HTTPException):
        unknown = error.status_code == 404
        what = "Invalid URL" if unknown else "Invalid method for URL"
        hint = f" Served here: {', '.join(sorted(PATHS))}; a client's base URL ends in /v1." if unknown else ""
        if http.method == "OPTIONS" and (origin := http.headers.get("origin")):
            hint = f" For a page's scripts, start the server with --allowed-origin {origin:.80}."
        message = f"{what} ({http.method} {http.url.path[:80]}).{hint}"
        error = ApiError(error.status_code, message, headers=error.headers)
    elif not isinstance(error, ApiError):
        # uvicorn logs the traceback; the client has no use for it.
        error = server_error("The server had an error while processing your request.")
    return error.response()
