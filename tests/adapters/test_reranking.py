"""Passages that a language model re-ranks: in an index, in LangChain and in LlamaIndex."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import Document as LangChainDocument
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from tests import families

from chroma_eddy import Document, Index, open_index
from eddy_embed import Embedder, Reranker
from eddy_embed.errors import EddyError, InvalidParameter, InvalidText
from eddy_embed.reranker import LIKELIHOOD
from langchain_eddy import EddyChroma, EddyEmbeddings, EddyReranker
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.postprocessor.eddy import EddyRerank
from llama_index.vector_stores.eddy import EddyChromaVectorStore

EXIT = "plain:exit=1"
QUESTION = "Where can a fish rest?"
TEXTS = [
    "# Rivers\n\nEddies form behind rocks. A fish can rest in one.",
    "Bread rises because yeast turns sugar into gas.",
    "The ferry leaves at noon. Dogs travel for free.",
    "A fish swims. Anglers rest on the bank.",
]


@pytest.fixture(scope="module")
def reranker() -> Reranker:
    return Reranker("eddy-tiny")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("reranked")
    with open_index(folder, "texts", Embedder("eddy-tiny", EXIT), passage_size=16) as index:
        index.upsert([Document(f"{number}.md", text, {"odd": number % 2}) for number, text in enumerate(TEXTS)])
        yield index


def standardised(values: Any) -> Any:
    return (np.array(values) - np.mean(values)) / np.std(values)


def test_hits_are_sorted_by_score_and_likelihood(index: Index, reranker: Reranker) -> None:
    """Passages are scored after their headings; both are standardised over those that are scored."""
    for options in ({}, {"alpha": 1}, {"where": {"odd": 1}}, {"alpha": 0.2}):
        check_order(index, reranker, options)
    found = index.query(QUESTION, 3, rerank=reranker)
    assert [hit.id for hit in index.query(QUESTION, 3, rerank=True)] == [hit.id for hit in found]


def check_order(index: Index, reranker: Reranker, options: dict[str, Any]) -> None:
    first = index.query(QUESTION, 20, **options)
    texts = [f"{hit.headings}\n{hit.text}" if hit.headings else hit.text for hit in first]
    likelihoods = reranker.scores(QUESTION, texts).astype(np.float64)
    joined = standardised([hit.fused for hit in first]) + LIKELIHOOD * standardised(likelihoods)
    found = index.query(QUESTION, 3, rerank=reranker, **options)
    order = np.argsort(-joined, kind="stable")[:3]
    assert any(hit.headings for hit in first) or "where" in options
    assert [hit.id for hit in found] == [first[at].id for at in order]
    assert [hit.rerank_score for hit in found] == pytest.approx(np.exp(likelihoods[order]), rel=1e-4)
    assert [hit.fused for hit in found] == pytest.approx(joined[order], abs=1e-3)


def test_what_is_not_reached_is_sorted_by_its_score(index: Index, reranker: Reranker) -> None:
    first = index.query(QUESTION, 20)
    found = index.query(QUESTION, 20, rerank=reranker, rerank_from=2)
    assert {hit.id for hit in found if hit.rerank_score is not None} == {hit.id for hit in first[:2]}
    rest = [hit.id for hit in first[2:]]
    assert [hit.id for hit in found if hit.rerank_score is None] == rest and rest
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    small = Reranker("eddy-tiny", batch_tokens=1)
    hurried = index.query(QUESTION, 20, rerank=small, rerank_seconds=1e-9)
    assert [hit.id for hit in hurried if hit.rerank_score is not None] == [first[0].id]


def test_sentences_are_marked_and_several_questions_are_reranked(index: Index, reranker: Reranker) -> None:
    told = list[tuple[int, int, str]]()
    (hit,) = index.query(QUESTION, 1, rerank=reranker, sentences=True, progress=lambda *given: told.append(given))
    assert hit.best is not None and hit.best.text in hit.text and hit.matches
    assert told and told[-1][0] == told[-1][1] and told[-1][2] == "rerank"
    questions = [QUESTION, "When does the ferry leave?"]
    vectors = index.embedder.encode_query(questions)
    found = index.search(vectors, 2, questions=questions, rerank=reranker)
    alone = [index.query(each, 2, rerank=reranker) for each in questions]
    assert [[each.id for each in hits] for hits in found] == [[each.id for each in hits] for hits in alone]


def test_what_cannot_be_asked_is_refused(index: Index) -> None:
    for options in (
        *({"rerank": True, "mmr": True}, {"rerank": True, "unit": "sentence"}, {"rerank": True, "rerank_from": 0}),
        *({"rerank": True, "rerank_seconds": 0}, {"rerank": "smollm2"}, {"rerank_from": 3}, {"rerank_seconds": 1.0}),
        {"progress": print},
    ):
        with pytest.raises(InvalidParameter):
            index.query(QUESTION, **options)
            pytest.fail(str(options))


def test_an_index_of_a_shared_model_names_no_reranker(tmp_path: Path) -> None:
    model, tokenizer = families.build("llama")
    with (
        open_index(tmp_path, "texts", Embedder(model, "plain", tokenizer=tokenizer, check=False)) as index,
        pytest.raises(InvalidParameter, match="shares a loaded one"),
    ):
        index.query(QUESTION, rerank=True)


# --- LangChain


def test_langchain_compresses(reranker: Reranker) -> None:
    compressor = EddyReranker(model="eddy-tiny", top_n=2)
    documents = [LangChainDocument(text, metadata={"n": n}) for n, text in enumerate(TEXTS)]
    found = compressor.compress_documents(documents, QUESTION)
    scores = reranker.scores(QUESTION, TEXTS)
    assert [each.metadata["n"] for each in found] == np.argsort(-scores)[:2].tolist()
    assert [each.metadata["relevance_score"] for each in found] == pytest.approx(
        np.exp(np.sort(scores)[::-1][:2]), rel=1e-4
    )
    assert all("relevance_score" not in each.metadata for each in documents)
    later = asyncio.run(compressor.acompress_documents(documents, QUESTION))
    assert [each.metadata["n"] for each in later] == [each.metadata["n"] for each in found]
    assert compressor.compress_documents([], QUESTION) == []


def test_langchains_retrievers_and_the_store(tmp_path: Path, reranker: Reranker) -> None:
    store = EddyChroma("texts", EddyEmbeddings(model="eddy-tiny", method=EXIT), persist_directory=str(tmp_path))
    store.add_texts(TEXTS)
    retriever = ContextualCompressionRetriever(
        base_compressor=EddyReranker(model=reranker, top_n=1), base_retriever=store.as_retriever(search_kwargs={"k": 4})
    )
    best = TEXTS[int(np.argmax(reranker.scores(QUESTION, TEXTS)))]
    assert [each.page_content for each in retriever.invoke(QUESTION)] == [best]
    hits = store.index.query(QUESTION, 2, rerank=reranker)
    reranked = store.as_retriever(search_kwargs={"k": 2, "rerank": reranker})
    assert [each.page_content for each in reranked.invoke(QUESTION)] == [hit.text for hit in hits]
    with pytest.raises(InvalidParameter):
        store.similarity_search_by_vector([0.0], rerank=True)


# --- LlamaIndex


def nodes() -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(text=text, id_=str(n)), score=0.1 * n) for n, text in enumerate(TEXTS)]


def test_llama_index_postprocesses(reranker: Reranker) -> None:
    rerank = EddyRerank("eddy-tiny", top_n=3, keep_retrieval_score=True)
    scores = reranker.scores(QUESTION, TEXTS)
    found = rerank.postprocess_nodes(nodes(), query_str=QUESTION)
    assert [each.node.node_id for each in found] == [str(at) for at in np.argsort(-scores)[:3]]
    assert [each.score for each in found] == pytest.approx(np.exp(np.sort(scores)[::-1][:3]), rel=1e-4)
    assert all(each.node.metadata["retrieval_score"] == 0.1 * int(each.node.node_id) for each in found)
    later = asyncio.run(rerank.apostprocess_nodes(nodes(), query_bundle=QueryBundle(QUESTION)))
    assert [each.node.node_id for each in later] == [each.node.node_id for each in found]
    assert rerank.postprocess_nodes([], query_str=QUESTION) == []
    with pytest.raises(InvalidParameter, match="query_str"):
        rerank.postprocess_nodes(nodes())
    with pytest.raises(InvalidText):
        rerank.postprocess_nodes(nodes(), query_str=" ")


def test_in_a_query_engine_and_in_the_store(
    tmp_path: Path, reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "_llm", MockLLM())
    monkeypatch.setattr(Settings, "_embed_model", EddyEmbedding("eddy-tiny", method=EXIT))
    store = EddyChromaVectorStore("texts", EddyEmbedding("eddy-tiny", method=EXIT), persist_dir=str(tmp_path))
    index = VectorStoreIndex.from_vector_store(store)
    index.insert_nodes([each.node for each in nodes()])
    engine = index.as_query_engine(similarity_top_k=4, node_postprocessors=[EddyRerank(reranker, top_n=1)])
    best = str(int(np.argmax(reranker.scores(QUESTION, TEXTS))))
    assert [each.node.node_id for each in engine.query(QUESTION).source_nodes] == [best]
    retriever = index.as_retriever(
        similarity_top_k=2, vector_store_query_mode="hybrid", vector_store_kwargs={"rerank": reranker}
    )
    hits = store.index.query(QUESTION, 2, rerank=reranker)
    assert [each.node.text for each in retriever.retrieve(QUESTION)] == [hit.text for hit in hits]


@pytest.mark.parametrize("kind", [EddyRerank, EddyReranker])
def test_copies_share_and_settings_travel(kind: Any) -> None:
    own = kind(model="eddy-tiny", top_n=3, max_length=500)
    assert copy.deepcopy(own).reranker is own.reranker is kind(model="eddy-tiny", max_length=500).reranker
    back = pickle.loads(pickle.dumps(own))
    assert (back.top_n, back.settings, back.reranker) == (3, {"max_length": 500}, own.reranker)
    model, tokenizer = families.build("llama")
    live = kind.from_model(model, tokenizer)
    with pytest.raises(EddyError, match="live model"):
        pickle.dumps(live)
    if kind is EddyRerank:
        assert EddyRerank.from_dict(own.to_dict()).reranker is own.reranker
        with pytest.raises(InvalidParameter, match="live model"):
            EddyRerank.from_dict(live.to_dict())
    for wrong in ({"top_n": 0}, {"seconds": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            kind(model="eddy-tiny", **wrong)
    with pytest.raises(InvalidParameter, match="holds no loaded model"):
        kind.from_llm(MockLLM())


def test_a_blank_text_comes_last() -> None:
    """Behind those that were not read, too."""
    options: dict[str, Any] = {"top_n": 5, "seconds": 1e-9}
    small = Reranker("eddy-tiny", batch_tokens=1)
    texts = [" \n", *TEXTS[:3]]
    nodes = [NodeWithScore(node=TextNode(text=text, id_=text), score=0.1) for text in texts]
    ranked = EddyRerank(small, **options).postprocess_nodes(nodes, query_str=QUESTION)
    assert [each.node.node_id for each in ranked] == [*TEXTS[:3], " \n"]
    assert (ranked[0].score or 0) > 0 and [each.score for each in ranked[1:]] == [None, None, 0.0]
    documents = [LangChainDocument(text) for text in texts]
    kept = EddyReranker(model=small, **options).compress_documents(documents, QUESTION)
    assert (kept[-1].page_content, kept[-1].metadata["relevance_score"], len(kept)) == (" \n", 0.0, 4)
    assert EddyReranker(model=small).compress_documents(documents[:1], QUESTION)[0].page_content == " \n"
