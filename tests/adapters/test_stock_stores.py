"""What the frameworks' own Chroma stores find in an index."""

from __future__ import annotations

import chromadb
import pytest
from langchain_chroma import Chroma
from llama_index.core.vector_stores.types import VectorStoreQuery
from llama_index.vector_stores.chroma import ChromaVectorStore
from tests.adapters.indexes import documents
from tests.adapters.killing import stop_at

from chroma_eddy import open_index
from chroma_eddy.storage.store import Store
from eddy_embed import Embedder


@pytest.fixture
def client(tmp_path):
    return chromadb.PersistentClient(str(tmp_path), chromadb.Settings(anonymized_telemetry=False))


def test_theirs_find_documents_of_an_index_that_are_half_written(client, monkeypatch):
    index = open_index(client, "notes", Embedder("eddy-tiny", method="plain:exit=2"), passage_size=24)
    index.upsert(documents(1))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_at(patch, 2, Store, "upsert")  # after its passages, before its own row
        index.upsert(documents(2))
    vector = index.embedder.encode_query("Which version?")
    assert {hit.document for hit in index.query("Which version?", 50)} == {"papers/0"}
    theirs = Chroma("notes", client=client, create_collection_if_not_exists=False)
    found = theirs.similarity_search_by_vector(vector.tolist(), k=50)
    assert {each.metadata["eddy_document"] for each in found} == {"papers/0", "papers/1"}


def test_both_find_each_passage_of_an_index_once(client):
    """Whole documents are in a collection of their own."""
    index = open_index(client, "notes", Embedder("eddy-tiny", method="plain:exit=2"), passage_size=24)
    index.upsert(documents(4))
    asked = index.embedder.encode_query("When do boats leave?").tolist()
    expected = sorted(hit.text for hit in index.query("When do boats leave?", 100))
    chain = Chroma("notes", client=client, create_collection_if_not_exists=False)
    assert sorted(each.page_content for each in chain.similarity_search_by_vector(asked, k=100)) == expected
    llama = ChromaVectorStore(chroma_collection=index.collection)
    found = llama.query(VectorStoreQuery(query_embedding=asked, similarity_top_k=100)).nodes
    assert sorted(each.text for each in found or []) == expected
