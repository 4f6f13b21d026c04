"""EddyChroma under LangChain's standard tests, as a Chroma with its names and retrievers, and what an index adds."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from typing import Any

import chromadb
import numpy as np
import pytest
from langchain_chroma import Chroma
from langchain_classic.retrievers import (
    ContextualCompressionRetriever,
    EnsembleRetriever,
    MultiVectorRetriever,
    ParentDocumentRetriever,
)
from langchain_classic.retrievers.document_compressors import EmbeddingsFilter
from langchain_classic.retrievers.self_query.base import SelfQueryRetriever
from langchain_community.query_constructors.chroma import ChromaTranslator
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.runnables import RunnableLambda
from langchain_core.stores import InMemoryStore
from langchain_core.structured_query import Comparator, Comparison, StructuredQuery
from langchain_core.vectorstores import VectorStoreRetriever
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests
from tests.adapters.indexes import MAIN, SENTENCES, rows
from tests.adapters.indexes import documents as texts

from chroma_eddy import NoIndex, WriterLock
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from langchain_eddy import EddyChroma, EddyEmbeddings, SentenceTextSplitter

ASKED = "When do boats with a deep keel leave?"
EMBEDDINGS = EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=1", query_instruction="Find the answer.")
PUBLIC = [name for name, _ in inspect.getmembers(Chroma, callable) if not name.startswith("_")]
CHUNKS = [
    Document(t, metadata={"n": n, "shelf": "ab"[n % 2], "source": f"book/{n // 4}"}) for n, t in enumerate(SENTENCES)
]
WHOLE = [Document(each.text, id=each.id, metadata=dict(each.metadata)) for each in texts(4)]


class TestStandard(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path):
        return EddyChroma("notes", EMBEDDINGS, persist_directory=str(tmp_path))


class TestRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> Any:
        return lambda k=3, **settings: VectorStoreRetriever(search_kwargs={"k": k}, **settings)

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"vectorstore": EddyChroma.from_texts(SENTENCES, EMBEDDINGS)}

    @property
    def retriever_query_example(self) -> str:
        return ASKED


@pytest.fixture
def store(tmp_path) -> EddyChroma:
    return EddyChroma("notes", EMBEDDINGS, persist_directory=str(tmp_path / "db"), passage_size=24)


@pytest.fixture
def full(store) -> EddyChroma:
    store.add_documents(CHUNKS, ids=[f"s{at}" for at in range(len(CHUNKS))])
    return store


def ids(found: Iterable[Any]) -> list[str]:
    return [each.id for each in found]


@pytest.mark.parametrize("name", [*PUBLIC, "__init__"])
def test_names_and_defaults_are_those_of_chroma(name):
    theirs = inspect.signature(getattr(Chroma, name)).parameters
    own = inspect.signature(getattr(EddyChroma, name)).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in own.values())
    for parameter, their in theirs.items():
        of_cloud = (name, parameter) == ("hybrid_search", "search")  # ours takes a question
        if of_cloud or their.kind in (their.VAR_KEYWORD, their.VAR_POSITIONAL):
            continue
        assert parameter in own or takes_all, parameter
        if parameter in own:
            assert own[parameter].default == their.default, parameter
    shared = [each for each in theirs if each in own and own[each].kind is not own[each].KEYWORD_ONLY]
    assert shared == [each for each in own if each in shared]


def test_rows_are_read_as_chroma_reads_them(full):
    stock = Chroma("notes", EMBEDDINGS, client=full.index.storage.client)  # finds what this one writes
    assert ids(stock.similarity_search(ASKED)) == ids(full.similarity_search(ASKED, alpha=1))
    assert full._collection.count() == len(SENTENCES) and full.get("s3")["documents"] == [SENTENCES[3]]
    assert full.get(["s3", "s3"])["metadatas"] == [CHUNKS[3].metadata] and full.get(["s3"])["embeddings"] is None
    assert full.get(where={"n": {"$lt": 2}})["ids"] == ["s0", "s1"] and not full.get(["x"])["ids"] + full.get([])["ids"]
    assert full.get(limit=2, offset=1)["ids"] == ["s1", "s2"] and len(full.get()["ids"]) == len(SENTENCES)
    held = full.get(where_document={"$contains": "Granite"}, include=["embeddings"])["embeddings"]
    assert held.shape == (1, EMBEDDINGS.embedder.dimension)
    for document, vector in full.similarity_search_with_vectors(ASKED, 3, where_document={"$not_contains": "zzz"}):
        expected = EMBEDDINGS.embed_documents([document.page_content])[0]
        np.testing.assert_allclose(vector, expected, atol=1e-4)
    assert full.similarity_search_with_vectors(ASKED, filter={"n": 99}) == []
    assert not full.get_by_ids([]) and {*ids(full.get_by_ids(["s5", "x", "s1", "s1"]))} == {"s5", "s1"}


def test_rows_are_changed_and_deleted(full):
    full.update_document("s1", Document("A zeppelin.", metadata={"n": 99}))
    assert full.get("s1") == {**full.get("s1"), "documents": ["A zeppelin."], "metadatas": [{"n": 99}]}
    with pytest.raises(InvalidParameter, match="no row 'x'"):
        full.update_documents(["s2", "x"], [Document("a"), Document("b")])
    assert full.delete([]) and len(full.get()["ids"]) == len(CHUNKS)
    assert full.delete(where={"n": 99}) and full.get("s1")["ids"] == []
    assert full.delete(["s2", "s3", "s3"], where={"shelf": "a"}) and full.get(["s2", "s3"])["ids"] == ["s3"]
    for ending in (full.reset_collection, full.delete_collection):
        ending()
        assert full.get()["ids"] == [] and full.add_texts(["Again."], ids=["a"]) == full.get()["ids"] == ["a"]


def test_every_place_and_option_of_chroma(tmp_path):
    own = {"collection_metadata": {"of": "facts", "hnsw:space": "cosine"}, "client_settings": chromadb.Settings()}
    more = {"collection_configuration": {"hnsw": {"space": "cosine"}}}
    store = EddyChroma(embedding_function=EMBEDDINGS, persist_directory=str(tmp_path), **own, **more)
    assert store.index.name == "langchain" and store._collection.metadata["of"] == "facts"
    with WriterLock(tmp_path):  # a reader says the same again, and waits for nobody
        assert EddyChroma("langchain", EMBEDDINGS, str(tmp_path), **own, timeout=0).get()["ids"] == []
    assert EddyChroma.from_documents([Document("One.", id="a")], EMBEDDINGS, ["b"]).get()["ids"] == ["b"]
    with pytest.raises(NoIndex, match="no index 'other'"):
        EddyChroma("other", EMBEDDINGS, str(tmp_path), create_collection_if_not_exists=False)
    for wrong, said in (
        ({"collection_metadata": {"hnsw:space": "l2"}}, "'l2'"),
        ({"chroma_cloud_api_key": "k"}, "CloudClient"),
        ({"persist_directory": "a", "host": "b"}, "persist_directory= and host="),
        ({"persist_directory": "a", "port": 1}, "with persist_directory= has no parameter 'port'"),
        ({"hots": "b"}, "did you mean host="),
    ):
        with pytest.raises(InvalidParameter, match=said):
            EddyChroma("notes", EMBEDDINGS, **wrong)
    for refused in (store.fork, store.add_images, store.similarity_search_by_image):
        with pytest.raises(InvalidParameter, match="takes no images, and is not forked"):
            refused("b")


async def test_every_search_by_text_is_hybrid(full):
    memory = EddyChroma.from_texts(SENTENCES, EMBEDDINGS, ids=full.get()["ids"])
    for store in (full, memory):
        for alpha in (None, 0, 0.9, 1):
            expected = ids(store.index.query("Granite keel", 3, alpha=alpha))
            diverse = ids(store.index.query(ASKED, 3, fetch_k=8, mmr=True, alpha=alpha))
            search = {"k": 3, "alpha": alpha}
            for kind in ("similarity", "hybrid"):
                assert ids(store.search("Granite keel", kind, **search)) == expected
                assert ids(await store.asearch("Granite keel", kind, **search)) == expected
                retriever = store.as_retriever(search_type=kind, search_kwargs=search)
                assert ids(retriever.invoke("Granite keel")) == ids(await retriever.ainvoke("Granite keel")) == expected
            assert ids(store.hybrid_search("Granite keel", **search)) == expected
            assert [each.id for each, _ in store.similarity_search_with_score("Granite keel", **search)] == expected
            retriever = store.as_retriever(search_type="mmr", search_kwargs={**search, "fetch_k": 8})
            assert ids(retriever.invoke(ASKED)) == ids(await retriever.ainvoke(ASKED)) == diverse
        store.alpha = 0
        chosen = [store.similarity_search("Granite keel", 3, alpha=alpha) for alpha in (None, 0, 1)]
        assert chosen[0] == chosen[1] != chosen[2] and store.searches_by == "hybrid"


def test_searches_by_vector_are_by_vectors_alone(full):
    asked = EMBEDDINGS.embed_query(ASKED)
    for options in ({"filter": {"shelf": "a"}}, {"where_document": {"$contains": "the"}}, {"documents": ["book/1"]}):
        found = full.similarity_search_by_vector_with_relevance_scores(asked, 3, **options)
        assert found and found == full.similarity_search_with_score(ASKED, 3, alpha=1, **options)
        assert full.similarity_search_by_vector(asked, 3, **options) == [document for document, _ in found]
        expected = ids(full.max_marginal_relevance_search(ASKED, 3, 8, 0.3, alpha=1, **options))
        assert ids(full.max_marginal_relevance_search_by_vector(asked, 3, 8, 0.3, **options)) == expected
    with pytest.raises(InvalidParameter, match="no parameter 'alpha'"):
        full.similarity_search_by_vector(asked, alpha=0)
    assert full.similarity_search(ASKED, documents=[]) == []


async def test_similarity_score_threshold_gives_no_warning(full):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for alpha in (None, 1):
            found = full.similarity_search_with_relevance_scores(ASKED, 11, alpha=alpha)
            assert found == await full.asimilarity_search_with_relevance_scores(ASKED, 11, alpha=alpha)
            best, *_, least = scores = [score for _, score in found]
            assert scores == sorted(scores, reverse=True) and 0 <= least < best <= 1
            cut = {"k": 11, "alpha": alpha, "score_threshold": (best + least) / 2}
            retriever = full.as_retriever(search_type="similarity_score_threshold", search_kwargs=cut)
            over = [document for document, score in found if score >= cut["score_threshold"]]
            assert 0 < len(over) < 11 and retriever.invoke(ASKED) == await retriever.ainvoke(ASKED) == over
    full.override_relevance_score_fn = lambda distance: 1 - distance / 2
    found = [score for _, score in full.similarity_search_with_relevance_scores(ASKED, 3)]
    assert found == pytest.approx([(1 + hit.cosine) / 2 for hit in full.index.query(ASKED, 3)])


async def test_retrievers_built_on_stores(full):
    few = Comparison(comparator=Comparator.LT, attribute="n", value=3)
    query = RunnableLambda(lambda _: StructuredQuery(query=ASKED, filter=few, limit=None))
    options = {"structured_query_translator": ChromaTranslator(), "search_kwargs": {"k": 10}}
    asking = SelfQueryRetriever(vectorstore=full, query_constructor=query, **options)
    assert {each.metadata["n"] for each in asking.invoke(ASKED)} == {0, 1, 2}
    splitter = SentenceTextSplitter.from_embeddings(EMBEDDINGS, chunk_size=24)
    parents = ParentDocumentRetriever(vectorstore=full, docstore=InMemoryStore(), child_splitter=splitter)
    parents.add_documents(WHOLE, ids=["p0", "p1", "p2", "p3"])
    parents.search_kwargs = {"k": 20}
    held, found = {each.page_content for each in WHOLE}, parents.invoke(ASKED)
    assert {each.page_content for each in found} <= held and found == await parents.ainvoke(ASKED) != []
    several = MultiVectorRetriever(vectorstore=full, docstore=InMemoryStore(), id_key="n")
    several.docstore.mset([(at, Document(f"Whole {at}")) for at in range(len(SENTENCES))])
    best = full.similarity_search(ASKED, 1)[0].metadata["n"]
    assert several.invoke(ASKED)[0].page_content == f"Whole {best}"
    both = EnsembleRetriever(retrievers=[full.as_retriever(search_kwargs={"alpha": alpha}) for alpha in (0, 1)])
    alone = [found.page_content for alpha in (0, 1) for found in full.similarity_search(ASKED, alpha=alpha)]
    assert {found.page_content for found in both.invoke(ASKED)} == {*alone}
    assert ids(await both.ainvoke(ASKED)) == ids(both.invoke(ASKED))
    cut = EmbeddingsFilter(embeddings=EMBEDDINGS, k=2, similarity_threshold=None)
    reranked = ContextualCompressionRetriever(base_compressor=cut, base_retriever=full.as_retriever())
    assert len(reranked.invoke(ASKED)) == 2


def test_metadata_come_back_or_are_refused(store):
    kept = {"eddy_x": 1, "document": "y", "page": 3, "start_index": 5, "tags": ["a", "b"]}
    (id_, _) = store.add_texts(["Some text.", "None."], [kept, None])
    assert store.get_by_ids([id_])[0].metadata == store.get([id_])["metadatas"][0] == kept
    assert store.similarity_search("text", 1)[0].metadata == kept
    assert store.get(where={"eddy_x": 1})["ids"] == [id_]
    for name in ("eddy_digest", "eddy_row", "eddy_vector"):
        with pytest.raises(InvalidParameter, match=f"the index itself needs the metadata's name '{name}'"):
            store.add_texts(["Other text."], [{name: "x"}])


def test_a_record_manager_adds_changes_and_removes(store):
    records = InMemoryRecordManager(namespace=f"notes/{EMBEDDINGS.fingerprint}")
    records.create_schema()
    options = {"cleanup": "full", "source_id_key": "source", "key_encoder": "sha256"}
    for given, did, count in ((CHUNKS, "added", 11), (CHUNKS, "skipped", 11), (CHUNKS[:8], "deleted", 3)):
        assert index(given, records, store, **options)[f"num_{did}"] == count
    assert len(rows(store.index)[MAIN]) == 8 and len({*store.add_documents(CHUNKS), *store.add_documents(CHUNKS)}) == 11
    assert store.add_texts(["Twice.", "Twice."])[0] == store.add_texts(["Twice."])[0]


async def test_whole_documents_go_in_and_a_chain_cites_their_places(store):
    assert (await store.aingest(WHOLE)).written == 4 and store.ingest(WHOLE).unchanged == 4
    chain = store.as_retriever(search_kwargs={"k": 2, "filter": {"shelf": "a"}}) | RunnableLambda(lambda found: found)
    by_id = {document.id: document.page_content for document in WHOLE}
    for hit, source in zip(store.index.query(ASKED, 2, where={"shelf": "a"}), chain.invoke(ASKED), strict=True):
        text = by_id[hit.document][source.metadata["start_index"] : source.metadata["end_index"]]
        assert text == source.page_content and source.metadata["shelf"] == "a"
    edited = [Document("Only this is left.", id=WHOLE[1].id), Document("Of a file.", metadata={"source": "a.txt"})]
    assert store.ingest(edited).written == 2 and store.index.status().documents == 5
    assert sum(row["eddy_document"] == WHOLE[1].id for _, row, _ in rows(store.index)[MAIN].values()) == 1


async def test_documents_are_deleted_by_the_ids_that_their_passages_carry(full):
    full.ingest(WHOLE)
    passages = {}
    for found in full.similarity_search(ASKED, 100):
        passages.setdefault(found.metadata.get("document"), []).append(found.id)
    assert passages.keys() == {None, *(document.id for document in WHOLE)} and len(passages[None]) == len(SENTENCES)
    one, several, other, last = sorted(full.index.entries(), key=lambda id_: len(passages[id_]))
    for wrong, options, said in (
        (passages[last][:1], {}, "no single passages"),
        ([last], {"where": {"n": 1}}, "by its id alone: leave where="),
        (None, {}, "no ids"),
    ):
        with pytest.raises(InvalidParameter, match=said):
            full.delete(wrong, **options)
    assert await full.adelete([one, "s0", one, "nobody"]) and full.delete(passages[several])
    assert full.delete([last, *passages[last][:1]]) and full.delete("s1")
    rest = {*passages[None]} - {"s0", "s1"}
    assert [*full.index.entries()] == [other] and {*full.get()["ids"]} == {*passages[other], *rest}
    assert full.delete(where={"number": full.get(passages[other])["metadatas"][0]["number"]})
    assert full.index.status().documents == 0 and {*full.get()["ids"]} == rest


def test_a_store_embeds_as_its_index_after_it_was_made_anew(store):
    other, text = Embedder("eddy-tiny", method="plain:exit=2"), "Written after that."
    store.ingest(WHOLE)
    assert store.embeddings.fingerprint == EMBEDDINGS.fingerprint
    store.index.reindex(other)
    assert store.embeddings.fingerprint == other.fingerprint
    (id_,) = store.add_texts([text])
    np.testing.assert_allclose(rows(store.index)[MAIN][id_][0], other.encode_document(text), atol=1e-5)
    assert store.similarity_search_by_vector(store.embeddings.embed_query(text), k=1)[0].id == id_


def test_what_is_wrong_is_refused(store):
    for call, said in (
        (lambda: store.ingest([Document("Nobody knows me.")]), "number 0 has no id and no source"),
        (lambda: store.add_texts(["a"], [{}, {}]), "1 texts, 2 metadatas"),
        (lambda: store.add_texts(["a"], ids=[5]), "ids=5 must be a list of strings"),
        (lambda: store.similarity_search("a", wher={}), "no parameter 'wher'"),
    ):
        with pytest.raises(InvalidParameter, match=said):
            call()
    assert not store.index.exists and store.similarity_search("a") == []
    store.add_texts(["A text."])
    folder = str(store.index.storage.lock.folder)
    with pytest.raises(FingerprintMismatch, match="method"):
        EddyChroma("notes", EddyEmbeddings(model_name="eddy-tiny", method="plain"), persist_directory=folder)
