"""EddyChroma: LangChain's standard tests for vector stores, and what an index adds to them."""

from __future__ import annotations

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.runnables import RunnablePassthrough
from langchain_tests.integration_tests import VectorStoreIntegrationTests
from tests.adapters.indexes import SENTENCES, rows
from tests.adapters.indexes import documents as texts

from chroma_eddy.storage.names import MAIN
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch, InvalidParameter, InvalidText
from langchain_eddy import EddyChroma, EddyEmbeddings

ASKED = "When do boats with a deep keel leave?"


@pytest.fixture(scope="module")
def embeddings() -> EddyEmbeddings:
    return EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=1", query_instruction="Find the answer.")


class TestStandard(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path, embeddings):
        return EddyChroma("notes", embeddings, persist_directory=str(tmp_path))


@pytest.fixture
def store(tmp_path, embeddings) -> EddyChroma:
    return EddyChroma("notes", embeddings, persist_directory=str(tmp_path / "db"), passage_size=24)


def chunks() -> list[Document]:
    return [Document(text, metadata={"n": at, "source": f"book/{at // 4}"}) for at, text in enumerate(SENTENCES)]


def test_ids_follow_from_text_and_metadata(store):
    ids = store.add_documents(chunks())
    assert store.add_documents(chunks()) == ids and len(rows(store.index)[MAIN]) == len(set(ids)) == 11
    assert store.add_texts(["Twice.", "Twice."])[0] == store.add_texts(["Twice."])[0]
    assert len(rows(store.index)[MAIN]) == 12


def test_metadata_come_back_or_are_refused(store):
    kept = {"eddy_x": 1, "eddy_pieces": "y", "page": 3, "start_index": 5, "tags": ["a", "b"]}
    (id_,) = store.add_texts(["Some text."], [kept])
    assert store.get_by_ids([id_])[0].metadata == store.get([id_])["metadatas"][0] == kept
    assert store.similarity_search("text", 1)[0].metadata == kept
    assert store.get(where={"eddy_x": 1})["ids"] == [id_]
    for name in ("eddy_digest", "eddy_piece", "eddy_row", "eddy_vector"):
        with pytest.raises(InvalidParameter, match=f"the index itself needs the metadata's name '{name}'"):
            store.add_texts(["Other text."], [{name: "x"}])


def test_retrievers_choose_as_users_know(store):
    store.add_documents(chunks())
    found = store.similarity_search_with_score(ASKED, 11)
    assert store.similarity_search_with_relevance_scores(ASKED, 11) == found
    cut = {"k": 11, "score_threshold": found[3][1] - 1e-6}
    over = store.as_retriever(search_type="similarity_score_threshold", search_kwargs=cut).invoke(ASKED)
    assert len(over) == 4
    query, kwargs = store.embeddings.embed_query(ASKED), {"k": 4, "fetch_k": 8, "lambda_mult": 0.3}
    chosen = store.max_marginal_relevance_search(ASKED, **kwargs)
    hits = store.index.query(ASKED, 4, fetch_k=8, mmr=True, lambda_mult=0.3, hybrid=False)
    assert [document.id for document in chosen] == [hit.id for hit in hits]
    assert store.as_retriever(search_type="mmr", search_kwargs=kwargs).invoke(ASKED) == chosen
    assert store.max_marginal_relevance_search_by_vector(query, **kwargs) == chosen
    assert store.similarity_search_by_vector(query, 3) == [document for document, _ in found[:3]]
    few = store.as_retriever(search_kwargs={"k": 20, "filter": {"n": {"$lt": 3}}}).invoke(ASKED)
    assert {d.metadata["n"] for d in few} == {0, 1, 2}
    both = store.index.query("Granite keel", 3, hybrid=True)
    assert [document.id for document in store.hybrid_search("Granite keel", 3)] == [hit.id for hit in both]
    hybrid = store.similarity_search("Granite", 1, hybrid=True, where_document={"$contains": "Granite"})
    assert hybrid[0].page_content == SENTENCES[4]
    assert store.as_retriever(search_type="hybrid", search_kwargs={"k": 1}).invoke("Granite") == hybrid


def test_a_record_manager_adds_changes_and_removes(store, embeddings):
    records = InMemoryRecordManager(namespace=f"notes/{embeddings.fingerprint}")
    records.create_schema()
    options = {"cleanup": "full", "source_id_key": "source", "key_encoder": "sha256"}
    assert index(chunks(), records, store, **options)["num_added"] == 11
    assert index(chunks(), records, store, **options)["num_skipped"] == 11
    assert index(chunks()[:8], records, store, **options)["num_deleted"] == 3
    assert len(rows(store.index)[MAIN]) == 8


async def test_whole_documents_go_in_and_a_chain_cites_their_places(store):
    given = [Document(d.text, id=d.id, metadata=dict(d.metadata)) for d in texts(4)]
    assert (await store.aingest(given)).written == 4 and store.ingest(given).unchanged == 4
    edited = [Document("Only this is left.", id=given[1].id), Document("Of a file.", metadata={"source": "a.txt"})]
    assert store.ingest(edited).written == 2 and store.index.status().documents == 5
    assert sum(row["eddy_document"] == given[1].id for _, row, _ in rows(store.index)[MAIN].values()) == 1
    retriever = store.as_retriever(search_kwargs={"k": 2, "filter": {"shelf": "a"}})
    chain = {"sources": retriever, "question": RunnablePassthrough()} | RunnablePassthrough.assign(
        answer=lambda known: " ".join(found.page_content for found in known["sources"])
    )
    cited, by_id = chain.invoke(ASKED), {d.id: d.text for d in texts(4)}
    hits = store.index.query(ASKED, 2, where={"shelf": "a"}, hybrid=False)
    for hit, source in zip(hits, cited["sources"], strict=True):
        text = by_id[hit.document][source.metadata["start_index"] : source.metadata["end_index"]]
        assert text == source.page_content and text in cited["answer"] and source.metadata["shelf"] == "a"


def test_documents_that_cannot_be_ingested_are_named(store):
    for documents, said in (
        ([Document("Nobody knows me.")], "number 0 has no id and no source"),
        ([Document("One.", id="a"), Document("Two.", id="a")], "two documents have the id 'a'"),
    ):
        with pytest.raises((InvalidParameter, InvalidText), match=said):
            store.ingest(documents)
    assert not store.index.exists


def test_a_store_embeds_as_its_index_after_it_was_made_anew(store, embeddings):
    other, text = Embedder("eddy-tiny", method="plain:exit=2"), "Written after that."
    store.ingest([Document(d.text, id=d.id) for d in texts(4)])
    assert store.embeddings.fingerprint == embeddings.fingerprint
    store.index.reindex(other)
    assert store.embeddings.fingerprint == other.fingerprint
    (id_,) = store.add_texts([text])
    np.testing.assert_allclose(rows(store.index)[MAIN][id_][0], other.encode_document(text), atol=1e-5)
    assert store.similarity_search_by_vector(store.embeddings.embed_query(text), k=1)[0].id == id_


def test_what_is_wrong_is_refused(tmp_path, store, embeddings):
    store.add_texts(["A text."])
    folder = str(store.index.store.lock.folder)
    with pytest.raises(FingerprintMismatch, match="method"):
        EddyChroma("notes", EddyEmbeddings(model_name="eddy-tiny", method="plain"), persist_directory=folder)
    with pytest.raises(InvalidParameter, match="1 texts, 2 metadatas"):
        store.add_texts(["a"], [{}, {}])
    with pytest.raises(InvalidParameter, match="no ids"):
        store.delete()
    with pytest.raises(InvalidParameter, match="no parameter 'wher'"):
        store.similarity_search("a", wher={})
