"""A library for any client of the Model Context Protocol (MCP): search its passages, list its documents."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from chroma_eddy import Index
from eddy_demo.ask import ANSWERS, FoundPassage, ask
from eddy_demo.display_text import printable
from eddy_demo.errors import error_message
from eddy_demo.library.settings import read_settings
from eddy_demo.web.http import ChangeSignal
from eddy_demo.web.library_reader import LibraryOptions, LibraryReader
from eddy_embed import __version__

_INSTRUCTIONS = (
    f"Search the user's own documents. A passage with a score of {ANSWERS} or more is about the question. If none has "
    "it, say that the documents do not answer, and do not guess. Cite source and page of each sentence that you use."
)
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)


@dataclass(frozen=True)
class Passage:
    """A passage of a document, with the sentence in it that answers best."""

    passage: str
    sentence: str
    source: str  # file of the document
    title: str
    section: str  # headings above the sentence, the widest first; "" without any
    page: str  # of the sentence, as it is cited: "p. 2"; "" for documents without pages
    score: float  # from 0 to 1


@dataclass(frozen=True)
class ListedDocument:
    """A document of the library."""

    source: str
    title: str
    pages: int  # 0 for documents without pages
    sentences: int


def make_server(library: Path, device: str | None = None) -> MCPServer:
    """Return a server of the library in a folder, whose model is loaded meanwhile.

    Raises:
        NoLibrary: There is none.
    """
    read_settings(library)
    reader = LibraryReader(LibraryOptions(library, device=device, generate=False), ChangeSignal())
    threading.Thread(target=reader.load, daemon=True).start()
    server = MCPServer("eddy", "Eddy", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")

    @server.tool(annotations=_READS)
    def search(question: str, k: Annotated[int, Field(ge=1, le=50)] = 5) -> list[Passage]:
        """Find the k passages of the user's documents that fit a question best, by keywords and by vectors."""

        def find(index: Index | None) -> list[FoundPassage]:
            return [] if index is None else ask(index, question, k)

        with _loaded(reader):
            return [_passage(passage) for passage in reader.read(find)]

    @server.tool(annotations=_READS)
    def list_documents() -> list[ListedDocument]:
        """List the user's documents that can be searched."""
        with _loaded(reader):
            return [
                ListedDocument(
                    source=printable(str(entry.metadata.get("name", ""))),
                    title=printable(str(entry.metadata.get("title", ""))),
                    pages=len(entry.page_starts),
                    sentences=entry.sentences,
                )
                for entry in reader.entries()
            ]

    return server


@contextmanager
def _loaded(reader: LibraryReader) -> Iterator[None]:
    """Wait until the model is loaded; say what fails, which the client would not be told otherwise."""
    try:
        reader.wait()
        yield
    except Exception as error:
        raise ToolError(error_message(error)) from error


def _passage(found: FoundPassage) -> Passage:
    sentence = found.text[found.sentence_start - found.start : found.sentence_end - found.start]
    names = printable(found.document), printable(found.title)
    texts = printable(found.text), printable(sentence)
    return Passage(*texts, *names, found.headings, found.cited, round(found.score, 3))
