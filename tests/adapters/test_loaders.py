"""Files as documents of LlamaIndex and LangChain: one a file, with its pages, by the readers in a child process."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document
from llama_index.core import Document as LlamaDocument
from llama_index.core import SimpleDirectoryReader
from llama_index.core.schema import MetadataMode
from tests.readers.pdf_builder import pdf, rewritten

from eddy_embed.errors import InvalidParameter
from langchain_eddy import EddyChroma, EddyEmbeddings, EddyLoader, embed_passages, join_pages
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser
from llama_index.readers.eddy import EddyReader
from readers_eddy import NothingToRead, ReadingLimits, Unreadable, read_document, read_documents

with warnings.catch_warnings():  # the package announces its end; its loader is the one that people use
    warnings.simplefilter("ignore", DeprecationWarning)
    from langchain_community.document_loaders import PyPDFLoader

MODEL = {"model_name": "eddy-tiny", "method": "plain:exit=1"}
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
    names = ("a#1.md", "paper.pdf", "rows.jsonl#r")
    assert [document.origin for document in result.documents] == [str(folder / name) for name in names]
    assert [item.name for item in result.skipped] == ["broken.pdf", "rows.jsonl, line 2"]
    paper = read_document(folder / "paper.pdf")
    assert paper.text == "\n\n".join(PAGES) and paper.page_labels == ("i", "ii")
    assert [paper.text[start:][: len(page)] for start, page in zip(paper.page_starts, PAGES, strict=True)] == PAGES
    assert read_document(folder / "paper.pdf", isolated=False) == paper
    for isolated in (True, False):
        with pytest.raises(Unreadable, match="damaged, or no PDF file"):
            read_document(folder / "broken.pdf", isolated=isolated)
    with pytest.raises(Unreadable, match=r"larger than .* MB; split it"):
        read_document(folder / "paper.pdf", limits=ReadingLimits(file_bytes=10))


def test_llama_index_reads_a_document_a_file(folder: Path) -> None:
    with pytest.warns(UserWarning, match=NOT_READ):
        documents = EddyReader().load_data(folder, extra_info={"shelf": "sea"})
    markdown, paper, row = documents
    shown = markdown.text, markdown.metadata["file_name"], markdown.metadata["title"]
    assert shown == (MARKDOWN, "a#1.md", "Tides")
    assert row.id_ == f"{folder}/rows.jsonl#r" and row.metadata["file_path"] == f"{folder}/rows.jsonl"
    assert all(document.metadata["shelf"] == "sea" for document in documents)
    assert paper.get_content(MetadataMode.EMBED) == paper.text
    parser = LongDocumentNodeParser(embed_model=EddyEmbedding(**MODEL), passage_size=8)
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
    shelf = EddyChroma("shelf", EddyEmbeddings(**MODEL), persist_directory=str(tmp_path), passage_size=8)
    shelf.ingest(documents)
    (hit,) = shelf.similarity_search("flour", k=1, filter={"file_name": "paper.pdf"})
    assert hit.page_content == PAGES[1] and hit.metadata["page"] == 2
    entry = shelf.index.entries()[f"{folder}/paper.pdf"]
    assert entry.page_labels == ("i", "ii") and entry.metadata["source"] == f"{folder}/paper.pdf"
    with pytest.raises(NothingToRead, match="nowhere does not exist"):
        EddyLoader(folder / "nowhere").load()


# --- The frameworks' own readers of PDF files: what they know of pages survives our node parser and our ingestion

ACROSS = [["The ferry leaves at noon, and dogs"], ["travel for free. Bread needs flour."], ["Clocks tick."]]
FOUND = {
    "The ferry leaves at noon, and dogs\ntravel for free.": ("1", "2"),
    "Bread needs flour.": ("2", "2"),
    "Clocks tick.": ("3", "3"),
}
"""A sentence that goes on over a border is one, on two pages."""


@pytest.fixture(scope="module")
def files(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    across = tmp_path_factory.mktemp("papers") / "across.pdf"
    across.write_bytes(pdf(*ACROSS))
    return folder / "paper.pdf", across


def test_llama_index_joins_the_pages_of_each_file(files: tuple[Path, Path]) -> None:
    paper, across = files
    parts = ("passages", "sentences")
    parser = LongDocumentNodeParser(embed_model=EddyEmbedding(**MODEL), passage_size=8, parts=parts)
    pages = SimpleDirectoryReader(input_files=[str(paper), str(across)]).load_data()
    note = LlamaDocument(text="A note.", id_="note")
    first, second, last = LongDocumentNodeParser.join_pages([*pages, note])
    assert last is note and first.id_ == str(paper) and second.metadata["file_name"] == "across.pdf"
    assert "page" not in second.get_content(MetadataMode.LLM).lower()
    nodes = parser.get_nodes_from_documents([first, second])
    mine = [node for node in nodes if node.ref_doc_id == str(across)]
    assert len(mine) == 2 * len(FOUND)
    for node in mine:
        assert (node.metadata["page_label"], node.metadata["last_page_label"]) == FOUND[node.text]
        assert second.text[node.start_char_idx : node.end_char_idx] == node.text
        told = [node.metadata, *(related.metadata for related in (node.source_node, node.next_node) if related)]
        assert not any("eddy_pages" in each for each in told), "a long file's list would be repeated in every node"
    apart = [node.metadata["page_label"] for node in nodes if node.ref_doc_id == str(paper)]
    assert apart == 2 * ["i", "ii"]
    assert "eddy_pages" in second.metadata, "the caller's document is as it was"
    with pytest.raises(InvalidParameter, match=r"documents\[1\] is page '2' of no file"):
        LongDocumentNodeParser.join_pages([note, LlamaDocument(text="Two.", metadata={"page_label": "2"})])


def test_langchain_joins_the_pages_of_each_file(files: tuple[Path, Path], tmp_path: Path) -> None:
    paper, across = files
    embeddings = EddyEmbeddings(**MODEL)
    loaded = [*PyPDFLoader(str(paper)).load(), *PyPDFLoader(str(across)).load()]
    whole = join_pages([*loaded, Document("A note.", id="note")])
    assert [document.id for document in whole] == [str(paper), str(across), "note"]
    passages = [passage.document for passage in embed_passages(whole, embeddings, passage_size=8)]
    assert len(passages) == len(PAGES) + len(FOUND) + 1
    hits = [hit for hit in passages if hit.metadata.get("source") == str(across)]
    assert {hit.page_content: (hit.metadata["page_label"], hit.metadata["last_page_label"]) for hit in hits} == FOUND
    assert all("eddy_pages" not in hit.metadata and hit.metadata["total_pages"] == 3 for hit in hits)
    with pytest.raises(InvalidParameter, match=r"documents\[0\] is page '7' of no file"):
        join_pages([Document("Seven.", metadata={"page_label": "7"})])
    shelf = EddyChroma("shelf", embeddings, persist_directory=str(tmp_path), passage_size=8)
    shelf.ingest(whole)
    found = shelf.similarity_search("bread", k=20, filter={"source": str(across)})
    rows = {hit.page_content: (f"{hit.metadata['page']}", f"{hit.metadata['last_page']}") for hit in found}
    assert rows == FOUND
