"""What the page's script calls: uploads, progress, questions, documents."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import anyio
import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from eddy_demo import handbook
from eddy_demo.display_text import printable
from eddy_demo.web.answers import answering
from eddy_demo.web.http import events
from eddy_demo.web.http.security import UPLOAD, Refused
from eddy_demo.web.routes.state import State, checked_key
from eddy_demo.web.uploads.job import told as reason
from eddy_demo.web.uploads.upload_queue import Ticket, clean_name, key_of, refusal, ticket_of

if TYPE_CHECKING:
    from eddy_demo.web.answers.generation import Generator

api = APIRouter(prefix="/api")
_BUFFER = 2**20


def _state(request: Request) -> State:
    state: State = request.app.state.eddy
    return state


@api.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """Whether the server answers, and whether its model is loaded."""
    return {"alive": True, "ready": _state(request).shelf.ready}


@api.get("/events")
async def listen(request: Request) -> Response:
    """Progress, as it happens."""
    state = _state(request)
    if state.listeners >= state.limits.listeners:
        raise Refused(503, "too many pages of this library are open; close some")

    async def told() -> AsyncIterator[bytes]:
        state.listeners += 1
        try:
            async for each in events.progress(state.writer, request.state.token, state.stopping):
                yield each
        finally:
            state.listeners -= 1

    return events.streamed(told())


@api.get("/ask")
async def ask(request: Request, q: str, k: int = 8) -> Response:
    """An answer, as a stream of events."""
    state = _state(request)
    question = answering.checked(q, state.limits.question)
    if not 1 <= k <= 50:
        raise Refused(400, f"{k} passages cannot be shown; ask for 1 to 50")
    began = time.monotonic()
    # Found before the response begins, so that a refusal still has a status of its own.
    found = await state.threads.run(lambda: answering.answer(state.shelf, question, k))

    async def told() -> AsyncIterator[bytes]:
        try:
            for each in found.events:
                yield events.event(*each)
            if state.shelf.generator is not None and found.sentences:
                async with aclosing(_written(state, state.shelf.generator, question, found.sentences)) as written:
                    async for each in written:
                        yield events.event(*each)
            passages = sum(name == "hit" for name, _ in found.events)
            yield events.event("done", {"passages": passages, "seconds": round(time.monotonic() - began, 3)})
        except Refused as error:
            yield events.event("failed", {"error": str(error)})
        except Exception as error:
            yield events.event("failed", {"error": reason(error)})

    return events.streamed(told())


async def _written(
    state: State, generator: Generator, question: str, sentences: list[dict[str, Any]]
) -> AsyncGenerator[answering.Event, None]:
    """What the model writes, when it is this one's turn; whoever leaves stops it."""
    if not state.turn.free:
        yield "writing", {"note": "The model is writing other answers; this one comes after them …"}
    async with state.turn.taken():
        made = generator.write(question, sentences)
        try:
            while (each := await anyio.to_thread.run_sync(next, made, None)) is not None:
                yield each
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(made.close)


@api.get("/documents")
def documents(request: Request) -> dict[str, Any]:
    """The documents of the library, and what it is made with."""
    state = _state(request)
    going = state.jobs.removing()
    rows = [
        {
            "id": entry.id,
            "name": printable(str(entry.metadata.get("name", entry.id))),
            "title": printable(str(entry.metadata.get("title", ""))),
            "pages": len(entry.page_starts),
            "passages": entry.passages,
            "sentences": entry.sentences,
            "tokens": entry.tokens,
            "removing": entry.id in going,
        }
        for entry in state.shelf.entries()
    ]
    return {"documents": rows, "library": state.shelf.summary()}


@api.delete("/documents/{key}")
def remove(request: Request, key: str) -> dict[str, Any]:
    """Take a document out."""
    state = _state(request)
    if state.shelf.entry(checked_key(key)) is None:
        raise Refused(404, "the document is not in the library any more")
    state.jobs.remove(key)
    return {}


@api.post("/rebuild")
def rebuild(request: Request) -> dict[str, Any]:
    """Make the library anew with its model's best method."""
    state = _state(request)
    if state.shelf.index is None:
        raise Refused(409, "there is no library yet that could be made anew")
    state.jobs.rebuild()
    return {}


@api.post("/jobs/clear")
def clear(request: Request, failed: bool = False) -> dict[str, Any]:
    """Put away what is finished, or what failed."""
    _state(request).jobs.clear(failed)
    return {}


@api.post("/jobs/{id_}/{action}")
def act(request: Request, id_: str, action: str) -> dict[str, Any]:
    """Cancel a file, or try it again."""
    jobs = _state(request).jobs
    calls = {"cancel": jobs.cancel, "retry": jobs.retry}
    if action not in calls or not calls[action](id_):
        raise Refused(404, "the file is not waiting any more")
    return {}


@api.post("/handbook")
def take_handbook(request: Request) -> dict[str, Any]:
    """Take Eddy's own handbook, to have something to ask."""
    state = _state(request)
    for page in sorted(handbook.folder().glob("*.md")):
        data = page.read_bytes()
        with state.jobs.place():
            part = state.jobs.tickets.begin()
            part.write_bytes(data)
            _take(state, part, ticket_of(hashlib.sha256(data).hexdigest(), page.name, len(data)))
    return {}


@api.post(UPLOAD.removeprefix("/api"))
async def upload(request: Request, name: str) -> dict[str, Any]:
    """Receive one file as the body of the request; its name is in the address, and is data."""
    state = _state(request)
    shown = clean_name(name)
    if reason := refusal(shown):
        raise Refused(415, f"{shown or 'the file'} {reason}")
    with state.jobs.place():
        part = await anyio.to_thread.run_sync(state.jobs.tickets.begin)
        try:
            with part.open("wb") as file:
                digest, size = await _receive(request, file)
            if not size:
                raise Refused(400, f"{shown} is empty")
            ticket = ticket_of(digest, shown, size)
            taken = await anyio.to_thread.run_sync(_take, state, part, ticket)
        except ClientDisconnect:
            raise Refused(400, "the upload was broken off") from None
        finally:
            part.unlink(missing_ok=True)
    return {"id": ticket.id, "state": taken}


async def _receive(request: Request, file: BinaryIO) -> tuple[str, int]:
    digest, size, held = hashlib.sha256(), 0, bytearray()

    def write(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    async for chunk in request.stream():
        held += chunk
        size += len(chunk)
        if len(held) >= _BUFFER:
            await anyio.to_thread.run_sync(write, bytes(held))
            held.clear()
    await anyio.to_thread.run_sync(write, bytes(held))
    await asyncio.sleep(0)
    return digest.hexdigest(), size


def _take(state: State, part: Path, ticket: Ticket) -> str:
    """Keep an upload, unless the library or the queue has its content already."""
    return state.jobs.take(part, ticket, state.shelf.entry(key_of(ticket.origin)))
