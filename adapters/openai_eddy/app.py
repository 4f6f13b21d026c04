"""The application: its paths, and the way of a request through them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from eddy_embed import __version__
from openai_eddy import request_schema as requests
from openai_eddy.engine import Engine, Made, Prepared, Work, told
from openai_eddy.errors import ApiError, failed, invalid, overloaded
from openai_eddy.limits import Limits
from openai_eddy.metrics import CONTENT_TYPE, Metrics
from openai_eddy.middleware import LOOPBACK, PATHS, Guard, Keys, content_type_is_json
from openai_eddy.request_body import Bodies, Body, Gone
from openai_eddy.scheduler import Closing, ItemFailed, Overloaded, Scheduler
from openai_eddy.serialization import Answers, Counted, error_response, json_response
from openai_eddy.serialization import body as answer_body

if TYPE_CHECKING:
    from eddy_embed import Embedder

Result = TypeVar("Result")

WAIT = 0.002
"""Seconds that an idle server waits for company."""
SMALL_ANSWER = 2**14
"""Numbers that are written in the event loop's thread: faster than to ask another."""
CLIENT_GONE = 499
"""A status that no client sees, for the counters."""
log = logging.getLogger("openai_eddy")


def create_app(
    embedders: Mapping[str, Embedder],
    names: Sequence[str],
    *,
    keys: Keys | None = None,
    hosts: Collection[str] = LOOPBACK,
    limits: Limits | None = None,
    batch_tokens: int | None = None,
    wait: float = WAIT,
) -> FastAPI:
    """An ASGI application with OpenAI's interface for embeddings.

    Args:
        embedders: By the text form of their methods; the first is the usual one.
        names: Under which clients ask for the model, the first of them listed first.
        keys: Those that are accepted; None: none is asked for.
        hosts: Names that the Host header may have; empty for any.
        limits: What is accepted.
        batch_tokens: Most tokens of inputs in a batch: a short request waits for one at most. None: as many as the
            embedders take in a pass.
        wait: Seconds that an idle server waits for company.

    Raises:
        NotFitted: A method's post-processing has learned nothing.
        EddyError: What else an embedder raises.
    """
    engine = Engine(embedders, limits or Limits())
    most = batch_tokens or min(each.batch_tokens for each in embedders.values())
    service = _Service(engine, names, limits or Limits(), most, wait)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.scheduler.start()
        yield
        await service.close()

    # No pages of documentation: they would load scripts from elsewhere.
    app = FastAPI(title="Eddy", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.add_middleware(Guard, keys=keys or Keys(), hosts=hosts, metrics=service.metrics)
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(HTTPException, _no_such_path)
    app.add_exception_handler(Exception, _broken)
    body = {"required": True, "content": {"application/json": {"schema": requests.schema()}}}
    app.post("/v1/embeddings", openapi_extra={"requestBody": body})(service.embeddings)
    app.get("/v1/models")(service.models)
    app.get("/v1/models/{name:path}")(service.model)
    app.get("/health")(service.health)
    app.get("/metrics")(service.page)
    return app


class _Service:
    def __init__(self, engine: Engine, names: Sequence[str], limits: Limits, batch_tokens: int, wait: float) -> None:
        self._engine = engine
        self._names = list(dict.fromkeys(names))
        self._limits = limits
        self._bodies = Bodies(limits)
        self._answers = Answers()
        self._open = 0
        self._created = int(time.time())
        # Apart from the model's thread, so that counting tokens does not wait for the model.
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="eddy-texts")
        self.metrics = Metrics()
        self.scheduler: Scheduler[Work, str, Made] = Scheduler(
            engine.run, budget=batch_tokens, wait=wait, most=limits.pending_tokens, observe=self.metrics.ran
        )
        self.metrics.served(self._names[0], engine.fingerprints)
        self.metrics.watch("eddy_pending_tokens", "Tokens accepted and not done.", lambda: self.scheduler.pending)
        self.metrics.watch("eddy_pending_requests", "Requests read and not answered.", lambda: self._open)
        self.metrics.watch("eddy_pending_bytes", "Of bodies not checked yet.", lambda: self._bodies.held)
        self.metrics.watch("eddy_unsent_bytes", "Of answers that are being sent.", lambda: self._answers.held)
        self.metrics.watch(
            "eddy_windowed_inputs", "Inputs that exceeded the model's window.", engine.texts_read_in_windows
        )

    async def close(self) -> None:
        await self.scheduler.close()
        self._threads.shutdown(wait=False)

    async def embeddings(self, request: Request) -> Response:
        """Vectors of texts."""
        if not content_type_is_json(request.headers):
            raise ApiError(415, "The header Content-Type must be application/json.", code="unsupported_media_type")
        try:
            with self._bodies.of(request) as body:
                await body.read()
                if self._open >= self._limits.requests or self._answers.held > self._limits.unsent_bytes:
                    raise overloaded(self.scheduler.seconds_left())
                self._open += 1
                try:
                    return await _unless_gone(request, self._embed(body))
                finally:
                    self._open -= 1
        except Gone:
            return Response(status_code=CLIENT_GONE)

    async def _embed(self, body: Body) -> Response:
        asked, prepared = await self._off(True, self._prepared, body)
        body.let_go()
        try:
            made = await self.scheduler.submit(prepared.work, prepared.texts, prepared.counts)
        except Overloaded as error:
            raise overloaded(error.retry_after) from None
        except Closing:
            raise ApiError(503, "The server is shutting down.", kind="server_error") from None
        except ItemFailed as error:
            reason = told(error.__cause__, error.index)
            if reason.status >= 500:
                log.error("an input could not be embedded", exc_info=error.__cause__)
            raise reason from None
        embedder = self._engine.embedders[prepared.work.method]
        tokens = sum(prepared.counts)
        numbers = sum(each.vectors.size for each in made)

        def write() -> bytes:
            return answer_body(
                made,
                model=asked.model,
                tokens=tokens,
                encoding=asked.encoding,
                dimensions=asked.dimensions,
                normalize=embedder.normalize,
            )

        content = await self._off(numbers > SMALL_ANSWER, write)
        self.metrics.embedded(prepared.work.role, len(prepared.texts), tokens)
        headers = {
            "x-eddy-method": json.dumps(prepared.work.method)[1:-1],
            "x-eddy-fingerprint": self._engine.fingerprints[prepared.work.method],
        }
        return Counted(content, headers, self._answers)

    async def models(self) -> Response:
        """The names of the model."""
        return json_response({"object": "list", "data": [self._told(name) for name in self._names]})

    async def model(self, name: str) -> Response:
        """One of the names of the model."""
        self._check_name(name)
        return json_response(self._told(name))

    async def health(self) -> Response:
        """That requests are answered."""
        return json_response({"status": "ok"})

    async def page(self) -> Response:
        """Counters for Prometheus."""
        return Response(self.metrics.page(), media_type=CONTENT_TYPE)

    def _prepared(self, body: Body) -> tuple[requests.Asked, Prepared]:
        # Out of a body that can be let go while this waits for a thread, and without inputs that nobody needs twice:
        # token ids take several times as much memory as their text.
        asked = requests.asked(_json(body.content), self._limits)
        self._check_name(asked.model)
        return replace(asked, inputs=[]), self._engine.prepare(asked)

    def _told(self, name: str) -> dict[str, Any]:
        usual = self._engine.embedders[self._engine.usual]
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "eddy",
            "dimension": usual.dimension,
            "max_length": usual.max_length,
            "method": self._engine.usual,
            "methods": self._engine.fingerprints,
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

    async def _off(self, far: bool, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function, in another thread where it would hold up the event loop."""
        if not far:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


async def _unless_gone(request: Request, answering: Awaitable[Response]) -> Response:
    """An answer, or nothing where its client leaves before.

    Raises:
        Gone: The client has left; what was not done for it yet is taken back.
    """
    work = asyncio.ensure_future(answering)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise Gone
    finally:
        for task in (work, leaving):
            task.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json(raw: bytearray) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise invalid(f"We could not parse the JSON body of your request: {error}.", None) from None


async def _refused(_: Request, error: Exception) -> Response:
    return error_response(error if isinstance(error, ApiError) else failed("The server had an error."))


async def _no_such_path(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    allowed = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    what = "Invalid URL" if status == 404 else "Invalid method for URL"
    where = f" Served here: {', '.join(sorted(PATHS))}; a client's base URL ends in /v1." if status == 404 else ""
    message = f"{what} ({request.method} {request.url.path[:80]}).{where}"
    return error_response(ApiError(status, message, headers=allowed))


async def _broken(_: Request, __: Exception) -> Response:
    # Whose traceback uvicorn logs; the client has no use for it.
    return error_response(failed("The server had an error while processing your request."))
