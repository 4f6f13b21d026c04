"""Pieces of documents that a framework has cut and embedded itself, as rows of an index's main collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_eddy.errors import ForeignCollection
from chroma_eddy.index_core import contains_pieces
from chroma_eddy.rows.schema import DIGEST, DOCUMENT, END, PIECE, START
from chroma_eddy.storage.names import MAIN
from chroma_eddy.storage.recipe import is_unfitted
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.finish import Finish
from eddy_embed.inputs import check_kind

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from chroma_eddy.index_core import IndexCore
    from chroma_eddy.storage.pages import Rows
    from eddy_embed.postprocess import Fitted

    Floats = NDArray[np.float32]

GROUP_PIECES = 5_000
"""Pieces that are looked up and written at a time."""
FINGERPRINT = "eddy_fingerprint"


@dataclass(frozen=True)
class Piece:
    """A text with its vector, which the index's own embedder has made.

    Unlike the passages that an index cuts, it is known by an id that its writer chose, and the index knows nothing of
    the rest of its document: it has no sentences' rows, and cannot be embedded again from here.

    Attributes:
        id: Of its row; a piece of the same id replaces it.
        document: What it belongs to, and goes with.
        text: Of it.
        vector: Its vector.
        metadata: For filters; None is left out, as it is absent.
        start: Its first character in the document, if that is known.
        end: The character after its last.
    """

    id: str
    document: str
    text: str
    vector: ArrayLike
    metadata: Mapping[str, Any] = field(default_factory=dict)
    start: int | None = None
    end: int | None = None


def put_pieces(index: IndexCore, pieces: Iterable[Piece], fingerprint: str) -> None:
    """Write pieces, in batches that the database takes; those of known ids are replaced, and twice changes nothing.

    Args:
        index: Opened with the embedder that made the vectors.
        pieces: What to write.
        fingerprint: Of what made the vectors.

    Raises:
        FingerprintMismatch: The index's vectors are made otherwise by now.
        InvalidParameter: A piece cannot be stored, an id came twice, or the index's post-processing is not fitted.
        ForeignCollection: A row of that id is no piece.
    """
    given = list(pieces)
    twice = [id_ for id_, count in Counter(piece.id for piece in given).items() if count > 1]
    if twice:
        raise InvalidParameter(f"two pieces have the id {twice[0]!r:.80}; give each its own")
    width = index.embedder.dimension
    vectors = (
        np.stack([_checked_vector(piece, width) for piece in given]) if given else np.zeros((0, width), np.float32)
    )
    rows = [_piece_metadata(piece) for piece in given]
    with index.writing():
        if not index.exists and is_unfitted(index.embedder):
            raise InvalidParameter(
                f"the post-processing of index {index.name!r} has learned nothing yet, and pieces come with their "
                "vectors: put whole documents in first, or open it with an embedder that was fitted"
            )
        # Looked at under the lock: another process may have fitted the post-processing again while this one waited.
        if fingerprint != index.embedder.fingerprint:
            raise FingerprintMismatch(
                f"index {index.name!r} holds vectors of fingerprint {index.embedder.fingerprint}, and the pieces' were "
                f"made by {fingerprint}: embed the pieces again, with index.current()"
            )
        index.create()
        made = {FINGERPRINT: index.recipe.fingerprint}
        for at in range(0, len(given), GROUP_PIECES):
            some = slice(at, at + GROUP_PIECES)
            ids = [piece.id for piece in given[some]]
            known = index.store.get(MAIN, ids=ids, metadatas=True)
            new = _replacement_metadata(known, dict(zip(ids, rows[some], strict=True)))
            texts = [piece.text for piece in given[some]]
            index.store.upsert(MAIN, ids, vectors[some], [{**row, **made} for row in new], texts)
        if given:
            index.store.mark_written()


def find_pieces(
    index: IndexCore, *, ids: Sequence[str] | None = None, where: dict[str, Any] | None = None, **kinds: bool
) -> Rows:
    """Rows of pieces.

    Args:
        index: Where.
        ids: Which; None: all. Those that are not there are left out.
        where: Which of them, as Chroma has conditions.
        **kinds: As in `Store.get`.
    """
    own = {PIECE: True}
    return index.store.get(MAIN, ids=ids, where={"$and": [own, where]} if where else own, **kinds)


def remove_pieces(index: IndexCore, *, ids: Sequence[str] | None = None, where: dict[str, Any] | None = None) -> int:
    """Take pieces out.

    Args:
        index: Where.
        ids: As in `find_pieces`.
        where: Likewise.

    Returns:
        How many there were.
    """
    if not index.exists:
        return 0
    with index.writing():
        found = find_pieces(index, ids=ids, where=where).ids
        index.store.delete(MAIN, ids=found)
        if found:
            index.store.mark_written()
    return len(found)


def move_pieces(index: IndexCore, following: IndexCore, raw_of: Any) -> None:
    """Write an index's pieces into the one that takes its place, under its post-processing.

    Args:
        index: The old one.
        following: The new one.
        raw_of: Gives raw vectors of the old one's.
    """
    post: Fitted | None = following.post
    if post is None or not contains_pieces(index):
        return
    finish = Finish(normalize=following.embedder.normalize, post=post.post, fitted=post)
    made = {FINGERPRINT: following.recipe.fingerprint}
    pages = index.store.pages(MAIN, where={PIECE: True}, metadatas=True, documents=True, embeddings=True)
    for rows in pages:
        vectors = np.stack([finish(each, 0).astype(np.float32) for each in raw_of(rows.vectors)])
        following.store.upsert(MAIN, rows.ids, vectors, [{**row, **made} for row in rows.metadatas], rows.texts)


def _piece_metadata(piece: Piece) -> dict[str, Any]:
    check_kind("piece", piece, Piece, "a Piece")
    for key, value in piece.metadata.items():
        if not isinstance(key, str) or not key or key.startswith("chroma:"):
            raise InvalidParameter(f"piece {piece.id!r:.80}: metadata may not have the name {key!r:.60}")
        if not _is_storable(value):
            raise InvalidParameter(
                f"piece {piece.id!r:.80}: metadata {key!r:.60} is {value!r:.60}; Chroma holds strings, numbers of 64 "
                "bits, truth values, and lists of one of these that are not empty"
            )
    place = {START: piece.start, END: piece.end}
    return {
        **{key: value for key, value in piece.metadata.items() if value is not None},
        **{key: value for key, value in place.items() if value is not None},
        DOCUMENT: piece.document,
        DIGEST: "",
        PIECE: True,
    }


def _is_storable(value: Any) -> bool:
    if isinstance(value, list):
        kinds = {type(each) for each in value}
        return len(kinds) == 1 and kinds < {str, int, float, bool} and all(map(_is_storable, value))
    if isinstance(value, float):
        return bool(np.isfinite(value))
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    return value is None


def _checked_vector(piece: Piece, width: int) -> Floats:
    vector = np.asarray(piece.vector, np.float32)
    if vector.shape != (width,) or not np.isfinite(vector).all() or not vector.any():
        raise InvalidParameter(
            f"piece {piece.id!r:.80} has a vector of shape {vector.shape}, or with values that are no numbers or all "
            f"zero; the index's embedder makes vectors of {width} numbers"
        )
    return vector


def _replacement_metadata(known: Rows, new: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in their order, which say of each name that is gone that it is: Chroma keeps what it is not told to forget.

    Raises:
        ForeignCollection: A row that is to be replaced is no piece.
    """
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
