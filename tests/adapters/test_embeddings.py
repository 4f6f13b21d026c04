"""What the embeddings of LlamaIndex, LangChain and Chroma have in common: vectors, names, refusals, copies."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.schema import Document, TextNode
from tests.adapters.samples import TEXTS

from chroma_eddy import EddyEmbeddingFunction
from eddy_embed import Embedder
from eddy_embed.errors import EddyError, InvalidParameter, InvalidText
from langchain_eddy import EddyEmbeddings
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser

METHOD = "htp:exit=2"
USUAL = {"model_name": "eddy-tiny", "method": METHOD}
KINDS: list[Any] = [EddyEmbedding, EddyEmbeddings, EddyEmbeddingFunction]
OWNERS: list[Any] = [EddyEmbedding, EddyEmbeddings]
DOCUMENTS: dict[Any, Callable[..., Any]] = {
    EddyEmbedding: EddyEmbedding.get_text_embedding_batch,
    EddyEmbeddings: EddyEmbeddings.embed_documents,
    EddyEmbeddingFunction: EddyEmbeddingFunction.__call__,
}
QUERY: dict[Any, Callable[..., Any]] = {
    EddyEmbedding: EddyEmbedding.get_query_embedding,
    EddyEmbeddings: EddyEmbeddings.embed_query,
    EddyEmbeddingFunction: lambda made, text: made.embed_query([text])[0],
}


def documents(made: Any) -> Any:
    return DOCUMENTS[type(made)](made, TEXTS)


def query(made: Any, text: str = TEXTS[1]) -> Any:
    return QUERY[type(made)](made, text)


def asynchronous(made: Any) -> list[Any]:
    """Calls for documents and for a query."""
    if isinstance(made, EddyEmbedding):
        return [made.aget_text_embedding_batch(TEXTS), made.aget_query_embedding(TEXTS[1])]
    return [made.aembed_documents(TEXTS), made.aembed_query(TEXTS[1])]


def close(a: Any, b: Any) -> bool:
    return bool(np.abs(np.asarray(a) - np.asarray(b)).max() <= 1e-5)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_vectors_are_the_engine_s(kind: Any) -> None:
    made = kind(**USUAL, query_instruction="Find the answer.")
    vectors = documents(made)
    assert type(vectors) is list and close(vectors, made.embedder.encode_document(TEXTS))
    assert close(query(made), made.embedder.encode_query(TEXTS[1]))
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-5)
    if kind is EddyEmbeddingFunction:
        assert vectors[0].dtype == np.float32
    else:
        assert type(vectors[0]) is list and type(vectors[0][0]) is float and type(query(made)[0]) is float
        assert DOCUMENTS[kind](made, []) == []


def test_lists_of_texts_are_lists_of_texts(kind: Any) -> None:
    """One string would be taken for a list of its characters; a blank text has a vector, as the contracts say."""
    made, embed = kind(**USUAL), DOCUMENTS[kind]
    for value in ("one string", ["a", None], ["a"] * 70 + ["a\ud800"]):
        with pytest.raises(InvalidText):
            embed(made, value)
    first, *blank = np.asarray(embed(made, ["a", "", " \n"])).tolist()
    assert blank[0] == blank[1] != first and close(blank[0], embed(made, ["."])[0])


def test_instructions_reach_their_role_only(kind: Any) -> None:
    plain, asked, told = (
        kind(**USUAL, **more)
        for more in ({}, {"query_instruction": "Find the answer."}, {"text_instruction": "A passage."})
    )
    assert close(documents(asked), documents(plain)) and not close(query(asked), query(plain))
    assert close(query(told), query(plain)) and not close(documents(told), documents(plain))


def test_what_is_wrong_is_refused_at_construction() -> None:
    for kind, arguments, says in (
        *((kind, {"querry_instruction": "x"}, "did you mean query_instruction") for kind in KINDS),
        *((kind, {"model": "other"}, "differ; give one of them") for kind in KINDS),
        (EddyEmbedding, {"embed_batch_size": 4096}, "2048"),
        (EddyEmbeddings, {"encode_kwargs": {"prompt": "query: "}}, "query_instruction"),
        (EddyEmbeddings, {"model_kwargs": {"backend": "onnx"}}, "onnx"),
        (EddyEmbeddings, {"device": "cpu", "model_kwargs": {"device": "cuda"}}, "differ"),
        (EddyEmbeddingFunction, {"model_kwargs": {"a": object()}}, "plain values"),
        (EddyEmbeddingFunction, {"normalize": True, "normalize_embeddings": False}, "differ; give one of them"),
    ):
        with pytest.raises(ValueError, match=says):
            kind(**{**USUAL, **arguments})


@pytest.mark.parametrize("kind", OWNERS)
def test_pickles_and_copies_carry_the_configuration_only(kind: Any) -> None:
    made = kind(**USUAL)
    before, data = query(made), pickle.dumps(made)
    assert len(data) < 2_000
    assert made._engine is not None, "pickling must not change the object"
    loaded = pickle.loads(data)
    assert loaded._engine is None and loaded.model_dump() == made.model_dump()
    assert close(query(loaded), before)
    for other in (loaded, copy.copy(made), copy.deepcopy(made)):
        assert other.embedder is made.embedder


def test_a_live_model_is_shared_and_does_not_travel(kind: Any, live: tuple[Any, Any]) -> None:
    made = kind.from_model(*live, method=METHOD, query_instruction="Find it.")
    named = kind(**USUAL, query_instruction="Find it.")
    assert close(documents(made), documents(named)) and close(query(made), query(named))
    with pytest.raises(InvalidParameter, match="did you mean"):
        kind.from_model(*live, method=METHOD, normalise=True)
    if kind is not EddyEmbeddingFunction:
        assert copy.deepcopy(made).embedder is made.embedder
        with pytest.raises(EddyError, match=r"live model.*from_model"):
            pickle.dumps(made)
    if kind is EddyEmbedding:
        # The ingestion cache hashes this, so it is there; what cannot be done is to build the object from it.
        assert made.to_dict()["fingerprint"] == made.fingerprint
        with pytest.raises(InvalidParameter, match="from_model"):
            EddyEmbedding.from_dict(made.to_dict())


def test_a_file_that_was_fitted_again_under_its_name_is_read_again(tmp_path: Path) -> None:
    method, path = "plain:exit=0+whiten:dims=8", tmp_path / "whiten.npz"
    found, engine = [], Embedder("eddy-tiny", method=method)
    for texts in (TEXTS * 3, [text.upper() for text in TEXTS]):
        engine.fit(texts).save(path)
        made = EddyEmbedding(model_name="eddy-tiny", method=method, fitted=path)
        assert made.fingerprint == engine.fingerprint and len(query(made)) == 8
        assert close(documents(made), engine.encode_document(TEXTS))
        found.append(made.fingerprint)
    assert found[0] != found[1]


@pytest.mark.parametrize("kind", OWNERS)
async def test_async_calls_give_the_same_and_the_event_loop_goes_on(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model stands still until the loop lets it go on, which the loop could not do if the model ran in it."""
    made, entered, go = kind(**USUAL, query_instruction="Find the answer."), threading.Event(), threading.Event()

    def held(call: Callable[..., Any]) -> Callable[..., Any]:
        def waits(*arguments: Any, **options: Any) -> Any:
            entered.set()
            assert go.wait(10), "the loop stands still"
            return call(*arguments, **options)

        return waits

    direct = [documents(made), query(made)]
    for name in ("encode_document", "encode_query", "encode_long"):
        monkeypatch.setattr(made.embedder, name, held(getattr(made.embedder, name)))
    calls = asynchronous(made)
    if kind is EddyEmbedding:
        parser = LongDocumentNodeParser(embed_model=made)
        calls.append(made.acall([TextNode(text=text) for text in TEXTS]))
        calls.append(parser.aget_nodes_from_documents([Document(text=" ".join(TEXTS))]))
    for at, call in enumerate(calls):
        entered.clear()
        go.clear()
        running = asyncio.create_task(call)
        while not entered.is_set():
            await asyncio.sleep(0.001)
        go.set()
        answer = await running
        assert close(answer, direct[at]) if at < 2 else answer
