"""What the handbook says that the frameworks' own Chroma stores do not do."""

from __future__ import annotations

import math

import chromadb
import pytest
from langchain_chroma import Chroma
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery
from llama_index.vector_stores.chroma import ChromaVectorStore
from llama_index.vector_stores.chroma.base import MAX_CHUNK_SIZE
from tests.adapters.indexes import documents

from chroma_eddy import open_index
from eddy_embed import Embedder

COSINE = {"hnsw": {"space": "cosine"}}


@pytest.fixture
def client(tmp_path):
    return chromadb.PersistentClient(str(tmp_path), chromadb.Settings(anonymized_telemetry=False))


@pytest.fixture
def collection(client):
    return client.create_collection("theirs", embedding_function=None, configuration=COSINE)


def node(id_: str, text: str, vector: list[float], **metadata: object) -> TextNode:
    return TextNode(id_=id_, text=text, embedding=vector, metadata=metadata)


def test_llama_index_keeps_the_old_row_of_a_known_id(collection):
    store = ChromaVectorStore(chroma_collection=collection)
    store.add([node("1", "Old.", [1.0, 0.0])])
    store.add([node("1", "New.", [0.0, 1.0])])
    assert store.get_nodes(["1"])[0].text == "Old."


def test_llama_index_has_other_scores_than_cosines(client, collection):
    store = ChromaVectorStore(chroma_collection=collection)
    store.add([node("1", "Orthogonal.", [0.0, 1.0])])
    score = store.query(VectorStoreQuery(query_embedding=[1.0, 0.0])).similarities[0]
    assert score == pytest.approx(math.exp(-1)) and round(score, 2) == 0.37
    assert client.create_collection("any", embedding_function=None).configuration_json["hnsw"]["space"] == "l2"


def test_llama_index_writes_more_at_once_than_the_database_takes(client, collection):
    limit = client.get_max_batch_size()
    assert limit < MAX_CHUNK_SIZE == 41665
    too_many = [node(str(at), "Text.", [1.0, 0.0]) for at in range(limit + 1)]
    with pytest.raises(Exception, match="batch size"):
        ChromaVectorStore(chroma_collection=collection).add(too_many)


def test_llama_index_compares_vectors_of_any_maker_and_refuses_these_filters(collection):
    store = ChromaVectorStore(chroma_collection=collection)
    store.add([node("1", "Of one model.", [1.0, 0.0]), node("2", "Of another.", [0.0, 1.0])])
    assert len(store.query(VectorStoreQuery(query_embedding=[0.6, 0.8], similarity_top_k=2)).ids) == 2
    with pytest.raises(ValueError, match="must be one of"):
        store.add([node("3", "Lists.", [1.0, 0.0], tags=["a"])])
    one = MetadataFilter(key="x", value=1)
    refused = [MetadataFilters(filters=[one, one], condition="not")]
    refused += [
        MetadataFilters(filters=[MetadataFilter(key="x", value=["a"], operator=o)]) for o in ("contains", "any", "all")
    ]
    for filters in refused:
        with pytest.raises(ValueError, match="not supported"):
            store.get_nodes(None, filters)


def test_both_find_documents_of_an_index_that_are_half_written(client):
    index = open_index(client, "notes", Embedder("eddy-tiny", method="plain:exit=2"), passage_size=24)
    index.upsert(documents(2))
    index.store.update_documents({"papers/1": {"eddy_digest": "", "eddy_pending": documents(2)[1].digest}})
    vector = index.embedder.encode_query("Which version?")
    assert {hit.document for hit in index.query("Which version?", 50)} == {"papers/0"}
    theirs = Chroma("notes", client=client, create_collection_if_not_exists=False)
    found = theirs.similarity_search_by_vector(vector.tolist(), k=50)
    assert {each.metadata["eddy_document"] for each in found} == {"papers/0", "papers/1"}


def test_both_find_each_passage_of_an_index_once(client):
    """Sentences and whole documents are in collections of their own."""
    index = open_index(client, "notes", Embedder("eddy-tiny", method="plain:exit=2"), passage_size=24)
    index.upsert(documents(4))
    asked = index.embedder.encode_query("When do boats leave?").tolist()
    expected = sorted(hit.text for hit in index.query("When do boats leave?", 100))
    chain = Chroma("notes", client=client, create_collection_if_not_exists=False)
    assert sorted(each.page_content for each in chain.similarity_search_by_vector(asked, k=100)) == expected
    llama = ChromaVectorStore(chroma_collection=index.collection)
    found = llama.query(VectorStoreQuery(query_embedding=asked, similarity_top_k=100)).nodes
    assert sorted(each.text for each in found or []) == expected
