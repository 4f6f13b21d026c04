"""Reindexing and refitting: build a new index beside the old one and swap them when it is complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from chroma_eddy.embedding_function import EddyEmbeddingFunction
from chroma_eddy.index_core import IndexCore
from chroma_eddy.rows.documents import group_ids, read_embedded_documents
from chroma_eddy.rows.schema import EmbeddedDocument
from chroma_eddy.rows.transform import invert, load_transform, round_to_float32
from chroma_eddy.storage.names import KINDS, MAIN, NEXT, RAW, SENTENCES
from chroma_eddy.storage.store import Store
from chroma_eddy.storage.swap import finish_swap
from chroma_eddy.write.integrity import remove_documents
from chroma_eddy.write.pieces import move_pieces
from chroma_eddy.write.writer import Progress, Writer, WriteReport
from eddy_embed import LongDocument
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations import Fitted, RunningCovariance, checked_texts, fit, unit

if TYPE_CHECKING:
    from eddy_embed import Embedder  # imports torch


def reindex(
    index: IndexCore,
    embedder: Embedder | EddyEmbeddingFunction,
    sizes: Mapping[str, Any],
    progress: Progress | None,
    restart: bool,
) -> WriteReport:
    """Embed every document again, as `Index.reindex` says."""
    with index.writing():
        if index.holds_pieces:
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
            following = _open_for_writing(store, embedder, sizes)
        except FingerprintMismatch as error:
            raise FingerprintMismatch(
                f"an unfinished reindexing of {index.name!r} was begun with another embedder or other sizes: finish it "
                f"with those, or give restart=True to leave it and begin anew. {error}"
            ) from None
        writer = Writer(following, progress)
        with closing(following.words):
            report = writer.run(index.documents())
            report.removed = remove_documents(following, [id_ for id_ in following.entries() if id_ not in writer.ids])
        _swap_in(index, following)
        index.switch_embedder(embedder, sizes)
        return report


def refit(index: IndexCore, queries: Iterable[str] | None, progress: Progress | None) -> WriteReport:
    """Fit the post-processing again, as `Index.refit` says."""
    with index.writing():
        post, embedder = index.post, index.embedder
        if post is None:
            raise InvalidParameter(
                f"index {index.name!r} has no post-processing to fit: reindex it with a method that has, such as "
                f"'{embedder.method}+whiten'"
            )
        questions = None if queries is None else checked_texts(queries)
        if post.query_mean is not None and questions is None:
            raise InvalidParameter("the post-processing was fitted with sample queries; give queries= again")
        store, basis = index.store.with_suffix(NEXT), index.store.metadata()["eddy_written"]
        unfinished = store.metadata()
        if unfinished and "eddy_basis" not in unfinished:
            raise InvalidParameter(
                f"a reindexing of {index.name!r} is unfinished: finish it first, or leave it with "
                "reindex(embedder, restart=True)"
            )
        if index.keeps_raw and index.holds_pieces:
            raise InvalidParameter(
                f"index {index.name!r} holds pieces that a framework has embedded, whose raw vectors "
                f"{str(post.post)!r} does not give back: run the framework's ingestion into an index of another name"
            )
        # Fitting again may differ in the last bit, so a call that was stopped goes on with the fit that it stored.
        fitted = load_transform(store) if unfinished.get("eddy_basis") == basis else None
        if fitted is None:
            store.drop_all()
            fitted = _fit(index, embedder, post, questions)
        following = _open_for_writing(store, embedder.with_post(fitted), index.settings.sizes)
        with closing(following.words):
            following.create(eddy_basis=basis)
            report = _rewrite_documents(index, following, post, progress)
            move_pieces(index, following, lambda vectors: invert(post, vectors, embedder.normalize))
        _swap_in(index, following)
        index.switch_embedder(None, index.settings.sizes)
        report.fitted_on = fitted.count
        return report


def _open_for_writing(store: Store, embedder: Embedder | EddyEmbeddingFunction, sizes: Mapping[str, Any]) -> IndexCore:
    following = IndexCore(store, embedder, sizes)
    store.begin_writing()
    if following.exists and following.words.missing:
        following.words.rebuild()
    return following


def _swap_in(index: IndexCore, following: IndexCore) -> None:
    """Mark the new index as complete and swap it with the old one."""
    store = following.store
    kinds = ",".join(kind for kind in KINDS if kind and store.find(kind) is not None)
    store.end_change()
    store.update_metadata(eddy_kinds=kinds, eddy_ready=True)
    finish_swap(index.store, clean=True)


def _fit(index: IndexCore, embedder: Embedder, post: Fitted, queries: list[str] | None) -> Fitted:
    moments = RunningCovariance(len(post.mean))
    for vectors in _raw_vectors(index, post, embedder.normalize):
        moments.add(vectors)
    query_moments = None
    if queries is not None:
        query_moments = RunningCovariance(len(post.mean))
        raw = embedder.with_post(None).encode_query(queries, show_progress=False)
        query_moments.add(unit(raw.astype(np.float64)))
    return round_to_float32(replace(fit(post.post, moments, query_moments), made_by=embedder.made_by))


def _raw_vectors(index: IndexCore, post: Fitted, normalized: bool) -> Iterator[NDArray[np.float64]]:
    """Raw vectors of all sentences; of passages where the index has no sentence vectors, or holds pieces."""
    where = index.visible_rows()
    sentences = index.settings.sentence_vectors and not index.holds_pieces
    if index.keeps_raw:
        for rows in index.store.pages(RAW, where=where, embeddings=True):
            kind = "sentence/" if sentences else "passage/"
            chosen = [number for number, id_ in enumerate(rows.ids) if id_.startswith(kind)]
            yield unit(rows.vectors[chosen].astype(np.float64))
    else:
        for rows in index.store.pages(SENTENCES if sentences else MAIN, where=where, embeddings=True):
            yield invert(post, rows.vectors, normalized)


def _rewrite_documents(index: IndexCore, following: IndexCore, post: Fitted, progress: Progress | None) -> WriteReport:
    """Write the documents with the new post-processing, except those that an interrupted call has written."""
    writer = Writer(following, progress)
    known = following.entries()
    rows = [row for row in index.entries().values() if row.digest]
    remaining = [row for row in rows if row.id not in known or known[row.id].digest != row.digest]
    writer.report.unchanged = len(rows) - len(remaining)
    for ids in group_ids(remaining):
        for embedded in read_embedded_documents(index.store, index.settings, ids, keeps_raw=index.keeps_raw):
            raw = embedded.raw or _inverted(post, embedded.result, index.embedder.normalize)
            writer.rewrite(EmbeddedDocument(embedded.document, raw), known)
    return writer.report


def _inverted(post: Fitted, result: LongDocument, normalized: bool) -> LongDocument:
    """A document with raw vectors, computed from the processed ones."""
    parts = (*result.passages, *result.sentences)
    vectors = np.stack([result.vector, *(part.vector for part in parts)])
    raw = invert(post, vectors, normalized).astype(np.float32)
    raw_parts: list[Any] = [replace(part, vector=vector) for part, vector in zip(parts, raw[1:], strict=True)]
    count = len(result.passages)
    return replace(result, vector=raw[0], passages=raw_parts[:count], sentences=raw_parts[count:])
