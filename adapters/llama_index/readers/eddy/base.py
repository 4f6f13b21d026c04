"""`EddyReader`: files and folders, read by Eddy's readers, as LlamaIndex's documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from llama_index.core.utils import get_tqdm_iterable

from readers_eddy import ReadingLimits, ReadResult, iter_documents
from readers_eddy.documents import Paths, warn_of_skipped


class EddyReader(BaseReader):
    """Reads each file as one document: PDF, Word, slides, sheets, HTML, Markdown, books, e-mails, rows of JSON Lines.

    A document's id is the file's path. Its metadata keep where its pages begin and what they are called, by which
    `LongDocumentNodeParser` gives each node its `page_label`; `eddy_notes` says what was left out. No metadata is
    embedded. Files that cannot be read are named in one warning, and the others are read. Also a `file_extractor` of
    `SimpleDirectoryReader`.

    Args:
        limits: Of reading one file.
        isolated: Whether a child process reads, with limited time and memory.
    """

    def __init__(self, *, limits: ReadingLimits | None = None, isolated: bool = True) -> None:
        self.limits, self.isolated = limits, isolated

    def lazy_load_data(
        self, paths: Paths, extra_info: Mapping[str, Any] | None = None, show_progress: bool = False
    ) -> Iterator[Document]:
        """Yield the documents of files and folders, in the order of the paths, folders sorted by name.

        Args:
            paths: A file, a folder, or several of them; `readers_eddy.read_documents` says which files are read.
            extra_info: Added to the metadata of each document.
            show_progress: Whether to count the documents in a progress bar.

        Raises:
            NothingToRead: A path is missing, a given file is of another type, or there is no document at all.
        """
        result = ReadResult()
        documents = iter_documents(paths, result, limits=self.limits, isolated=self.isolated)
        for document in get_tqdm_iterable(documents, show_progress, "Reading files"):
            metadata = {**document.metadata, **(extra_info or {})}
            unread = {"excluded_embed_metadata_keys": list(metadata)}
            unread["excluded_llm_metadata_keys"] = [key for key in metadata if key not in ("title", "file_name")]
            yield Document(text=document.text, id_=document.origin, metadata=metadata, **unread)
        warn_of_skipped(result)
