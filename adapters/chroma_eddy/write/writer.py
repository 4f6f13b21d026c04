"""`Writer`: embed and write what is new; queries find a document once it is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import numpy as np

from chroma_eddy.index_core import IndexCore
from chroma_eddy.rows.documents import read_embedded_documents
from chroma_eddy.rows.schema import (
    DIGEST,
    PENDING,
    DocumentRow,
    EmbeddedDocument,
    document_metadata,
    passage_rows,
    raw_document_id,
    row_ids,
    sentence_rows,
)
from chroma_eddy.rows.transform import round_to_float32
from chroma_eddy.storage.names import DOCUMENTS, RAW, SENTENCES
from chroma_eddy.storage.pages import Rows, slices
from chroma_eddy.types import Document, check_document
from chroma_eddy.write.integrity import commit_versions
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations import (
    DOCUMENT,
    Fitted,
    LongDocument,
    Post,
    RunningCovariance,
    Span,
    check_kind,
    fit,
    grouped_by_size,
    is_unfitted,
    unit,
)

GROUP_CHARACTERS = 100_000
"""Most characters in a group: enough for full batches, little to embed again after an interruption."""
GROUP_DOCUMENTS = 64
"""Most documents in a group."""
FIT_PASSAGES = 2_000
"""Number of a new index's first passages on whose sentences post-processing is fitted, if there are so many."""

Progress = Callable[[float, int], None]
"""Called with the number of characters embedded and of documents written so far."""
Encode = Callable[[Sequence[Any]], Sequence[LongDocument]]
"""Called with documents that are new or changed, as they were given."""


@dataclass
class WriteReport:
    """What a call has done to an index.

    Attributes:
        written: Number of documents embedded and written.
        unchanged: Number of documents that the index already had.
        relabelled: Number of documents whose metadata alone had changed; they were not embedded again.
        removed: Number of documents removed.
        passages: Number of passages written.
        sentences: Number of sentences of the documents written.
        tokens: Number of tokens embedded, without prompts and placeholders.
        truncated: Number of documents whose end was not read, as `overflow="truncate"` asks.
        fitted_on: Number of sentences, or of passages in an index without sentence vectors, that post-processing was
            fitted on; 0 if the call fitted none.
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
"""A document that the index has, one whose metadata alone have changed, and one to embed."""


def classify(document: Document, row: DocumentRow | None) -> Change:
    """What has changed in a document since its row was written; None: it has no row."""
    if row is None or not row.digest:
        return "new"
    if row.digest == document.digest:
        return "unchanged"
    return "relabelled" if row.text_digest == document.text_digest else "new"


class Writer:
    """Writes documents group by group; holds the first ones back until post-processing can be fitted."""

    def __init__(
        self,
        index: IndexCore,
        progress: Progress | None = None,
        fit_least: int = 0,
        begin: Callable[[Any], None] | None = None,
        encode: Encode | None = None,
    ) -> None:
        """The index has an embedder, and the caller holds the writer's lock; further arguments as in `Index.upsert`."""
        self._index, self._progress = index, progress or (lambda *_: None)
        self._fit_least, self._begin, self._encode, self._characters = fit_least, begin, encode, 0
        self.report = WriteReport()
        self.ids: set[str] = set()
        self._held: list[EmbeddedDocument] = []

    def run(self, documents: Iterable[Document]) -> WriteReport:
        """Write new and changed documents, as `Index.upsert` says."""
        check_kind("documents", documents, Iterable, "a list of chroma_eddy.Document")
        checked = self._checked([documents] if isinstance(documents, Document) else documents)
        for group in grouped_by_size(checked, lambda document: len(document.text), GROUP_DOCUMENTS, GROUP_CHARACTERS):
            self._write_changed(group)
        if self._held:
            self._fit()
        return self.report

    def rewrite(self, raw: EmbeddedDocument, known: dict[str, DocumentRow]) -> None:
        """Write a document with its raw vectors, under the index's post-processing."""
        self._characters += len(raw.document.text)
        self._write_and_count(self._processed([raw]), known)
        self._progress(self._characters, self.report.written)

    def _write_changed(self, group: Sequence[Document]) -> None:
        index = self._index
        known = index.entries([document.id for document in group]) if index.exists else {}
        by_change: dict[Change, list[Document]] = {change: [] for change in get_args(Change)}
        for document in group:
            by_change[classify(document, known.get(document.id))].append(document)
        unchanged = [known[document.id] for document in by_change["unchanged"]]
        self.report.unchanged += len(unchanged)
        commit_versions(index, [row for row in unchanged if row.pending])
        self._relabel(by_change["relabelled"], known)
        self._embed(by_change["new"], known)
        self._progress(self._characters, self.report.written)

    def _relabel(self, group: Sequence[Document], known: dict[str, DocumentRow]) -> None:
        if not group:
            return
        index, ids = self._index, [document.id for document in group]
        stored = read_embedded_documents(index.store, index.settings, ids, keeps_raw=index.keeps_raw)
        self._write([replace(old, document=new) for old, new in zip(stored, group, strict=True)], known)
        self.report.relabelled += len(group)

    def _embed(self, group: Sequence[Document], known: dict[str, DocumentRow]) -> None:
        if not group:
            return
        index, unfitted = self._index, is_unfitted(self._index.embedder)
        raw = unfitted or index.keeps_raw or (self._encode is not None and index.post is not None)
        results = self._encoded(group, raw=raw)
        self._characters += sum(len(document.text) for document in group)
        embedded = [EmbeddedDocument(document, result) for document, result in zip(group, results, strict=True)]
        if unfitted:
            self._held += embedded
            if sum(len(held.result.passages) for held in self._held) >= FIT_PASSAGES:
                self._fit()
        else:
            self._write_and_count(self._processed(embedded) if raw else embedded, known)

    def _encoded(self, group: Sequence[Document], *, raw: bool) -> Sequence[LongDocument]:
        """Embed documents, `raw` without post-processing, or get their raw vectors from elsewhere."""
        if self._encode is not None:
            return self._encode(group)
        index, size = self._index, sum(len(document.text) for document in group)
        embedder = index.embedder.with_post(None) if raw else index.embedder
        return embedder.encode_long(
            [document.text for document in group],
            **index.encoding,
            progress=lambda done, total, stage: self._progress(
                self._characters + size * done / max(total, 1), self.report.written
            ),
        )

    def _processed(self, group: Sequence[EmbeddedDocument]) -> list[EmbeddedDocument]:
        """Apply post-processing to raw vectors; keep the raw ones if it cannot be inverted."""
        index = self._index
        post = cast("Fitted", index.embedder.post)
        return [
            EmbeddedDocument(
                embedded.document,
                embedded.result.processed(post, index.embedder.normalize),
                embedded.result if index.keeps_raw else None,
            )
            for embedded in group
        ]

    def _fit(self) -> None:
        """Fit the post-processing on the documents held back, and write them."""
        index, held = self._index, self._held
        self._held = []
        embedder = index.embedder
        texts = {own.document.text[passage.start : passage.end] for own in held for passage in own.result.passages}
        if len(texts) < self._fit_least:
            index.set_post(None)
            self._flush(held)
            return
        moments = RunningCovariance(embedder.backbone.hidden)
        for own in held:
            moments.add(unit(np.stack([part.vector for part in own.result.finest]).astype(np.float64)))
        fitted = replace(fit(cast("Post", embedder.method.post), moments), made_by=embedder.made_by)
        index.set_post(round_to_float32(fitted))
        self.report.fitted_on = moments.count
        self._flush(self._processed(held))

    def _flush(self, held: Sequence[EmbeddedDocument]) -> None:
        for group in slices(len(held), GROUP_DOCUMENTS):
            self._write_and_count(held[group], {})
            self._progress(self._characters, self.report.written)

    def _write_and_count(self, group: Sequence[EmbeddedDocument], known: Mapping[str, DocumentRow]) -> None:
        self._write(group, known)
        results, report = [embedded.result for embedded in group], self.report
        report.written += len(results)
        report.passages += sum(len(result.passages) for result in results)
        report.sentences += sum(result.passages[-1].last_sentence + 1 for result in results)
        report.tokens += sum(result.n_tokens for result in results)
        report.truncated += sum(result.n_truncated > 0 for result in results)

    def _write(self, group: Sequence[EmbeddedDocument], known: Mapping[str, DocumentRow]) -> None:
        """Write documents' rows; queries find either the old or the new version of a document, always complete.

        The new version's rows are written beside the old ones, while the document's row names the new version in
        `pending`, which queries leave out. One write to that row exchanges the versions; then the old rows are deleted.
        After an interruption one version is complete, and the next run does what is left.
        """
        index, store, settings = self._index, self._index.store, self._index.settings
        if self._begin is not None and not index.exists:
            self._begin(index)
        index.create()
        new = {embedded.document.id: embedded.document.digest for embedded in group}
        old = [known[id_] for id_ in new if id_ in known]
        commit_versions(index, [row for row in old if row.pending not in ("", new[row.id])])
        self._upsert_documents([embedded for embedded in group if embedded.document.id not in known], {}, begin=True)
        store.update_documents({row.id: {PENDING: new[row.id]} for row in old})
        index.put_rows(Rows.concatenate(passage_rows(own.document, own.result, settings) for own in group))
        if settings.sentence_vectors:
            rows = Rows.concatenate(sentence_rows(own.document, own.result, settings) for own in group)
            store.upsert(SENTENCES, rows.ids, rows.vectors, rows.metadatas)
        for own in group:
            if own.raw is not None:
                _upsert_raw_vectors(index, own.document, own.raw)
        self._upsert_documents(group, known, begin=False)
        commit_versions(index, [replace(row, pending=row.digest) for row in old if row.digest], mark_written=True)

    def _upsert_documents(
        self, group: Sequence[EmbeddedDocument], known: Mapping[str, DocumentRow], *, begin: bool
    ) -> None:
        """Write documents' rows: before their other rows (`begin`), hidden from queries, or after them."""
        rows = []
        for embedded in group:
            document, old = embedded.document, known.get(embedded.document.id)
            digest, pending = ("", document.digest) if begin else (document.digest, old.digest if old else "")
            row = document_metadata(document, embedded.result, digest, pending)
            if old is not None:
                # Chroma keeps entries that an update does not name, so name those that are gone with None.
                row.update(dict.fromkeys({*old.metadata, "eddy_page_starts"} - set(row)))
            rows.append(row)
        vectors = np.stack([own.result.vector for own in group]) if group else np.zeros((0, 0))
        self._index.store.upsert(DOCUMENTS, [own.document.id for own in group], vectors.astype(np.float32), rows)

    def _checked(self, documents: Iterable[Document]) -> Iterator[Document]:
        for number, given in enumerate(documents):
            document = check_document(given, number)
            if document.id in self.ids:
                raise InvalidParameter(f"two documents have the id {document.id!r:.80}; give each its own")
            self.ids.add(document.id)
            yield document


def _upsert_raw_vectors(index: IndexCore, document: Document, raw: LongDocument) -> None:
    """Write the raw vectors of a document and its parts, each under the id of its row with its unit in front."""
    index.store.open_or_create(RAW)
    units: dict[str, Sequence[Span]] = {"passage": raw.passages, "sentence": raw.sentences}
    part_ids = [f"{unit_}/{id_}" for unit_, spans in units.items() for id_ in row_ids(document, spans, index.settings)]
    ids = [raw_document_id(document), *part_ids]
    vectors = np.stack([raw.vector, *(span.vector for spans in units.values() for span in spans)])
    metadata = {DOCUMENT: document.id, DIGEST: document.digest}
    index.store.upsert(RAW, ids, vectors.astype(np.float32), [metadata for _ in ids])
