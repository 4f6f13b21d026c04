"""Documents into an index: what is new is embedded and written, and is found by queries once it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from chroma_eddy.rows.documents import read_embedded_documents
from chroma_eddy.rows.schema import (
    DIGEST,
    DOCUMENT,
    OTHER,
    DocumentRow,
    EmbeddedDocument,
    RowBatch,
    document_metadata,
    passage_rows,
    raw_document_id,
    row_ids,
    sentence_rows,
)
from chroma_eddy.rows.transform import round_to_float32
from chroma_eddy.storage.names import DOCUMENTS, MAIN, RAW, SENTENCES
from chroma_eddy.storage.recipe import is_unfitted
from chroma_eddy.types import Document, check_document
from chroma_eddy.write.integrity import commit_versions
from eddy_embed.errors import InvalidParameter
from eddy_embed.finish import unit
from eddy_embed.inputs import check_kind
from eddy_embed.postprocess import Moments, fit

if TYPE_CHECKING:
    from chroma_eddy.index_core import IndexCore
    from chroma_eddy.storage.recipe import Recipe
    from eddy_embed import LongDocument, Span
    from eddy_embed.document import Part as Kind
    from eddy_embed.postprocess import Fitted, Post

GROUP_CHARACTERS = 100_000
"""Documents are embedded in groups of this size: enough for full batches, little to redo after an interruption."""
GROUP_DOCUMENTS = 64
FIT_PASSAGES = 2_000
"""Post-processing is fitted on the first passages of a new index, on this many if there are as many."""

Progress = Callable[[float, int], None]
"""Called with the characters embedded so far, and the documents written."""


@dataclass
class WriteReport:
    """What was done to an index.

    Attributes:
        written: Documents embedded and written.
        unchanged: Documents that were there already.
        relabelled: Documents whose text was there already, under other metadata; they were not embedded again.
        removed: Documents taken out.
        passages: Passages written.
        sentences: Sentences of the documents written.
        tokens: Tokens embedded, prompts and placeholders not counted.
        truncated: Documents whose end was not read, as `overflow="truncate"` asks.
        fitted_on: Passages that post-processing was fitted on just now; 0 where there was nothing to fit.
    """

    written: int = 0
    unchanged: int = 0
    relabelled: int = 0
    removed: int = 0
    passages: int = 0
    sentences: int = 0
    tokens: int = 0
    truncated: int = 0
    fitted_on: int = 0


Change = Literal["unchanged", "relabelled", "new"]
"""A document that is there already, one whose text is, under other metadata, and one to be embedded."""


def classify(document: Document, entry: DocumentRow | None) -> Change:
    """What there is to do for a document.

    Args:
        document: As it shall be.
        entry: What the index knows of it.
    """
    if entry is not None and entry.digest == document.digest:
        return "unchanged"
    same = entry is not None and entry.digest and entry.text_digest == document.text_digest
    return "relabelled" if same else "new"


def vector_parts(recipe: Recipe) -> tuple[Kind, ...]:
    """The parts of a document that an index has vectors of."""
    return ("document", "passages", "sentences") if recipe.sentence_vectors else ("document", "passages")


class Writer:
    """Writes documents as they come, or holds the first of them until post-processing can be fitted."""

    def __init__(
        self,
        index: IndexCore,
        progress: Progress | None = None,
        fit_least: int = 0,
        begin: Callable[[Any], None] | None = None,
    ) -> None:
        """Write nothing yet; the index's lock is held by the caller.

        Args:
            index: With an embedder.
            progress: Told how far it is.
            fit_least: As in `Index.upsert`.
            begin: Likewise.
        """
        self._least, self._begin = fit_least, begin
        self.report = WriteReport()
        self.ids: set[str] = set()
        self._index, self._progress = index, progress or (lambda *_: None)
        self._characters = 0
        self._held: list[EmbeddedDocument] = []

    def run(self, documents: Iterable[Document]) -> WriteReport:
        """Write what is new or has changed.

        Raises:
            InvalidParameter: A document, or its metadata, cannot be stored, or an id came twice.
            InvalidText: A text cannot be embedded.
        """
        check_kind("documents", documents, Iterable, "a list of chroma_eddy.Document")
        given = [documents] if isinstance(documents, Document) else documents
        for group in self._groups(given):
            self._take(group)
        if self._held:
            self._fit()
        return self.report

    def rewrite(self, raw: EmbeddedDocument, known: dict[str, DocumentRow]) -> None:
        """Write a document whose raw vectors are known, with the index's post-processing.

        Args:
            raw: The document.
            known: What the index has.
        """
        self._characters += len(raw.document.text)
        self._store(self._processed([raw]), known)
        self._progress(self._characters, self.report.written)

    def _take(self, group: Sequence[Document]) -> None:
        index = self._index
        known = index.entries([document.id for document in group]) if index.exists else {}
        sorts = [classify(each, known.get(each.id)) for each in group]
        of = {sort: [each for each, own in zip(group, sorts, strict=True) if own == sort] for sort in get_args(Change)}
        self.report.unchanged += len(of["unchanged"])
        commit_versions(index, [entry for each in of["unchanged"] if (entry := known[each.id]).other])
        self._relabel(of["relabelled"], known)
        self._embed(of["new"], known)
        self._progress(self._characters, self.report.written)

    def _relabel(self, group: Sequence[Document], known: dict[str, DocumentRow]) -> None:
        if not group:
            return
        index, ids = self._index, [document.id for document in group]
        stored = read_embedded_documents(index.store, index.recipe, ids, keeps_raw=index.keeps_raw)
        self._write([replace(own, document=new) for own, new in zip(stored, group, strict=True)], known)
        self.report.relabelled += len(group)

    def _embed(self, group: Sequence[Document], known: dict[str, DocumentRow]) -> None:
        if not group:
            return
        index, size = self._index, sum(len(document.text) for document in group)
        unfitted = is_unfitted(index.embedder)
        results = self.encoded(group, raw=unfitted or index.keeps_raw)
        self._characters += size
        found = [EmbeddedDocument(document, result) for document, result in zip(group, results, strict=True)]
        if unfitted:
            self._held += found
            if sum(len(each.result.passages) for each in self._held) >= FIT_PASSAGES:
                self._fit()
        else:
            self._store(self._processed(found) if index.keeps_raw else found, known)

    def encoded(self, group: Sequence[Document], *, raw: bool) -> Sequence[LongDocument]:
        """Vectors of documents; a writer whose documents are embedded elsewhere has its own way to them.

        Args:
            group: The documents.
            raw: Whether vectors without post-processing are wanted.
        """
        index, size = self._index, sum(len(document.text) for document in group)
        own = index.embedder
        return (own.with_post(None) if raw else own).encode_long(
            [document.text for document in group],
            passage_size=index.recipe.passage_size,
            late=index.recipe.late,
            parts=vector_parts(index.recipe),
            progress=lambda done, total, stage: self._progress(
                self._characters + size * done / max(total, 1), self.report.written
            ),
        )

    def _processed(self, group: Sequence[EmbeddedDocument]) -> list[EmbeddedDocument]:
        """Documents with raw vectors, processed; the raw ones are kept where they could not be had back."""
        index = self._index
        post = cast("Fitted", index.embedder.post)
        results = [(each, each.result.processed(post, index.embedder.normalize)) for each in group]
        return [
            EmbeddedDocument(each.document, done, each.result if index.keeps_raw else None) for each, done in results
        ]

    def _fit(self) -> None:
        index, held = self._index, self._held
        self._held = []
        own = index.embedder
        texts = {each.document.text[part.start : part.end] for each in held for part in each.result.passages}
        if len(texts) < self._least:
            index.set_post(None)
            self._flush(held)
            return
        moments = Moments(own.backbone.hidden)
        for each in held:
            moments.add(unit(np.stack([passage.vector for passage in each.result.passages]).astype(np.float64)))
        fitted = replace(fit(cast("Post", own.method.post), moments), maker=own.maker)
        index.set_post(round_to_float32(fitted))
        self.report.fitted_on = moments.count
        self._flush(self._processed(held))

    def _flush(self, held: Sequence[EmbeddedDocument]) -> None:
        for at in range(0, len(held), GROUP_DOCUMENTS):
            self._store(held[at : at + GROUP_DOCUMENTS], {})
            self._progress(self._characters, self.report.written)

    def _store(self, group: Sequence[EmbeddedDocument], known: dict[str, DocumentRow]) -> None:
        self._write(group, known)
        report = self.report
        report.written += len(group)
        report.passages += sum(len(each.result.passages) for each in group)
        report.sentences += sum(each.result.passages[-1].last_sentence + 1 for each in group)
        report.tokens += sum(each.result.n_tokens for each in group)
        report.truncated += sum(each.result.n_truncated > 0 for each in group)

    def _write(self, group: Sequence[EmbeddedDocument], known: dict[str, DocumentRow]) -> None:
        """Write documents' rows, each of which is found by queries from one moment to the next.

        A new version's rows are written beside the old one's, whose row says meanwhile which version is not to be
        found; one write to that row exchanges them, and only then the old rows go. Stopped in between, either version
        is whole, and the next run does the rest.
        """
        index, store = self._index, self._index.store
        if self._begin is not None and not index.exists:
            self._begin(index)
        index.create()
        old = [known[each.document.id] for each in group if each.document.id in known]
        new = {each.document.id: each.document.digest for each in group}
        commit_versions(index, [entry for entry in old if entry.other not in ("", new[entry.id])])
        self._rows([each for each in group if each.document.id not in known], begin=True)
        store.update_documents({entry.id: {OTHER: new[entry.id]} for entry in old})
        recipe = index.recipe
        _upsert_rows(index, MAIN, [passage_rows(each.document, each.result, recipe) for each in group])
        if recipe.sentence_vectors:
            _upsert_rows(index, SENTENCES, [sentence_rows(each.document, each.result, recipe) for each in group])
        for each in group:
            if each.raw is not None:
                _upsert_raw_vectors(index, each.document, each.raw)
        self._rows(group, begin=False, known=known)
        commit_versions(index, [replace(entry, other=entry.digest) for entry in old if entry.digest], touch=True)

    def _rows(
        self, group: Sequence[EmbeddedDocument], *, begin: bool, known: dict[str, DocumentRow] | None = None
    ) -> None:
        rows, known = [], known or {}
        for each in group:
            entry, digest = known.get(each.document.id), each.document.digest
            row = document_metadata(each.document, each.result, "" if begin else digest, digest if begin else "")
            if entry is not None:
                row[OTHER] = entry.digest
                # Chroma keeps what it is not told to forget.
                gone = set(entry.metadata) - set(row) | ({"eddy_page_starts"} - set(row))
                row.update(dict.fromkeys(gone))
            rows.append(row)
        vectors = np.stack([each.result.vector for each in group]) if group else np.zeros((0, 0))
        self._index.store.upsert(DOCUMENTS, [each.document.id for each in group], vectors.astype(np.float32), rows)

    def _groups(self, documents: Iterable[Document]) -> Iterator[list[Document]]:
        group: list[Document] = []
        size = 0
        for at, each in enumerate(documents):
            document = check_document(each, at)
            if document.id in self.ids:
                raise InvalidParameter(f"two documents have the id {document.id!r:.80}; give each its own")
            self.ids.add(document.id)
            if group and (size + len(document.text) > GROUP_CHARACTERS or len(group) == GROUP_DOCUMENTS):
                yield group
                group, size = [], 0
            group.append(document)
            size += len(document.text)
        if group:
            yield group


def _upsert_rows(index: IndexCore, part: str, parts: Sequence[RowBatch]) -> None:
    texts = [text for each in parts for text in each.texts]
    index.store.upsert(
        part,
        [id_ for each in parts for id_ in each.ids],
        np.concatenate([each.vectors for each in parts]),
        [row for each in parts for row in each.metadatas],
        texts or None,
    )


def _upsert_raw_vectors(index: IndexCore, document: Document, raw: LongDocument) -> None:
    """Raw vectors of a document and its parts, each under a name of the row that it belongs to."""
    index.store.open_or_create(RAW)
    spans: dict[str, Sequence[Span]] = {"passage": raw.passages, "sentence": raw.sentences}
    own = [f"{kind}/{id_}" for kind, some in spans.items() for id_ in row_ids(document, some, index.recipe)]
    vectors = [each.vector for some in spans.values() for each in some]
    ids = [raw_document_id(document), *own]
    about = [{DOCUMENT: document.id, DIGEST: document.digest} for _ in ids]
    index.store.upsert(RAW, ids, np.stack([raw.vector, *vectors]).astype(np.float32), about)
