"""What both frameworks' stores promise of an index, LangChain's and LlamaIndex's, against plain numpy."""

from __future__ import annotations

from typing import Any

import chromadb
import numpy as np
import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery
from tests.adapters.indexes import SENTENCES, documents, rows

from chroma_eddy import ForeignCollection, Index, collection
from chroma_eddy.rows import MAIN
from chroma_eddy.storage import Storage
from eddy_embed.errors import InvalidParameter
from langchain_eddy import EddyChroma, EddyEmbeddings
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.vector_stores.eddy import EddyChromaVectorStore

ASKED = "When do boats with a deep keel leave?"
SETTINGS = {"model_name": "eddy-tiny", "method": "plain:exit=2", "query_instruction": "Find the answer."}


class LangChain:
    """A store under the few names that both frameworks' stores have here."""

    def __init__(self, index: Index | None = None, folder: str | None = None) -> None:
        made = EddyChroma.from_index(index) if index else None
        self.store = made or EddyChroma("notes", EddyEmbeddings(**SETTINGS), folder)
        self.index = self.store.index

    def put(self, texts: dict[str, str], **metadata: Any) -> list[str]:
        return self.store.add_texts(list(texts.values()), [dict(metadata) for _ in texts], ids=list(texts))

    def ask(self, question: str = ASKED, k: int = 100) -> list[tuple[str, float]]:
        return [(str(found.id), score) for found, score in self.store.similarity_search_with_score(question, k)]

    def get(self, ids: list[str]) -> dict[str, tuple[str, dict[str, Any]]]:
        return {str(found.id): (found.page_content, found.metadata) for found in self.store.get_by_ids(ids)}

    def take(self, ids: list[str]) -> None:
        self.store.delete(ids)


class LlamaIndex:
    """The same of LlamaIndex."""

    def __init__(self, index: Index | None = None, folder: str | None = None) -> None:
        made = EddyChromaVectorStore.from_index(index) if index else None
        self.store = made or EddyChromaVectorStore("notes", EddyEmbedding(**SETTINGS), persist_dir=folder)
        self.index = self.store.index

    def put(self, texts: dict[str, str], **metadata: Any) -> list[str]:
        nodes = [TextNode(id_=id_, text=text, metadata=dict(metadata)) for id_, text in texts.items()]
        for node in nodes:
            node.excluded_embed_metadata_keys = list(metadata)
        return self.store.add(list(self.store.embed_model(nodes)))

    def ask(self, question: str = ASKED, k: int = 100) -> list[tuple[str, float]]:
        found = self.store.query(VectorStoreQuery(query_str=question, similarity_top_k=k))
        return list(zip(found.ids or [], found.similarities or [], strict=True))

    def get(self, ids: list[str]) -> dict[str, tuple[str, dict[str, Any]]]:
        nodes = self.store.get_nodes(ids)
        return {node.node_id: (node.get_content(), node.metadata) for node in nodes}

    def take(self, ids: list[str]) -> None:
        self.store.delete_nodes(ids)


@pytest.fixture(params=[LangChain, LlamaIndex])
def kind(request):
    return request.param


def texts() -> dict[str, str]:
    return {f"piece/{at}": text for at, text in enumerate(SENTENCES)}


def test_twice_changes_nothing_and_a_known_id_is_replaced_with_all_its_metadata(kind, tmp_path, monkeypatch):
    store = kind(folder=str(tmp_path / "db"))
    monkeypatch.setattr(Storage, "max_batch_size", property(lambda _: 4))
    monkeypatch.setattr(collection, "_GROUP_ROWS", 6)
    sizes, upsert = [], chromadb.Collection.upsert
    monkeypatch.setattr(
        chromadb.Collection, "upsert", lambda self, ids, *more: (sizes.append(len(ids)), upsert(self, ids, *more))
    )
    assert store.put({}) == [] and store.ask() == []
    assert store.put(texts(), number=1) == list(texts()) and sizes == [4, 2, 4, 1]
    before = rows(store.index)[MAIN]
    store.put(texts(), number=1)
    after = rows(store.index)[MAIN]
    assert after.keys() == before.keys() == texts().keys()
    assert all((after[id_][0] == before[id_][0]).all() and after[id_][1:] == before[id_][1:] for id_ in after)
    store.put({"piece/1": "Something else."}, shelf="c")
    assert store.get(["piece/1", "nowhere"]) == {"piece/1": ("Something else.", {"shelf": "c"})}
    vector, row, text = rows(store.index)[MAIN]["piece/1"]
    assert text == "Something else." and "number" not in row
    np.testing.assert_allclose(vector, store.index.embedder.encode_document(text), atol=1e-5)


def test_documents_that_the_index_has_cut_are_found_whole_and_go_as_a_whole(kind, index):
    store = kind(index)
    store.put(texts())
    passages = {id_ for id_, (_, row, _) in rows(index)[MAIN].items() if id_ not in texts()}
    assert {id_ for id_, _ in store.ask()} == passages | texts().keys()
    by_text = {document.id: document.text for document in documents()}
    for hit in index.query(ASKED, 100):
        text, metadata = store.get([hit.id])[hit.id]
        assert text == hit.text == by_text.get(hit.document, hit.text)[hit.start : hit.end] or hit.id in texts()
        assert hit.metadata.items() <= metadata.items() and ("page" in metadata) == (hit.page is not None)
    with pytest.raises(InvalidParameter, match="whole"):
        store.take([min(passages)])
    with pytest.raises(ForeignCollection, match="passage of a document"):
        store.put({min(passages): "Mine."})
    with index.writing(), index.transaction({}):  # as one that is damaged
        index.storage.update_documents({"papers/1": {"eddy_digest": ""}})
        index.delete_rows("document", ["papers/1"])
    hidden = {hit.id for hit in index.query(ASKED, 100)} ^ passages ^ texts().keys()
    assert hidden and not hidden & {id_ for id_, _ in store.ask()} and not store.get(sorted(hidden))
    store.take(["piece/0", "nowhere"])
    assert not store.get(["piece/0"]) and store.get(["piece/1"])
