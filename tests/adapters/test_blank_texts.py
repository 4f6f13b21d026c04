"""Blank texts among others: a run goes on, and one warning names them; a vector for each where contracts ask for it."""

from __future__ import annotations

import numpy as np
import pytest
from langchain_core.documents import Document as Page
from llama_index.core import Document as LlamaDocument
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import TextNode

from chroma_eddy import Document, open_index
from eddy_embed import Embedder
from langchain_eddy import EddyChroma, EddyEmbeddings
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.vector_stores.eddy import EddyChromaVectorStore

LLAMA = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=1")
CHAIN = EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=1")


def llama_pages() -> list[LlamaDocument]:
    texts = ["The ferry leaves at nine.", " \n", "Bread rises because of yeast.", ""]
    return [
        LlamaDocument(text=text, id_=f"p{at}", metadata={"file_name": "tides.pdf", "page_label": str(at + 1)})
        for at, text in enumerate(texts)
    ]


BLANK = r"hold no text and give no vector: tides\.pdf, page 2"


async def test_a_pipeline_and_an_index_of_llama_index_go_on(tmp_path):
    nodes = [TextNode(id_=page.id_, text=page.text, metadata=page.metadata) for page in llama_pages()]
    with pytest.warns(UserWarning, match=BLANK + r", tides\.pdf, page 4"):
        assert [node.node_id for node in LLAMA(nodes)] == ["p0", "p2"]
    with pytest.warns(UserWarning, match=BLANK):
        assert [node.node_id for node in await LLAMA.acall(nodes)] == ["p0", "p2"]
    store = EddyChromaVectorStore("pages", LLAMA, persist_dir=str(tmp_path))
    pipeline = IngestionPipeline(transformations=[SentenceSplitter(), LLAMA], vector_store=store)
    with pytest.warns(UserWarning, match="1 of|2 of"):
        assert len(pipeline.run(documents=llama_pages())) == 2
    with pytest.warns(UserWarning, match=BLANK):
        VectorStoreIndex(nodes, storage_context=StorageContext.from_defaults(vector_store=store), embed_model=LLAMA)
    assert {node.text for node in store.get_nodes()} == {llama_pages()[0].text, llama_pages()[2].text}


def test_a_store_of_langchain_goes_on(tmp_path):
    store = EddyChroma("pages", CHAIN, persist_directory=str(tmp_path), passage_size=16)
    about = [{"source": "tides.pdf", "page_label": str(at)} for at in range(3)]
    with pytest.warns(UserWarning, match=r"^1 of 3 texts hold no text and give no row: tides\.pdf, page 1$"):
        assert store.add_texts(["One.", " ", "Three."], about, ids=["a", "b", "c"]) == ["a", "c"]
    with pytest.warns(UserWarning, match="2 of 2 texts.*: number 0, number 1"):
        assert store.add_texts(["", "\n"]) == []
    whole = [Page("", id="empty"), Page("Whole.", id="whole", metadata={"year": None}), Page(" ")]
    with pytest.warns(UserWarning, match=r"2 of 3 documents.*'empty', number 2"):
        assert store.ingest(whole).written == 1


def test_an_index_leaves_blank_documents_out(tmp_path):
    given = [Document("a", "The ferry leaves."), Document("b", " \n"), Document("c", "Bread rises.")]
    with open_index(tmp_path, "notes", Embedder("eddy-tiny", method="plain:exit=1")) as index:
        with pytest.warns(UserWarning, match="1 of 3 documents hold no text and give no passage: 'b'"):
            assert index.upsert(given).written == 2
        with pytest.warns(UserWarning, match="1 of 1 documents.*'a'"):
            assert index.upsert([Document("a", "")]).written == 0
        assert sorted(index.entries()) == ["a", "c"]
        with pytest.warns(UserWarning, match="1 of 2 documents.*'a'"):
            assert index.sync([Document("a", ""), given[2]]).removed == 1
        assert sorted(index.entries()) == ["c"]


async def test_embedding_classes_return_a_vector_for_each_text():
    texts = ["a", "", "\n\t", "\u00a0"]
    for vectors in (await LLAMA.aget_text_embedding_batch(texts), await CHAIN.aembed_documents(texts)):
        assert np.isfinite(vectors).all() and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
        assert np.allclose(vectors[1], LLAMA.get_text_embedding(""), atol=1e-5) and vectors[1:3] == vectors[2:]
