"""`Writer`: embed and write documents that are new or changed; queries find a document once it is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, islice
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from chroma_eddy.collection import Collection
from chroma_eddy.errors import damaged
from chroma_eddy.rows import (
    DIGEST,
    FIELDS,
    VECTOR,
    RowBatch,
    StoredDocument,
    document_metadata,
    passage_rows,
    relabelled,
    share_vectors,
    with_pages,
)
from chroma_eddy.settings import DOCUMENTS, MAIN
from chroma_eddy.types import Document, WriteReport, check_document
from eddy_embed.encoding.document import LongDocument, Passage, Span
from eddy_embed.encoding.validation import check_kind
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT, grouped_by_size, warn_of_blank

GROUP_CHARACTERS = 200_000
"""Most characters in a group: enough for full batches, little to embed again after an interruption."""
LAYERED_CHARACTERS = 50_000
"""The same where layers run, and the same texts take a hundred times as long."""
GROUP_DOCUMENTS = 256
"""Most documents in a group."""

Progress = Callable[[float, int], None]
"""Called with the number of characters embedded and of documents written so far."""
Encode = Callable[[Sequence[Any]], Sequence[LongDocument]]
"""Called with documents that are new or changed, as they were given."""


SpanType = TypeVar("SpanType", bound=Span)
Change = Literal["unchanged", "relabelled", "new"]
"""A document that the index has, one whose metadata alone have changed, and one to embed."""


def classify(document: Document, row: StoredDocument | None) -> Change:
    """What has changed in a document since its row was written; None: it has no row."""
    if row is None or not row.digest:
        return "new"
    if row.digest == document.digest:
        return "unchanged"
    return "relabelled" if row.text_digest == document.text_digest else "new"


class Writer:
    """Writes documents group by group."""

    def __init__(self, index: Collection, progress: Progress | None = None, encode: Encode | None = None) -> None:
        """The index has an embedder, and the caller holds the writer's lock; further arguments as in `Index.upsert`."""
        self._index, self._progress, self._encode = index, progress or (lambda *_: None), encode
        self._characters = 0
        self.report = WriteReport()
        self.ids: set[str] = set()

    def run(self, documents: Iterable[Document]) -> WriteReport:
        """Write new and changed documents, as `Index.upsert` says."""
        check_kind("documents", documents, Iterable, "a list of chroma_eddy.Document")
        checked = self._checked([documents] if isinstance(documents, Document) else documents)
        size = LAYERED_CHARACTERS if self._index.runs_layers else GROUP_CHARACTERS
        for group in grouped_by_size(checked, lambda document: len(document.text), GROUP_DOCUMENTS, size):
            self._write_changed(group)
        return self.report

    def _write_changed(self, group: Sequence[Document]) -> None:
        known = self._index.entries([document.id for document in group])
        by_change: dict[Change, list[Document]] = {change: [] for change in get_args(Change)}
        for document in group:
            by_change[classify(document, known.get(document.id))].append(document)
        self.report.unchanged += len(by_change["unchanged"])
        self._relabel(by_change["relabelled"], known)
        self._embed(by_change["new"], known)
        self._progress(self._characters, self.report.written)

    def _relabel(self, group: Sequence[Document], known: Mapping[str, StoredDocument]) -> None:
        """Write documents under other metadata, with the vectors that they have."""
        if not group:
            return
        storage, ids = self._index.storage, [document.id for document in group]
        old = storage.get(DOCUMENTS, ids=ids, metadatas=True)
        own = dict(zip(old.ids, zip(old.metadatas, storage.vectors_of(DOCUMENTS, old), strict=True), strict=True))
        passages = self._index.rows_by_digest([known[id_].digest for id_ in ids])
        parts, rows = [], []
        for document in group:
            before = known[document.id]
            held = passages[before.digest]
            if len(held.ids) != before.passages:
                raise damaged(document.id, f"passages in {storage.name}")
            held = replace(held, vectors=storage.vectors_of(MAIN, held))
            parts.append(relabelled(held, before, document, self._index.settings))
            metadata, vector = own[document.id]
            row = {FIELDS: with_pages(metadata[FIELDS], document), DOCUMENT: document.id, DIGEST: document.digest}
            rows.append(RowBatch([document.id], [{**document.metadata, **row}], [], vector[None]))
        self._write(group, RowBatch.concatenate(parts), RowBatch.concatenate(rows), known)
        self.report.relabelled += len(group)

    def _embed(self, group: Sequence[Document], known: Mapping[str, StoredDocument]) -> None:
        if not group:
            return
        index, results = self._index, self._encoded(group)
        self._characters += sum(len(document.text) for document in group)
        index.create()
        sentences = self._append_sentences(results)
        parts = [
            passage_rows(document, result, index.settings, numbers)
            for document, result, numbers in zip(group, results, sentences, strict=True)
        ]
        metadatas = [document_metadata(*own) for own in zip(group, results, strict=True)]
        vectors = np.stack([result.vector for result in results]).astype(np.float32)
        rows = RowBatch([document.id for document in group], metadatas, [], vectors)
        self._write(group, RowBatch.concatenate(parts), rows, known)
        report = self.report
        report.written += len(results)
        report.passages += sum(len(result.passages) for result in results)
        report.sentences += sum(result.passages[-1].last_sentence + 1 for result in results)
        report.tokens += sum(result.n_tokens for result in results)
        report.truncated += sum(result.n_truncated > 0 for result in results)

    def _encoded(self, group: Sequence[Document]) -> Sequence[LongDocument]:
        """Embed documents, or get their vectors from elsewhere."""
        if self._encode is not None:
            return self._encode(group)
        index, size = self._index, sum(len(document.text) for document in group)
        parts = [_embedded_spans(document) for document in group]
        results = index.embedder.encode_long(
            [document.text[slice(*part)] for document, own in zip(group, parts, strict=True) for part in own],
            **index.encoding,
            progress=lambda done, total, stage: self._progress(
                self._characters + size * done / max(total, 1), self.report.written
            ),
        )
        rest = iter(results)
        return [_join_spans(each, own, list(islice(rest, len(own)))) for each, own in zip(group, parts, strict=True)]

    def _append_sentences(self, results: Sequence[LongDocument]) -> list[Sequence[int]]:
        """Store the vectors of sentences, where they are kept; return their numbers, for each document."""
        vectors = self._index.storage.vectors
        if vectors is None or not self._index.stores_sentences:
            return [() for _ in results]
        lines = [sentence.vector for result in results for sentence in result.sentences]
        numbers = vectors.sentences.append(np.stack(lines))
        ends = accumulate(len(result.sentences) for result in results)
        return [numbers[end - len(result.sentences) : end] for result, end in zip(results, ends, strict=True)]

    def _write(
        self, group: Sequence[Document], passages: RowBatch, rows: RowBatch, known: Mapping[str, StoredDocument]
    ) -> None:
        """Write documents' rows; queries find either the old or the new version of a document, always complete.

        The new version's passages are written beside the old ones. One write to the document's row exchanges the
        versions; then the old passages are deleted. After an interruption one version is complete, and the next writer
        deletes the rest.
        """
        index = self._index
        old = {document.id: known[document.id] for document in group if document.id in known}
        versions = {document.id: [document.digest] for document in group}
        for id_, row in old.items():
            versions[id_].append(row.digest)
            # Chroma keeps entries that an update does not name, so those that are gone are named with None.
            metadata = rows.metadatas[rows.ids.index(id_)]
            metadata.update(dict.fromkeys({*row.metadata, VECTOR} - set(metadata)))
        with index.transaction(versions):
            share_vectors(rows, index.put_rows(passages))
            index.storage.upsert(DOCUMENTS, rows)
            index.delete_rows("digest", [row.digest for row in old.values() if row.digest])

    def _checked(self, documents: Iterable[Document]) -> Iterator[Document]:
        blank, number = list[str](), -1
        for number, given in enumerate(documents):
            if isinstance(given, Document) and isinstance(given.text, str) and not given.text.strip():
                blank.append(repr(given.id))
                continue
            document = check_document(given, number)
            if document.id in self.ids:
                raise InvalidParameter(f"two documents have the id {document.id!r:.80}; give each its own")
            self.ids.add(document.id)
            yield document
        warn_of_blank(blank, number + 1, "passage")


# --- Documents without the parts that are no passages -----------------------------------------------------------------


def _embedded_spans(document: Document) -> list[tuple[int, int]]:
    """Return the spans of a document that are embedded; the whole text if all of it is left out."""
    borders = [0, *chain.from_iterable(document.left_out), len(document.text)]
    spans = zip(borders[::2], borders[1::2], strict=True)
    return [span for span in spans if document.text[slice(*span)].strip()] or [(0, len(document.text))]


def _join_spans(document: Document, parts: Sequence[tuple[int, int]], results: Sequence[LongDocument]) -> LongDocument:
    """Join the results of a document's parts; its vector is that of the longest."""
    if len(results) == 1 and parts[0] == (0, len(document.text)):
        return results[0]
    passages, sentences, spans = list[Passage](), list[Span](), list[tuple[int, int]]()
    for (start, _), result in zip(parts, results, strict=True):
        first = len(spans)
        passages += [
            replace(
                _moved(passage, start),
                first_sentence=passage.first_sentence + first,
                last_sentence=passage.last_sentence + first,
            )
            for passage in result.passages
        ]
        sentences += [_moved(sentence, start) for sentence in result.sentences]
        spans += [(left + start, right + start) for left, right in result.sentence_spans]
    longest = max(results, key=lambda result: result.n_tokens)
    return LongDocument(
        document.text,
        longest.vector,
        passages,
        sentences,
        n_tokens=sum(result.n_tokens for result in results),
        n_windows=sum(result.n_windows for result in results),
        n_truncated=sum(result.n_truncated for result in results),
        sentence_spans=spans,
    )


def _moved(span: SpanType, by: int) -> SpanType:
    return replace(span, start=span.start + by, end=span.end + by)
