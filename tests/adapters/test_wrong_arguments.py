"""Arguments of the wrong kind, to everything public in the adapters: an error of ours with the name and the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chromadb
import numpy as np
import pytest
from langchain_core.documents import Document
from llama_index.core.schema import Document as LlamaDocument

from chroma_eddy import EddyEmbeddingFunction, open_collection
from eddy_embed import methods
from eddy_embed.errors import EddyError, InvalidParameter, InvalidText
from langchain_eddy import EddyEmbeddings, SentenceTextSplitter, embed_passages
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser

MODEL = {"model_name": "eddy-tiny", "method": "plain"}
LLAMA = EddyEmbedding(**MODEL)
CHAIN = EddyEmbeddings(**MODEL)
CHROMA = EddyEmbeddingFunction(**MODEL)
DOCUMENTS = [Document("The ferry leaves at noon.", id="ferry")]

# Values that no parameter takes, beside those that only some take.
NEVER: list[Any] = [b"x", 2.5, ["a"], object(), np.array(["a", "b"])]
NO_COUNT = [*NEVER, "3", True, 0, -1, {"a": 1}]
NO_TEXT = [*NEVER, 3, True, {"a": 1}]
NO_FLAG = [*NEVER, None, "false", 0, {"a": 1}]
SETTINGS: dict[str, list[Any]] = {
    "model_name": [*NO_TEXT, None],
    "method": NO_TEXT,
    "max_length": NO_COUNT,
    "batch_tokens": NO_COUNT,
    "overflow": [*NO_TEXT, "cut"],
    "query_instruction": [*NO_TEXT, "\ud800"],
    "text_instruction": [*NO_TEXT, "\ud800"],
    "normalize": NO_FLAG,
    "trust_remote_code": NO_FLAG,
    "local_files_only": NO_FLAG,
    "check": NO_FLAG,
    "fitted": [*NO_TEXT, "absent.npz"],
    "device": [*NO_TEXT, "nowhere"],
    "dtype": [*NO_TEXT, "int3"],
    "language": [*NO_TEXT, "klingon"],
    "revision": NO_TEXT,
    "cache_folder": NO_TEXT,
    "model_kwargs": [b"x", 2.5, ["a"], object(), 3, True, "a"],
}
OWN: dict[Any, dict[str, list[Any]]] = {
    EddyEmbedding: {
        "embed_batch_size": [*NO_COUNT, None],
        "num_workers": NO_COUNT,
        "show_progress": NO_FLAG,
        "embeddings_cache": [*NEVER, 3, {}],
        "callback_manager": [*NEVER, 3, {"a": 1}],
    },
    EddyEmbeddings: {"batch_size": NO_COUNT, "show_progress": NO_FLAG, "encode_kwargs": [b"x", 3, ["a"], "a"]},
    EddyEmbeddingFunction: {"batch_size": NO_COUNT},
}


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_settings_of_the_wrong_kind_are_named(kind: Any) -> None:
    for name, values in (SETTINGS | OWN[kind]).items():
        for value in values:
            if value is None and kind is EddyEmbeddingFunction and name not in MODEL:
                continue  # Chroma's stored configurations: None stands for the default
            with pytest.raises(EddyError, match=name.removesuffix("_name")) as error:
                kind(**{**MODEL, name: value})
            assert len(str(error.value)) < 900


TEXTS: dict[str, Callable[[Any], Any]] = {
    "get_text_embedding_batch": LLAMA.get_text_embedding_batch,
    "embed_documents": CHAIN.embed_documents,
    "Chroma": CHROMA,
    "Chroma's query": CHROMA.embed_query,
}


@pytest.mark.parametrize("call", TEXTS)
def test_lists_of_texts_are_lists_of_texts(call: str) -> None:
    for value in ["one string", "", None, 3, b"x", {"a": 1}, {"a"}, ["a", None], [["a"]], np.array("a")]:
        with pytest.raises(InvalidText):
            TEXTS[call](value)
    for value in (np.array(["a", "b"]), (text for text in "ab"), ("a", "b")):
        assert len(TEXTS[call](value)) == 2
    with pytest.raises(InvalidText, match="text 70 "):
        TEXTS[call](["a"] * 70 + ["a\ud800"])
    if call == "Chroma's query":
        with pytest.raises(InvalidText, match="text 70 "):
            TEXTS[call](["a"] * 70 + [" "])
    else:  # a vector for each text, as the frameworks' contracts say
        first, *blank = np.asarray(TEXTS[call](["a", "", " \n"])).tolist()
        assert blank[0] == blank[1] != first and np.allclose(blank[0], TEXTS[call](["."])[0], atol=1e-6)


@pytest.mark.parametrize("call", [LLAMA.get_query_embedding, LLAMA.get_text_embedding, CHAIN.embed_query])
def test_one_text_is_one_text(call: Callable[[Any], Any]) -> None:
    for value in [["a"], None, 3, b"x", {"a": 1}, np.array(["a"])]:
        with pytest.raises(InvalidText):
            call(value)


def test_nodes_and_the_node_parser() -> None:
    for nodes in (["text"], [None], b"x"):
        with pytest.raises(InvalidParameter, match=r"nodes\[0\]"):
            LLAMA(nodes)
    wrong = {
        "embed_model": [3, "x", object()],
        "passage_size": [*NO_COUNT, None],
        "late": [value for value in NO_FLAG if value is not None],
        "include_metadata": NO_FLAG,
        "include_prev_next_rel": NO_FLAG,
        "callback_manager": NEVER,
        "id_func": [3, "x", b"x"],
        "chunk_size": [3],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(InvalidParameter, match=name):
                LongDocumentNodeParser(**{"embed_model": LLAMA, name: value})
    with pytest.raises(InvalidParameter, match="embed_model is missing"):
        LongDocumentNodeParser()
    assert LongDocumentNodeParser(embed_model=LLAMA).get_nodes_from_documents([LlamaDocument(text="One. Two.")])
    with pytest.raises(InvalidParameter, match="to_dict"):
        EddyEmbedding.from_dict("x")  # type: ignore[arg-type]


def test_langchain_passages_and_splitter() -> None:
    for documents in (None, 3, "text", ["text"], [None], [{"page_content": "x"}]):
        with pytest.raises(InvalidParameter, match="documents"):
            list(embed_passages(documents, CHAIN))
    for name, values in {"passage_size": NO_COUNT, "late": ["no"], "embeddings": [None, 3, "x"]}.items():
        for value in values:
            with pytest.raises(InvalidParameter, match=name):
                list(embed_passages(**{"documents": DOCUMENTS, "embeddings": CHAIN, name: value}))
    for name, values in {
        "chunk_size": NO_COUNT,
        "chunk_overlap": [*NEVER, None, -1, True],
        "length_function": [3, "len"],
        "add_start_index": NO_FLAG,
        "strip_whitespace": NO_FLAG,
        "language": NO_TEXT,
    }.items():
        for value in values:
            with pytest.raises(InvalidParameter, match=name):
                SentenceTextSplitter(**{name: value})
    with pytest.raises(InvalidParameter, match="texts="):
        SentenceTextSplitter().create_documents("One text. Not a list.")  # type: ignore[arg-type]


def test_chroma_collections() -> None:
    client = chromadb.EphemeralClient()
    good = {"client": client, "name": "wrong-arguments", "function": CHROMA}
    for name in (*good, "configuration", "metadata"):
        for value in (b"x", 3, object()):
            with pytest.raises(InvalidParameter, match=name):
                open_collection(**{**good, name: value})
    with pytest.raises(InvalidParameter, match=r"name='p2' .* 3 to 512 characters"):
        open_collection(**{**good, "name": "p2"})
    assert repr(CHROMA) == "EddyEmbeddingFunction('eddy-tiny', method='plain')"
    for config in (None, 3, "x"):
        with pytest.raises(InvalidParameter, match="config"):
            EddyEmbeddingFunction.build_from_config(config)  # type: ignore[arg-type]


def test_objects_of_torch_and_of_the_engine_are_taken() -> None:
    import torch

    plain = methods.parse("plain")
    for kind in OWN:
        made = kind(model_name="eddy-tiny", method=plain, device=torch.device("cpu"), dtype=torch.float32)
        assert made.fingerprint == LLAMA.fingerprint
