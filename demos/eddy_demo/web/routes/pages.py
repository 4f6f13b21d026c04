"""The pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from eddy_demo.display_text import printable
from eddy_demo.errors import InvalidQuestion
from eddy_demo.web.answers.document import document_blocks
from eddy_demo.web.answers.quote import checked_question
from eddy_demo.web.errors import RequestRefused
from eddy_demo.web.routes.state import checked_key, server_state
from readers_eddy.formats import DOCUMENT_SUFFIXES

pages = APIRouter()
templates = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1] / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.filters["counted"] = lambda value, noun: f"{value:,} {noun}{'' if value == 1 else 's'}"


def render(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """Render a template as a response."""
    token = getattr(request.state, "token", "")
    page = templates.get_template(template).render(token=token, path=request.url.path, **values)
    return HTMLResponse(page, status)


@pages.get("/")
def ask_page(request: Request, q: str = "", document: Annotated[str, Query(alias="in")] = "") -> Response:
    """Show the page for questions to all documents, or to one."""
    state = server_state(request)
    entry = state.reader.entry(checked_key(document)) if document else None
    if document and entry is None:
        raise RequestRefused(404, "the document is not in the library any more")
    within = None
    if entry is not None:
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
def library_page(request: Request) -> Response:
    """Show the page for uploads and the list of documents."""
    state = server_state(request)
    return render(
        request,
        "library.html",
        types=DOCUMENT_SUFFIXES,
        megabytes=state.limits.file_bytes // 2**20,
        watches=state.is_local,
    )


@pages.get("/documents/{key}")
async def document_page(
    request: Request, key: str, q: str = "", within: Annotated[str, Query(alias="in")] = ""
) -> Response:
    """Show a document; with a question, which may have been put `within` one document, each sentence's cosine."""
    # Without a question the model does nothing, so the page needs no place among the searches.
    run = server_state(request).searches.run if q.strip() else anyio.to_thread.run_sync
    return await run(lambda: _document_page(request, key, q, within))


def _document_page(request: Request, key: str, q: str, within: str) -> Response:
    state = server_state(request)
    document = state.reader.document(checked_key(key)) if state.reader.ready else None
    if document is None:
        loading = "the model is still being loaded; reload the page in a moment"
        raise RequestRefused(404, "the document is not in the library any more" if state.reader.ready else loading)
    cosines: list[float] = []
    problem = ""
    if q.strip():
        try:
            question = checked_question(q, state.limits.question_characters)
            cosines = [round(float(value), 4) for value in document.cosines(question, document.content.sentences)]
        except InvalidQuestion as error:
            problem = str(error)
    blocks = document_blocks(document)
    back = urlencode({name: value for name, value in (("q", q), ("in", within)) if value})
    shown: dict[str, Any] = {"document": document, "blocks": blocks, "cosines": cosines, "problem": problem}
    return render(request, "document.html", **shown, q=q, back=back)
