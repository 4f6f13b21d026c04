"""The frameworks' own first programs, with nothing but the embedding line changed, and what hangs on to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core import Document, Settings
from llama_index.core.llms.mock import MockLLM
from llama_index.core.schema import TextNode

from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser

FILES = {
    "ferry.txt": "The ferry to the island leaves at nine in the morning. Dogs travel for free.",
    "bread.txt": "Bread rises because yeast turns sugar into gas. Bakers wait for it.",
    "granite.md": "# Granite\n\nGranite cools slowly, deep under the ground.",
}

LLAMA_INDEX = """
import asyncio

from llama_index.core import Settings, SimpleDirectoryReader, StorageContext, VectorStoreIndex, load_index_from_storage

{embedding}

documents = SimpleDirectoryReader("data").load_data()
index = VectorStoreIndex.from_documents(documents)
nodes = index.as_retriever(similarity_top_k=3).retrieve("Why does bread rise?")
index.storage_context.persist("storage")
index = load_index_from_storage(StorageContext.from_defaults(persist_dir="storage"))
response = asyncio.run(index.as_query_engine(llm=llm, similarity_top_k=1).aquery("Why does bread rise?"))
"""

LANGCHAIN = """
import asyncio
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_text_splitters import RecursiveCharacterTextSplitter

{embedding}

docs = [Document(path.read_text(), metadata={{"source": path.name}}) for path in sorted(Path("data").iterdir())]
vector_store = InMemoryVectorStore(embeddings)
text_splitter = RecursiveCharacterTextSplitter(chunk_size=1000, chunk_overlap=200, add_start_index=True)
vector_store.add_documents(documents=text_splitter.split_documents(docs))
found = vector_store.similarity_search_with_score("Why does bread rise?", k=3)
retrieved = asyncio.run(vector_store.as_retriever(search_kwargs={{"k": 3}}).ainvoke("Why does bread rise?"))
"""


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def settings():
    """LlamaIndex's global settings, as they were before."""
    before = dict(vars(Settings))
    yield Settings
    vars(Settings).clear()
    vars(Settings).update(before)


def run(program: str, embedding: str, **names: Any) -> dict[str, Any]:
    exec(compile(program.format(embedding=embedding), "starter", "exec"), names)
    return names


def cosines(embedder, question: str, folder: Path | None = None) -> dict[str, float]:
    """Of each file; with a folder, as LlamaIndex embeds it: behind the path, its reader's metadata."""
    texts = [text if folder is None else f"file_path: {folder / name}\n\n{text}" for name, text in FILES.items()]
    vectors = embedder.encode_document(texts)
    return dict(zip(FILES, (vectors @ embedder.encode_query(question)).tolist(), strict=True))


LINE = """
from llama_index.embeddings.eddy import EddyEmbedding
Settings.embed_model = EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2")
"""
LANGCHAIN_LINE = """
from langchain_eddy import EddyEmbeddings
embeddings = EddyEmbeddings(model_name="eddy-tiny", method="htp:exit=2")
"""


def test_llama_index_starter(data, settings):
    """Also from an index that was stored and loaded, asynchronously."""
    ours = run(LLAMA_INDEX, LINE, llm=MockLLM())
    assert len(ours["nodes"]) == 3
    expected = cosines(Settings.embed_model.embedder, "Why does bread rise?", data)
    best = max(expected, key=expected.__getitem__)
    assert best == ours["nodes"][0].metadata["file_name"]
    for node in ours["nodes"]:
        assert FILES[node.metadata["file_name"]] == node.text
        assert node.score == pytest.approx(expected[node.metadata["file_name"]], abs=1e-5)
    # It completes a prompt with the prompt, so the answer holds what was found.
    response = str(ours["response"])
    assert FILES[best] in response and not any(text in response for name, text in FILES.items() if name != best)


def test_actors_build_from_plain_arguments_and_send_json():
    """As llama-index-ingestion-ray does: `transform_class(**transform_kwargs)` in an actor, nodes as JSON between."""
    model = {"model_name": "eddy-tiny", "method": "htp:exit=2", "query_instruction": "Find it."}
    chain = [(LongDocumentNodeParser, {"embed_model": model, "passage_size": 12}), (EddyEmbedding, model)]
    nodes: list[Any] = [Document(text=FILES["bread.txt"], id_="bread")]
    vectors = []
    for transform_class, transform_kwargs in chain:
        transform = transform_class(**json.loads(json.dumps(transform_kwargs)))
        nodes = [TextNode.from_json(node.to_json()) for node in transform(nodes)]
        vectors.append([node.embedding for node in nodes])
    expected = EddyEmbedding(**model).embedder.encode_long(FILES["bread.txt"], passage_size=12).passages
    assert vectors[0] == vectors[1] and len(expected) > 1
    assert np.abs(np.array(vectors[1]) - [passage.vector for passage in expected]).max() <= 1e-5


def test_langchain_starter(data):
    ours = run(LANGCHAIN, LANGCHAIN_LINE)
    expected = cosines(ours["embeddings"].embedder, "Why does bread rise?")
    best = sorted(expected, key=expected.__getitem__, reverse=True)
    assert [source.metadata["source"] for source, _ in ours["found"]] == best
    assert [score for _, score in ours["found"]] == pytest.approx([expected[name] for name in best], abs=1e-5)
    assert [source.page_content for source in ours["retrieved"]] == [FILES[name] for name in best]
