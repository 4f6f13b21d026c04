"""Long documents through LangChain into a real Chroma: vectors of the whole, exact places, rows that last."""

from __future__ import annotations

import numpy as np
import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from tests.adapters.indexes import apart
from tests.adapters.indexes import documents as index_documents

from eddy_embed.errors import FingerprintMismatch, InvalidParameter, InvalidText
from langchain_eddy import EddyEmbeddings, aingest_documents, embed_passages, ingest_documents

STORY = (
    "The harbour lay still that morning. Only the ferry moved, slow and white, towards the island. "
    "Mr. Hale watched it from the pier; he had paid $3.50 for coffee. “Too much,” he said.\n\n"
    "At noon the wind came. It tore the flags, and the ferry turned back. Nobody in town was surprised. "
) * 3
REPEATS = "Yes. He said it twice: yes. Yes.\n\nYes. No. Yes. He said it twice: yes. " * 4


@pytest.fixture(scope="module")
def embeddings() -> EddyEmbeddings:
    return EddyEmbeddings(model_name="eddy-tiny", method="htp:exit=2")


def documents() -> list[Document]:
    return [
        Document(STORY, id="story", metadata={"title": "The ferry"}),
        Document(REPEATS, metadata={"source": "repeats.txt"}),
    ]


@pytest.fixture
def store(embeddings, tmp_path) -> Chroma:
    return Chroma(
        "library",
        embedding_function=embeddings,
        persist_directory=str(tmp_path),
        collection_configuration={"hnsw": {"space": "cosine"}},
    )


def rows(store: Chroma) -> dict:
    got = store._collection.get(include=["embeddings", "metadatas", "documents"])
    return {
        id_: (vector, metadata, text)
        for id_, vector, metadata, text in zip(
            got["ids"], got["embeddings"], got["metadatas"], got["documents"], strict=True
        )
    }


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


@pytest.mark.parametrize("overflow", ["window", "truncate"])
def test_windows_and_what_is_cut_are_told(overflow):
    small = EddyEmbeddings(model_name="eddy-tiny", method="htp:exit=2", max_length=64, overflow=overflow)
    metadata = next(embed_passages(documents(), small, passage_size=24)).document.metadata
    assert (metadata["eddy_n_windows"] > 1) == (overflow == "window")
    assert (metadata["eddy_n_truncated"] > 0) == (overflow == "truncate")


def test_rows_are_the_passages_and_a_second_run_changes_nothing(store, embeddings):
    first = ingest_documents(store, documents(), passage_size=24)
    before = rows(store)
    assert set(first.ids) == set(before) and first.n_documents == 2 and first.n_deleted == 0
    for passage in embed_passages(documents(), embeddings, passage_size=24):
        vector, metadata, text = before[passage.document.id]
        assert np.abs(vector - passage.vector).max() <= 1e-5, "not embedded again as a text of its own"
        assert metadata == passage.document.metadata and text == passage.document.page_content
    assert ingest_documents(store, documents(), passage_size=24).ids == first.ids
    assert set(rows(store)) == set(before)


def test_rows_that_are_ingested_again_are_all_found(embeddings, tmp_path):
    for run in range(1, 9):
        with apart():
            configuration = {"hnsw": {"space": "cosine", "sync_threshold": 16, "batch_size": 8}}
            again = Chroma("library", embeddings, str(tmp_path), collection_configuration=configuration)
            chosen = [Document(whole.text, id=whole.id, metadata={"run": run}) for whole in index_documents(2 * run)]
            ingest_documents(again, chosen, passage_size=12)
            vectors = [vector for vector, metadata, _ in rows(again).values() if metadata["run"] == run]
            assert len(vectors) == again._collection.count() > 5 * run
            found = again._collection.query(query_embeddings=vectors, n_results=1, include=["distances"])["distances"]
            assert max(distance for (distance,) in found) < 1e-4


def test_ids_spans_and_vectors_are_those_of_llama_index(embeddings):
    from llama_index.core import Document as Node

    from llama_index.embeddings.eddy import EddyEmbedding
    from llama_index.node_parser.eddy import LongDocumentNodeParser

    parser = LongDocumentNodeParser(
        embed_model=EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2"), passage_size=24
    )
    nodes = parser.get_nodes_from_documents(
        [Node(text=STORY, id_="story"), Node(text=REPEATS, metadata={"source": "repeats.txt"}), Node(text=STORY)]
    )
    passages = list(embed_passages([*documents(), Document(STORY)], embeddings, passage_size=24))
    assert [node.node_id for node in nodes] == [passage.document.id for passage in passages]
    assert [(node.start_char_idx, node.end_char_idx) for node in nodes] == [
        (passage.document.metadata["start_index"], passage.document.metadata["end_index"]) for passage in passages
    ]
    apart = np.subtract([node.embedding for node in nodes], [passage.vector for passage in passages])
    assert np.abs(apart).max() <= 1e-5


def test_rows_of_an_earlier_version_go(store):
    ingest_documents(store, documents(), passage_size=24)
    edited = [Document(STORY[:200], id="story"), Document(REPEATS[:60], metadata={"source": "repeats.txt"})]
    report = ingest_documents(store, edited[:1], passage_size=24)
    assert report.n_deleted > 0
    of = lambda name: {id_ for id_, (_, metadata, _) in rows(store).items() if metadata["eddy_document"] == name}  # noqa: E731
    assert of("story") == set(report.ids) and len(of("repeats.txt")) > 0
    kept = of("repeats.txt")
    report = ingest_documents(store, edited[1:], passage_size=24)
    assert of("repeats.txt") == kept | set(report.ids), "one file may come in several calls"
    report = ingest_documents(store, edited[1:], passage_size=24, cleanup="source")
    assert of("repeats.txt") == set(report.ids)
    with pytest.warns(UserWarning, match="'story'"):
        ingest_documents(store, [Document(" ", id="story")])
    assert of("story") == set()


def test_relevance_scores_are_cosines(store, embeddings):
    ingest_documents(store, documents(), passage_size=24)
    question = "When did the wind come?"
    query = embeddings.embed_query(question)
    stored = rows(store)
    hits = store.similarity_search_with_relevance_scores(question, k=5)
    for document, score in hits:
        assert score == pytest.approx(float(np.dot(stored[document.id][0], query)), abs=1e-4)
    best = max(stored, key=lambda id_: float(np.dot(stored[id_][0], query)))
    assert hits[0][0].id == best


def test_retriever_and_chain_with_sources(store):
    ingest_documents(store, documents(), passage_size=24)
    retriever = store.as_retriever(search_kwargs={"k": 2})
    model = GenericFakeChatModel(messages=iter([AIMessage("At noon.")]))
    prompt = ChatPromptTemplate.from_template("Answer from this:\n{context}\n\nQuestion: {question}")
    seen: list[str] = []

    def told(value):
        seen.append(value.to_string())
        return value

    answer = (
        RunnablePassthrough.assign(context=lambda x: "\n".join(d.page_content for d in x["sources"]))
        | prompt
        | RunnableLambda(told)
        | model
        | StrOutputParser()
    )
    chain = {"sources": retriever, "question": RunnablePassthrough()} | RunnablePassthrough.assign(answer=answer)
    result = chain.invoke("When did the wind come?")
    assert result["answer"] == "At noon."
    assert len(result["sources"]) == 2
    for source in result["sources"]:
        text = STORY if source.metadata["eddy_document"] == "story" else REPEATS
        assert text[source.metadata["start_index"] : source.metadata["end_index"]] == source.page_content
        assert source.page_content in seen[0]


async def test_async_ingestion(store):
    report = await aingest_documents(store, documents(), passage_size=24)
    assert set(report.ids) == set(rows(store))
    assert await store.as_retriever().ainvoke("the wind")


def test_more_rows_than_the_client_takes_at_once(store, monkeypatch):
    sizes: list[int] = []
    upsert = type(store._collection).upsert

    def counted(self, ids, **columns):
        sizes.append(len(ids))
        upsert(self, ids=ids, **columns)

    monkeypatch.setattr(type(store._collection), "upsert", counted)
    monkeypatch.setattr(type(store._client), "get_max_batch_size", lambda self: 4)
    report = ingest_documents(store, documents(), passage_size=24)
    assert len(report.ids) == sum(sizes) > 8 and max(sizes) == 4
    assert set(report.ids) == set(rows(store))


def test_documents_without_text_are_named(store):
    docs = [Document("", id="empty"), *documents(), Document(" \n")]
    with pytest.warns(UserWarning, match=r"2 of 4 documents.*'empty', number 3"):
        report = ingest_documents(store, docs)
    assert report.n_documents == 4 and set(report.ids) == set(rows(store))


def test_what_cannot_be_stored_is_refused_before_anything_is_written(store):
    with pytest.raises(InvalidParameter, match="number 2 has metadata"):
        ingest_documents(store, [*documents(), Document("Text.", metadata={"tags": {"a": 1}})])
    with pytest.raises(InvalidParameter, match="number 0 has metadata"):
        ingest_documents(store, [Document("Text.", metadata={"name": "a\ud800"})])
    assert rows(store) == {}
    with pytest.raises(InvalidText, match=r"number 0.*character 1"):
        ingest_documents(store, [Document("a\ud800")])


def test_other_embedders_are_kept_out(store, embeddings, tmp_path):
    ingest_documents(store, documents())
    other = EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=2")
    with pytest.raises(FingerprintMismatch, match="queries by"):
        ingest_documents(store, documents(), other)
    reopened = Chroma("library", embedding_function=other, client=store._client)
    with pytest.raises(FingerprintMismatch, match="holds vectors"):
        ingest_documents(reopened, documents())
    foreign = Chroma("foreign", embedding_function=DeterministicFakeEmbedding(size=4), client=store._client)
    with pytest.raises(InvalidParameter, match="DeterministicFakeEmbedding"):
        ingest_documents(foreign, documents())
    with pytest.raises(FingerprintMismatch, match="DeterministicFakeEmbedding"):
        ingest_documents(foreign, documents(), embeddings)


def test_cached_embeddings_are_recognised(embeddings, store):
    class Cached:
        underlying_embeddings = embeddings

    cached = Chroma("library", embedding_function=Cached(), client=store._client)
    assert ingest_documents(cached, documents()).ids


def test_progress_is_on_request(store, embeddings, capfd):
    ingest_documents(store, documents())
    assert capfd.readouterr().err == ""
    told = EddyEmbeddings(model_name="eddy-tiny", method="htp:exit=2", show_progress=True)
    capfd.readouterr()
    ingest_documents(store, documents(), told)
    assert "Embedding documents" in capfd.readouterr().err


def test_a_space_that_is_not_cosine_is_told(embeddings, tmp_path):
    plain = Chroma("plain", embedding_function=embeddings, persist_directory=str(tmp_path))
    with pytest.warns(UserWarning, match="relevance scores"):
        ingest_documents(plain, documents())
