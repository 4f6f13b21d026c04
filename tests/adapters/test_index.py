"""Indexes: what they store, what they refuse, what is left when documents come, change and go, and damage."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.api.client import Client
from tests.adapters.indexes import DOCUMENTS, MAIN, SENTENCES, SENTENCES_OF, assert_same, documents, rows
from tests.adapters.killing import stop_at

from chroma_eddy import (
    Document,
    EddyEmbeddingFunction,
    ForeignCollection,
    Index,
    NoIndex,
    check_document,
    open_collection,
    open_index,
)
from chroma_eddy import index as chroma_index
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch, InvalidParameter, InvalidText

ASKED = "When do boats with a deep keel leave?"
TEXTS = {f"row/{at}": text for at, text in enumerate(SENTENCES)}

# --- What is stored


def test_parts_that_are_left_out_are_kept_in_the_text_alone(index, embedder):
    line = "The sea rises and falls twice a day on this coast. "
    text = f"Boats wait.\n\n{'anchor, 12; ' * 9}\n\n{line * 3}\n\nbuoy, 7"
    left_out = ((13, 13 + 12 * 9), (text.index("buoy"), len(text)))
    document = Document("sea", text, page_starts=(0, 60), page_labels=("i", "ii"), left_out=left_out)
    assert index.upsert([document]).written == 1
    hits = sorted(index.query("anchor", 9, documents=["sea"], sentences=True), key=lambda hit: hit.start)
    assert [hit.text for hit in hits] == ["Boats wait.", *[line.strip()] * 3]
    assert [(hit.page_label, hit.best.page) for hit in hits] == [("i", 1), *[("ii", 2)] * 3]
    for hit in hits:
        assert (hit.best.start, hit.best.end, text[hit.start : hit.end]) == (hit.start, hit.end, hit.text)
        assert hit.cosine == pytest.approx(hit.best.cosine, abs=1e-3)
    changed = replace(document, metadata={"shelf": "c"})
    assert index.upsert([changed]).relabelled == 1
    assert list(index.documents(["sea"])) == [changed]
    assert index.check() == {} and len(index.embedded("sea").sentences) == 4
    assert index.upsert([replace(document, left_out=())]).written == 1
    assert "anchor" in index.query("anchor", 9, documents=["sea"])[0].text


def test_rows_are_what_the_embedder_says(shelf, embedder):
    held = rows(shelf)
    assert set(held) == {MAIN, SENTENCES_OF, DOCUMENTS}
    by_start = {(row["eddy_document"], row["start_index"]): (v, row, text) for v, row, text in held[MAIN].values()}
    for document in documents():
        expected = embedder.encode_long(document.text, passage_size=24)
        own = [key for key in by_start if key[0] == document.id]
        assert len(own) == len(expected.passages)
        for at, passage in enumerate(expected.passages):
            vector, row, text = by_start[document.id, passage.start]
            np.testing.assert_allclose(vector, passage.vector, atol=1e-5)
            assert text == document.text[passage.start : passage.end] and row["end_index"] == passage.end
            assert (row["eddy_index"], row["eddy_rows"], row["eddy_digest"]) == (at, len(own), document.digest)
            assert row.get("heading_path", "") == " > ".join(passage.headings)
            assert {name: row[name] for name in document.metadata} == document.metadata
            assert ("page" in row) == bool(document.page_starts)
        ids = [id_ for id_, (_, row, _) in held[MAIN].items() if row["eddy_document"] == document.id]
        ids.sort(key=lambda id_: held[MAIN][id_][1]["eddy_index"])
        lines = [f"{id_}/{at}" for id_ in ids for at in range(len(held[MAIN][id_][1]["eddy_sentences"].split()))]
        for line, sentence in zip(lines, expected.sentences, strict=True):
            np.testing.assert_allclose(held[SENTENCES_OF][line][0], sentence.vector, atol=1e-3)
        np.testing.assert_allclose(held[DOCUMENTS][document.id][0], expected.vector, atol=1e-5)


def test_documents_come_back_as_they_were_given(shelf):
    assert list(shelf.documents()) == documents()
    entries, status = shelf.entries(), shelf.status()
    assert [entry.characters for entry in entries.values()] == [len(document.text) for document in documents()]
    assert (status.documents, status.incomplete, status.rebuilt) == (6, (), None)
    assert status.passages == sum(entry.passages for entry in entries.values()) == len(shelf.get()["ids"])
    assert status.fingerprint == shelf.embedder.fingerprint and status.dimension == shelf.embedder.dimension


def test_the_main_collection_is_in_cosine_space_and_says_what_made_it(shelf, embedder):
    about = shelf.collection.metadata
    assert shelf.collection.configuration_json["hnsw"]["space"] == "cosine"
    assert about["eddy_fingerprint"] == embedder.fingerprint
    assert json.loads(about["eddy_settings"]) == json.loads(json.dumps(embedder.settings))
    found = shelf.collection.query(query_texts=["Do dogs pay?"], n_results=1)
    expected = shelf.search([embedder.encode_query("Do dogs pay?")], 1)[0][0]
    assert found["ids"] == [[expected.id]]
    with pytest.raises(Exception, match="open_index"):  # and no other function is asked in its place
        shelf.storage.client.get_collection("notes").query(query_texts=["Do dogs pay?"])


# --- Again, changed, gone


def test_twice_changes_nothing_and_embeds_nothing(index, embedder):
    before, texts = rows(index), embedder.counts.texts
    report = index.upsert(documents())
    assert (report.unchanged, report.written) == (6, 0)
    assert embedder.counts.texts == texts
    assert_same(rows(index), before, atol=0)


def test_a_changed_document_replaces_exactly_its_rows(index, tmp_path, embedder):
    before = rows(index)
    changed = [replace(documents()[2], text="Only one sentence is left."), *documents()[3:]]
    report = index.sync(changed)
    assert (report.written, report.removed, report.unchanged) == (1, 2, 3)
    after = rows(index)
    kept = {document.id for document in documents()[3:]}
    for part in (MAIN, DOCUMENTS):
        old = {id_: row for id_, row in before[part].items() if row[1]["eddy_document"] in kept}
        assert_same({part: {i: r for i, r in after[part].items() if r[1]["eddy_document"] in kept}}, {part: old}, 0)
        assert len(after[part]) == len(old) + 1
    with open_index(tmp_path / "fresh", "notes", embedder, passage_size=24) as fresh:
        fresh.upsert(changed)
        assert_same(after, rows(fresh))


def test_other_metadata_cost_no_embedding_and_leave_nothing_behind(index, tmp_path, embedder):
    lines = "The sea rises and falls twice a day on this coast, and boats wait for it. " * 2
    tides = Document("tides", f"# Tides\n\n{lines}\n\n## Spring tides\n\n{lines}\n", {"shelf": "c"})
    index.upsert([tides])
    texts = embedder.counts.texts
    changed = [replace(document, metadata={"colour": "blue"}, page_starts=()) for document in [*documents(), tides]]
    assert index.upsert(changed).relabelled == 7
    assert embedder.counts.texts == texts
    assert list(index.documents()) == changed
    hits = sorted(index.query("When?", documents=["tides"]), key=lambda hit: hit.start)
    assert [hits[0].headings, hits[-1].headings] == ["Tides", "Tides > Spring tides"]
    with open_index(tmp_path / "fresh", "notes", embedder, passage_size=24) as fresh:
        fresh.upsert(changed)
        assert_same(rows(index), rows(fresh))


def test_batches_stay_within_what_the_database_takes_and_groups_change_no_row(shelf, monkeypatch, tmp_path, embedder):
    sizes, upsert = list[int](), chromadb.Collection.upsert

    def noted(self: chromadb.Collection, ids: list[str], *columns: Any) -> None:
        sizes.append(len(ids))
        upsert(self, ids, *columns)

    monkeypatch.setattr(chroma_index, "GROUP_DOCUMENTS", 2)
    monkeypatch.setattr(chromadb.Collection, "upsert", noted)
    monkeypatch.setattr(Client, "get_max_batch_size", lambda _: 7)
    with open_index(tmp_path / "small", "notes", embedder, passage_size=24) as small:
        small.upsert(iter(documents()))
        assert max(sizes) == 7
        assert_same(rows(small), rows(shelf))


# --- What is refused


def test_another_embedder_is_refused_with_both_fingerprints_field_by_field(shelf, written):
    other = Embedder("eddy-tiny", method="htp:exit=2", query_instruction="Find:")
    with pytest.raises(FingerprintMismatch) as error:
        open_index(written, "notes", other, passage_size=32)
    said = str(error.value)
    assert said.startswith("Index 'notes' was made with `plain:exit=2`, opened with `htp:exit=2`.\n")
    for told in (shelf.settings.fingerprint, other.fingerprint, '"Find:"', "passage_size", "24, here 32", "reindex("):
        assert told in said, said
    assert "tokenizer" not in said  # which is the same
    with pytest.raises(FingerprintMismatch, match=r"\AIndex 'notes' was made with other sizes\.\n  passage_size"):
        open_index(written, "notes", shelf.embedder, passage_size=7)
    with open_index(written, "notes") as opened:
        assert opened.status().documents == 6
        with pytest.raises(NoIndex, match="without an embedder"):
            opened.query("What?")


def test_collections_of_others_are_left_alone(tmp_path, embedder):
    client = chromadb.PersistentClient(str(tmp_path))
    client.create_collection("theirs", embedding_function=None).add(ids=["1"], embeddings=[[1.0, 0.0]])
    client.create_collection("notes-documents", embedding_function=None)
    function = EddyEmbeddingFunction("eddy-tiny", method="plain:exit=2")
    open_collection(client, "plain", function)
    for name, said in (("theirs", "something else"), ("plain", "open_collection")):
        with pytest.raises(ForeignCollection, match=f"made by {said}"):
            open_index(client, name, embedder)
    with pytest.raises(ForeignCollection, match="notes-documents"):
        open_index(client, "notes", embedder).upsert(documents())
    assert client.get_collection("theirs", embedding_function=None).count() == 1
    with pytest.raises(NoIndex):
        open_index(client, "nothing")
    with pytest.raises(NoIndex):
        open_index(tmp_path / "nowhere", "nothing")
    assert not (tmp_path / "nowhere").exists()


def wrong(*metadata: dict, **more: Any) -> Document:
    return Document(**{"id": "a", "text": "Text.", "metadata": metadata[0] if metadata else {}, **more})


WRONG: list[tuple[Document, str]] = [
    *((wrong(id=""), "has no id"), (Document("a", " \n"), "has no text"), (wrong(text="half \ud800"), "surrogate")),
    *((wrong({name: 1}), "the index itself needs the metadata's name") for name in ("eddy_x", "page")),
    *((wrong({name: 1}), f"name {name!r}; Chroma takes".replace("$", r"\$")) for name in ("$x", "#", "", 2)),
    *((wrong({"x": value}), re.escape(f"is {value}")) for value in (None, [1, "a"], [], float("nan"), 2**63)),
    *((wrong(page_starts=(5, 1)), "page_starts"), (wrong(left_out=((3, 1),)), "left_out")),
    (wrong(page_starts=(0,), page_labels=("i", "ii")), "1 pages and 2 page_labels"),
    (wrong(page_starts=(0,), page_labels=(1,)), "a string"),
]


def test_documents_that_cannot_be_stored_are_refused():
    for document, said in WRONG:
        with pytest.raises((InvalidParameter, InvalidText), match=said):
            check_document(document, 0)


def test_wrong_arguments_are_named(tmp_path, embedder, index):
    with pytest.raises(InvalidParameter, match="two documents have the id 'papers/1'"):
        index.upsert([documents()[1], documents()[1]])
    with pytest.raises(InvalidParameter, match="would empty the index"):
        index.sync([])
    assert index.remove(["papers/0", "nowhere"]) == 1 and index.status().documents == 5
    for place, name, said in (
        ("http://x/path", "notes", "http://host:port"),
        (tmp_path / "db", "notes-next", "collection of another index"),
        (tmp_path / "db", "p2", "name='p2' .* 3 to 512 characters"),
        (tmp_path / "db", "my notes", "name='my notes' .* a-z"),
    ):
        with pytest.raises(InvalidParameter, match=said):
            open_index(place, name, embedder)


def test_an_index_of_another_version_is_refused(index, embedder):
    place = index.storage.connection.folder
    index.storage.update_metadata(eddy_format=3)
    for other in (embedder, None):
        with pytest.raises(ForeignCollection, match="'notes' was made by another version of Eddy: ingest"):
            open_index(place, "notes", other)


# --- Rows that a framework has cut, beside documents that the index has cut itself


def put(index: Index, texts: dict[str, str], owner: str = "book") -> None:
    lines, owners, about = [*texts.values()], [owner] * len(texts), [{}] * len(texts)
    vectors = index.embedder.encode_document(lines)
    index.upsert_rows([*texts], lines, vectors, about, owners, index.embedder.fingerprint)


def test_rows_and_documents_are_found_together_and_go_each_by_itself(index):
    passages = {*index.get()["ids"]}
    put(index, TEXTS)
    assert {hit.id for hit in index.query(ASKED, 100)} == passages | TEXTS.keys()
    with pytest.raises(ForeignCollection, match="passage of a document"):
        put(index, {min(passages): "Mine."})
    victim = index.get(where={"eddy_document": "papers/1"})["ids"][0]
    index.collection.delete(ids=[victim])
    assert index.check().keys() == {"papers/1"}
    visible = {*index.get()["ids"]}
    assert not visible & {*index.get([victim])["ids"]} and visible < passages | TEXTS.keys()
    assert {hit.id for hit in index.query(ASKED, 100)} == visible
    index.remove_rows(["row/0", "nowhere"])
    with pytest.raises(InvalidParameter, match="loses no single passages"):
        index.remove_rows(["row/1", min(visible & passages)])
    assert index.get(["row/0", "row/1", *map(str, range(40_000))])["ids"] == ["row/1"]  # more than Chroma takes
    put(index, {"same": "A piece of a document that the index has cut itself."}, owner="papers/5")
    index.sync(documents(2))
    assert index.remove([document.id for document in documents()]) == 2
    assert {*index.get()["ids"]} == {"same", *TEXTS} - {"row/0"}


# --- Damage: found by `check`, left out by queries, written again


@pytest.fixture(scope="module")
def before(shelf: Index) -> dict[str, Any]:
    return rows(shelf)


def test_damaged_documents_are_found_left_out_and_written_again(index, before):
    """Also rows that belong to no version, as two writers of one document leave them on a server."""
    passages, main = {f"papers/{at}": list[str]() for at in range(6)}, index.storage.collection(MAIN)
    for id_, (_, row, _) in before[MAIN].items():
        passages[row["eddy_document"]].append(id_)
    count, (vector, passage, _) = len(passages["papers/4"]), before[MAIN][passages["papers/5"][0]]
    main.delete(ids=passages["papers/4"][:1])
    for id_, change in (("papers/2", {"documents": ["Altered."]}), ("papers/3", {"metadatas": [{"shelf": "z"}]})):
        first = passages[id_][0]
        main.update(ids=[first], embeddings=[before[MAIN][first][0]], **change)
    index.storage.collection(DOCUMENTS).delete(ids=["papers/1"])
    stray = {**passage, "eddy_digest": "another"}
    main.upsert(ids=["stray"], embeddings=[vector], metadatas=[stray], documents=["Stray."])
    for id_ in ("papers/1", "papers/5"):
        with pytest.raises(ForeignCollection, match=r"check\(\)"):
            index.query("What?", 100, documents=[id_])
    problems, damaged = index.check(), ("papers/2", "papers/3", "papers/4")
    assert problems.keys() == {*damaged, "papers/1", "papers/5"} and index.check() == {}
    assert "another text" in problems["papers/2"] and "other metadata" in problems["papers/3"]
    assert problems["papers/4"] == f"{count - 1} of {count} rows in notes" and index.status().incomplete == damaged
    assert {hit.document for hit in index.query("What?", 100)} == {"papers/0", "papers/5"}
    assert index.upsert(documents()).written == 4
    assert_same(rows(index), before)
    main.upsert(ids=["mine"], embeddings=[index.embedder.encode_query("A guest.")], documents=["A guest."])
    with pytest.raises(ForeignCollection, match="'mine'"):
        index.query("A guest.", 1)


@pytest.mark.parametrize("change", ["upsert", "remove"])
def test_a_damaged_document_takes_no_piece_with_it(change, index, before, monkeypatch):
    """Neither has a version."""
    text = "A piece that a framework has cut."
    put(index, {"mine": text})
    victims = [id_ for id_, row in before[MAIN].items() if row[1]["eddy_document"] == "papers/4"]
    index.collection.delete(ids=victims)
    assert list(index.check()) == ["papers/4"]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at(patch, 1, Index, "_delete_rows")
        index.upsert(documents()) if change == "upsert" else index.remove(["papers/4"])
    assert "mine" in {hit.id for hit in index.query(text, 100)}
    index.upsert(documents())
    assert "mine" in {hit.id for hit in index.query(text, 100)} and index.check() == {}
