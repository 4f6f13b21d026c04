"""LangChain's own ways of keeping a library: splitter, record manager and cache, with Eddy in them."""

from __future__ import annotations

import importlib
from itertools import pairwise

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.stores import InMemoryByteStore
from tests.adapters.samples import REPEATS, STORY

from eddy_embed import Segmenter
from eddy_embed.errors import InvalidText
from langchain_eddy import EddyEmbeddings, SentenceTextSplitter

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
