"""The pages themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from eddy_demo.errors import InvalidQuestion
from eddy_demo.library.ingest import FEW
from eddy_demo.readers.documents import UPLOADS
from eddy_demo.web.answers import answering, plot_layout
from eddy_demo.web.answers.blocks import blocks
from eddy_demo.web.http.security import Refused
from eddy_demo.web.routes.state import State, checked_key
from eddy_demo.web.uploads.job import told as reason
from eddy_embed import methods

pages = APIRouter()
templates = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1] / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.filters["number"] = lambda value: f"{value:,}"


def render(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """A page."""
    token = getattr(request.state, "token", "")
    page = templates.get_template(template).render(token=token, path=request.url.path, **values)
    return HTMLResponse(page, status)


def page_error(request: Request, status: int, message: str) -> Response:
    """An error as a page."""
    return render(request, "error.html", status, message=message)


def _state(request: Request) -> State:
    state: State = request.app.state.eddy
    return state


@pages.get("/")
def ask_page(request: Request, q: str = "") -> Response:
    """Ask a question."""
    state = _state(request)
    return render(request, "ask.html", library=state.shelf.summary(), q=q, limit=state.limits.question)


@pages.get("/library")
def library_page(request: Request) -> Response:
    """Documents in, documents out."""
    state = _state(request)
    return render(
        request,
        "library.html",
        library=state.shelf.summary(),
        accept=",".join(UPLOADS),
        megabytes=state.limits.upload_bytes // 2**20,
        few=FEW,
    )


@pages.get("/documents/{key}")
async def document_page(request: Request, key: str, q: str = "") -> Response:
    """Read a document; with a question, every sentence is held against it."""
    threads = _state(request).threads.run if q.strip() else anyio.to_thread.run_sync  # else the model does nothing
    return await threads(lambda: _document(request, key, q))


def _document(request: Request, key: str, q: str) -> Response:
    state = _state(request)
    book = state.shelf.book(checked_key(key)) if state.shelf.ready else None
    if book is None:
        waiting = "the model is still being loaded; reload the page in a moment"
        raise Refused(404, "the document is not in the library any more" if state.shelf.ready else waiting)
    near: list[float] = []
    problem = ""
    if q.strip():
        try:
            question = answering.checked(q, state.limits.question)
            near = [round(float(value), 4) for value in book.near(question, book.content.sentences)]
        except InvalidQuestion as error:
            problem = str(error)
    return render(
        request,
        "document.html",
        book=book,
        blocks=blocks(book),
        q=q,
        near=near,
        problem=problem,
    )


_SAMPLE = "The ferry to the island leaves at noon. Dogs travel for free."


@pages.get("/why")
async def why_page(
    request: Request,
    text: str = _SAMPLE,
    method: str = "",
    q: str = "",
    document: str = "",
    other: str = "htp",
) -> Response:
    """What the model does with a text, two methods on one question, and what length does."""
    return await _state(request).threads.run(lambda: _why(request, text, method, q, document, other))


def _why(request: Request, text: str, method: str, q: str, document: str, other: str) -> Response:
    state = _state(request)
    if not state.shelf.ready:
        raise Refused(503, "the model is still being loaded; reload the page in a moment")
    shelf = state.shelf
    method = method or shelf.method
    told, tokens_problem = None, ""
    try:
        if len(text) > state.limits.explained:
            raise InvalidQuestion(f"show a text of at most {state.limits.explained} characters")
        told = state.methods.explain(shelf, text, method)
    except Exception as error:
        tokens_problem = reason(error)
    columns, two_problem = None, ""
    if q.strip():
        try:
            question = answering.checked(q, state.limits.question)
            book = shelf.book(checked_key(document))
            if book is None:
                raise Refused(404, "the document is not in the library any more")
            columns = state.methods.compare(shelf, book, question, other, state.limits)
        except Refused as error:
            two_problem = str(error)
        except Exception as error:
            two_problem = reason(error)
    found = state.methods.lengths(shelf)
    return render(
        request,
        "why.html",
        text=text,
        method=method,
        most=state.limits.explained,
        names=[name for name in methods.names() if name != "post"],
        told=told,
        tokens=None if told is None else plot_layout.tokens(told),
        tokens_problem=tokens_problem,
        books=shelf.entries(),
        q=q,
        document=document,
        other=other,
        method_here=shelf.recipe.method,
        columns=columns,
        two_problem=two_problem,
        plot=None if found is None else plot_layout.plot(found),
    )
