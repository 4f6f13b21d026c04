"""LongDocumentNodeParser: nodes with exact offsets, lasting ids and vectors that later steps leave alone."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import subprocess
import sys
import warnings

import chromadb
import numpy as np
import pytest
from llama_index.core import Document, MockEmbedding, Settings, StorageContext, VectorStoreIndex
from llama_index.core.ingestion import IngestionCache, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import MetadataMode, NodeRelationship, TextNode
from llama_index.vector_stores.chroma import ChromaVectorStore

from eddy_embed.errors import EddyError, IncompatibleMethods, InvalidParameter, InvalidText
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser

# The same sentence again and again: an offset found by searching would be the first one's.
REPEATS = "Yes. He said it twice: yes. Yes.\n\nYes. No. Yes. He said it twice: yes. " * 4
STORY = (
    "The harbour lay still that morning. Only the ferry moved, slow and white, towards the island. "
    "Mr. Hale watched it from the pier; he had paid $3.50 for coffee. “Too much,” he said.\n\n"
    "At noon the wind came. It tore the flags, and the ferry turned back. Nobody in town was surprised. "
) * 3


@pytest.fixture(scope="module")
def embedding() -> EddyEmbedding:
    return EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2")


@pytest.fixture(scope="module")
def parser(embedding) -> LongDocumentNodeParser:
    return LongDocumentNodeParser(embed_model=embedding, passage_size=24)


def documents() -> list[Document]:
    return [
        Document(text=STORY, id_="story", metadata={"title": "The ferry"}),
        Document(text=REPEATS, id_="repeats"),
    ]


@pytest.mark.parametrize(
    "text", [STORY, REPEATS, "One.", "他走了。她来了。" * 9, "a\x00b. c 😀 d.", "שלום. עולם. " * 12]
)
def test_offsets_are_exact(parser, text):
    nodes = parser.get_nodes_from_documents([Document(text=text)])
    position = 0
    for node in nodes:
        assert text[node.start_char_idx : node.end_char_idx] == node.text
        assert text[position : node.start_char_idx].strip() == "", "nothing but white space between passages"
        position = node.end_char_idx
    assert text[position:].strip() == ""


def test_vectors_are_the_engine_s(parser, embedding):
    nodes = parser.get_nodes_from_documents(documents())
    expected = [
        passage
        for document in embedding.embedder.encode_long([STORY, REPEATS], passage_size=24)
        for passage in document.passages
    ]
    assert len(nodes) == len(expected) > 10
    for node, passage in zip(nodes, expected, strict=True):
        assert np.abs(np.array(node.embedding) - passage.vector).max() <= 1e-5
        assert node.metadata["eddy_n_tokens"] == passage.n_tokens
        assert type(node.embedding[0]) is float


def test_a_vector_knows_the_document_around_it(embedding):
    settings = {"embed_model": embedding, "passage_size": 24}
    late = LongDocumentNodeParser(**settings).get_nodes_from_documents(documents())
    alone = LongDocumentNodeParser(**settings, late=False).get_nodes_from_documents(documents())
    assert [node.text for node in late] == [node.text for node in alone]
    assert not {node.node_id for node in late} & {node.node_id for node in alone}, "another vector needs another id"
    apart = [np.abs(np.subtract(a.embedding, b.embedding)).max() for a, b in zip(late, alone, strict=True)]
    assert max(apart) > 1e-3
    assert np.abs(np.array(alone[3].embedding) - embedding.embedder.encode_document(alone[3].text)).max() <= 1e-5


def test_relationships_and_metadata(parser):
    nodes = parser.get_nodes_from_documents(documents())
    story = [node for node in nodes if node.ref_doc_id == "story"]
    assert {node.ref_doc_id for node in nodes} == {"story", "repeats"}
    assert NodeRelationship.PREVIOUS not in story[0].relationships
    assert story[0].next_node.node_id == story[1].node_id and story[1].prev_node.node_id == story[0].node_id
    assert NodeRelationship.NEXT not in story[-1].relationships
    assert story[0].metadata["title"] == "The ferry"
    assert story[0].metadata["eddy_fingerprint"] == parser.embed_model.fingerprint
    assert story[0].metadata["eddy_n_windows"] == 1 and story[0].metadata["eddy_n_truncated"] == 0
    for mode in (MetadataMode.EMBED, MetadataMode.LLM):
        assert "eddy_" not in story[0].get_content(mode) and "The ferry" in story[0].get_content(mode)


def test_include_flags(embedding):
    bare = LongDocumentNodeParser(
        embed_model=embedding, passage_size=24, include_metadata=False, include_prev_next_rel=False
    )
    node = bare.get_nodes_from_documents(documents())[1]
    assert "title" not in node.metadata and node.prev_node is None and node.next_node is None


def test_windows_and_truncation_are_told(embedding):
    small = EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2", max_length=64)
    node = LongDocumentNodeParser(embed_model=small, passage_size=24).get_nodes_from_documents(documents())[0]
    assert node.metadata["eddy_n_windows"] > 1 and node.metadata["eddy_n_truncated"] == 0
    cut = EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2", max_length=64, overflow="truncate")
    node = LongDocumentNodeParser(embed_model=cut, passage_size=24).get_nodes_from_documents(documents())[0]
    assert node.metadata["eddy_n_windows"] == 1 and node.metadata["eddy_n_truncated"] > 0


def ids(parser: LongDocumentNodeParser, docs: list[Document]) -> list[str]:
    return [node.node_id for node in parser.get_nodes_from_documents(docs)]


def test_ids_last_and_differ_where_vectors_do(parser, embedding):
    first = ids(parser, documents())
    assert first == ids(parser, documents())
    assert len(set(first)) == len(first)
    edited = documents()
    edited[0].set_content(STORY + "The end.")
    again = ids(parser, edited)
    n_story = sum(node.ref_doc_id == "story" for node in parser.get_nodes_from_documents(documents()))
    assert not set(again[:n_story]) & set(first[:n_story]), "the edited document's vectors may all have changed"
    assert again[-3:] == first[-3:], "the other document is as it was"
    other = EddyEmbedding(model_name="eddy-tiny", method="plain:exit=2")
    assert not set(first) & set(ids(LongDocumentNodeParser(embed_model=other, passage_size=24), documents()))


def test_ids_of_documents_without_a_name(parser):
    """LlamaIndex draws a random id for a document that has none: it must not reach the nodes."""
    assert ids(parser, [Document(text=STORY)]) == ids(parser, [Document(text=STORY)])
    at_a = ids(parser, [Document(text=STORY, metadata={"file_path": "a.txt"})])
    assert not set(at_a) & set(ids(parser, [Document(text=STORY, metadata={"file_path": "b.txt"})]))
    twice = ids(parser, [Document(text=STORY), Document(text=STORY)])
    assert len(set(twice)) == len(twice), "equal documents in one call stay apart"


@pytest.mark.slow
def test_another_process_gives_the_same_ids_and_vectors(parser):
    """The parser travels pickled, as to a worker of a pipeline."""
    code = (
        "import json, pickle, sys; parser, docs = pickle.loads(sys.stdin.buffer.read());"
        "nodes = parser.get_nodes_from_documents(docs);"
        "vectors = [n.embedding for n in nodes] + [parser.embed_model.get_query_embedding('Who paid?')];"
        "print(json.dumps([[n.node_id for n in nodes], vectors]))"
    )
    nameless = [Document(text=STORY), Document(text=REPEATS)]
    run = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps((parser, nameless)), stdout=subprocess.PIPE, check=True
    )
    there_ids, there_vectors = json.loads(run.stdout)
    nodes = parser.get_nodes_from_documents([Document(text=STORY), Document(text=REPEATS)])
    here = [node.embedding for node in nodes] + [parser.embed_model.get_query_embedding("Who paid?")]
    assert there_ids == [node.node_id for node in nodes]
    assert np.abs(np.subtract(there_vectors, here)).max() <= 1e-5


def test_the_user_s_own_ids(embedding):
    own = LongDocumentNodeParser(embed_model=embedding, passage_size=24, id_func=lambda i, doc: f"{doc.node_id}/{i}")
    assert ids(own, documents())[:2] == ["story/0", "story/1"]


def test_pieces_of_documents_keep_the_documents_offsets(parser):
    piece = TextNode(text=STORY[100:], start_char_idx=100, end_char_idx=len(STORY))
    piece.relationships[NodeRelationship.SOURCE] = Document(text=STORY, id_="story").as_related_node_info()
    for node in parser.get_nodes_from_documents([piece]):
        assert STORY[node.start_char_idx : node.end_char_idx] == node.text
        assert node.ref_doc_id == "story"


def test_documents_without_text_are_named_and_the_rest_goes_on(parser):
    docs = [Document(text="", id_="empty"), *documents(), Document(text=" \n", id_="blank")]
    with pytest.warns(UserWarning, match=r"2 of 4 documents.*'empty', 'blank'"):
        nodes = parser.get_nodes_from_documents(docs)
    assert {node.ref_doc_id for node in nodes} == {"story", "repeats"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parser.get_nodes_from_documents(documents())
        assert parser.get_nodes_from_documents([]) == []


def test_invalid_unicode_names_the_document(parser):
    with pytest.raises(InvalidText, match=r"'broken'.*character 3"):
        parser.get_nodes_from_documents([*documents(), Document(text="bad\ud800", id_="broken")])


def test_what_is_wrong_is_refused(embedding):
    with pytest.raises(ValueError, match="passage_size"):
        LongDocumentNodeParser(embed_model=embedding, passage_size=0)
    with pytest.raises(ValueError, match="passage_length"):
        LongDocumentNodeParser(embed_model=embedding, passage_length=3)
    with pytest.raises(InvalidParameter, match="MockEmbedding"):
        LongDocumentNodeParser(embed_model=MockEmbedding(embed_dim=2))
    with pytest.raises(InvalidParameter, match="did you mean method"):
        LongDocumentNodeParser(embed_model={"model_name": "eddy-tiny", "metod": "htp"})
    last = EddyEmbedding(model_name="eddy-tiny", method="prompteol")
    with pytest.raises(IncompatibleMethods, match="late=False"):
        LongDocumentNodeParser(embed_model=last)
    assert LongDocumentNodeParser(embed_model=last, late=False).get_nodes_from_documents(documents())


def test_ways_to_construct(embedding):
    plain = LongDocumentNodeParser(embed_model={"model_name": "eddy-tiny", "method": "htp:exit=2"})
    assert plain.embed_model.embedder is embedding.embedder
    assert LongDocumentNodeParser.from_defaults(embedding, passage_size=9).passage_size == 9
    old = Settings._embed_model
    Settings.embed_model = embedding
    try:
        assert LongDocumentNodeParser().embed_model is embedding
    finally:
        Settings._embed_model = old


def test_travels_by_configuration(parser, embedding):
    data = pickle.dumps(parser)
    assert len(data) < 4_000 and parser.embed_model is embedding, "pickling must not change the object"
    loaded = pickle.loads(data)
    assert loaded.embed_model._engine is None
    assert ids(loaded, documents()) == ids(parser, documents())
    assert copy.deepcopy(parser).embed_model.embedder is embedding.embedder
    again = LongDocumentNodeParser.from_dict(parser.to_dict())
    assert again.to_dict() == parser.to_dict()


def test_a_live_model_does_not_travel_silently():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import eddy_embed

    folder = f"{eddy_embed.__path__[0]}/model/tiny"
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder, dtype="float32"),
        AutoTokenizer.from_pretrained(folder),
    )
    live = LongDocumentNodeParser(embed_model=EddyEmbedding.from_model(model, tokenizer, method="htp:exit=2"))
    with pytest.raises(EddyError, match="live model"):
        pickle.dumps(live)
    assert live.get_nodes_from_documents(documents())


def chroma(tmp_path, name: str = "library") -> tuple[chromadb.Collection, ChromaVectorStore]:
    client = chromadb.PersistentClient(path=str(tmp_path))
    collection = client.get_or_create_collection(
        name, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
    )
    return collection, ChromaVectorStore(chroma_collection=collection)


def stored(collection: chromadb.Collection) -> dict[str, np.ndarray]:
    rows = collection.get(include=["embeddings"])
    return dict(zip(rows["ids"], rows["embeddings"], strict=True))


@pytest.mark.parametrize("cached", [False, True])
def test_pipeline_into_chroma_keeps_the_parser_s_vectors(parser, embedding, tmp_path, cached):
    collection, store = chroma(tmp_path)
    pipeline = IngestionPipeline(
        transformations=[parser, embedding], vector_store=store, cache=IngestionCache(), disable_cache=not cached
    )
    expected = {node.node_id: node.embedding for node in parser.get_nodes_from_documents(documents())}
    for _ in range(2):  # the second run changes nothing: not the ids, not the number of rows
        nodes = pipeline.run(documents=documents())
        rows = stored(collection)
        assert [node.node_id for node in nodes] == list(expected) and set(rows) == set(expected)
        for id_, vector in expected.items():
            assert np.abs(rows[id_] - vector).max() <= 1e-5


async def test_async_pipeline_keeps_them_too(parser, embedding, tmp_path):
    collection, store = chroma(tmp_path)
    pipeline = IngestionPipeline(transformations=[parser, embedding], vector_store=store)
    await pipeline.arun(documents=documents())
    rows = stored(collection)
    for node in parser.get_nodes_from_documents(documents()):
        assert np.abs(rows[node.node_id] - node.embedding).max() <= 1e-5


def test_other_nodes_of_the_pipeline_are_embedded(parser, embedding):
    late = parser.get_nodes_from_documents(documents())
    kept = [list(node.embedding) for node in late]
    foreign = LongDocumentNodeParser(
        embed_model=EddyEmbedding(model_name="eddy-tiny", method="plain:exit=2"), passage_size=24
    ).get_nodes_from_documents(documents())
    changed = parser.get_nodes_from_documents(documents())[0]
    changed.set_content("Another text.")
    fresh = TextNode(text="A node without a vector.")
    embedding([*late, *foreign, changed, fresh])
    assert [node.embedding for node in late] == kept
    for node in (foreign[0], changed, fresh):
        expected = embedding.get_text_embedding(node.get_content(MetadataMode.EMBED))
        assert np.abs(np.subtract(node.embedding, expected)).max() <= 1e-5
        assert "eddy_fingerprint" not in node.metadata, "it says nothing of this vector"


def test_pieces_of_a_passage_are_embedded_again(parser, embedding):
    """A later splitter hands its parent's embedding and metadata down to the pieces."""
    nodes = LongDocumentNodeParser(embed_model=embedding, passage_size=200).get_nodes_from_documents(documents())
    pieces = SentenceSplitter(chunk_size=60, chunk_overlap=0, include_metadata=True)(nodes)
    assert len(pieces) > len(nodes) and pieces[1].embedding == nodes[0].embedding
    embedding(pieces)
    expected = embedding.get_text_embedding(pieces[1].get_content(MetadataMode.EMBED))
    assert np.abs(np.subtract(pieces[1].embedding, expected)).max() <= 1e-5


def test_index_retrieves_passages_with_their_place(parser, embedding, tmp_path):
    collection, store = chroma(tmp_path)
    index = VectorStoreIndex.from_documents(
        documents(),
        transformations=[parser],
        embed_model=embedding,
        storage_context=StorageContext.from_defaults(vector_store=store),
    )
    expected = {node.node_id: node.embedding for node in parser.get_nodes_from_documents(documents())}
    rows = stored(collection)
    assert all(np.abs(rows[id_] - vector).max() <= 1e-5 for id_, vector in expected.items())
    hit = index.as_retriever(similarity_top_k=1).retrieve("When did the wind come?")[0].node
    text = {document.doc_id: document.text for document in documents()}[hit.ref_doc_id]
    assert text[hit.start_char_idx : hit.end_char_idx] == hit.text


def test_progress_is_on_request(parser, capfd):
    parser.get_nodes_from_documents(documents())
    assert capfd.readouterr().err == ""
    parser.get_nodes_from_documents(documents(), show_progress=True)
    assert "Embedding documents" in capfd.readouterr().err
    wished = EddyEmbedding(model_name="eddy-tiny", method="htp:exit=2", show_progress=True)
    LongDocumentNodeParser(embed_model=wished).get_nodes_from_documents(documents())
    assert "Embedding documents" in capfd.readouterr().err


def test_async_gives_the_same(parser):
    nodes = asyncio.run(parser.aget_nodes_from_documents(documents()))
    assert [node.node_id for node in nodes] == ids(parser, documents())


@pytest.mark.parametrize(
    "change",
    [{"passage_size": 12}, {"late": False}, {"embed_model": {"model_name": "eddy-tiny", "method": "plain:exit=2"}}],
    ids=lambda change: next(iter(change)),
)
def test_ingestion_cache_follows_the_parser_s_settings(parser, embedding, change):
    cache = IngestionCache()

    def ingested(parser: LongDocumentNodeParser) -> list[tuple[str, list[float]]]:
        nodes = IngestionPipeline(transformations=[parser], cache=cache).run(documents=documents())
        return [(node.text, node.embedding) for node in nodes]

    first = ingested(parser)
    other = LongDocumentNodeParser(**{"embed_model": embedding, "passage_size": 24, **change})
    expected = [(node.text, node.embedding) for node in other.get_nodes_from_documents(documents())]
    assert ingested(other) == expected != first
    assert ingested(LongDocumentNodeParser(embed_model=embedding, passage_size=24)) == first
    assert len(cache.cache.get_all(cache.collection)) == 2


@pytest.mark.slow
def test_two_workers_give_the_same(parser, embedding):
    """Processes are spawned: each takes the parser by configuration and loads the model once."""
    nodes = IngestionPipeline(transformations=[parser, embedding]).run(documents=documents(), num_workers=2)
    expected = parser.get_nodes_from_documents(documents())
    assert [node.node_id for node in nodes] == [node.node_id for node in expected]
    for node, other in zip(nodes, expected, strict=True):
        assert np.abs(np.subtract(node.embedding, other.embedding)).max() <= 1e-5
