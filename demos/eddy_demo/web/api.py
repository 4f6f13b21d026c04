"""The API that the pages' scripts call: uploads, progress, questions, documents."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from eddy_demo import handbook
from eddy_demo.ask import check_question
from eddy_demo.display_text import model_label, printable
from eddy_demo.errors import error_message
from eddy_demo.library.settings import upload_path
from eddy_demo.web.answers.quote import answer_question, reranked_answer
from eddy_demo.web.follower import Follower
from eddy_demo.web.http import UPLOAD_PATH, Event, encode_event, event_stream
from eddy_demo.web.page_images import draw_original, find_original
from eddy_demo.web.pages import ServerState, State, checked_entry
from eddy_demo.web.uploads import clean_name
from eddy_embed.integrations.http_guard import LOOPBACK, RequestRefused
from readers_eddy.documents import file_digest
from readers_eddy.formats import DOCUMENT_SUFFIXES

api = APIRouter(prefix="/api")
_PAUSE_SECONDS = 0.1
"""Time between two looks for a change."""
_KEEP_ALIVE_SECONDS = 15.0
"""Time without a change after which a comment keeps an event stream alive."""


@api.get("/health")
async def health(state: State) -> dict[str, Any]:
    """Report that the server runs, and whether its model is loaded."""
    return {"alive": True, "ready": state.reader.ready}


@api.get("/events")
async def listen(request: Request, state: State) -> Response:
    """Stream the progress of the writing thread."""
    return event_stream(_progress(state, request.state.token))


async def _progress(state: ServerState, token: str) -> AsyncIterator[bytes]:
    """Yield the progress after each change, with the token for pages that were open when the server restarted."""
    changes, count, sent = state.changes, -1, 0.0
    while not changes.ended:
        if changes.count != count:
            count, sent = changes.count, time.monotonic()
            yield encode_event("progress", {**state.follower.snapshot(), "token": token})
        elif time.monotonic() - sent > _KEEP_ALIVE_SECONDS:
            sent = time.monotonic()
            yield b": still here\n\n"
        await anyio.sleep(_PAUSE_SECONDS)


@api.get("/ask")
async def ask(state: State, q: str, k: int = 8, document: str | None = None, rerank: bool = False) -> Response:
    """Answer a question, from one document or all, with a stream of events.

    With `rerank`, the passages are re-ranked after the first answer, and `again` announces another one.
    """
    question = check_question(q, state.limits.question_characters)
    if not 1 <= k <= 50:
        raise RequestRefused(400, f"{k} passages cannot be shown; ask for 1 to 50")
    if rerank and state.reader.ready and not state.reader.can_rerank:
        raise RequestRefused(400, f"{model_label(state.reader.settings.model)} embeds alone: it cannot re-rank")
    began = time.monotonic()
    # Search before the response begins, so that an error still has its own status.
    found = await state.searches.run(lambda: answer_question(state.reader, question, k, document))
    reranking = reranked_answer(state.reader, question, k, document) if rerank and found else None

    async def stream() -> AsyncIterator[bytes]:
        try:
            async with aclosing(_answered(state, question, found, reranking)) as events:
                async for name, data in events:
                    if name == "done":
                        data["seconds"] = round(time.monotonic() - began, 3)
                    yield encode_event(name, data)
        except Exception as error:
            message = str(error) if isinstance(error, RequestRefused) else error_message(error)
            yield encode_event("failed", {"error": message})

    return event_stream(stream())


async def _answered(
    state: ServerState, question: str, found: list[Event], reranking: Generator[Event, None, None] | None
) -> AsyncGenerator[Event, None]:
    """Yield the events of an answer, those of one from reranked passages, if asked for, and what the model writes."""
    reranked, answer = None, found
    for event in found:
        yield event
    if reranking is not None:
        began, answer = time.monotonic(), []
        async with aclosing(_in_turn(state, reranking)) as events:
            async for event in events:
                if event[0] in ("answer", "hit"):
                    answer.append(event)
                else:
                    yield event
        reranked = round(time.monotonic() - began, 3)
        yield "again", {}
        for event in answer:
            yield event
    sentences = [sentence for name, data in answer if name == "answer" for sentence in data["sentences"]]
    generator = state.reader.generator
    if generator is not None and sentences:
        async with aclosing(_in_turn(state, generator.write(question, sentences))) as events:
            async for event in events:
                yield event
    yield "done", {"passages": sum(name == "hit" for name, _ in answer), "reranked": reranked}


async def _in_turn(state: ServerState, events: Generator[Event, None, None]) -> AsyncGenerator[Event, None]:
    """Yield what the model reranks or writes, one answer at a time; a client that disconnects stops it."""
    async with state.answers.place(), state.answers.running:
        try:
            while (event := await anyio.to_thread.run_sync(next, events, None)) is not None:
                yield event
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(events.close)


@api.get("/documents")
def documents(state: State) -> dict[str, Any]:
    """List the documents, and describe the library."""
    entries = state.reader.entries()
    uploads = {entry.id: upload_path(state.reader.folder, str(entry.metadata["origin"])) for entry in entries}
    rows = [
        {
            "id": entry.id,
            "name": printable(str(entry.metadata.get("name", entry.id))),
            "title": printable(str(entry.metadata.get("title", ""))),
            "pages": len(entry.page_starts),
            "sentences": entry.sentences,
            "uploaded": uploads[entry.id] is not None,
            "removing": (file := uploads[entry.id]) is not None and not file.exists(),
        }
        for entry in entries
    ]
    return {"documents": rows, "library": state.reader.summary(entries)}


@api.get("/documents/{key}/page")
async def page(request: Request, state: State, key: str, start: int, end: int) -> Response:
    """Draw the page of a PDF document on which a sentence begins, with the sentence marked."""
    return await state.drawing.run(lambda: _page(request, state, key, start, end))


def _page(request: Request, state: ServerState, key: str, start: int, end: int) -> Response:
    document = state.reader.document(key) if state.reader.ready else None
    if document is None or not document.entry.page_starts:
        raise RequestRefused(404, "the library has no such document with pages")
    text = document.content.text
    if not 0 <= start < end <= len(text):
        raise RequestRefused(404, "the document has no such place any more")
    file = find_original(state.reader.folder, document.entry)
    # A browser keeps the image, and asks each time whether the document is still the same.
    headers = {"etag": f'"{document.entry.digest}-{start}-{end}"', "cache-control": "private, no-cache"}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    image = draw_original(file, document.entry, text, start, end, state.limits)
    return Response(image.data, media_type="image/webp", headers={**headers, "x-eddy-caption": image.caption})


@api.delete("/documents/{key}")
def remove(state: State, key: str) -> dict[str, Any]:
    """Remove an uploaded document, and delete its file."""
    entry = checked_entry(state, key)
    _check_writable(state)
    state.follower.remove(entry)
    return {}


def _check_writable(state: ServerState) -> None:
    if not state.follower.is_writable:
        raise RequestRefused(409, "the library cannot be written to, so it can be asked but not changed")


async def _local_follower(request: Request, state: State) -> Follower:
    """Return what follows folders, if the request comes from this machine."""
    client = request.client
    if not state.is_local or client is None or client.host not in LOOPBACK:
        raise RequestRefused(403, "folders are watched only for a page that this machine alone can reach")
    return state.follower


LocalFollower = Annotated[Follower, Depends(_local_follower)]


@api.post("/folders")
def watch_folder(follower: LocalFollower, state: State, path: str) -> dict[str, Any]:
    """Keep the library like a folder of this machine."""
    _check_writable(state)
    follower.follow(path)
    return {}


@api.delete("/folders")
def stop_watching(follower: LocalFollower, path: str) -> dict[str, Any]:
    """Watch a folder no more; its documents stay in the library."""
    follower.unfollow(path)
    return {}


@api.post("/jobs/clear")
def clear(state: State, failed: bool = False) -> dict[str, Any]:
    """Drop the finished files, or the failed ones."""
    state.follower.clear(failed)
    return {}


@api.post("/jobs/{id_}/cancel")
def cancel(state: State, id_: str) -> dict[str, Any]:
    """Take a file out of the list; delete it, unless it is in the library."""
    if not state.follower.cancel(id_):
        raise RequestRefused(404, "the file is not waiting any more")
    return {}


@api.post("/handbook")
def add_handbook(state: State) -> dict[str, Any]:
    """Add Eddy's own handbook, so that there is something to ask."""
    for page in sorted(handbook.folder().glob("*.md")):
        part = state.follower.uploads.new_part()
        part.write_bytes(data := page.read_bytes())
        state.follower.accept(part, file_digest(data), page.name)
    return {}


@api.post(UPLOAD_PATH.removeprefix("/api"))
async def upload(request: Request, state: State, name: str) -> dict[str, Any]:
    """Receive one file as the body of the request, under the name in the query."""
    shown = clean_name(name)
    if Path(shown).suffix.lower() not in DOCUMENT_SUFFIXES:
        readable = " ".join(DOCUMENT_SUFFIXES)
        raise RequestRefused(415, f"{shown or 'the file'} is of a type that is not read; readable are {readable}")
    part = await anyio.to_thread.run_sync(state.follower.uploads.new_part)
    try:
        with part.open("wb") as file:
            digest, size = await _receive(request, file)
        if not size:
            raise RequestRefused(400, f"{shown} is empty")
        job_state = await anyio.to_thread.run_sync(state.follower.accept, part, digest, shown)
    except ClientDisconnect:
        raise RequestRefused(400, "the upload was broken off") from None
    finally:
        part.unlink(missing_ok=True)
    return {"id": digest, "state": job_state}


async def _receive(request: Request, file: BinaryIO) -> tuple[str, int]:
    """Write the body to a file; return its digest, as `file_digest` does, and its size."""
    digest, size = hashlib.sha256(), 0
    async for chunk in request.stream():
        digest.update(chunk)
        await anyio.to_thread.run_sync(file.write, chunk)
        size += len(chunk)
    return digest.hexdigest()[:32], size
