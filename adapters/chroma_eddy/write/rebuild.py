"""An index made anew beside the old one, which is found until the new one is complete and takes its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_eddy.index_core import any_in
from chroma_eddy.rows.documents import grouped, stored_documents
from chroma_eddy.rows.schema import DIGEST, Embedded, Entry
from chroma_eddy.rows.transform import load, raw_of, rounded
from chroma_eddy.storage.names import MAIN, NEXT, PARTS, RAW
from chroma_eddy.storage.swap import beside, drop, finish
from chroma_eddy.write import pieces
from chroma_eddy.write.integrity import remove
from chroma_eddy.write.writer import Progress, Writer, WriteReport
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.finish import unit
from eddy_embed.inputs import checked_texts
from eddy_embed.postprocess import Moments, fit

if TYPE_CHECKING:
    from chroma_eddy.embedding_function import EddyEmbeddingFunction
    from chroma_eddy.index import Index
    from eddy_embed import Embedder, LongDocument
    from eddy_embed.postprocess import Fitted

    Doubles = np.ndarray[Any, np.dtype[np.float64]]


def reindex(
    index: Index,
    embedder: Embedder | EddyEmbeddingFunction,
    sizes: Mapping[str, Any],
    progress: Progress | None,
    restart: bool,
) -> WriteReport:
    """Embed every document again, as `Index.reindex` says."""
    with index.writing():
        if any_in(index):
            raise InvalidParameter(
                f"index {index.name!r} holds pieces that a framework has cut out of documents which are not here, so "
                "they cannot be embedded again: run the framework's ingestion into an index of another name"
            )
        if not index.entries():
            drop(index.store)
            index.become(embedder, sizes)
            return WriteReport()
        store = beside(index.store, NEXT)
        if restart:
            drop(store)
        try:
            following = index.sibling(store, embedder, sizes)
        except FingerprintMismatch as error:
            raise FingerprintMismatch(
                f"an unfinished reindexing of {index.name!r} was begun with another embedder or other sizes: finish it "
                f"with those, or give restart=True to leave it and begin anew. {error}"
            ) from None
        writer = Writer(following, progress)
        report = writer.run(index.documents())
        report.removed = remove(following, [id_ for id_ in following.entries() if id_ not in writer.ids])
        _replace(index, following)
        index.become(embedder, sizes)
        return report


def refit(index: Index, queries: Iterable[str] | None, progress: Progress | None) -> WriteReport:
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
        store, basis = beside(index.store, NEXT), index.store.metadata()["eddy_written"]
        begun = store.metadata()
        if begun and "eddy_basis" not in begun:
            raise InvalidParameter(
                f"a reindexing of {index.name!r} is unfinished: finish it first, or leave it with "
                "reindex(embedder, restart=True)"
            )
        if index.keeps_raw and any_in(index):
            raise InvalidParameter(
                f"index {index.name!r} holds pieces that a framework has embedded, whose raw vectors "
                f"{str(post.post)!r} does not give back: run the framework's ingestion into an index of another name"
            )
        # A fit is repeated to the last bit only by keeping it: an interrupted one goes on with what it had learned.
        kept = load(store) if begun.get("eddy_basis") == basis else None
        if kept is None:
            drop(store)
        fitted = _fit(index, embedder, post, asked) if kept is None else kept
        following = index.sibling(store, embedder.with_post(fitted), index.sizes)
        following.create(eddy_basis=basis)
        report = _rewrite(index, following, post, progress)
        pieces.move(index, following, lambda vectors: raw_of(post, vectors, embedder.normalize))
        _replace(index, following)
        index.become(None, index.sizes)
        report.fitted_on = fitted.count
        return report


def _replace(index: Index, following: Index) -> None:
    store = following.store
    parts = ",".join(part for part in PARTS if part and store.find(part) is not None)
    store.settle()
    store.update(eddy_parts=parts, eddy_ready=True)
    finish(index.store, clean=True)


def _fit(index: Index, embedder: Embedder, post: Fitted, queries: list[str] | None) -> Fitted:
    moments = Moments(len(post.mean))
    for vectors in _raw_passages(index, post, embedder.normalize):
        moments.add(vectors)
    asked = None
    if queries is not None:
        asked = Moments(len(post.mean))
        asked.add(unit(embedder.with_post(None).encode_query(queries, show_progress=False).astype(np.float64)))
    return rounded(replace(fit(post.post, moments, asked), maker=embedder.maker))


def _raw_passages(index: Index, post: Fitted, normalized: bool) -> Iterator[Doubles]:
    hidden = list(filter(None, (entry.other for entry in index.incomplete().values())))
    where = {DIGEST: {"$nin": hidden}} if hidden else None
    if index.keeps_raw:
        for rows in index.store.pages(RAW, where=where, embeddings=True):
            own = [at for at, id_ in enumerate(rows.ids) if id_.startswith("passage/")]
            yield unit(rows.vectors[own].astype(np.float64))
    else:
        for rows in index.store.pages(MAIN, where=where, embeddings=True):
            yield raw_of(post, rows.vectors, normalized)


def _rewrite(index: Index, following: Index, post: Fitted, progress: Progress | None) -> WriteReport:
    writer = Writer(following, progress)
    known = following.entries()

    def is_done(entry: Entry) -> bool:
        return entry.id in known and known[entry.id].digest == entry.digest

    entries = [entry for entry in index.entries().values() if entry.digest]
    writer.report.unchanged = sum(map(is_done, entries))
    for ids in grouped(entry for entry in entries if not is_done(entry)):
        for found in stored_documents(index.store, index.recipe, ids, keeps_raw=index.keeps_raw):
            raw = found.raw or _undone(post, found.result, index.embedder.normalize)
            writer.rewrite(Embedded(found.document, raw), known)
    return writer.report


def _undone(post: Fitted, result: LongDocument, normalized: bool) -> LongDocument:
    """A document with its raw vectors, out of the processed ones."""
    parts = (*result.passages, *result.sentences)
    vectors = np.stack([result.vector, *(part.vector for part in parts)])
    raw = raw_of(post, vectors, normalized).astype(np.float32)
    own: list[Any] = [replace(part, vector=vector) for part, vector in zip(parts, raw[1:], strict=True)]
    count = len(result.passages)
    return replace(result, vector=raw[0], passages=own[:count], sentences=own[count:])
