"""An index made anew beside the old one, which is found until the new one is complete and takes its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_eddy.index_core import contains_pieces
from chroma_eddy.rows.documents import group_ids, read_embedded_documents
from chroma_eddy.rows.schema import DIGEST, DocumentRow, EmbeddedDocument
from chroma_eddy.rows.transform import invert, load_transform, round_to_float32
from chroma_eddy.storage.names import MAIN, NEXT, PARTS, RAW
from chroma_eddy.storage.swap import finish_swap
from chroma_eddy.write import pieces
from chroma_eddy.write.integrity import remove_documents
from chroma_eddy.write.writer import Progress, Writer, WriteReport
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.finish import unit
from eddy_embed.inputs import checked_texts
from eddy_embed.postprocess import Moments, fit

if TYPE_CHECKING:
    from chroma_eddy.embedding_function import EddyEmbeddingFunction
    from chroma_eddy.index_core import IndexCore
    from eddy_embed import Embedder, LongDocument
    from eddy_embed.postprocess import Fitted

    Doubles = np.ndarray[Any, np.dtype[np.float64]]


def reindex(
    index: IndexCore,
    embedder: Embedder | EddyEmbeddingFunction,
    sizes: Mapping[str, Any],
    progress: Progress | None,
    restart: bool,
) -> WriteReport:
    """Embed every document again, as `Index.reindex` says."""
    with index.writing():
        if contains_pieces(index):
            raise InvalidParameter(
                f"index {index.name!r} holds pieces that a framework has cut out of documents which are not here, so "
                "they cannot be embedded again: run the framework's ingestion into an index of another name"
            )
        if not index.entries():
            index.store.drop_all()
            index.switch_embedder(embedder, sizes)
            return WriteReport()
        store = index.store.with_suffix(NEXT)
        if restart:
            store.drop_all()
        try:
            following = index.open_sibling(store, embedder, sizes)
        except FingerprintMismatch as error:
            raise FingerprintMismatch(
                f"an unfinished reindexing of {index.name!r} was begun with another embedder or other sizes: finish it "
                f"with those, or give restart=True to leave it and begin anew. {error}"
            ) from None
        writer = Writer(following, progress)
        report = writer.run(index.documents())
        report.removed = remove_documents(following, [id_ for id_ in following.entries() if id_ not in writer.ids])
        _swap_in(index, following)
        index.switch_embedder(embedder, sizes)
        return report


def refit(index: IndexCore, queries: Iterable[str] | None, progress: Progress | None) -> WriteReport:
    """Fit post-processing again, as `Index.refit` says."""
    with index.writing():
        post, embedder = index.post, index.embedder
        if post is None:
            raise InvalidParameter(
                f"index {index.name!r} has no post-processing to fit: reindex it with a method that has, such as "
                f"'{embedder.method}+whiten'"
            )
        asked = None if queries is None else checked_texts(queries)
        if post.query_mean is not None and asked is None:
            raise InvalidParameter("the post-processing was fitted with sample queries; give queries= again")
        store, basis = index.store.with_suffix(NEXT), index.store.metadata()["eddy_written"]
        begun = store.metadata()
        if begun and "eddy_basis" not in begun:
            raise InvalidParameter(
                f"a reindexing of {index.name!r} is unfinished: finish it first, or leave it with "
                "reindex(embedder, restart=True)"
            )
        if index.keeps_raw and contains_pieces(index):
            raise InvalidParameter(
                f"index {index.name!r} holds pieces that a framework has embedded, whose raw vectors "
                f"{str(post.post)!r} does not give back: run the framework's ingestion into an index of another name"
            )
        # A fit is repeated to the last bit only by keeping it: an interrupted one goes on with what it had learned.
        kept = load_transform(store) if begun.get("eddy_basis") == basis else None
        if kept is None:
            store.drop_all()
        fitted = _fit(index, embedder, post, asked) if kept is None else kept
        following = index.open_sibling(store, embedder.with_post(fitted), index.sizes)
        following.create(eddy_basis=basis)
        report = _rewrite_documents(index, following, post, progress)
        pieces.move_pieces(index, following, lambda vectors: invert(post, vectors, embedder.normalize))
        _swap_in(index, following)
        index.switch_embedder(None, index.sizes)
        report.fitted_on = fitted.count
        return report


def _swap_in(index: IndexCore, following: IndexCore) -> None:
    store = following.store
    parts = ",".join(part for part in PARTS if part and store.find(part) is not None)
    store.end_change()
    store.update_metadata(eddy_parts=parts, eddy_ready=True)
    finish_swap(index.store, clean=True)


def _fit(index: IndexCore, embedder: Embedder, post: Fitted, queries: list[str] | None) -> Fitted:
    moments = Moments(len(post.mean))
    for vectors in _raw_passage_vectors(index, post, embedder.normalize):
        moments.add(vectors)
    asked = None
    if queries is not None:
        asked = Moments(len(post.mean))
        asked.add(unit(embedder.with_post(None).encode_query(queries, show_progress=False).astype(np.float64)))
    return round_to_float32(replace(fit(post.post, moments, asked), maker=embedder.maker))


def _raw_passage_vectors(index: IndexCore, post: Fitted, normalized: bool) -> Iterator[Doubles]:
    hidden = list(filter(None, (entry.other for entry in index.incomplete().values())))
    where = {DIGEST: {"$nin": hidden}} if hidden else None
    if index.keeps_raw:
        for rows in index.store.pages(RAW, where=where, embeddings=True):
            own = [at for at, id_ in enumerate(rows.ids) if id_.startswith("passage/")]
            yield unit(rows.vectors[own].astype(np.float64))
    else:
        for rows in index.store.pages(MAIN, where=where, embeddings=True):
            yield invert(post, rows.vectors, normalized)


def _rewrite_documents(index: IndexCore, following: IndexCore, post: Fitted, progress: Progress | None) -> WriteReport:
    writer = Writer(following, progress)
    known = following.entries()

    def is_done(entry: DocumentRow) -> bool:
        return entry.id in known and known[entry.id].digest == entry.digest

    entries = [entry for entry in index.entries().values() if entry.digest]
    writer.report.unchanged = sum(map(is_done, entries))
    for ids in group_ids(entry for entry in entries if not is_done(entry)):
        for found in read_embedded_documents(index.store, index.recipe, ids, keeps_raw=index.keeps_raw):
            raw = found.raw or _with_raw_vectors(post, found.result, index.embedder.normalize)
            writer.rewrite(EmbeddedDocument(found.document, raw), known)
    return writer.report


def _with_raw_vectors(post: Fitted, result: LongDocument, normalized: bool) -> LongDocument:
    """A document with its raw vectors, out of the processed ones."""
    parts = (*result.passages, *result.sentences)
    vectors = np.stack([result.vector, *(part.vector for part in parts)])
    raw = invert(post, vectors, normalized).astype(np.float32)
    own: list[Any] = [replace(part, vector=vector) for part, vector in zip(parts, raw[1:], strict=True)]
    count = len(result.passages)
    return replace(result, vector=raw[0], passages=own[:count], sentences=own[count:])
