"""Files as documents of LlamaIndex and LangChain: one a file, with its pages, by the readers in a child process."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.document_loaders import BaseLoader
from llama_index.core import SimpleDirectoryReader
from llama_index.core.schema import MetadataMode
from tests.readers.pdf_builder import pdf, rewritten

from langchain_eddy import EddyChroma, EddyEmbeddings, EddyLoader
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser
from llama_index.readers.eddy import EddyReader
from readers_eddy import NothingToRead, ReadingLimits, Unreadable, read_document, read_documents

MARKDOWN = "# Tides\n\nThe sea comes and goes.\n"
PAGES = ["The moon pulls the water of the sea.", "Bread needs flour, water and salt."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "a#1.md").write_text(MARKDOWN, encoding="utf-8")
    (folder / "broken.pdf").write_text("no PDF", encoding="utf-8")
    (folder / "picture.odt").write_text("no type that is read", encoding="utf-8")
    (folder / "rows.jsonl").write_text('{"id": "r", "text": "A row."}\n{"id": "s"}\n', encoding="utf-8")
    paper = rewritten(pdf(*([page] for page in PAGES)), lambda writer: writer.set_page_label(0, 1, style="/r", start=1))
    (folder / "paper.pdf").write_bytes(paper)
    return folder


NOT_READ = r"(?s)not read:\n  broken.pdf: damaged.*\n  rows.jsonl, line 2: it has no .*\n  1 file of other types"


def test_a_folder_is_read_for_plain_python(folder: Path) -> None:
    result = read_documents(folder)
    assert [document.origin for document in result.documents] == [
        *(str(folder / name) for name in ("a#1.md", "paper.pdf", "rows.jsonl#r")),
    ]
    assert [item.name for item in result.skipped] == ["broken.pdf", "rows.jsonl, line 2"]
    paper = read_document(folder / "paper.pdf")
    assert paper.text == "\n\n".join(PAGES) and paper.page_labels == ("i", "ii")
    assert [paper.text[start:][: len(page)] for start, page in zip(paper.page_starts, PAGES, strict=True)] == PAGES
    here = read_document(folder / "paper.pdf", isolated=False)
    assert here == paper
    for isolated in (True, False):
        with pytest.raises(Unreadable, match="damaged, or no PDF file"):
            read_document(folder / "broken.pdf", isolated=isolated)
    with pytest.raises(Unreadable, match=r"larger than .* MB; split it"):
        read_document(folder / "paper.pdf", limits=ReadingLimits(file_bytes=10))


def test_llama_index_reads_a_document_a_file(folder: Path) -> None:
    with pytest.warns(UserWarning, match=NOT_READ):
        documents = EddyReader().load_data(folder, extra_info={"shelf": "sea"})
    markdown, paper, row = documents
    assert (
        markdown.text == MARKDOWN
        and markdown.metadata["file_name"] == "a#1.md"
        and markdown.metadata["title"] == "Tides"
    )
    assert row.id_ == f"{folder}/rows.jsonl#r" and row.metadata["file_path"] == f"{folder}/rows.jsonl"
    assert all(document.metadata["shelf"] == "sea" for document in documents)
    assert paper.get_content(MetadataMode.EMBED) == paper.text
    parser = LongDocumentNodeParser(
        embed_model=EddyEmbedding(model_name="eddy-tiny", method="plain:exit=1"), passage_size=8
    )
    nodes = parser.get_nodes_from_documents([paper])
    assert [(node.text, node.metadata["page_label"]) for node in nodes] == list(zip(PAGES, ("i", "ii"), strict=True))
    assert not any(key.startswith(("eddy_pages", "eddy_notes")) for node in nodes for key in node.metadata)
    inside = SimpleDirectoryReader(input_files=[folder / "paper.pdf"], file_extractor={".pdf": EddyReader()})
    (document,) = inside.load_data()
    assert document.text == paper.text and document.metadata["eddy_pages"] == paper.metadata["eddy_pages"]


def test_langchain_loads_a_document_a_file(folder: Path, tmp_path: Path) -> None:
    loader = EddyLoader(folder)
    assert isinstance(loader, BaseLoader)
    with pytest.warns(UserWarning, match=NOT_READ):
        documents = loader.load()
    assert [document.id for document in documents][:1] == [documents[0].metadata["source"]] == [f"{folder}/a#1.md"]
    shelf = EddyChroma(
        "shelf",
        EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=1"),
        persist_directory=str(tmp_path),
        passage_size=8,
    )
    shelf.ingest(documents)
    (hit,) = shelf.similarity_search("flour", k=1, filter={"file_name": "paper.pdf"})
    assert hit.page_content == PAGES[1] and hit.metadata["page"] == 2
    entry = shelf.index.entries()[f"{folder}/paper.pdf"]
    assert entry.page_labels == ("i", "ii") and entry.metadata["source"] == f"{folder}/paper.pdf"
    with pytest.raises(NothingToRead, match="nowhere does not exist"):
        EddyLoader(folder / "nowhere").load()
