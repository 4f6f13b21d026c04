"""LangChain with Eddy in it: its own suites, passages and chunks with exact places, caches."""

from __future__ import annotations

import importlib
from itertools import pairwise

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.stores import InMemoryByteStore
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests
from llama_index.core import Document as Node
from tests.adapters.samples import REPEATS, STORY

from eddy_embed import Segmenter
from eddy_embed.errors import InvalidText
from langchain_eddy import EddyEmbeddings, SentenceTextSplitter, embed_passages
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser

MIXED = "他走了。她来了。 שלום. עולם. 😀 fine. " * 9


@pytest.fixture(scope="module")
def embeddings() -> EddyEmbeddings:
    return EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=1")


@pytest.mark.parametrize("text", [STORY, REPEATS, MIXED, "One.", "x" * 5000])
@pytest.mark.parametrize("overlap", [0, 60])
def test_start_indices_are_exact_and_sentences_whole(text, overlap):
    splitter = SentenceTextSplitter(chunk_size=150, chunk_overlap=overlap, add_start_index=True)
    documents = splitter.create_documents([text], [{"source": "a"}])
    sentences = Segmenter().sentences(text)
    starts, ends = {sentence.start for sentence in sentences}, {sentence.end for sentence in sentences}
    read = repeated = 0
    for document in documents:
        start = document.metadata["start_index"]
        end = start + len(document.page_content)
        assert text[start:end] == document.page_content and document.metadata["source"] == "a"
        assert start in starts and end in ends
        alone = sum(start <= sentence.start < end for sentence in sentences) == 1
        assert len(document.page_content) <= 150 or alone
        assert start <= read or text[read:start].strip() == "", "nothing is left out"
        assert overlap or start >= read, "nothing is repeated"
        assert end > read and read - start <= overlap
        repeated += start < read
        read = end
    assert text[read:].strip() == "" and (repeated or not overlap or text != STORY)


def test_chunks_are_as_long_as_they_may_be():
    chunks = SentenceTextSplitter(chunk_size=150, add_start_index=True).create_documents([STORY])
    for chunk, following in pairwise(chunks):
        start = chunk.metadata["start_index"]
        sentence = Segmenter().sentences(following.page_content)[0]
        assert following.metadata["start_index"] + sentence.end - start > 150


@pytest.mark.parametrize("text", [STORY, REPEATS, "  \n One. Two.\n "])
def test_with_white_space_the_chunks_give_the_text_back(text):
    assert "".join(SentenceTextSplitter(chunk_size=120, strip_whitespace=False).split_text(text)) == text


def test_sizes_are_the_model_s_tokens(embeddings):
    splitter = SentenceTextSplitter.from_embeddings(embeddings, chunk_size=24)
    chunks = splitter.split_text(STORY)
    engine = embeddings.embedder
    for chunk in chunks:
        tokens = engine.encode_long(chunk, passage_size=1000).n_tokens
        assert tokens <= 24 or len(Segmenter().sentences(chunk)) == 1
    passages = engine.encode_long(STORY, passage_size=24).passages
    assert [STORY[passage.start : passage.end] for passage in passages] == chunks


def test_is_what_langchain_asks_for(embeddings):
    from transformers import AutoTokenizer

    import eddy_embed

    tokenizer = AutoTokenizer.from_pretrained(f"{eddy_embed.__path__[0]}/model/tiny")
    theirs = SentenceTextSplitter.from_huggingface_tokenizer(tokenizer, chunk_size=24).split_text(STORY)
    assert theirs == SentenceTextSplitter.from_embeddings(embeddings, chunk_size=24).split_text(STORY)
    documents = [Document(STORY, metadata={"source": "a"}), Document(" ")]
    assert [d.page_content for d in SentenceTextSplitter(150).transform_documents(documents)] == SentenceTextSplitter(
        150
    ).split_text(STORY)
    with pytest.raises(ValueError, match="overlap"):
        SentenceTextSplitter(chunk_size=10, chunk_overlap=11)
    with pytest.raises(InvalidText, match="surrogate"):
        SentenceTextSplitter().split_text("a\ud800")


def test_a_cache_serves_the_embedder_that_filled_it_and_no_other(embeddings, monkeypatch):
    cache = importlib.import_module("langchain_classic.embeddings").CacheBackedEmbeddings
    store, queries = InMemoryByteStore(), InMemoryByteStore()

    def cached(inner: EddyEmbeddings):
        return cache.from_bytes_store(
            inner, store, namespace=inner.fingerprint, query_embedding_cache=queries, key_encoder="sha256"
        )

    texts = [STORY, REPEATS]
    told = EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=1", query_instruction="Find the answer.")
    vectors, asked = cached(told).embed_documents(texts), cached(told).embed_query(STORY)
    with monkeypatch.context() as patch:
        patch.setattr(EddyEmbeddings, "embed_documents", lambda *_: pytest.fail("not out of the cache"))
        patch.setattr(EddyEmbeddings, "embed_query", lambda *_: pytest.fail("not out of the cache"))
        assert cached(told).embed_documents(texts) == vectors
        assert cached(told).embed_query(STORY) == asked
    assert np.abs(np.subtract(asked, told.embed_query(STORY))).max() <= 1e-5
    assert np.abs(np.subtract(asked, vectors[0])).max() > 1e-4, "a question is no document"
    for other in (embeddings, EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=2")):
        assert np.abs(np.subtract(cached(other).embed_documents(texts), other.embed_documents(texts))).max() <= 1e-5
    assert len(list(store.yield_keys())) == 3 * len(texts)


def documents() -> list[Document]:
    return [
        Document(STORY, id="story", metadata={"title": "The ferry"}),
        Document(REPEATS, metadata={"source": "repeats.txt"}),
    ]


def test_passages_have_exact_places_and_the_engine_s_vectors(embeddings):
    passages = list(embed_passages(documents(), embeddings, passage_size=24))
    expected = [p for d in embeddings.embedder.encode_long([STORY, REPEATS], passage_size=24) for p in d.passages]
    assert len(passages) == len(expected) > 10
    for passage, span in zip(passages, expected, strict=True):
        metadata = passage.document.metadata
        text = STORY if metadata["eddy_document"] == "story" else REPEATS
        assert text[metadata["start_index"] : metadata["end_index"]] == passage.document.page_content
        assert np.abs(np.array(passage.vector) - span.vector).max() <= 1e-5
        assert metadata["eddy_n_tokens"] == span.n_tokens and metadata["eddy_fingerprint"] == embeddings.fingerprint
        assert metadata["eddy_n_windows"] == 1 and metadata["eddy_n_truncated"] == 0
    assert passages[0].document.metadata["title"] == "The ferry"
    assert passages[-1].document.metadata["source"] == "repeats.txt"


def test_ids_spans_and_vectors_are_those_of_llama_index(embeddings):
    model = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=1")
    nodes = LongDocumentNodeParser(embed_model=model, passage_size=24).get_nodes_from_documents(
        [Node(text=STORY, id_="story"), Node(text=REPEATS, metadata={"source": "repeats.txt"}), Node(text=STORY)]
    )
    passages = list(embed_passages([*documents(), Document(STORY)], embeddings, passage_size=24))
    assert [node.node_id for node in nodes] == [passage.document.id for passage in passages]
    assert [(node.start_char_idx, node.end_char_idx) for node in nodes] == [
        (passage.document.metadata["start_index"], passage.document.metadata["end_index"]) for passage in passages
    ]
    apart = np.subtract([node.embedding for node in nodes], [passage.vector for passage in passages])
    assert np.abs(apart).max() <= 1e-5


@pytest.mark.parametrize("overflow", ["window", "truncate"])
def test_windows_and_what_is_cut_are_told(overflow):
    small = EddyEmbeddings(model_name="eddy-tiny", method="htp:exit=2", max_length=64, overflow=overflow)
    metadata = next(embed_passages(documents(), small, passage_size=24)).document.metadata
    assert (metadata["eddy_n_windows"] > 1) == (overflow == "window")
    assert (metadata["eddy_n_truncated"] > 0) == (overflow == "truncate")


class TestUnit(EmbeddingsUnitTests):
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return EddyEmbeddings

    @property
    def embedding_model_params(self) -> dict:
        return {"model": "eddy-tiny", "method": "plain:exit=1"}


class TestIntegration(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return EddyEmbeddings

    @property
    def embedding_model_params(self) -> dict:
        return {"model_name": "eddy-tiny", "method": "plain:exit=2", "query_instruction": "Find the answer."}
