"""Pieces: rows of the main collection that a framework cut and embedded itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from chroma_eddy.errors import ForeignCollection
from chroma_eddy.index_core import PIECES, IndexCore
from chroma_eddy.rows.conditions import check_conditions
from chroma_eddy.rows.schema import DIGEST, OF_PIECES, PIECE
from chroma_eddy.storage.names import MAIN
from chroma_eddy.storage.pages import Rows, slices
from chroma_eddy.types import check_key, check_value
from eddy_embed.encoding.validation import check_kind
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT, END, START
from eddy_embed.utils.arrays import Floats
from eddy_embed.utils.checks import raise_on_surrogates

GROUP_PIECES = 5_000
"""Pieces that are looked up and written at a time."""


@dataclass(frozen=True)
class Piece:
    """A text with the vector that the index's embedder made of it.

    Unlike a passage, a piece has an id that its writer chose, and the index does not know the rest of its document: it
    has no sentence vectors for a piece and cannot embed it again.

    Attributes:
        id: Id of the row; a piece of the same id replaces it.
        document: Id of the document that the piece belongs to and is removed with.
        text: The text.
        vector: The vector, shape (dimension,).
        metadata: Metadata for filters; None values are left out.
        start: Offset of its first character in the document, if known.
        end: Offset after its last character.
    """

    id: str
    document: str
    text: str
    vector: ArrayLike
    metadata: Mapping[str, Any] = field(default_factory=dict)
    start: int | None = None
    end: int | None = None


def put_pieces(index: IndexCore, pieces: Iterable[Piece], fingerprint: str) -> None:
    """Write pieces as `Index.put_pieces` says."""
    pieces = list(pieces)
    repeated = [id_ for id_, count in Counter(piece.id for piece in pieces).items() if count > 1]
    if repeated:
        raise InvalidParameter(f"two pieces have the id {repeated[0]!r:.80}; give each its own")
    dimension = index.embedder.dimension
    vectors = [_checked_vector(piece, dimension) for piece in pieces]
    metadatas = [_piece_metadata(piece) for piece in pieces]
    with index.writing():
        # Compare under the lock: another process may have made the index anew before this one got it.
        if fingerprint != index.embedder.fingerprint:
            raise FingerprintMismatch(
                f"The pieces for index {index.name!r} were embedded by another embedder than its documents.\n"
                f"Fingerprint of the index: {index.embedder.fingerprint}, of the pieces: {fingerprint}; embed the "
                "pieces again, with index.embedder"
            )
        index.create()
        for group in slices(len(pieces), GROUP_PIECES):
            ids = [piece.id for piece in pieces[group]]
            known = index.store.get(MAIN, ids=ids, metadatas=True)
            new = _replacement_metadata(known, dict(zip(ids, metadatas[group], strict=True)))
            texts = [piece.text for piece in pieces[group]]
            with index.changing({PIECES: []}):
                index.put_rows(Rows(ids, new, texts, np.stack(vectors[group])))


def remove_pieces(index: IndexCore, *, ids: Sequence[str] | None = None, where: dict[str, Any] | None = None) -> int:
    """Remove pieces as `Index.remove_pieces` says."""
    check_conditions(where)
    if not index.exists:
        return 0
    is_piece = {PIECE: True}
    with index.writing():
        found = index.store.get(MAIN, ids=ids, where={"$and": [is_piece, where]} if where else is_piece).ids
        if found:
            with index.changing({PIECES: []}):
                index.delete_rows("id", found)
    return len(found)


def _piece_metadata(piece: Piece) -> dict[str, Any]:
    check_kind("piece", piece, Piece, "a Piece")
    for what, text in (("id", piece.id), ("text", piece.text), ("document", piece.document)):
        raise_on_surrogates(text, f"the {what} of piece {piece.id!r:.80}")
    for key, value in piece.metadata.items():
        if key in OF_PIECES:
            raise InvalidParameter(f"piece {piece.id!r:.80}: the index itself needs the metadata's name {key!r}")
        check_key(f"piece {piece.id!r:.80}", key)
        if value is not None:
            check_value(f"piece {piece.id!r:.80}", key, value)
    pairs = [*piece.metadata.items(), (START, piece.start), (END, piece.end)]
    given = {key: value for key, value in pairs if value is not None}
    return {**given, DOCUMENT: piece.document, DIGEST: "", PIECE: True}


def _checked_vector(piece: Piece, dimension: int) -> Floats:
    vector = np.asarray(piece.vector, np.float32)
    if vector.shape != (dimension,) or not np.isfinite(vector).all() or not vector.any():
        raise InvalidParameter(
            f"piece {piece.id!r:.80} has a vector of shape {vector.shape}, or with values that are no numbers or all "
            f"zero; the index's embedder makes vectors of {dimension} numbers"
        )
    return vector


def _replacement_metadata(known: Rows, new: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Metadata of new rows, in order, with None for names that they no longer have: Chroma keeps unnamed entries."""
    for id_, row in zip(known.ids, known.metadatas, strict=True):
        if PIECE not in row:
            raise ForeignCollection(
                f"row {id_!r:.80} is a passage of a document that the index has cut itself, and no piece: give the "
                "piece another id, or remove the document"
                if row.get(DOCUMENT) is not None
                else f"row {id_!r:.80} was put into the collection by something else; delete it, or choose another id"
            )
        new[id_] = {**dict.fromkeys(row), **new[id_]}
    return list(new.values())
