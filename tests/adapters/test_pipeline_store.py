"""LlamaIndex's IngestionPipeline with our parser, embedding and store: document store, cache, two processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from llama_index.core import Document
from llama_index.core.ingestion import DocstoreStrategy, IngestionCache, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.storage.docstore import SimpleDocumentStore
from tests.adapters.indexes import MAIN, assert_same, rows
from tests.adapters.indexes import documents as texts

from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser
from llama_index.vector_stores.eddy import EddyChromaVectorStore


@pytest.fixture(scope="module")
def model() -> EddyEmbedding:
    return EddyEmbedding("eddy-tiny", method="plain:exit=1")


def documents(count: int = 4, version: int = 1) -> list[Document]:
    return [Document(text=d.text, id_=d.id, metadata=dict(d.metadata)) for d in texts(count, version)]


class Setup:
    """A pipeline that is made anew for each run, as in programs that run every day; what lasts is on disk."""

    def __init__(self, folder: Path, model: EddyEmbedding, splitter: object = None) -> None:
        self.folder, self.model = folder, model
        self.first = splitter or LongDocumentNodeParser(embed_model=model, passage_size=24)

    def store(self) -> EddyChromaVectorStore:
        return EddyChromaVectorStore("notes", self.model, persist_dir=str(self.folder / "db"))

    def run(self, given: list[Document], **options: object) -> int:
        pipeline = IngestionPipeline(
            transformations=[self.first, self.model],
            vector_store=self.store(),
            docstore=SimpleDocumentStore(),
            docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
            cache=IngestionCache(),
        )
        kept = str(self.folder / "pipeline")
        if (self.folder / "pipeline").exists():
            pipeline.load(kept)
        nodes = pipeline.run(documents=given, **options)
        pipeline.persist(kept)
        return len(nodes)

    def rows(self) -> dict:
        return {MAIN: rows(self.store().index)[MAIN]}

    def of(self, id_: str) -> dict:
        return {MAIN: {key: row for key, row in self.rows()[MAIN].items() if row[1]["eddy_document"] == id_}}


@pytest.mark.parametrize("kind", ["passages in their document", "LlamaIndex's splitter"])
def test_twice_changes_nothing_a_changed_document_replaces_its_rows_and_a_removed_one_goes(kind, tmp_path, model):
    splitter = None if kind.startswith("passages") else SentenceSplitter(chunk_size=24, chunk_overlap=0)
    setup = Setup(tmp_path / "one", model, splitter)
    assert setup.run(documents()) == len(setup.rows()[MAIN]) > 4
    before = setup.rows()
    embedded = model.embedder.counts.texts
    assert setup.run(documents()) == 0 and model.embedder.counts.texts == embedded
    assert_same(setup.rows(), before, atol=0)

    changed = [documents()[0], documents(version=2)[1], documents()[3]]  # one as it was, one changed, one gone
    assert setup.run(changed) > 0
    for id_ in ("papers/0", "papers/3"):
        kept = {key: row for key, row in before[MAIN].items() if row[1]["eddy_document"] == id_}
        assert_same(setup.of(id_), {MAIN: kept}, atol=0)
    assert not setup.of("papers/2")[MAIN]
    if splitter is None:  # LlamaIndex's splitter draws ids at random
        fresh = Setup(tmp_path / "fresh", model)
        fresh.run(changed)
        assert_same(setup.rows(), fresh.rows())
    else:
        assert " ".join(text for _, _, text in setup.of("papers/1")[MAIN].values()).count("version 2") == 1


def test_the_cache_brings_vectors_back_and_without_a_document_store_nothing_is_doubled(tmp_path, model):
    setup = Setup(tmp_path, model)
    setup.run(documents())
    before, embedded = setup.rows(), model.embedder.counts.texts
    (tmp_path / "pipeline" / "docstore.json").unlink()
    assert setup.run(documents()) == len(before[MAIN])  # all again, out of the cache
    assert model.embedder.counts.texts == embedded
    assert_same(setup.rows(), before, atol=1e-6)


def test_vectors_without_a_label_come_out_of_the_cache_too(tmp_path, model):
    """They have lost what said who made them; one is embedded again and compared."""
    setup = Setup(tmp_path, model, SentenceSplitter(chunk_size=24, chunk_overlap=0))
    count = setup.run(documents())
    (tmp_path / "pipeline" / "docstore.json").unlink()
    embedded = model.embedder.counts.texts
    assert setup.run(documents()) == count and model.embedder.counts.texts == embedded + 1
    assert len(setup.rows()[MAIN]) == count  # the cache keeps the splitter's ids as well


@pytest.mark.slow
def test_two_processes_write_the_same_rows(tmp_path, model):
    one, two = Setup(tmp_path / "one", model), Setup(tmp_path / "two", model)
    assert one.run(documents()) == two.run(documents(), num_workers=2)
    assert_same(one.rows(), two.rows())
    assert two.run(documents()) == 0
