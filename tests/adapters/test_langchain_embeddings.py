"""EddyEmbeddings as LangChain uses it, and under LangChain's own suites."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from eddy_embed.errors import InvalidParameter, UnknownMethod
from langchain_eddy import EddyEmbeddings

TEXTS = [
    "The ferry to the island leaves at nine in the morning.",
    "Bread rises because yeast turns sugar into gas.\nBakers wait for it.",
    "Granite cools slowly, deep under the ground.",
]


class TestUnit(EmbeddingsUnitTests):
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return EddyEmbeddings

    @property
    def embedding_model_params(self) -> dict:
        return {"model": "eddy-tiny", "method": "htp:exit=2"}


class TestIntegration(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return EddyEmbeddings

    @property
    def embedding_model_params(self) -> dict:
        return {"model_name": "eddy-tiny", "method": "plain:exit=2", "query_instruction": "Find the answer."}


@pytest.fixture(scope="module")
def embeddings() -> EddyEmbeddings:
    return EddyEmbeddings(model_name="eddy-tiny", method="htp:exit=2")


def close(a, b) -> bool:
    return bool(np.abs(np.asarray(a) - np.asarray(b)).max() <= 1e-5)


def test_vectors_are_the_engine_s(embeddings):
    vectors = embeddings.embed_documents(TEXTS)
    assert type(vectors) is list and type(vectors[0]) is list and type(vectors[0][0]) is float
    assert close(vectors, embeddings.embedder.encode_document(TEXTS))
    assert close(asyncio.run(embeddings.aembed_documents(TEXTS)), vectors)
    assert embeddings.embed_documents([]) == []
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-5)


def test_line_breaks_are_text(embeddings):
    assert not close(embeddings.embed_query("One.\n\nTwo."), embeddings.embed_query("One.  Two."))


def test_instructions_reach_their_role_only(embeddings):
    told = EddyEmbeddings(model_name="eddy-tiny", method="htp:exit=2", query_instruction="Find the answer.")
    assert close(told.embed_query(TEXTS[0]), told.embedder.encode_query(TEXTS[0]))
    assert not close(told.embed_query(TEXTS[0]), embeddings.embed_query(TEXTS[0]))
    assert close(told.embed_documents(TEXTS), embeddings.embed_documents(TEXTS))
    text_told = EddyEmbeddings(model_name="eddy-tiny", method="htp:exit=2", text_instruction="A passage.")
    assert not close(text_told.embed_documents(TEXTS), embeddings.embed_documents(TEXTS))


def test_names_that_users_of_other_embeddings_have():
    import torch

    same = EddyEmbeddings(
        model="eddy-tiny",
        method="htp:exit=2",
        model_kwargs={"device": "cpu", "trust_remote_code": False, "model_kwargs": {"torch_dtype": torch.float32}},
        encode_kwargs={"batch_size": 2, "normalize_embeddings": False},
        multi_process=False,
    )
    assert (same.device, same.dtype, same.batch_size, same.normalize) == ("cpu", "float32", 2, False)
    assert same.model_kwargs == {}
    direct = EddyEmbeddings(
        model_name="eddy-tiny", method="htp:exit=2", device="cpu", dtype="float32", batch_size=2, normalize=False
    )
    assert same.embedder is direct.embedder
    assert np.linalg.norm(same.embed_query(TEXTS[0])) != pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"method": "htp:exit=2", "encode_kwargs": {"prompt": "query: "}}, InvalidParameter, "query_instruction"),
        ({"method": "htp:exit=2", "encode_kwargs": {"batchsize": 3}}, InvalidParameter, "batch_size"),
        ({"method": "htp:exit=2", "query_encode_kwargs": {"prompt": "q"}}, InvalidParameter, "query_instruction"),
        ({"method": "htp:exit=2", "multi_process": True}, InvalidParameter, "processes"),
        ({"method": "htp:exit=2", "model_kwargs": {"backend": "onnx"}}, InvalidParameter, "onnx"),
        ({"method": "htp:exit=2", "device": "cpu", "model_kwargs": {"device": "cuda"}}, InvalidParameter, "differ"),
        ({"method": "htp:exit=2", "model": "other"}, InvalidParameter, "differ"),
        ({"method": "htp:exit=2", "text_instructions": "x"}, InvalidParameter, "did you mean text_instruction"),
        ({"method": "htp:exit=2", "batch_size": 0}, ValueError, "batch_size"),
        ({"method": "htpp"}, UnknownMethod, "htp"),
    ],
)
def test_what_is_wrong_is_refused_at_construction(arguments, error, says):
    with pytest.raises(error, match=says):
        EddyEmbeddings(model_name="eddy-tiny", **arguments)


def test_pickle_carries_the_configuration_only(embeddings):
    before = embeddings.embed_query(TEXTS[0])
    data = pickle.dumps(embeddings)
    assert len(data) < 2_000 and embeddings._engine is not None
    loaded = pickle.loads(data)
    assert loaded._engine is None and loaded.model_dump() == embeddings.model_dump()
    assert close(loaded.embed_query(TEXTS[0]), before)
    assert copy.deepcopy(embeddings).embedder is embeddings.embedder
    assert EddyEmbeddings(**embeddings.model_dump()).embedder is embeddings.embedder


async def test_the_event_loop_goes_on(embeddings, monkeypatch):
    """The model stands still until the loop lets it go on, which the loop could not do if the model ran in it."""
    entered, go = threading.Event(), threading.Event()

    def held(call):
        def waits(*arguments, **options):
            entered.set()
            assert go.wait(10), "the loop stands still"
            return call(*arguments, **options)

        return waits

    for name in ("encode_document", "encode_query", "encode_long"):
        monkeypatch.setattr(embeddings.embedder, name, held(getattr(embeddings.embedder, name)))
    for call in (embeddings.aembed_documents(TEXTS), embeddings.aembed_query(TEXTS[0])):
        entered.clear()
        go.clear()
        running = asyncio.create_task(call)
        while not entered.is_set():
            await asyncio.sleep(0.001)
        go.set()
        assert await running


def test_progress_over_documents_only(capfd):
    quiet = EddyEmbeddings(model_name="eddy-tiny", method="htp:exit=2")
    quiet.embed_documents(TEXTS)
    told = EddyEmbeddings(model_name="eddy-tiny", method="htp:exit=2", show_progress=True)
    told.embed_query(TEXTS[0])
    output = capfd.readouterr()
    assert output.out == output.err == ""
    told.embed_documents(TEXTS)
    output = capfd.readouterr()
    assert output.out + output.err != ""
