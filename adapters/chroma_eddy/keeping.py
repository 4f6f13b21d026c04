"""What is done to an index's rows without embedding anything: counted, settled, taken out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chroma_eddy.names import DOCUMENTS, MAIN, RAW, SENTENCES
from chroma_eddy.rows import DIGEST, DOCUMENT, OTHER, Entry

if TYPE_CHECKING:
    from chroma_eddy.index import Index


def settle(index: Index, entries: Sequence[Entry]) -> None:
    """Delete the rows of versions that are not to be found."""
    for entry in entries:
        for part in (MAIN, SENTENCES, RAW):
            index.store.delete(part, where={DIGEST: entry.other})
        if entry.digest:
            index.store.mark({entry.id: {OTHER: ""}})


def check(index: Index) -> dict[str, str]:
    """Count rows, as `Index.check` says."""
    entries, store = index.entries(), index.store
    counted: dict[str, Counter[str]] = {}
    for part in (MAIN, SENTENCES):
        found = counted[part] = Counter[str]()
        if store.find(part) is not None:
            for rows in store.pages(part, metadatas=True):
                found.update(str(row.get(DIGEST)) for row in rows.metadatas)
    wrong: dict[str, str] = {}
    for id_, entry in entries.items():
        for part, wanted in ((MAIN, entry.passages), (SENTENCES, entry.sentences)):
            number = counted[part][entry.digest]
            if entry.digest and number != wanted and (part == MAIN or index.recipe.sentence_vectors):
                wrong[id_] = f"{number} of {wanted} rows in {store.name + part}"
    store.mark({id_: {DIGEST: "", OTHER: entries[id_].digest} for id_ in wrong})
    if wrong:
        store.touch()
    return wrong


def remove(index: Index, ids: Sequence[str]) -> int:
    """Take documents out, with all their rows; the number of those that were there."""
    found = index.entries(ids)
    for id_, entry in found.items():
        # Stopped here, it is incomplete, and is not taken for whole if it comes back.
        index.store.mark({id_: {DIGEST: "", OTHER: entry.digest or entry.other}})
        for part in (MAIN, SENTENCES, RAW):
            index.store.delete(part, where={DOCUMENT: id_})
        index.store.delete(DOCUMENTS, ids=[id_])
    if found:
        index.store.touch()
    return len(found)
