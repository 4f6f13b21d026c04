"""EddyEmbedding as LlamaIndex uses it: an embedding model, a pipeline step, a thing that is copied and pickled."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import shutil
import weakref

import numpy as np
import pytest
from llama_index.core import Document
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload, LlamaDebugHandler
from llama_index.core.ingestion.pipeline import get_transformation_hash
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.schema import TextNode
from llama_index.core.storage.kvstore import SimpleKVStore
from tests.adapters.samples import TEXTS, TINY

from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser


@pytest.fixture(scope="module")
def embedding() -> EddyEmbedding:
    return EddyEmbedding(model_name="eddy-tiny", method="plain:exit=1")


def close(a, b) -> bool:
    return bool(np.abs(np.asarray(a) - np.asarray(b)).max() <= 1e-5)


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


def test_dictionary_round_trip(embedding):
    data = embedding.to_dict()
    assert data["class_name"] == "EddyEmbedding" and data["fingerprint"] == embedding.fingerprint
    assert EddyEmbedding.from_dict(data).to_dict() == data
    assert EddyEmbedding.from_json(embedding.to_json()).to_dict() == data
    assert EddyEmbedding.from_dict(data, method="plain:exit=2").method == "plain:exit=2"
    with pytest.raises(FingerprintMismatch, match="drop 'fingerprint'"):
        EddyEmbedding.from_dict({**data, "fingerprint": "0" * 8})


USUAL = {"model_name": "eddy-tiny", "method": "plain:exit=1", "max_length": 24}
DECIDE = {
    "method": "plain:exit=2",
    "max_length": 64,
    "overflow": "truncate",
    "query_instruction": "A question.",
    "text_instruction": "A text.",
    "normalize": False,
    "dtype": "bfloat16",
    "language": "de",
    "revision": "main",
    "model_kwargs": {"attn_implementation": "eager"},
    "device": "cpu",
}
"""Settings that give other vectors, or may; beside the model, and a file of post-processing."""
NEVER = {"callback_manager", "embeddings_cache", "rate_limiter", "num_workers", "embed_batch_size", "batch_tokens"} | {
    *("cache_folder", "trust_remote_code", "local_files_only", "show_progress", "check"),
}


def test_the_ingestion_cache_keeps_vectors_of_every_setting_apart(tmp_path):
    assert {*DECIDE, "model_name", "fitted"} | NEVER == set(EddyEmbedding.model_fields)
    shutil.copytree(TINY, tmp_path / "model")
    cases = [{**USUAL, name: value} for name, value in DECIDE.items()]
    cases += [USUAL, {**USUAL, "model_name": str(tmp_path / "model")}]
    whiten, fitted = "plain:exit=0+whiten:dims=8", [str(tmp_path / "one.npz"), str(tmp_path / "two.npz")]
    for path, texts in zip(fitted, (TEXTS, TEXTS[:2]), strict=True):
        Embedder("eddy-tiny", method=whiten, max_length=24).fit(texts).save(path)
        cases.append({**USUAL, "method": whiten, "fitted": path})
    keys = [cache_key(EddyEmbedding(**settings)) for settings in cases]
    assert len(set(keys)) == len(cases)
    assert keys[0] == cache_key(EddyEmbedding(**cases[0], embeddings_cache=SimpleKVStore()))


def cache_key(step: EddyEmbedding) -> str:
    return get_transformation_hash([TextNode(text=TEXTS[0], id_="a")], step)


def test_cache_keeps_queries_and_texts_apart():
    store = SimpleKVStore()
    settings = {"model_name": "eddy-tiny", "method": "plain:exit=1", "query_instruction": "Find the answer."}
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
    first = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=1", embeddings_cache=store)
    first.get_text_embedding(TEXTS[0])
    other = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=2")
    other.embeddings_cache = store  # also when it is set later
    assert close(other.get_text_embedding(TEXTS[0]), other.embedder.encode_document(TEXTS[0]))
    twin = copy.deepcopy(first)
    del first
    gc.collect()
    assert close(twin.get_text_embedding(TEXTS[0]), twin.embedder.encode_document(TEXTS[0]))
    assert pickle.loads(pickle.dumps(twin)).embeddings_cache.store.get_all


async def test_callbacks_and_events_are_those_of_any_embedding_also_of_async_calls_and_the_parser():
    debug, seen = LlamaDebugHandler(print_trace_on_end=False), []

    class Handler(BaseEventHandler):
        def handle(self, event, **kwargs):
            seen.append(type(event).__name__)

    dispatcher, manager = get_dispatcher(), CallbackManager([debug])
    told = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=1", embed_batch_size=2, callback_manager=manager)
    parser = LongDocumentNodeParser(embed_model=told, callback_manager=manager)
    old = list(dispatcher.event_handlers)
    dispatcher.add_event_handler(Handler())
    try:
        told.get_text_embedding_batch(TEXTS)
        told.get_query_embedding(TEXTS[0])
        await told.aget_text_embedding_batch(TEXTS)
        await told.aget_query_embedding(TEXTS[0])
        await told.acall(parser.get_nodes_from_documents([Document(text=TEXTS[1])]))  # whose vectors are there
    finally:
        dispatcher.event_handlers = old
    ended = [pair[1] for pair in debug.get_event_pairs(CBEventType.EMBEDDING)]
    assert [len(event.payload[EventPayload.CHUNKS]) for event in ended[:3]] == [2, 1, 1] and len(ended) == 6
    assert len(debug.get_event_pairs(CBEventType.NODE_PARSING)) == 1
    assert [name for name in seen if "Embedding" in name][:6] == ["EmbeddingStartEvent", "EmbeddingEndEvent"] * 3
    assert [seen.count(f"Embedding{kind}Event") for kind in ("Start", "End")] == [6, 6]
