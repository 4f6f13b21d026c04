"""`EddyLoader`: files and folders, read by Eddy's readers, as LangChain's documents."""

from __future__ import annotations

from collections.abc import Iterator

from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document

from langchain_eddy.passages import with_progress
from readers_eddy import ReadingLimits, ReadResult, iter_documents
from readers_eddy.documents import Paths, warn_of_skipped


class EddyLoader(BaseLoader):
    """Loads each file as one document: PDF, Word, slides, sheets, HTML, Markdown, books, e-mails, rows of JSON Lines.

    A document's id and `source` are the file's path. Its metadata keep where its pages begin, what they are called, and
    which parts are no passages, for `EddyChroma.ingest` and `embed_passages`. `eddy_notes` says what was left out.
    Files that cannot be read are named in one warning, and the others are loaded.

    Args:
        paths: A file, a folder, or several of them; `readers_eddy.read_documents` says which files are read.
        limits: Of reading one file.
        isolated: Whether a child process reads, with limited time and memory.
        show_progress: Whether to count the documents in a progress bar.

    Raises:
        NothingToRead: While loading: a path is missing, a given file is of another type, or there is no document.
    """

    def __init__(
        self, paths: Paths, *, limits: ReadingLimits | None = None, isolated: bool = True, show_progress: bool = False
    ) -> None:
        self.paths, self.limits, self.isolated, self.show_progress = paths, limits, isolated, show_progress

    def lazy_load(self) -> Iterator[Document]:
        """Yield the documents in the order of the paths, folders sorted by name."""
        result = ReadResult()
        documents = iter_documents(self.paths, result, limits=self.limits, isolated=self.isolated)
        for document in with_progress(documents, self.show_progress, "Reading files"):
            metadata = {"source": document.metadata["file_path"], **document.metadata}
            yield Document(document.text, id=document.origin, metadata=metadata)
        warn_of_skipped(result)
