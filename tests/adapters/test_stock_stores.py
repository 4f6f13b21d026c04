"""What the frameworks' own Chroma stores find in an index."""

from __future__ import annotations

import chromadb
from langchain_chroma import Chroma
from llama_index.core.vector_stores.types import VectorStoreQuery
from llama_index.vector_stores.chroma import ChromaVectorStore
from tests.adapters.indexes import documents

from chroma_eddy import open_index
from eddy_embed import Embedder


def test_both_find_each_passage_of_an_index_once(tmp_path):
    """Whole documents are in a collection of their own."""
    client = chromadb.PersistentClient(str(tmp_path), chromadb.Settings(anonymized_telemetry=False))
    index = open_index(client, "notes", Embedder("eddy-tiny", method="plain:exit=2"), passage_size=24)
    index.upsert(documents(4))
    asked = index.embedder.encode_query("When do boats leave?").tolist()
    expected = sorted(hit.text for hit in index.query("When do boats leave?", 100))
    chain = Chroma("notes", client=client, create_collection_if_not_exists=False)
    assert sorted(each.page_content for each in chain.similarity_search_by_vector(asked, k=100)) == expected
    llama = ChromaVectorStore(chroma_collection=index.collection)
    found = llama.query(VectorStoreQuery(query_embedding=asked, similarity_top_k=100)).nodes
    assert sorted(each.text for each in found or []) == expected
