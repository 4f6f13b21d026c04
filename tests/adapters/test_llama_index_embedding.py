"""EddyEmbedding as LlamaIndex uses it: an embedding model, a pipeline step, a thing that is copied and pickled."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import pickle
import shutil
import threading
import weakref
from pathlib import Path

import chromadb
import numpy as np
import pytest
from llama_index.core import Document, Settings, StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload, LlamaDebugHandler
from llama_index.core.ingestion import IngestionCache, IngestionPipeline
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.schema import TextNode
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.vector_stores.chroma import ChromaVectorStore
from tests.selection import mostly_slow

import eddy_embed
from eddy_embed.errors import (
    EddyError,
    FingerprintMismatch,
    InvalidParameter,
    InvalidText,
    ModelNotFound,
    NotFitted,
    UnknownMethod,
)
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser

TINY = Path(eddy_embed.__path__[0]) / "model" / "tiny"
TEXTS = [
    "The ferry to the island leaves at nine in the morning.",
    "Bread rises because yeast turns sugar into gas. Bakers wait for it.",
    "Granite cools slowly, deep under the ground.",
]


@pytest.fixture(scope="module")
def embedding() -> EddyEmbedding:
    return EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2")


def close(a, b) -> bool:
    return bool(np.abs(np.asarray(a) - np.asarray(b)).max() <= 1e-5)


def test_is_what_llama_index_asks_for(embedding):
    assert isinstance(embedding, BaseEmbedding)
    assert EddyEmbedding.class_name() == "EddyEmbedding"
    vector = embedding.get_text_embedding(TEXTS[0])
    assert type(vector) is list and type(vector[0]) is float
    assert len(vector) == embedding.embedder.dimension
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_one_by_one_batched_and_async_give_the_same(embedding):
    batch = embedding.get_text_embedding_batch(TEXTS)
    assert close(batch, [embedding.get_text_embedding(text) for text in TEXTS])
    assert close(batch, asyncio.run(embedding.aget_text_embedding_batch(TEXTS)))
    assert close(batch, embedding.embedder.encode_document(TEXTS))
    assert embedding.get_text_embedding_batch([]) == []


def test_instructions_reach_their_role_only():
    plain = EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2")
    told = EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2", query_instruction="Find the answer.")
    assert close(told.get_query_embedding(TEXTS[0]), told.embedder.encode_query(TEXTS[0]))
    assert not close(told.get_query_embedding(TEXTS[0]), plain.get_query_embedding(TEXTS[0]))
    assert close(told.get_text_embedding(TEXTS[0]), plain.get_text_embedding(TEXTS[0]))
    text_told = EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2", text_instruction="A passage.")
    assert not close(text_told.get_text_embedding(TEXTS[0]), plain.get_text_embedding(TEXTS[0]))
    assert close(text_told.get_query_embedding(TEXTS[0]), plain.get_query_embedding(TEXTS[0]))


def test_normalize_off():
    raw = EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2", normalize=False).get_text_embedding(TEXTS[0])
    assert np.linalg.norm(raw) != pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"method": "htp:exit=2", "querry_instruction": "x"}, InvalidParameter, "query_instruction"),
        ({"method": "htp:exit=2", "pooling": "mean"}, InvalidParameter, "plain:pool="),
        ({"method": "htp:exit=2", "parallel_process": True}, InvalidParameter, "num_workers"),
        ({"method": "htp:exit=2", "model": "other"}, InvalidParameter, "differ"),
        ({"method": "htp:exit=2", "embed_batch_size": 4096}, ValueError, "2048"),
        ({"method": "htp:exit=2", "overflow": "cut"}, ValueError, "overflow"),
        ({"method": "htpp"}, UnknownMethod, "htp"),
    ],
)
def test_what_is_wrong_is_refused_at_construction(arguments, error, says):
    with pytest.raises(error, match=says):
        EddyEmbedding(model_name="eddy-tiny", **arguments)


def test_models_that_are_not_there_are_refused_at_construction(tmp_path):
    with pytest.raises(ModelNotFound):
        EddyEmbedding(model_name=str(tmp_path), method="htp:exit=2")
    with pytest.raises(InvalidParameter, match="model_name is missing"):
        EddyEmbedding(method="htp:exit=2")
    with pytest.raises(InvalidParameter, match="from_model"):
        EddyEmbedding(model_name=object(), method="htp:exit=2")


def test_other_names_of_parameters(embedding):
    assert EddyEmbedding("eddy-tiny", method="htp:exit=2").model_name == "eddy-tiny"
    other = EddyEmbedding(model="eddy-tiny", method="htp:exit=2", show_progress_bar=True)
    assert (other.model_name, other.show_progress) == ("eddy-tiny", True)
    assert other.embedder is embedding.embedder


def test_bad_texts_are_named(embedding):
    with pytest.raises(InvalidText, match="1"):
        embedding.get_text_embedding_batch(["fine", " \n"])
    with pytest.raises(InvalidText):
        embedding.get_query_embedding("\ud800")
    with pytest.raises(InvalidText, match="node-7"):
        embedding([TextNode(id_="node-7", text="  ")])
    assert len(embedding.get_text_embedding("a\x00b")) == embedding.embedder.dimension


def test_equal_configurations_share_one_engine_and_it_goes_with_the_last():
    settings = {"model_name": "eddy-tiny", "method": "plain:exit=2", "max_length": 64}
    first, second = EddyEmbedding(**settings), EddyEmbedding(**settings)
    assert first.embedder is second.embedder
    assert first.embedder is not EddyEmbedding(**{**settings, "max_length": 65}).embedder
    engine = weakref.ref(first.embedder)
    del first
    gc.collect()
    assert engine() is not None
    del second
    gc.collect()
    assert engine() is None


def test_a_changed_field_changes_the_engine(embedding):
    changed = copy.copy(embedding)
    changed.method = "plain:exit=2"
    assert changed.fingerprint == EddyEmbedding(model_name="eddy-tiny", method="plain:exit=2").fingerprint
    updated = embedding.model_copy(update={"method": "plain:exit=2"})
    assert updated.fingerprint == changed.fingerprint != embedding.fingerprint


def test_copies_share_the_weights(embedding):
    assert copy.deepcopy(embedding).embedder is embedding.embedder
    assert copy.copy(embedding).embedder is embedding.embedder


def test_dictionary_round_trip(embedding):
    data = embedding.to_dict()
    assert data["class_name"] == "EddyEmbedding" and data["fingerprint"] == embedding.fingerprint
    assert EddyEmbedding.from_dict(data).to_dict() == data
    assert EddyEmbedding.from_json(embedding.to_json()).to_dict() == data
    assert EddyEmbedding.from_dict(data, method="plain:exit=2").method == "plain:exit=2"
    with pytest.raises(FingerprintMismatch, match="drop 'fingerprint'"):
        EddyEmbedding.from_dict({**data, "fingerprint": "0" * 8})


USUAL = {"model_name": "eddy-tiny", "method": "htp:exit=2", "max_length": 24}
DECIDE = {
    "model_name": "another",
    "method": "plain:exit=2",
    "max_length": 64,
    "overflow": "truncate",
    "text_instruction": "A text.",
    "normalize": False,
    "fitted": "another",
    "dtype": "bfloat16",
}
"""Settings that give these texts other vectors."""
MAY_DECIDE = {
    "query_instruction": "A question.",
    "language": "de",
    "revision": "main",
    "model_kwargs": {"attn_implementation": "eager"},
    "device": "cpu",
}
"""Settings that give others other vectors, or may."""
NEVER = {"callback_manager", "embeddings_cache", "rate_limiter", "num_workers", "embed_batch_size", "batch_tokens"} | {
    *("cache_folder", "trust_remote_code", "local_files_only", "show_progress", "check"),
}


def test_every_parameter_is_known_to_the_tests_of_the_ingestion_cache():
    assert {*DECIDE, *MAY_DECIDE} | NEVER == set(EddyEmbedding.model_fields)


@pytest.fixture(scope="module")
def others(tmp_path_factory) -> dict[str, dict[str, str]]:
    """Another model, and two files of post-processing; what is usual where one of them is exchanged."""
    from eddy_embed import Embedder

    folder = tmp_path_factory.mktemp("others")
    shutil.copytree(TINY, folder / "model")
    config = json.loads((folder / "model" / "config.json").read_text())
    (folder / "model" / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.1}))
    whitened = {**USUAL, "method": "htp+whiten:dims=8"}
    for name, texts in (("one.npz", TEXTS * 3), ("two.npz", [text.upper() for text in TEXTS * 3])):
        Embedder("eddy-tiny", method=whitened["method"], max_length=24).fit(texts).save(folder / name)
    return {
        "model_name": {"model_name": str(folder / "model")},
        "fitted": {"fitted": str(folder / "two.npz")},
        "usual with fitted": {**whitened, "fitted": str(folder / "one.npz")},
    }


@pytest.mark.parametrize("name", mostly_slow([*DECIDE, *MAY_DECIDE], ["model_name", "method", "fitted", "language"]))
def test_ingestion_cache_serves_no_vector_of_another_setting(name, others):
    usual = others["usual with fitted"] if name == "fitted" else USUAL
    change = others.get(name) or {name: (DECIDE | MAY_DECIDE)[name]}
    cache = IngestionCache()

    def ingested(embedding: EddyEmbedding) -> list[list[float]]:
        pipeline = IngestionPipeline(transformations=[embedding], cache=cache)
        return [node.embedding for node in pipeline.run(nodes=[TextNode(text=" ".join(TEXTS), id_="all")])]

    before = ingested(EddyEmbedding(**usual))
    other = EddyEmbedding(**{**usual, **change})
    after = ingested(other)
    assert len(cache.cache.get_all(cache.collection)) == 2, "stored apart"
    assert close(after, [other.get_text_embedding(" ".join(TEXTS))])
    assert (np.shape(after) == np.shape(before) and close(after, before)) is (name in MAY_DECIDE)
    assert ingested(EddyEmbedding(**usual, embeddings_cache=SimpleKVStore())) == before
    assert len(cache.cache.get_all(cache.collection)) == 2, "served"


def test_pickle_carries_the_configuration_only(embedding):
    before = embedding.get_text_embedding(TEXTS[0])
    data = pickle.dumps(embedding)
    assert len(data) < 2_000
    assert embedding._engine is not None, "pickling must not change the object"
    loaded = pickle.loads(data)
    assert loaded._engine is None
    assert close(loaded.get_text_embedding(TEXTS[0]), before)
    assert loaded.embedder is embedding.embedder


def test_post_processing_comes_from_a_file(tmp_path):
    from eddy_embed import Embedder

    method, path = "htp+whiten:dims=8", tmp_path / "whiten.npz"
    with pytest.raises(NotFitted, match=r"fit\(texts\).*fitted="):
        EddyEmbedding(model_name="eddy-tiny", method=method).get_text_embedding(TEXTS[0])
    engine = Embedder("eddy-tiny", method=method)
    engine.fit(TEXTS * 3).save(path)
    first = EddyEmbedding(model_name="eddy-tiny", method=method, fitted=path)
    assert first.fingerprint == engine.fingerprint
    assert close(first.get_text_embedding(TEXTS[0]), engine.encode_document(TEXTS[0]))
    assert len(first.get_query_embedding("Bread?")) == 8
    assert pickle.loads(pickle.dumps(first)).fingerprint == first.fingerprint
    engine.fit([text.upper() for text in TEXTS]).save(path)
    again = EddyEmbedding(model_name="eddy-tiny", method=method, fitted=path)
    assert again.fingerprint == engine.fingerprint != first.fingerprint, "fitted again under the same name"


@pytest.fixture(scope="module")
def live():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import eddy_embed

    folder = f"{eddy_embed.__path__[0]}/model/tiny"
    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32"), AutoTokenizer.from_pretrained(folder)


def test_a_live_model_is_shared_and_does_not_travel(live, embedding):
    mine = EddyEmbedding.from_model(*live, method="htp:exit=2", query_instruction="Find it.")
    named = EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2")
    assert close(mine.get_text_embedding(TEXTS[0]), named.get_text_embedding(TEXTS[0]))
    assert copy.deepcopy(mine).embedder is mine.embedder
    with pytest.raises(EddyError, match="from_model"):
        pickle.dumps(mine)
    # The ingestion cache hashes this, so it is there; what cannot be done is to build the object from it.
    assert mine.to_dict()["fingerprint"] == mine.fingerprint
    with pytest.raises(InvalidParameter, match="from_model"):
        EddyEmbedding.from_dict(mine.to_dict())
    with pytest.raises(InvalidParameter, match="did you mean"):
        EddyEmbedding.from_model(*live, method="htp:exit=2", normalise=True)


async def test_the_event_loop_goes_on(embedding, monkeypatch):
    """The model stands still until the loop lets it go on, which the loop could not do if the model ran in it."""
    entered, go = threading.Event(), threading.Event()

    def held(call):
        def waits(*arguments, **options):
            entered.set()
            assert go.wait(10), "the loop stands still"
            return call(*arguments, **options)

        return waits

    for name in ("encode_document", "encode_query", "encode_long"):
        monkeypatch.setattr(embedding.embedder, name, held(getattr(embedding.embedder, name)))
    parser = LongDocumentNodeParser(embed_model=embedding)
    for call in (
        embedding.aget_text_embedding_batch(TEXTS),
        embedding.aget_query_embedding(TEXTS[0]),
        embedding.acall([TextNode(text=text) for text in TEXTS]),
        parser.aget_nodes_from_documents([Document(text=" ".join(TEXTS))]),
    ):
        entered.clear()
        go.clear()
        running = asyncio.create_task(call)
        while not entered.is_set():
            await asyncio.sleep(0.001)
        go.set()
        assert await running


async def test_batches_run_one_at_a_time_and_queries_beside_them(monkeypatch):
    small = EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2", embed_batch_size=1)
    engine, running, most, answered, begun = small.embedder, 0, 0, threading.Event(), threading.Event()
    encode = engine.encode_document

    def counted(texts, **kwargs):
        nonlocal running, most
        running += 1
        most = max(most, running)
        begun.set()
        assert answered.wait(30), "a question waits for a whole library"
        vectors = encode(texts, **kwargs)
        running -= 1
        return vectors

    monkeypatch.setattr(engine, "encode_document", counted)
    batch = asyncio.create_task(small.aget_text_embedding_batch([f"Text {i}." for i in range(12)]))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    await small.aget_query_embedding("A question.")
    answered.set()
    await batch
    assert most == 1


def test_cache_keeps_queries_and_texts_apart():
    store = SimpleKVStore()
    settings = {"model_name": "eddy-tiny", "method": "htp:exit=2", "query_instruction": "Find the answer."}
    bare = EddyEmbedding(**settings)
    cached = EddyEmbedding(**settings, embeddings_cache=store)
    text = TEXTS[0]
    for _ in range(2):  # the second time out of the cache
        assert close(cached.get_text_embedding(text), bare.get_text_embedding(text))
        assert close(cached.get_query_embedding(text), bare.get_query_embedding(text))
        assert close(cached.get_text_embedding_batch([text]), bare.get_text_embedding_batch([text]))
        assert close(asyncio.run(cached.aget_query_embedding(text)), bare.get_query_embedding(text))
        assert close(asyncio.run(cached.aget_text_embedding_batch([text]))[0], bare.get_text_embedding(text))
    assert not close(cached.get_text_embedding(text), cached.get_query_embedding(text))
    kept = [store.get_all(name) for name in store._collections_mappings]
    assert sorted(len(entries) for entries in kept) == [1, 1], "one vector for each role, in the user's own store"


def test_cache_serves_no_other_embedder_and_survives_copies():
    store = SimpleKVStore()
    first = EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2", embeddings_cache=store)
    first.get_text_embedding(TEXTS[0])
    other = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=2")
    other.embeddings_cache = store  # also when it is set later
    assert close(other.get_text_embedding(TEXTS[0]), other.embedder.encode_document(TEXTS[0]))
    twin = copy.deepcopy(first)
    del first
    gc.collect()
    assert close(twin.get_text_embedding(TEXTS[0]), twin.embedder.encode_document(TEXTS[0]))
    assert pickle.loads(pickle.dumps(twin)).embeddings_cache.store.get_all


def test_callbacks_and_events_are_those_of_any_embedding(embedding):
    debug = LlamaDebugHandler(print_trace_on_end=False)
    told = EddyEmbedding(
        model_name="eddy-tiny", method="htp:exit=2", embed_batch_size=2, callback_manager=CallbackManager([debug])
    )
    seen: list[str] = []

    class Handler(BaseEventHandler):
        def handle(self, event, **kwargs):
            seen.append(type(event).__name__)

    dispatcher, spans, handler = get_dispatcher(), SimpleSpanHandler(), Handler()
    old = list(dispatcher.event_handlers), list(dispatcher.span_handlers)
    dispatcher.add_event_handler(handler)
    dispatcher.add_span_handler(spans)
    try:
        told.get_text_embedding_batch(TEXTS)
        told.get_query_embedding(TEXTS[0])
    finally:
        dispatcher.event_handlers, dispatcher.span_handlers = old
    ended = [pair[1] for pair in debug.get_event_pairs(CBEventType.EMBEDDING)]
    assert [len(event.payload[EventPayload.CHUNKS]) for event in ended] == [2, 1, 1]
    assert [name for name in seen if "Embedding" in name] == ["EmbeddingStartEvent", "EmbeddingEndEvent"] * 3
    names = [span.id_.split("-")[0] for span in spans.completed_spans]
    assert names.count("EddyEmbedding.get_query_embedding") <= 1
    assert sum("get_query_embedding" in name and "._get" not in name for name in names) == 1


def test_index_and_retrieval_through_settings(embedding, tmp_path):
    client = chromadb.PersistentClient(path=str(tmp_path))
    collection = client.create_collection("facts", embedding_function=None, configuration={"hnsw": {"space": "cosine"}})
    storage = StorageContext.from_defaults(vector_store=ChromaVectorStore(chroma_collection=collection))
    old = Settings._embed_model
    Settings.embed_model = embedding
    try:
        VectorStoreIndex.from_documents(
            [Document(text=text, id_=f"fact-{i}") for i, text in enumerate(TEXTS)], storage_context=storage
        )
        index = VectorStoreIndex.from_vector_store(ChromaVectorStore(chroma_collection=collection))
        found = index.as_retriever(similarity_top_k=3).retrieve(TEXTS[1])
    finally:
        Settings._embed_model = old
    query = embedding.embedder.encode_query(TEXTS[1])
    cosines = embedding.embedder.encode_document(TEXTS) @ query
    assert [hit.node.ref_doc_id for hit in found] == [f"fact-{i}" for i in np.argsort(-cosines)]
    assert found[0].node.text == TEXTS[1]
    # LlamaIndex's Chroma store scores exp(-distance); the distance itself is 1 - cosine.
    assert 1 + np.log(found[0].score) == pytest.approx(cosines.max(), abs=1e-4)


def test_nothing_of_another_embedder_is_kept(embedding):
    node = TextNode(text=TEXTS[0], embedding=[1.0, 0.0])
    embedding([node])
    assert close(node.embedding, embedding.get_text_embedding(TEXTS[0]))
