"""Offsets of the adapters and of the demo, in every script: the text between them is the passage, to the character."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from langchain_core.documents import Document
from llama_index.core.schema import Document as LlamaDocument
from tests.demo.conftest import Outcome, run
from tests.scripts import SCRIPTS

from langchain_eddy import EddyEmbeddings, SentenceTextSplitter, embed_passages
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser

__all__ = ["run"]


def test_passages_and_chunks_are_slices_of_their_document() -> None:
    text = "\n\n".join(SCRIPTS.values())
    embedding = EddyEmbedding("eddy-tiny", method="plain:exit=1")
    parser = LongDocumentNodeParser(embed_model=embedding, passage_size=24)
    nodes = parser.get_nodes_from_documents([LlamaDocument(text=text)])
    found = [(node.start_char_idx, node.end_char_idx, node.text) for node in nodes]
    embeddings = EddyEmbeddings(model="eddy-tiny", method="plain:exit=1")
    passages = list(embed_passages([Document(text)], embeddings, passage_size=24))
    for passage in passages:
        meta = passage.document.metadata
        found.append((meta["start_index"], meta["end_index"], passage.document.page_content))
    for splitter in (
        SentenceTextSplitter(60, add_start_index=True),
        SentenceTextSplitter.from_embeddings(embeddings, chunk_size=40, chunk_overlap=20, add_start_index=True),
    ):
        for chunk in splitter.create_documents([text]):
            start = chunk.metadata["start_index"]
            found.append((start, start + len(chunk.page_content), chunk.page_content))
    assert len(nodes) == len(passages) > 1 and len(found) > 4
    assert all(text[start:end] == part and part.strip() for start, end, part in found)


def test_the_demo_cites_to_the_character(tmp_path: Path, run: Callable[..., Outcome]) -> None:
    (tmp_path / "scripts").mkdir()
    for number, text in enumerate(SCRIPTS.values()):
        (tmp_path / "scripts" / f"{number}.txt").write_bytes(text.encode())
    library = tmp_path / "library"
    made = run("ingest", tmp_path / "scripts", "-l", library, "--method", "plain:exit=1", "--passage-size", 80)
    assert made.code == 0, made.err
    asked = run("ask", "שלום 👨\u200d👩\u200d👧\u200d👦 Cafe\u0301?", "--library", library, "-k", 100, "--json")
    answers = json.loads(asked.out)
    assert {answer["document"] for answer in answers} == {f"{number}.txt" for number in range(len(SCRIPTS))}
    texts = list(SCRIPTS.values())
    for answer in answers:
        text = texts[int(answer["document"].removesuffix(".txt"))]
        assert text[answer["start"] : answer["end"]] == answer["text"]
        assert answer["start"] <= answer["sentence_start"] < answer["sentence_end"] <= answer["end"]
    assert run("ask", "שלום", "--library", library, "-k", 20).code == 0
