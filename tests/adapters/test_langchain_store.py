"""EddyChroma: LangChain's standard tests for vector stores, and what an index adds to them."""

from __future__ import annotations

import chromadb
import numpy as np
import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from langchain_tests.integration_tests import VectorStoreIntegrationTests
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery
from tests.adapters.indexes import SENTENCES, apart, rows, served
from tests.adapters.indexes import documents as texts

from chroma_eddy import ForeignCollection, open_index
from chroma_eddy.storage.locks import WriterLock
from chroma_eddy.storage.names import MAIN
from chroma_eddy.storage.store import Store
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch, InvalidParameter, InvalidText
from langchain_eddy import EddyChroma, EddyEmbeddings
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.vector_stores.eddy import EddyChromaVectorStore

ASKED = "When do boats with a deep keel leave?"


@pytest.fixture(scope="module")
def embeddings() -> EddyEmbeddings:
    return EddyEmbeddings(model_name="eddy-tiny", method="htp", query_instruction="Find the answer.")


class TestStandard(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path, embeddings):
        return EddyChroma("notes", embeddings, persist_directory=str(tmp_path))


@pytest.fixture
def store(tmp_path, embeddings) -> EddyChroma:
    return EddyChroma("notes", embeddings, persist_directory=str(tmp_path / "db"))


def chunks() -> list[Document]:
    return [Document(text, metadata={"n": at, "source": f"book/{at // 4}"}) for at, text in enumerate(SENTENCES)]


def nearest(store: EddyChroma) -> list[tuple[str, float]]:
    query = store.embeddings.embedder.encode_query(ASKED)
    held = rows(store.index)[MAIN]
    return sorted(((text, float(v @ query)) for v, _, text in held.values()), key=lambda pair: -pair[1])


def test_twice_changes_nothing_with_ids_and_without(store, monkeypatch):
    monkeypatch.setattr(Store, "max_batch_size", property(lambda _: 4))
    ids = store.add_documents(chunks())
    assert store.add_documents(chunks()) == ids and len(rows(store.index)[MAIN]) == len(set(ids)) == 11
    assert store.add_texts(["Twice.", "Twice."])[0] == store.add_texts(["Twice."])[0]
    assert len(rows(store.index)[MAIN]) == 12
    store.add_documents([Document("Now else.", metadata={"m": 1})], ids=[ids[2]])
    assert store.get_by_ids([ids[2]]) == [Document("Now else.", id=ids[2], metadata={"m": 1})]


def test_a_store_shows_its_index(store):
    assert repr(store) == f"EddyChroma({store.index!r})" and "\n" not in repr(store)


def test_scores_are_cosines_and_retrievers_choose_as_users_know(store):
    store.add_documents(chunks())
    expected = nearest(store)
    found = store.similarity_search_with_score(ASKED, 5)
    assert [(d.page_content, score) for d, score in found] == [
        (text, pytest.approx(cosine, abs=1e-5)) for text, cosine in expected[:5]
    ]
    relevant = store.similarity_search_with_relevance_scores(ASKED, 5)
    assert [score for _, score in relevant] == [score for _, score in found]
    cut = {"k": 11, "score_threshold": expected[3][1] - 1e-6}
    over = store.as_retriever(search_type="similarity_score_threshold", search_kwargs=cut).invoke(ASKED)
    assert len(over) == 4
    vectors = {text: v for v, _, text in rows(store.index)[MAIN].values()}
    near = [text for text, _ in expected[:8]]
    query = store.embeddings.embed_query(ASKED)
    chosen = [near[at] for at in maximal_marginal_relevance(np.array(query), [vectors[t] for t in near], 0.3, 4)]
    kwargs = {"k": 4, "fetch_k": 8, "lambda_mult": 0.3}
    for hits in (
        store.as_retriever(search_type="mmr", search_kwargs=kwargs).invoke(ASKED),
        store.max_marginal_relevance_search_by_vector(query, **kwargs),
    ):
        assert [hit.page_content for hit in hits] == chosen
    assert [d.page_content for d in store.similarity_search_by_vector(query, 3)] == [text for text, _ in expected[:3]]
    few = store.as_retriever(search_kwargs={"k": 20, "filter": {"n": {"$lt": 3}}}).invoke(ASKED)
    assert {d.metadata["n"] for d in few} == {0, 1, 2}
    hybrid = store.similarity_search("Granite", 1, hybrid=True, where_document={"$contains": "Granite"})
    assert hybrid[0].page_content == SENTENCES[4]


def test_a_record_manager_adds_changes_and_removes(store, embeddings):
    records = InMemoryRecordManager(namespace=f"notes/{embeddings.fingerprint}")
    records.create_schema()
    options = {"cleanup": "full", "source_id_key": "source", "key_encoder": "sha256"}
    assert index(chunks(), records, store, **options)["num_added"] == 11
    assert index(chunks(), records, store, **options)["num_skipped"] == 11
    assert index(chunks()[:8], records, store, **options)["num_deleted"] == 3
    assert len(rows(store.index)[MAIN]) == 8


def test_llama_index_reads_and_writes_the_same_index(store, embeddings):
    model = EddyEmbedding("eddy-tiny", method="htp", query_instruction="Find the answer.")
    theirs = EddyChromaVectorStore("notes", model, persist_dir=str(store.index.store.lock.folder))
    store.add_documents(chunks()[:6])
    theirs.add(model([TextNode(id_=f"node/{at}", text=text) for at, text in enumerate(SENTENCES[6:])]))
    store.ingest([Document(d.text, id=d.id) for d in texts(1)])
    ours = [(d.page_content, score) for d, score in store.similarity_search_with_score(ASKED, 50)]
    found = theirs.query(VectorStoreQuery(query_str=ASKED, similarity_top_k=50))
    assert [(node.text, score) for node, score in zip(found.nodes, found.similarities, strict=True)] == ours
    assert len(ours) == 11 + store.index.entries()["papers/0"].passages == len(theirs.get_nodes())


def test_whole_documents_go_in_and_come_out_with_their_place(store):
    given = [Document(d.text, id=d.id, metadata=dict(d.metadata)) for d in texts(4)]
    assert store.ingest(given).written == 4 and store.ingest(given).unchanged == 4
    by_text = {d.id: d.text for d in texts(4)}
    hits = store.index.query(ASKED, 50)
    for hit, found in zip(hits, store.similarity_search(ASKED, 50), strict=True):
        start, end = found.metadata["start_index"], found.metadata["end_index"]
        assert found.page_content == by_text[hit.document][start:end] and found.metadata["shelf"] in "ab"
    assert store.index.query(ASKED, 1, unit="document")
    with pytest.raises(InvalidParameter, match="goes as a whole"):
        store.delete([hits[0].id])
    assert store.index.remove(["papers/0"]) == 1
    with pytest.raises(InvalidParameter, match="no id and no source"):
        store.ingest([Document("Nobody knows me.")])
    stock = Chroma("notes", store.embeddings, persist_directory=str(store.index.store.lock.folder))
    near, distance = stock.similarity_search_with_score(ASKED, 1)[0]  # reads an index's collection
    ours, cosine = store.similarity_search_with_score(ASKED, 1)[0]
    assert near.page_content == ours.page_content and distance == pytest.approx(1 - cosine, abs=1e-6)


def test_texts_are_embedded_again_if_the_index_is_refitted_while_they_wait_for_the_lock(tmp_path, monkeypatch):
    whitened = Embedder("eddy-tiny", method="plain+whiten")
    with open_index(tmp_path, "notes", whitened, passage_size=24) as own:
        own.upsert(texts(4))
        own.upsert(texts(6))
        store, before, hold_lock = EddyChroma.from_index(own), own.settings.fingerprint, WriterLock.__enter__

        def refitted_first(self: WriterLock) -> WriterLock:
            monkeypatch.setattr(WriterLock, "__enter__", hold_lock)
            with apart(), open_index(tmp_path, "notes", whitened) as other:
                other.refit()
            return self.__enter__()

        monkeypatch.setattr(WriterLock, "__enter__", refitted_first)
        (id_,) = store.add_texts(["Written by two fits."])
        assert own.settings.fingerprint != before
        vector, row, _ = rows(own)[MAIN][id_]
        assert row["eddy_fingerprint"] == own.settings.fingerprint
        np.testing.assert_allclose(vector, own.embedder.encode_document("Written by two fits."), atol=1e-5)


def test_questions_go_through_the_transform_of_the_index_also_after_a_refit(tmp_path):
    plain = Embedder("eddy-tiny", method="plain+centre")
    own = open_index(tmp_path, "notes", plain, passage_size=24)
    own.upsert(texts(5))
    store = EddyChroma.from_index(own)
    stock = Chroma("notes", store.embeddings, client=own.store.client, create_collection_if_not_exists=False)
    store.add_documents(chunks())
    before = store.embeddings.fingerprint
    with open_index(tmp_path, "notes", plain) as other:
        other.upsert(texts(8))
        other.refit()
    found = store.similarity_search_with_score(ASKED, 50)
    assert store.embeddings.fingerprint != before
    assert [score for _, score in found] == pytest.approx([cosine for _, cosine in nearest(store)], abs=2e-5)
    stock = Chroma("notes", store.embeddings, client=own.store.client, create_collection_if_not_exists=False)
    distances = [distance for _, distance in stock.similarity_search_with_score(ASKED, 50)]
    assert distances == pytest.approx([1 - score for _, score in found], abs=2e-5)


def test_rows_are_read_and_taken_out_where_another_has_made_the_index_anew(tmp_path):
    plain = Embedder("eddy-tiny", method="plain+centre")
    with open_index(tmp_path, "notes", plain, passage_size=24) as other:
        other.upsert(texts(4))
        store = EddyChroma.from_index(open_index(tmp_path, "notes", plain))
        ids = store.add_texts(["Once.", "Twice."])
        other.refit()
        assert [found.page_content for found in store.get_by_ids(ids)] == ["Once.", "Twice."]
        other.refit()
        store.delete(ids[:1])
        assert [found.id for found in store.get_by_ids(ids)] == ids[1:]


def test_what_is_wrong_is_refused(tmp_path, store, embeddings):
    store.add_texts(["A text."])
    folder = str(store.index.store.lock.folder)
    with pytest.raises(FingerprintMismatch, match="method"):
        EddyChroma("notes", EddyEmbeddings(model_name="eddy-tiny", method="plain"), persist_directory=folder)
    with pytest.raises(InvalidParameter, match="place"):
        EddyChroma("notes", embeddings, persist_directory=folder, host="x")
    with pytest.raises(InvalidParameter, match="embedding_function"):
        EddyChroma("notes", None, persist_directory=folder)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="1 texts, 2 metadatas"):
        store.add_texts(["a"], [{}, {}])
    with pytest.raises(InvalidParameter, match="'a' is"):
        store.add_texts(["a"], [{"a": {"b": 1}}])
    with pytest.raises(InvalidText, match="surrogate"):
        store.add_texts(["a"], [{"a\ud800": 1}])
    with pytest.raises(InvalidText):
        store.add_texts([" "])
    with pytest.raises(InvalidParameter, match="no ids"):
        store.delete()
    for call in (store.similarity_search, store.max_marginal_relevance_search):
        with pytest.raises(InvalidParameter, match="no parameter 'wher'"):
            call("a", wher={})
    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    client.create_collection("made-by-others", embedding_function=None)
    with pytest.raises(ForeignCollection):
        EddyChroma("made-by-others", embeddings, client=client)


async def test_on_a_server(tmp_path, embeddings):
    with served(tmp_path) as server:
        kwargs = {"collection_name": "notes", "host": "127.0.0.1", "port": server.port}
        store = EddyChroma.from_texts(list(SENTENCES), embeddings, **kwargs)
        assert await store.aadd_texts(["One more."], [{"n": 1}]) and len(rows(store.index)[MAIN]) == 12
        assert (await store.asimilarity_search("One more.", k=1))[0].page_content == "One more."
