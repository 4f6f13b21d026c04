"""EddyEmbeddingFunction in real Chroma collections: stored, rebuilt, reopened elsewhere, and kept from others."""

from __future__ import annotations

import gc
import json
import shutil

import chromadb
import numpy as np
import pytest
from chromadb.api.types import EmbeddingFunction
from chromadb.utils.embedding_functions import DefaultEmbeddingFunction, known_embedding_functions
from tests.adapters.samples import TEXTS, TINY

from chroma_eddy import EddyEmbeddingFunction, embedding_function, open_collection
from eddy_embed import Embedder
from eddy_embed.errors import EddyError, FingerprintMismatch, InvalidParameter

SETTINGS = {"model_name": "eddy-tiny", "method": "plain:exit=1", "query_instruction": "Find the answer."}


@pytest.fixture(scope="module")
def eddy() -> EddyEmbeddingFunction:
    return EddyEmbeddingFunction(**SETTINGS)


@pytest.fixture
def client(tmp_path):
    return chromadb.PersistentClient(str(tmp_path))


def close(a, b) -> bool:
    return bool(np.abs(np.asarray(a) - np.asarray(b)).max() <= 1e-5)


def test_configuration_is_plain_and_gives_the_same_function(eddy):
    assert isinstance(eddy, EmbeddingFunction) and eddy.name() == "eddy" and not eddy.is_legacy()
    assert known_embedding_functions["eddy"] is EddyEmbeddingFunction
    config = json.loads(json.dumps(eddy.get_config()))
    rebuilt = EddyEmbeddingFunction.build_from_config(config)
    assert rebuilt._embedder is None, "reading a configuration loads no model"
    assert rebuilt.get_config() == config and rebuilt._embedder is None
    assert rebuilt.embedder is eddy.embedder
    assert config["fingerprint"] == eddy.fingerprint
    here = EddyEmbeddingFunction(**SETTINGS, device="cpu", trust_remote_code=True)
    assert not {"device", "trust_remote_code"} & set(here.get_config()), "of the process, not of the collection"


def test_configurations_that_were_tampered_with_are_refused():
    for config in (
        {},
        {"model_name": "eddy-tiny", "method": "htp:exit=2"},
        {**SETTINGS, "fingerprint": "f", "colour": 1},
        {**SETTINGS, "fingerprint": "f", "trust_remote_code": True},
        {**SETTINGS, "fingerprint": "f", "model_kwargs": {"trust_remote_code": True}},
    ):
        with pytest.raises(InvalidParameter, match="stored configuration"):
            EddyEmbeddingFunction.build_from_config(config)


def test_documents_and_questions_of_a_collection(client, eddy):
    collection = open_collection(client, "facts", eddy, metadata={"of": "facts"})
    collection.upsert(ids=["0", "1", "2"], documents=TEXTS)
    assert collection.configuration_json["hnsw"]["space"] == "cosine" and collection.metadata == {
        "of": "facts",
        "eddy_fingerprint": eddy.fingerprint,
    }
    assert close(collection.get(include=["embeddings"])["embeddings"], eddy.embedder.encode_document(TEXTS))
    found = collection.query(query_texts=["Why does bread rise?"], n_results=3)
    cosines = eddy.embedder.encode_document(TEXTS) @ eddy.embedder.encode_query("Why does bread rise?")
    assert found["ids"][0] == [str(i) for i in np.argsort(-cosines)]
    assert np.abs(1 - np.array(found["distances"][0]) - np.sort(cosines)[::-1]).max() <= 1e-4
    collection.add(ids=["3", "4"], documents=["fine", " "])
    assert collection.count() == 5


def test_the_model_is_loaded_once_for_all_rebuilds(client, monkeypatch):
    made = EddyEmbeddingFunction(model_name="eddy-tiny", method="plain:exit=2", max_length=59)
    open_collection(client, "facts", made).add(ids=["0"], documents=TEXTS[:1])
    del made
    gc.collect()
    loads, load = [], Embedder.__init__

    def counted(self, *args, **kwargs):
        loads.append(args)
        load(self, *args, **kwargs)

    monkeypatch.setattr(Embedder, "__init__", counted)
    EddyEmbeddingFunction.release()
    collection = client.get_collection("facts")
    _ = collection.configuration
    for _ in range(3):
        collection.query(query_texts=["ferry"], n_results=1)
        gc.collect()
    assert len(loads) == 1
    EddyEmbeddingFunction.release()
    gc.collect()
    assert not embedding_function._loaded_embedders


def test_a_configuration_exchanged_under_the_vectors_is_noticed(client, eddy):
    collection = open_collection(client, "facts", eddy)
    plain = EddyEmbeddingFunction(model_name="eddy-tiny", method="plain:exit=2")
    with pytest.raises(FingerprintMismatch, match="cannot be compared"):
        collection.modify(configuration={"embedding_function": plain})
    # Chroma stores it first and asks afterwards.
    for function_ in (plain, eddy):
        with pytest.raises(FingerprintMismatch, match="in place of"):
            open_collection(client, "facts", function_)
    collection.modify(configuration={"embedding_function": eddy})
    assert open_collection(client, "facts", eddy).count() == 0


def test_collections_of_others_are_refused(client, eddy):
    open_collection(client, "facts", eddy).add(ids=["0"], documents=TEXTS[:1])
    other = EddyEmbeddingFunction(**{**SETTINGS, "query_instruction": None})
    client.get_collection("facts", embedding_function=other)  # which Chroma takes without a word
    with pytest.raises(FingerprintMismatch, match=r"(?s)'facts'.*cannot be compared"):
        open_collection(client, "facts", other)
    same = open_collection(client, "facts", EddyEmbeddingFunction(**SETTINGS, dtype="float32", device="cpu"))
    assert same.count() == 1
    assert client.create_collection("plain", embedding_function=eddy).configuration_json["hnsw"]["space"] == "cosine"
    client.create_collection("theirs", embedding_function=DefaultEmbeddingFunction())
    with pytest.raises(FingerprintMismatch, match="'default'"):
        open_collection(client, "theirs", eddy)
    bare = client.create_collection("bare", embedding_function=None, configuration={"hnsw": {"space": "cosine"}})
    assert open_collection(client, "bare", eddy).count() == 0, "nothing in it that could be compared"
    bare.add(ids=["0"], embeddings=eddy(TEXTS[:1]), metadatas=[{"eddy_fingerprint": eddy.fingerprint}])
    assert open_collection(client, "bare", eddy).query(query_texts=["ferry"], n_results=1)["ids"] == [["0"]]
    with pytest.raises(FingerprintMismatch, match="fingerprint"):
        open_collection(client, "bare", EddyEmbeddingFunction(model_name="eddy-tiny", method="plain:exit=2"))
    unknown = client.create_collection("unknown", embedding_function=None)
    unknown.add(ids=["0"], embeddings=[[1.0, 0.0]])
    with pytest.raises(FingerprintMismatch, match="unknown embedder"):
        open_collection(client, "unknown", eddy)
    with pytest.warns(UserWarning, match="'l2' space"):
        open_collection(client, "far", eddy, configuration={"hnsw": {"space": "l2"}})


def test_a_live_model_must_be_given_again(client, live):
    made = EddyEmbeddingFunction.from_model(*live, method="plain:exit=1")
    open_collection(client, "facts", made).add(ids=["0"], documents=TEXTS[:1])
    with pytest.raises(EddyError, match="from_model"):
        client.get_collection("facts").query(query_texts=["ferry"], n_results=1)


def test_a_model_that_changed_in_its_place_is_noticed(client, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    made = EddyEmbeddingFunction(model_name=folder, method="plain:exit=2")
    open_collection(client, "facts", made).add(ids=["0"], documents=TEXTS[:1])
    del made
    gc.collect()
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "max_position_embeddings": 128}))
    with pytest.raises(FingerprintMismatch, match="has changed since"):
        client.get_collection("facts").query(query_texts=["ferry"], n_results=1)
    EddyEmbeddingFunction.release()
