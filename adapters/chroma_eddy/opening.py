"""`open_index`: open an index where it is, or begin a new one; `reindex`: write one anew."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from chroma_eddy.embedding_function import EddyEmbeddingFunction
from chroma_eddy.errors import IndexInUse, StorageError
from chroma_eddy.index import Index
from chroma_eddy.storage.client import Place, connect
from chroma_eddy.storage.names import check_index_name
from chroma_eddy.storage.store import Store
from chroma_eddy.write.writer import WriteReport
from eddy_embed.encoding.validation import check_count, check_kind

if TYPE_CHECKING:
    from eddy_embed import Embedder  # imports torch


def open_index(
    place: Place,
    name: str,
    embedder: Embedder | EddyEmbeddingFunction | None = None,
    *,
    passage_size: int | None = None,
    late: bool | None = None,
    sentence_vectors: bool | None = None,
    texts_only: bool = False,
    timeout: float = 0.0,
) -> Index:
    """Open an index, or begin a new one; refuse one whose vectors another embedder made.

    Args:
        place: A folder, a Chroma server's URL such as "http://localhost:8000", or one of Chroma's clients.
        name: Name of the index and of its collection of passages; `<name>-documents` belongs to it.
        embedder: Embeds documents and questions. None: the index must exist, and embeds no texts.
        passage_size: Most tokens in a passage, which holds whole sentences; None: the index's own, 256 in a new one.
        late: Whether passages are pooled from the pass over their whole document (True) or embedded one by one; None:
            the index's own; in a new one, True where no layer runs.
        sentence_vectors: Whether sentences' vectors are stored, if the method runs layers, so that a passage's best
            sentence is found without the model; None: the index's own, True in a new one.
        texts_only: Read texts and metadata and no vector, also where those are lost, or an earlier version made them.
        timeout: Seconds to wait while another process writes.

    Raises:
        FingerprintMismatch: The index was made by another embedder or in other sizes; the message shows both, field by
            field, and what to do.
        ForeignCollection: Something else made a collection of that name.
        NoIndex: There is none, and no embedder to make one with.
        OutdatedIndex: An earlier version of this library wrote the index; `reindex` writes it anew.
        InvalidParameter: An argument has the wrong type.
        StorageError: The folder cannot be used, or the server does not answer.
    """
    from eddy_embed import Embedder  # imports torch

    check_kind("embedder", embedder, Embedder | EddyEmbeddingFunction | None, "an Embedder, or None")
    check_kind("late", late, bool | None, "True or False")
    check_kind("sentence_vectors", sentence_vectors, bool | None, "True or False")
    check_kind("timeout", timeout, int | float, "a number of seconds")
    if passage_size is not None:
        check_count("passage_size", passage_size)
    check_index_name(name)
    connection = connect(place, create=embedder is not None, timeout=timeout)
    sizes = {"passage_size": passage_size, "late": late, "sentence_vectors": sentence_vectors}
    chosen = {size: value for size, value in sizes.items() if value is not None}
    try:
        index = Index(Store(connection, name, texts_only=texts_only), embedder, chosen)
        if index.words.outdated and not texts_only:
            _read_words_anew(index)
        return index
    except BaseException:
        connection.close()
        raise


def _read_words_anew(index: Index) -> None:
    try:
        with index.writing():  # which does so first
            pass
    except (IndexInUse, StorageError) as error:
        warnings.warn(
            f"another version of this library wrote the words of index {index.name!r}, and they cannot be read anew "
            f"now ({error}): queries are by meaning alone until somebody writes to the index, or calls check()",
            stacklevel=3,
        )


def reindex(
    place: Place,
    name: str,
    embedder: Embedder | EddyEmbeddingFunction,
    *,
    timeout: float = 0.0,
    **options: Any,
) -> WriteReport:
    """As `Index.reindex`, also of an index that an earlier version wrote, or whose vectors are lost.

    It reads texts and metadata alone.

    Args:
        place: As for `open_index`.
        name: Name of the index.
        embedder: The new embedder.
        timeout: Seconds to wait while another process writes.
        **options: The other arguments of `Index.reindex`.

    Raises:
        As `Index.reindex`.
    """
    check_index_name(name)
    connection = connect(place, create=False, timeout=timeout)
    try:
        return Index(Store(connection, name, texts_only=True), None, {}).reindex(embedder, **options)
    finally:
        connection.close()
