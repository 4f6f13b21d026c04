"""`open_index`: a folder, a server or a client to an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chroma_eddy.function import EddyEmbeddingFunction
from chroma_eddy.index import Index
from chroma_eddy.names import check_name
from chroma_eddy.place import open_place
from chroma_eddy.store import Store
from eddy_embed import Embedder
from eddy_embed.encoding.validation import check_kind, check_options

if TYPE_CHECKING:
    from chroma_eddy.place import Where


def open_index(
    place: Where,
    name: str,
    embedder: Embedder | EddyEmbeddingFunction | None = None,
    *,
    passage_size: int | None = None,
    late: bool | None = None,
    sentence_vectors: bool | None = None,
    timeout: float = 0.0,
) -> Index:
    """Open an index, or begin one; one whose vectors another embedder made is refused.

    Args:
        place: A folder, a Chroma server's URL such as "http://localhost:8000", or one of Chroma's clients.
        name: The index's name: of the collection of passages, beside which `<name>-sentences` and `<name>-documents`
            are. It needs no more than the names of the index that it belongs to.
        embedder: Embeds documents and questions. None: the index must be there, and takes and answers no texts.
        passage_size: Most tokens in a passage, which holds whole sentences; None: the index's own, 256 in a new one.
        late: Whether passages are read out of the pass over their whole document, or embedded each by itself; None:
            the index's own; in a new one, late where the method allows it.
        sentence_vectors: Whether each sentence has a row of its own, so that the best one of a passage is found
            without the model; None: the index's own, True in a new one.
        timeout: Seconds to wait while another process writes.

    Raises:
        FingerprintMismatch: The index was made by another embedder, or in other sizes; the message shows both, field
            by field, and what to do.
        ForeignCollection: Something else made a collection of that name.
        NoIndex: There is none, and no embedder to make one with.
        InvalidParameter: An argument is of another kind.
        StorageError: The folder cannot be used, or the server does not answer.
    """
    check_kind("embedder", embedder, Embedder | EddyEmbeddingFunction | None, "an Embedder, or None")
    check_kind("late", late, bool | None, "True or False")
    check_kind("sentence_vectors", sentence_vectors, bool | None, "True or False")
    check_kind("timeout", timeout, int | float, "a number of seconds")
    if passage_size is not None:
        check_options({"passage_size": passage_size})
    checked = check_name(name)
    connection = open_place(place, create=embedder is not None, timeout=timeout)
    sizes = {"passage_size": passage_size, "late": late, "sentence_vectors": sentence_vectors}
    return Index(Store(connection, checked), embedder, {k: v for k, v in sizes.items() if v is not None})
