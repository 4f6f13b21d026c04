"""What is done to an index's rows without embedding anything: counted, settled, taken out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chroma_eddy.rows.documents import join_text
from chroma_eddy.rows.schema import DIGEST, DOCUMENT, OTHER, DocumentRow, user_metadata
from chroma_eddy.storage.batches import slices
from chroma_eddy.storage.names import DOCUMENTS, MAIN, RAW, SENTENCES
from chroma_eddy.storage.pages import PAGE_SIZE

if TYPE_CHECKING:
    from chroma_eddy.index_core import IndexCore


def commit_versions(index: IndexCore, entries: Sequence[DocumentRow], *, touch: bool = False) -> None:
    """Delete the rows of versions that are not to be found.

    Args:
        index: Where.
        entries: Documents that have such a version.
        touch: Whether to tell readers before the documents' rows say that all is done: who finds that they do then
            knows that he has been told.
    """
    _delete_rows(index, DIGEST, [entry.other for entry in entries])
    if touch:
        index.store.mark_written()
    index.store.update_documents({entry.id: {OTHER: ""} for entry in entries if entry.digest})


def _delete_rows(index: IndexCore, name: str, values: Sequence[str]) -> None:
    """Delete the rows that have one of these values: many at a time, since each time all rows are looked through."""
    for at in slices(len(values), PAGE_SIZE):
        for part in (MAIN, SENTENCES, RAW):
            index.store.delete(part, where={name: {"$in": list(values[at])}})


def _commit_pending(index: IndexCore, entries: Iterable[DocumentRow]) -> None:
    """Settle documents whose whole version is about to be hidden as well, since a row hides only one."""
    commit_versions(index, [entry for entry in entries if entry.digest and entry.other])


def check_rows(index: IndexCore) -> dict[str, str]:
    """Hold every row against the documents' rows, as `Index.check_rows` says."""
    store = index.store
    entries, seen = index.entries(), IntegrityScan(index)
    wrong = {id_: said for id_, entry in entries.items() if entry.digest and (said := seen.of(entry))}
    known = {digest for entry in entries.values() for digest in (entry.digest, entry.other)}
    strays = {digest: id_ for digest, id_ in seen.documents.items() if digest not in known}
    # A server has no lock: what another writer has done meanwhile is no damage.
    now = index.entries(sorted({*wrong, *strays.values()}))
    wrong = {id_: said for id_, said in wrong.items() if now.get(id_) == entries[id_]}
    _commit_pending(index, (entries[id_] for id_ in wrong))
    store.update_documents({id_: {DIGEST: "", OTHER: entries[id_].digest} for id_ in wrong})
    for digest, id_ in strays.items():
        entry = now.get(id_)
        if entry is None or digest not in (entry.digest, entry.other):
            count = sum(store.delete(part, where={DIGEST: digest}) for part in (MAIN, SENTENCES, RAW))
            wrong.setdefault(id_, f"{count} rows of a version that {store.name + DOCUMENTS} does not name; deleted")
    if wrong:
        store.mark_written()
    return wrong


class IntegrityScan:
    """What the rows of each version are, by its digest."""

    def __init__(self, index: IndexCore) -> None:
        self._store, self._recipe, self._keeps_raw = index.store, index.recipe, index.keeps_raw
        self._counts = {part: Counter[str]() for part in (MAIN, SENTENCES, RAW)}
        self._metadata: dict[str, list[dict[str, Any]]] = {}
        self._texts: dict[str, str] = {}
        self.documents: dict[str, str] = {}
        about = {}
        if index.exists:
            found = self._store.get(DOCUMENTS, metadatas=True)
            about = {row[DIGEST]: row for row in found.metadatas if row[DIGEST]}
        parts: dict[str, list[tuple[dict[str, Any], str]]] = {}
        for part, counts in self._counts.items():
            if self._store.find(part) is None:
                continue
            for rows in self._store.pages(part, metadatas=True, documents=part == MAIN):
                for at, row in enumerate(rows.metadatas):
                    if not row.get(DIGEST):
                        continue
                    digest = str(row[DIGEST])
                    counts[digest] += 1
                    self.documents[digest] = str(row[DOCUMENT])
                    if part == MAIN and digest in about:
                        parts.setdefault(digest, []).append((row, rows.texts[at]))
                        if counts[digest] == about[digest]["eddy_passages"]:
                            self._read(digest, about[digest], parts.pop(digest))

    def _read(self, digest: str, about: Mapping[str, Any], passages: Sequence[tuple[dict[str, Any], str]]) -> None:
        text = join_text(passages, about)
        self._texts[digest] = hashlib.sha256(text.encode()).hexdigest()[:32]
        self._metadata[digest] = [user_metadata(row) for row, _ in passages]

    def of(self, entry: DocumentRow) -> str:
        """What is wrong with a document; "" for nothing."""
        vectors = entry.sentences if self._recipe.sentence_vectors else 0
        raw = 1 + entry.passages + vectors if self._keeps_raw else 0
        for (part, counts), wanted in zip(self._counts.items(), (entry.passages, vectors, raw), strict=True):
            if counts[entry.digest] != wanted:
                return f"{counts[entry.digest]} of {wanted} rows in {self._store.name + part}"
        if self._texts[entry.digest] != entry.text_digest:
            return f"another text in {self._store.name} than it was written with"
        if any(own != entry.metadata for own in self._metadata[entry.digest]):
            return f"other metadata in {self._store.name} than it was written with"
        return ""


def remove_documents(index: IndexCore, ids: Sequence[str]) -> int:
    """Take documents out, with all their rows; the number of those that were there."""
    found = index.entries(ids)
    _commit_pending(index, found.values())
    # Stopped here, they are incomplete, and are not taken for whole if they come back.
    index.store.update_documents(
        {id_: {DIGEST: "", OTHER: entry.digest or entry.other} for id_, entry in found.items()}
    )
    _delete_rows(index, DOCUMENT, list(found))
    index.store.delete(DOCUMENTS, ids=list(found))
    if found:
        index.store.mark_written()
    return len(found)
