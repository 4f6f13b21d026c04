"""The pages, and the state of the server that their routes share with the API."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from chroma_eddy import StoredDocument
from eddy_demo.ask import check_question
from eddy_demo.display_text import printable
from eddy_demo.web.answers.document import document_blocks
from eddy_demo.web.follower import Follower
from eddy_demo.web.http import BoundedWork, ChangeSignal, Limits
from eddy_demo.web.library_reader import LibraryReader
from eddy_embed.integrations.http_guard import RequestRefused
from readers_eddy.formats import DOCUMENT_SUFFIXES

pages = APIRouter()
templates = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.filters["counted"] = lambda value, noun: f"{value:,} {noun}{'' if value == 1 else 's'}"


@dataclass
class ServerState:
    """State of one running server."""

    limits: Limits
    changes: ChangeSignal  # of the library or the queue
    reader: LibraryReader
    follower: Follower
    searches: BoundedWork  # with the model and the database
    drawing: BoundedWork  # of pages
    answers: BoundedWork  # that the model writes
    is_local: bool  # whether this machine alone can reach the page, which may then follow its folders


async def server_state(request: Request) -> ServerState:
    """Return the state of the server that handles a request."""
    state: ServerState = request.app.state.eddy
    return state


State = Annotated[ServerState, Depends(server_state)]


def checked_entry(state: ServerState, key: str) -> StoredDocument:
    """Return the entry of a document by its id from an address."""
    entry = state.reader.entry(key)
    if entry is None:
        raise RequestRefused(404, "the document is not in the library any more")
    return entry


def render(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Render a template as a response."""
    token = getattr(request.state, "token", "")
    page = templates.get_template(template).render(token=token, path=request.url.path, **values)
    return HTMLResponse(page, status)


@pages.get("/")
def ask_page(request: Request, state: State, q: str = "", document: Annotated[str, Query(alias="in")] = "") -> Response:
    """Show the page for questions to all documents, or to one."""
    within = None
    if document:
        entry = checked_entry(state, document)
        shown = entry.metadata.get("title") or entry.metadata.get("name", entry.id)
        within = {"id": entry.id, "name": printable(str(shown))}
    return render(
        request,
        "ask.html",
        library=state.reader.summary(state.reader.entries()),
        ready=state.reader.ready,
        q=q,
        limit=state.limits.question_characters,
        within=within,
        types=DOCUMENT_SUFFIXES,
    )


@pages.get("/library")
def library_page(request: Request, state: State) -> Response:
    """Show the page for uploads and the list of documents."""
    return render(
        request,
        "library.html",
        types=DOCUMENT_SUFFIXES,
        megabytes=state.limits.file_bytes // 2**20,
        watches=state.is_local,
    )


@pages.get("/documents/{key}")
async def document_page(
    request: Request, state: State, key: str, q: str = "", within: Annotated[str, Query(alias="in")] = ""
) -> Response:
    """Show a document; with a question, which may have been put `within` one document, each sentence's cosine."""
    # Without a question the model does nothing, so the page needs no place among the searches.
    run = state.searches.run if q.strip() else anyio.to_thread.run_sync
    return await run(lambda: _document_page(request, state, key, q, within))


def _document_page(request: Request, state: ServerState, key: str, q: str, within: str) -> Response:
    document = state.reader.document(key) if state.reader.ready else None
    if document is None:
        loading = "the model is still being loaded; reload the page in a moment"
        raise RequestRefused(404, "the document is not in the library any more" if state.reader.ready else loading)
    cosines: list[float] = []
    if q.strip():
        question = check_question(q, state.limits.question_characters)
        cosines = [round(float(value), 4) for value in document.cosines(question, document.content.sentences)]
    blocks = document_blocks(document)
    back = urlencode({name: value for name, value in (("q", q), ("in", within)) if value})
    return render(request, "document.html", document=document, blocks=blocks, cosines=cosines, q=q, back=back)
