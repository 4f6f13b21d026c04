"""The frameworks' own PDF readers: what they know of pages survives our node parser and our ingestion."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from langchain_chroma import Chroma
from llama_index.core import SimpleDirectoryReader, VectorStoreIndex
from reportlab.pdfgen.canvas import Canvas

from langchain_eddy import EddyEmbeddings, ingest_documents
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser

with warnings.catch_warnings():  # the package announces its end; its loader is the one that people use
    warnings.simplefilter("ignore", DeprecationWarning)
    from langchain_community.document_loaders import PyPDFLoader

PAGES = [
    ["The moon pulls the water of the sea.", "Twice a day the harbour fills."],
    ["Bread needs flour, water and salt.", "The dough rests overnight."],
    ["A pendulum swings once in two seconds.", "The weights are wound up by hand."],
]
QUESTION = "How long does the dough rest?"


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("papers") / "paper.pdf"
    canvas = Canvas(str(path))
    for page in PAGES:
        for row, line in enumerate(page):
            canvas.drawString(60, 700 - 14 * row, line)
        canvas.showPage()
    canvas.save()
    return path


def test_llama_index_page_labels_survive(paper: Path) -> None:
    embedding = EddyEmbedding(model_name="eddy-tiny", method="htp")
    parser = LongDocumentNodeParser(embed_model=embedding, passage_size=8)

    def load() -> list:
        return SimpleDirectoryReader(input_files=[str(paper)], filename_as_id=True).load_data()

    documents = {document.id_: document for document in load()}
    nodes = parser.get_nodes_from_documents(load())
    assert [node.metadata["page_label"] for node in nodes] == ["1", "1", "2", "2", "3", "3"]
    for node in nodes:
        document = documents[node.ref_doc_id]
        assert document.text[node.start_char_idx : node.end_char_idx] == node.text
        assert document.metadata.items() <= node.metadata.items()
    assert [node.id_ for node in parser.get_nodes_from_documents(load())] == [node.id_ for node in nodes]
    index = VectorStoreIndex(nodes, embed_model=embedding)
    found = index.as_retriever(similarity_top_k=6).retrieve(QUESTION)
    labels = {hit.node.get_content(): hit.node.metadata["page_label"] for hit in found}
    assert labels == {line: str(number) for number, page in enumerate(PAGES, 1) for line in page}


@pytest.mark.parametrize("cleanup", ["id", "source"])
def test_langchain_pages_survive(paper: Path, tmp_path: Path, cleanup: str) -> None:
    store = Chroma(
        "papers",
        embedding_function=EddyEmbeddings(model_name="eddy-tiny", method="htp"),
        persist_directory=str(tmp_path),
        collection_configuration={"hnsw": {"space": "cosine"}},
    )
    pages = PyPDFLoader(str(paper)).load()
    report = ingest_documents(store, pages, passage_size=8, cleanup=cleanup)
    assert (report.n_documents, len(report.ids)) == (3, 6)
    found = store.similarity_search(QUESTION, k=10)
    labels = {hit.page_content: (hit.metadata["page"], hit.metadata["page_label"]) for hit in found}
    assert labels == {line: (number - 1, str(number)) for number, page in enumerate(PAGES, 1) for line in page}
    for hit in found:
        text = pages[hit.metadata["page"]].page_content
        assert text[hit.metadata["start_index"] : hit.metadata["end_index"]] == hit.page_content
    again = ingest_documents(store, PyPDFLoader(str(paper)).load(), passage_size=8, cleanup=cleanup)
    assert (sorted(again.ids), again.n_deleted) == (sorted(report.ids), 0)
    assert store._collection.count() == 6
