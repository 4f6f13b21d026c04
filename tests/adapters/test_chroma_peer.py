"""EddyChroma is a Chroma: its methods, names and defaults, and the retrievers that are built on it."""

from __future__ import annotations

import inspect
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
from langchain_core.runnables import RunnableLambda
from langchain_core.stores import InMemoryStore
from langchain_core.structured_query import Comparator, Comparison, StructuredQuery
from langchain_tests.integration_tests import RetrieversIntegrationTests
from tests.adapters.indexes import SENTENCES
from tests.adapters.indexes import documents as texts

from chroma_eddy import NoIndex
from eddy_embed.errors import InvalidParameter
from langchain_eddy import EddyChroma, EddyEmbeddings, SentenceTextSplitter
from langchain_eddy.retriever import EddyChromaRetriever

ASKED = "When do boats with a deep keel leave?"
EMBEDDINGS = EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=1")
PUBLIC = [name for name, _ in inspect.getmembers(Chroma, callable) if not name.startswith("_")]


@pytest.fixture
def store(tmp_path) -> EddyChroma:
    store = EddyChroma("notes", EMBEDDINGS, str(tmp_path))
    store.add_texts(SENTENCES, [{"n": at, "shelf": "ab"[at % 2]} for at in range(len(SENTENCES))], NAMES)
    return store


NAMES = [f"s{at}" for at in range(len(SENTENCES))]


class TestRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> Any:
        return lambda k=3, **settings: EddyChromaRetriever(search_kwargs={"k": k}, **settings)

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"vectorstore": EddyChroma.from_texts(SENTENCES, EMBEDDINGS)}

    @property
    def retriever_query_example(self) -> str:
        return ASKED


@pytest.mark.parametrize("name", [*PUBLIC, "__init__"])
def test_names_and_defaults_are_those_of_chroma(name: str) -> None:
    theirs = inspect.signature(getattr(Chroma, name)).parameters
    own = inspect.signature(getattr(EddyChroma, name)).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in own.values())
    for parameter, their in theirs.items():
        if their.kind in (their.VAR_KEYWORD, their.VAR_POSITIONAL):
            continue
        if name == "hybrid_search" and parameter == "search":  # of Chroma's cloud; ours takes a question
            continue
        assert parameter in own or takes_all, parameter
        if parameter in own:
            assert own[parameter].default == their.default, parameter
    shared = [each for each in theirs if each in own and own[each].kind is not own[each].KEYWORD_ONLY]
    assert shared == [each for each in own if each in shared]


def test_rows_are_read_as_chroma_reads_them(store: EddyChroma) -> None:
    assert isinstance(store, Chroma) and store._collection.count() == len(SENTENCES)
    assert store.get("s3") == {**store.get(["s3"])} and store.get("s3")["documents"] == [SENTENCES[3]]
    assert store.get(["s3"])["metadatas"] == [{"n": 3, "shelf": "b"}] and store.get(["s3"])["embeddings"] is None
    assert store.get(where={"n": {"$lt": 2}})["ids"] == ["s0", "s1"] and store.get(["nobody"])["ids"] == []
    assert store.get(limit=2, offset=1)["ids"] == ["s1", "s2"] and len(store.get()["ids"]) == len(SENTENCES)
    word = {"$contains": "Granite"}
    assert (
        store.get(where_document=word, include=["embeddings"])["embeddings"].shape[1] == store.index.embedder.dimension
    )
    for document, vector in store.similarity_search_with_vectors(ASKED, 3, where_document={"$not_contains": "zzz"}):
        expected = EMBEDDINGS.embed_documents([document.page_content])[0]
        np.testing.assert_allclose(vector, expected, atol=1e-4)
    asked = EMBEDDINGS.embed_query(ASKED)
    near = store.similarity_search_by_vector_with_relevance_scores(asked, 3, {"shelf": "a"})
    assert near == store.similarity_search_with_score(ASKED, 3, {"shelf": "a"})
    distances = EddyChroma.from_index(store.index)
    distances.override_relevance_score_fn = lambda distance: -distance
    (_, cosine), *_ = store.similarity_search_with_relevance_scores(ASKED, 1)
    assert distances._select_relevance_score_fn()(cosine) == pytest.approx(cosine - 1)


def test_rows_are_changed_and_deleted(store: EddyChroma) -> None:
    store.update_document("s1", Document("A zeppelin.", metadata={"n": 99}))
    assert store.get("s1") == {**store.get("s1"), "documents": ["A zeppelin."], "metadatas": [{"n": 99}]}
    with pytest.raises(InvalidParameter, match="no row 'x'"):
        store.update_documents(["s2", "x"], [Document("a"), Document("b")])
    count = len(store.get()["ids"])
    assert store.delete([]) and len(store.get()["ids"]) == count
    assert store.delete(where={"n": 99}) and store.get("s1")["ids"] == []
    assert store.delete(["s2", "s3"], where={"shelf": "a"}) and store.get(["s2", "s3"])["ids"] == ["s3"]
    store.ingest([Document(each.text, id=each.id, metadata={"whole": at}) for at, each in enumerate(texts(3))])
    one = store.get(where={"whole": 1})["ids"]
    if len(one) > 1:
        with pytest.raises(InvalidParameter, match="no single passages"):
            store.delete(one[:1])
    assert store.delete(where={"whole": 1}) and sorted(store.index.entries()) == ["papers/0", "papers/2"]
    keys = store.get().keys()
    for ending in (store.reset_collection, store.delete_collection):
        ending()
        assert (
            store.get()["ids"] == [] and store.get().keys() == keys and store.add_texts(["Again."], ids=["a"]) == ["a"]
        )


def test_every_place_and_option_of_chroma(tmp_path) -> None:
    own = {"collection_metadata": {"of": "facts", "hnsw:space": "cosine"}, "client_settings": chromadb.Settings()}
    more = {"collection_configuration": {"hnsw": {"space": "cosine"}}}
    store = EddyChroma(embedding_function=EMBEDDINGS, persist_directory=str(tmp_path), **own, **more)
    assert store.index.name == "langchain" and store._collection.metadata["of"] == "facts"
    assert EddyChroma.from_documents([Document("One.", id="a")], EMBEDDINGS, ["b"]).get()["ids"] == ["b"]
    with pytest.raises(NoIndex, match="no index 'other'"):
        EddyChroma("other", EMBEDDINGS, str(tmp_path), create_collection_if_not_exists=False)
    for wrong, said in (
        ({"collection_metadata": {"hnsw:space": "l2"}}, "'l2'"),
        ({"chroma_cloud_api_key": "k"}, "CloudClient"),
        ({"persist_directory": "a", "host": "b"}, "persist_directory= and host="),
    ):
        with pytest.raises(InvalidParameter, match=said):
            EddyChroma("notes", EMBEDDINGS, **wrong)
    with pytest.raises(InvalidParameter):
        store.fork("b")


async def test_retrievers_built_on_stores(store: EddyChroma) -> None:
    query = StructuredQuery(
        query=ASKED, filter=Comparison(comparator=Comparator.LT, attribute="n", value=3), limit=None
    )
    asking = SelfQueryRetriever(
        vectorstore=store,
        query_constructor=RunnableLambda(lambda _: query),
        structured_query_translator=ChromaTranslator(),
        search_kwargs={"k": 10},
    )
    assert {each.metadata["n"] for each in asking.invoke(ASKED)} == {0, 1, 2}
    whole = [Document(each.text, metadata={"source": each.id}) for each in texts(3)]
    splitter = SentenceTextSplitter.from_embeddings(EMBEDDINGS, chunk_size=24)
    parents = ParentDocumentRetriever(vectorstore=store, docstore=InMemoryStore(), child_splitter=splitter)
    parents.add_documents(whole, ids=["p0", "p1", "p2"])
    parents.search_kwargs = {"k": 20}
    held = {each.page_content for each in whole}
    assert {each.page_content for each in parents.invoke(ASKED)} <= held and parents.invoke(ASKED)
    assert await parents.ainvoke(ASKED) == parents.invoke(ASKED)
    several = MultiVectorRetriever(vectorstore=store, docstore=InMemoryStore(), id_key="n")
    several.docstore.mset([(at, Document(f"Whole {at}")) for at in range(len(SENTENCES))])
    best = store.similarity_search(ASKED, 1)[0].metadata["n"]
    assert several.invoke(ASKED)[0].page_content == f"Whole {best}"
    both = EnsembleRetriever(retrievers=[store.as_retriever(), store.as_retriever(search_type="hybrid")])
    single = {each.page_content for each in store.as_retriever().invoke(ASKED)}
    assert {each.page_content for each in both.invoke(ASKED)} >= single
    assert [each.id for each in await both.ainvoke(ASKED)] == [each.id for each in both.invoke(ASKED)]
    cut = EmbeddingsFilter(embeddings=EMBEDDINGS, k=2, similarity_threshold=None)
    judged = ContextualCompressionRetriever(base_compressor=cut, base_retriever=store.as_retriever())
    assert len(judged.invoke(ASKED)) == 2
