"""EddyChromaVectorStore under LlamaIndex's own index, retrievers and filters, against plain numpy."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from llama_index.core import Document, QueryBundle, StorageContext, VectorStoreIndex
from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.ingestion import DocstoreStrategy, IngestionCache, IngestionPipeline
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter, get_leaf_nodes
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.retrievers import AutoMergingRetriever, QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery
from llama_index.core.vector_stores.utils import build_metadata_filter_fn
from llama_index.vector_stores.chroma import ChromaVectorStore
from tests.adapters.indexes import MAIN, SENTENCES, assert_same, documents, rows

from chroma_eddy import ALPHA, IndexInUse, WriterLock, keywords, memory_client, open_index
from eddy_embed import Embedder
from eddy_embed.errors import EddyError, FingerprintMismatch, InvalidParameter, InvalidText
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser
from llama_index.vector_stores.eddy import EddyChromaVectorStore

ASKED = "When do boats with a deep keel leave?"


@pytest.fixture(scope="module")
def model() -> EddyEmbedding:
    return EddyEmbedding("eddy-tiny", method="plain:exit=1", query_instruction="Find the answer.")


def nodes() -> list[TextNode]:
    found = []
    for at, text in enumerate(SENTENCES):
        metadata = {"number": at, "shelf": "ab"[at % 2], "tags": ["x", "yz"[at % 2]], "weight": at / 2, "none": None}
        source = RelatedNodeInfo(node_id=f"book/{at // 4}", metadata={"author": "A. Clerk"})
        place = {"start_char_idx": at * 100, "end_char_idx": at * 100 + len(text)}
        about = {"metadata": metadata if at else {}, "excluded_embed_metadata_keys": [*metadata], **place}
        found.append(TextNode(id_=f"node/{at}", text=text, relationships={NodeRelationship.SOURCE: source}, **about))
    return found


@pytest.fixture
def store(tmp_path, model) -> EddyChromaVectorStore:
    return EddyChromaVectorStore("notes", model, persist_dir=str(tmp_path / "db"))


@pytest.fixture(scope="module")
def full(tmp_path_factory, model) -> EddyChromaVectorStore:
    """Read by many tests, written by none."""
    store = EddyChromaVectorStore("notes", model, persist_dir=str(tmp_path_factory.mktemp("full")))
    store.add(embedded(model, nodes()))
    return store


def embedded(model: EddyEmbedding, given: list) -> list:
    return list(model(given))


def index_of(store: EddyChromaVectorStore) -> VectorStoreIndex:
    return VectorStoreIndex.from_vector_store(store, embed_model=store.embed_model)


def ids_of(found: list) -> list[str]:
    return [hit.node.node_id for hit in found]


def pairs(hits: list) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in hits]


# --- Nodes in, nodes out


def test_nodes_come_back_as_they_were(full, model):
    given = embedded(model, nodes())
    for node in given:
        node.embedding = None
    assert sorted(full.get_nodes(), key=lambda node: node.metadata.get("number", 0)) == given
    assert [node.node_id for node in full.get_nodes(["node/3", "nowhere"])] == ["node/3"] and full.get_nodes([]) == []
    stock = ChromaVectorStore(chroma_collection=full.client)  # reads what this one writes
    assert stock.get_nodes(["node/3"])[0] == full.get_nodes(["node/3"])[0]
    assert full.index.settings.fingerprint == model.fingerprint


async def test_what_is_taken_out_is_exactly_what_was_named(store, model):
    def numbers() -> set[int]:
        return {node.metadata["number"] for node in store.get_nodes() if node.node_id.startswith("node/")}

    store.add(embedded(model, [*nodes(), TextNode(id_="alone", text="A node without a document.")]))
    two = [*documents(1), replace(documents(2)[1], text=" ".join(8 * SENTENCES), page_starts=())]
    store.index.upsert(two)
    store.delete("book/0")
    assert numbers() == {*range(4, 11)}
    store.delete("papers/0")
    assert store.index.status().documents == 1
    store.delete("None")
    assert await store.aget_nodes(["alone"])
    store.delete("alone")
    assert not store.get_nodes(["alone"])
    await store.adelete_nodes(["node/4", "nowhere"])
    store.delete_nodes(
        ["node/5", "node/9"], MetadataFilters(filters=[MetadataFilter(key="number", operator=">", value=8)])
    )
    store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="number", value=6)]))
    assert numbers() == {5, 7, 8, 10}
    passage = next(node for node in store.get_nodes() if not node.node_id.startswith("node/"))
    nothing = MetadataFilters(filters=[])
    calls = (store.delete_nodes, [passage.node_id]), (store.delete_nodes, None, nothing), (store.delete, None)
    for call, *given in calls:
        with pytest.raises(InvalidParameter):
            call(*given)
    await store.aclear()
    assert store.get_nodes() == [] and store.index.status().documents == 0


# --- Questions


async def test_the_default_retriever_is_hybrid_and_answers_drafts_too(full, model):
    retriever, expected = index_of(full).as_retriever(similarity_top_k=5), pairs(full.index.query(ASKED, 5))
    for found in (retriever.retrieve(ASKED), await retriever.aretrieve(ASKED)):
        assert [(hit.node.node_id, hit.score) for hit in found] == expected
    vector = model.embedder.encode_query(ASKED)
    by_vectors = VectorStoreQuery(query_embedding=vector.tolist(), similarity_top_k=5)  # without the question's text
    found = await full.aquery(by_vectors, fingerprint=model.fingerprint)
    got = full.client.get(include=["embeddings"])
    cosines = dict(zip(got["ids"], got["embeddings"] @ vector, strict=True))
    assert found.ids == sorted(cosines, key=lambda id_: -cosines[id_])[:5]
    assert found.similarities == [hit.score for hit in full.index.query(ASKED, 5, alpha=1)]
    drafts = ["Bread rises.", "Bakers wait."]
    hyde = HyDEQueryTransform(llm=MockLLM())  # MockLLM repeats the prompt
    drafted = hyde.run(ASKED)
    assert len(drafted.embedding_strs) == 2
    for bundle in (QueryBundle(ASKED, custom_embedding_strs=drafts), drafted):
        mean = np.mean([model.embedder.encode_query(text) for text in bundle.embedding_strs], axis=0)
        expected = [hit.id for hit in full.index.search(mean, 5, questions=[ASKED])[0]]
        assert ids_of(retriever.retrieve(bundle)) == ids_of(await retriever.aretrieve(bundle)) == expected
    cut = SimilarityPostprocessor(similarity_cutoff=retriever.retrieve(ASKED)[1].score)
    assert ids_of(cut.postprocess_nodes(retriever.retrieve(ASKED))) == ids_of(retriever.retrieve(ASKED))[:2]


def test_modes_and_alpha_are_those_of_the_index(full):
    own = EddyChromaVectorStore.from_index(full.index, alpha=0.3)
    assert own.searches_by == "hybrid"
    for store, mode, given, alpha in (
        *((full, "hybrid", None, ALPHA), (full, "hybrid", 0.9, 0.9), (full, "default", 1, 1)),
        *((own, mode, None, 0.3) for mode in ("default", "hybrid")),
        *((own, mode, None, 0) for mode in ("text_search", "sparse")),
    ):
        options = {"vector_store_query_mode": mode, "similarity_top_k": 3, "alpha": given}
        found = index_of(store).as_retriever(**options).retrieve("Granite keel")
        expected = pairs(full.index.query("Granite keel", 3, alpha=alpha))
        assert expected and [(hit.node.node_id, hit.score) for hit in found] == expected
    for threshold, balance in ((None, 0.5), (0.2, 0.2), (1.0, 1.0)):
        more = {"mmr_threshold": threshold, "mmr_prefetch_k": 8}
        options = {"vector_store_query_mode": "mmr", "vector_store_kwargs": more, "similarity_top_k": 4}
        found = index_of(full).as_retriever(**options).retrieve(ASKED)
        chosen = full.index.query(ASKED, 4, mmr=True, fetch_k=8, lambda_mult=balance)
        assert [(hit.node.node_id, hit.score) for hit in found] == pairs(chosen)
    with pytest.raises(ValueError, match="alpha"):
        EddyChromaVectorStore.from_index(full.index, alpha=2)


async def test_in_memory_it_is_hybrid_and_above_the_limit_by_vectors_with_one_warning(model, monkeypatch):
    store = EddyChromaVectorStore.from_index(open_index(memory_client(), "in-memory", model.embedder))
    store.add(embedded(model, nodes()))
    retriever = index_of(store).as_retriever(similarity_top_k=4)
    assert ids_of(await retriever.aretrieve("Granite keel")) == [h.id for h in store.index.query("Granite keel", 4)]
    assert store.searches_by == "hybrid"
    monkeypatch.setattr(keywords, "IN_MEMORY", 3)
    assert store.searches_by == "vectors"
    with pytest.warns(UserWarning, match="searched by vectors alone") as caught:
        found = [ids_of(retriever.retrieve("Granite keel")) for _ in range(2)]
    assert len(caught) == 1 and found == 2 * [[hit.id for hit in store.index.query("Granite keel", 4, alpha=1)]]
    for asked in ({"alpha": 0.5}, {"mode": "hybrid"}, {"mode": "sparse"}):
        with pytest.raises(InvalidParameter, match="too many rows"):
            store.query(VectorStoreQuery(query_str=ASKED, **asked))


FILTERS = [
    *(("number", "==", 3), ("number", "==", 3.0), ("shelf", "!=", "a"), ("number", ">", 3.5), ("number", "<=", 3)),
    *(("weight", ">=", 2), ("weight", "<", 2.5), ("shelf", "in", ["b", "c"]), ("shelf", "nin", ["b", "c"])),
    *(("number", "in", []), ("number", "nin", []), ("tags", "contains", "y"), ("tags", "any", ["y", "q"])),
    ("tags", "all", ["x", "y"]),
]
CAN_BE_TURNED = ("==", "!=", "in", "nin")


@pytest.mark.parametrize("condition", ["and", "or", "not"])
def test_filters_are_those_of_llama_index(full, condition):
    """Each alone and with its neighbour, as LlamaIndex's own evaluation of them has it."""
    metadata = {node.node_id: node.metadata for node in nodes()}
    for at, one in enumerate(FILTERS):
        for chosen in ([one], [one, FILTERS[(at + 5) % len(FILTERS)]]):
            if condition == "not" and any(operator not in CAN_BE_TURNED for _, operator, _ in chosen):
                continue
            made = [MetadataFilter(key=key, operator=operator, value=value) for key, operator, value in chosen]
            filters = MetadataFilters(filters=made, condition=condition)
            meets = build_metadata_filter_fn(metadata.__getitem__, filters)
            expected = {id_ for id_ in metadata if meets(id_)}
            assert {node.node_id for node in full.get_nodes(filters=filters)} == expected, chosen
    asked = VectorStoreQuery(query_str=ASKED, similarity_top_k=20, filters=filters)
    assert set(full.query(asked).ids) == expected


def test_filters_inside_each_other_and_documents_by_name(full):
    def one(key, operator, value):
        return MetadataFilter(key=key, operator=operator, value=value)

    inner = MetadataFilters(filters=[one("number", "==", 2), one("shelf", "==", "b")], condition="or")
    outer = MetadataFilters(filters=[inner, one("number", "<", 6)], condition="and")
    assert {n.metadata["number"] for n in full.get_nodes(filters=outer)} == {1, 2, 3, 5}
    neither = MetadataFilters(filters=[inner], condition="not")
    assert {n.metadata.get("number", 0) for n in full.get_nodes(filters=neither)} == {0, 4, 6, 8, 10}
    for key in ("ref_doc_id", "doc_id", "document_id"):
        book = full.get_nodes(filters=MetadataFilters(filters=[one(key, "==", "book/2")]))
        assert {node.ref_doc_id for node in book} == {"book/2"} and len(book) == 3
    for asked, expected in (
        ({"doc_ids": ["book/2"], "node_ids": ["node/8", "node/1"]}, ["node/8"]),
        ({"node_ids": ["nowhere", "node/3"]}, ["node/3"]),
        *((allows_none, []) for allows_none in ({"node_ids": []}, {"doc_ids": []}, {"node_ids": ["nowhere"]})),
        ({"node_ids": [], "mode": "sparse"}, []),
    ):
        assert full.query(VectorStoreQuery(query_str=ASKED, similarity_top_k=20, **asked)).ids == expected
    kwargs = {"where": {"number": {"$gt": 3}}, "where_document": {"$contains": "Monday"}}
    found = index_of(full).as_retriever(similarity_top_k=20, vector_store_kwargs=kwargs).retrieve(ASKED)
    assert {hit.node.metadata["number"] for hit in found} == {5, 8}


def test_what_cannot_be_asked_is_refused_by_name(full):
    for operator, value, said in (
        *((operator, "a", "where_document") for operator in ("text_match", "text_match_insensitive", "any")),
        *(("is_empty", None, "that a row has"), (">", 3, "3 under not"), (">", "a", "int or a float")),
        *(("==", None, "got None"), ("==", ["a"], "Invalid where clause"), ("in", "a", "cannot be asked")),
    ):
        condition = "not" if "not" in said else "and"
        one = MetadataFilter(key="shelf", operator=operator, value=value)
        with pytest.raises(InvalidParameter, match=said):
            full.get_nodes(filters=MetadataFilters(filters=[one], condition=condition))
    for query, kwargs, said in (
        ({"mode": "semantic_hybrid"}, {}, "it has default, mmr"),
        ({}, {"mmr_threshold": 0.5}, "in mode 'default' has no parameter 'mmr_threshold'"),
        ({"query_str": None}, {}, "neither query_str"),
        ({"query_embedding": [0.0] * 320}, {}, "does not say what made it"),
        ({"query_embedding": [0.0] * 320}, {"fingerprint": full.embed_model.fingerprint}, "only zeros"),
    ):
        with pytest.raises(InvalidParameter, match=said):
            full.query(VectorStoreQuery(**{"query_str": ASKED, **query}), **kwargs)


# --- Vectors of others


def test_another_embedder_is_refused_wherever_it_comes_from(full, store, model):
    other = EddyEmbedding("eddy-tiny", method="plain")
    with pytest.raises(FingerprintMismatch, match=f"(?s){model.fingerprint}.*{other.fingerprint}.*method"):
        EddyChromaVectorStore.from_params("notes", other, persist_dir=full.persist_dir)
    with pytest.raises(FingerprintMismatch, match=other.fingerprint):
        VectorStoreIndex.from_vector_store(full, embed_model=other).as_retriever().retrieve(ASKED)
    with pytest.raises(FingerprintMismatch, match="'node/0' is not the one"):
        VectorStoreIndex(nodes(), storage_context=StorageContext.from_defaults(vector_store=store), embed_model=other)
    marked = embedded(other, nodes()[:1])
    marked[0].metadata["eddy_fingerprint"] = other.fingerprint
    with pytest.raises(FingerprintMismatch, match=r"^node 'node/0' was embedded by another"):
        store.add(marked)
    assert not store.index.exists
    noted = TextNode(text="Some text.", metadata={"author": "A. Clerk"})  # which is not in the vector
    noted.embedding = model.embedder.encode_document(noted.text).tolist()
    assert store.add([noted]) == [noted.node_id]
    travelled = pickle.loads(pickle.dumps(model.get_query_embedding(ASKED)))
    assert travelled.fingerprint == model.fingerprint and json.loads(json.dumps(travelled)) == travelled


def test_nodes_that_cannot_be_stored_are_named(store, model):
    good = embedded(model, [TextNode(id_="x", text="Some text.")])[0]
    own = {"eddy_fingerprint": model.fingerprint}
    for change, kind, said in (
        ({"embedding": None}, InvalidParameter, "no embedding"),
        ({"metadata": {**own, "a": {"b": 1}}}, InvalidParameter, "'a' is"),
        ({"embedding": [float("nan")] * 3, "metadata": own}, InvalidParameter, r"\[3, 320\] wide"),
        ({"id_": "x"}, InvalidParameter, "two rows have the id 'x'"),
        ({"id_": "a\ud800"}, InvalidText, "surrogate"),
    ):
        with pytest.raises(kind, match=said):
            store.add([good, good.model_copy(update={"id_": "y", **change})])
    assert not store.index.exists


# --- Beside documents that the index has cut itself


def test_an_index_with_nodes_says_what_it_cannot_do_with_them(store, model):
    store.index.upsert(documents(2))
    store.add(embedded(model, nodes()))
    hits = store.index.query(ASKED, 30, sentences=True)
    for hit in (hit for hit in hits if hit.id.startswith("node/")):
        number = int(hit.id.partition("/")[2])
        assert hit.best.text == hit.text == SENTENCES[number] and hit.start == hit.sentences[0].start == number * 100
        assert hit.document == f"book/{number // 4}"
    assert len(hits) == 11 + store.index.status().passages - 11 and all(hit.sentences for hit in hits)
    assert store.index.query("Boats with a deep keel", 1)[0].text == SENTENCES[6]
    assert store.index.check() == {} and store.index.sync(documents(2)).unchanged == 2
    best = store.index.query(SENTENCES[6], 1, unit="sentence")[0]
    assert (best.text, best.start, best.document) == (SENTENCES[6], 600, "book/1")
    with pytest.raises(InvalidParameter, match="no whole documents"):
        store.index.query(ASKED, unit="document")
    with pytest.raises(InvalidParameter, match="cannot be embedded again"):
        store.index.reindex(Embedder("eddy-tiny", method="plain"))
    assert len(store.get_nodes()) == len(hits)


def test_index_nodes_do_not_hide_the_others(store, model):
    """LlamaIndex hands its list of them to every query."""
    mixed = [*nodes()[:3], IndexNode(id_="table", text="A table of tides.", index_id="tables")]
    index = VectorStoreIndex(mixed, storage_context=StorageContext.from_defaults(vector_store=store), embed_model=model)
    found = {hit.node.node_id for hit in index.as_retriever(similarity_top_k=10).retrieve("ferry")}
    assert found == {"node/0", "node/1", "node/2", "table"}


# --- Where it is, and how it travels


def test_it_is_made_again_from_what_it_says_of_itself(full, model):
    for again in (EddyChromaVectorStore.from_dict(full.to_dict()), pickle.loads(pickle.dumps(full))):
        assert isinstance(again, EddyChromaVectorStore) and len(again.get_nodes()) == 11
        assert again.query(VectorStoreQuery(query_str=ASKED)).ids == full.query(VectorStoreQuery(query_str=ASKED)).ids
    assert EddyChromaVectorStore.class_name() == full.to_dict()["class_name"] == "EddyChromaVectorStore"
    with open_index(full.persist_dir, "notes") as index:  # of nodes alone
        for status in (index.status(), full.index.status()):
            assert (status.dimension, status.documents) == (model.embedder.dimension, 0)
    secret = full.model_copy(update={"headers": {"x": "secret"}})
    assert secret.headers and "secret" not in json.dumps(secret.to_dict())
    bound = EddyChromaVectorStore.from_index(open_index(memory_client(), "bound-to-a-client", model.embedder))
    with pytest.raises(EddyError, match="cannot be copied"):
        pickle.dumps(bound)


def test_a_place_is_asked_for_and_a_writer_waited_for(tmp_path, model):
    busy = EddyChromaVectorStore("notes", model, persist_dir=str(tmp_path / "busy"), timeout=0.0)
    with WriterLock(tmp_path / "busy"), pytest.raises(IndexInUse):
        busy.add(embedded(model, nodes()))
    with pytest.raises(InvalidParameter, match="persist_dir="):
        EddyChromaVectorStore("notes", model, persist_dir=str(tmp_path), host="x")
    with pytest.raises(InvalidParameter, match="did you mean persist_dir"):
        EddyChromaVectorStore("notes", model, presist_dir=str(tmp_path))


async def test_fusion_and_merging_of_retrievers(full, store, model):
    index, few = index_of(full), MetadataFilters(filters=[MetadataFilter(key="number", operator=">", value=3)])
    retrievers = [index.as_retriever(similarity_top_k=4, **kind) for kind in ({"filters": few}, {"alpha": 1.0})]
    of_each = {id_ for retriever in retrievers for id_ in ids_of(retriever.retrieve(ASKED))}
    for mode in (FUSION_MODES.RECIPROCAL_RANK, FUSION_MODES.RELATIVE_SCORE, FUSION_MODES.DIST_BASED_SCORE):
        options = {"llm": MockLLM(), "num_queries": 1, "mode": mode, "similarity_top_k": 6}
        found = ids_of(QueryFusionRetriever(retrievers, **options, use_async=False).retrieve(ASKED))
        assert len(found) == len(set(found)) == min(6, len(of_each)) and set(found) <= of_each
        assert ids_of(await QueryFusionRetriever(retrievers, **options).aretrieve(ASKED)) == found
    parser = LongDocumentNodeParser(embed_model=model, passage_size=24, parts=("passages", "sentences"))
    levels = parser.get_nodes_from_documents(whole(3))
    storage = StorageContext.from_defaults(docstore=SimpleDocumentStore(), vector_store=store)
    storage.docstore.add_documents(levels)
    leaves = VectorStoreIndex(get_leaf_nodes(levels), storage_context=storage, embed_model=model)
    merging = AutoMergingRetriever(leaves.as_retriever(similarity_top_k=30), storage)
    passages = {node.node_id for node in levels if node.metadata["eddy_part"] == "passages"}
    assert set(ids_of(merging.retrieve(ASKED))) & passages


# --- In LlamaIndex's IngestionPipeline: document store, cache, two processes


def whole(count: int = 4, version: int = 1) -> list[Document]:
    return [Document(text=d.text, id_=d.id, metadata=dict(d.metadata)) for d in documents(count, version)]


class Setup:
    """A pipeline that is made anew for each run, as in programs that run every day; what lasts is on disk."""

    def __init__(self, folder: Path, model: EddyEmbedding, splitter: object = None) -> None:
        self.model, self.kept = model, folder / "pipeline"
        self.first = splitter or LongDocumentNodeParser(embed_model=model, passage_size=24)
        self.store = EddyChromaVectorStore("notes", model, persist_dir=folder / "db")

    def run(self, given: list[Document], **options: object) -> int:
        pipeline = IngestionPipeline(
            transformations=[self.first, self.model],
            vector_store=pickle.loads(pickle.dumps(self.store)),
            docstore=SimpleDocumentStore(),
            docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
            cache=IngestionCache(),
        )
        if self.kept.exists():
            pipeline.load(str(self.kept))
        nodes = pipeline.run(documents=given, **options)
        pipeline.persist(str(self.kept))
        return len(nodes)

    def rows(self, *owners: str) -> dict:
        """The rows of some documents; none: of all."""
        held = rows(self.store.index)[MAIN].items()
        return {MAIN: {id_: row for id_, row in held if not owners or row[1]["eddy_document"] in owners}}


def test_twice_changes_nothing_a_changed_document_replaces_its_rows_and_a_removed_one_goes(tmp_path, model):
    setup, fresh = Setup(tmp_path / "one", model), Setup(tmp_path / "fresh", model)
    assert setup.run(whole()) == len(setup.rows()[MAIN]) > 4
    before, stay, texts = setup.rows(), setup.rows("papers/0", "papers/3"), model.embedder.counts.texts
    assert setup.run(whole()) == 0 and model.embedder.counts.texts == texts
    assert_same(setup.rows(), before, atol=0)
    changed = [whole()[0], whole(version=2)[1], whole()[3]]  # one as it was, one changed, one gone
    assert setup.run(changed) > 0
    assert_same(setup.rows("papers/0", "papers/3"), stay, atol=0)
    fresh.run(changed)
    assert_same(setup.rows(), fresh.rows())


@pytest.mark.parametrize("labelled", [True, False])
def test_the_cache_brings_vectors_back_and_without_a_document_store_nothing_is_doubled(labelled, tmp_path, model):
    """Vectors without a label have lost what said who made them; one is embedded again and compared."""
    setup = Setup(tmp_path, model, None if labelled else SentenceSplitter(chunk_size=24, chunk_overlap=0))
    count = setup.run(whole())
    before, texts = setup.rows(), model.embedder.counts.texts
    (setup.kept / "docstore.json").unlink()
    assert setup.run(whole()) == count == len(before[MAIN])  # all again, out of the cache, which keeps ids as well
    assert model.embedder.counts.texts == texts + (not labelled)
    assert_same(setup.rows(), before, atol=1e-6)


@pytest.mark.slow
def test_two_processes_write_the_same_rows(tmp_path, model):
    one, two = Setup(tmp_path / "one", model), Setup(tmp_path / "two", model)
    assert one.run(whole()) == two.run(whole(), num_workers=2)
    assert_same(one.rows(), two.rows())
    assert two.run(whole()) == 0
