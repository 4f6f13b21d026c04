"""LlamaIndex's node parser: texts of each level as nodes that know each other, and travel through pipelines."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from itertools import pairwise

import chromadb
import numpy as np
import pytest
from langchain_core.documents import Document as LangChainDocument
from llama_index.core import Document, MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.ingestion import IngestionCache, IngestionPipeline
from llama_index.core.ingestion.pipeline import get_transformation_hash
from llama_index.core.node_parser import get_leaf_nodes, get_root_nodes
from llama_index.core.retrievers import AutoMergingRetriever
from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.vector_stores.chroma import ChromaVectorStore
from tests.adapters.samples import REPEATS, STORY

from eddy_embed.encoding.document import Part
from eddy_embed.errors import IncompatibleMethods, InvalidParameter, InvalidText
from langchain_eddy import EddyEmbeddings, embed_passages
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.node_parser.eddy import LongDocumentNodeParser


@pytest.fixture(scope="module")
def embedding() -> EddyEmbedding:
    return EddyEmbedding(model_name="eddy-tiny", method="plain:exit=1")


@pytest.fixture(scope="module")
def parser(embedding) -> LongDocumentNodeParser:
    return LongDocumentNodeParser(embed_model=embedding, passage_size=24)


def documents() -> list[Document]:
    return [
        Document(text=STORY, id_="story", metadata={"title": "The ferry"}),
        Document(text=REPEATS, id_="repeats"),
    ]


def test_a_vector_knows_the_document_around_it(embedding):
    settings = {"embed_model": embedding, "passage_size": 24}
    late = LongDocumentNodeParser(**settings, late=True).get_nodes_from_documents(documents())
    alone = LongDocumentNodeParser(**settings).get_nodes_from_documents(documents())
    assert [node.text for node in late] == [node.text for node in alone]
    assert not {node.node_id for node in late} & {node.node_id for node in alone}, "another vector needs another id"
    apart = [np.abs(np.subtract(a.embedding, b.embedding)).max() for a, b in zip(late, alone, strict=True)]
    assert max(apart) > 1e-3
    assert np.abs(np.array(alone[3].embedding) - embedding.embedder.encode_document(alone[3].text)).max() <= 1e-5


def test_metadata(parser, embedding):
    story = [node for node in parser.get_nodes_from_documents(documents()) if node.ref_doc_id == "story"]
    assert story[0].metadata["title"] == "The ferry"
    assert story[0].metadata["eddy_fingerprint"] == embedding.fingerprint
    assert story[0].metadata["eddy_n_windows"] == 1 and story[0].metadata["eddy_n_truncated"] == 0
    for mode in (MetadataMode.EMBED, MetadataMode.LLM):
        assert "eddy_" not in story[0].get_content(mode) and "The ferry" in story[0].get_content(mode)
    bare = LongDocumentNodeParser(embed_model=embedding, passage_size=24, include_metadata=False)
    assert "title" not in bare.get_nodes_from_documents(documents())[1].metadata


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


def test_pieces_of_documents_keep_the_documents_offsets(parser):
    piece = TextNode(text=STORY[100:], start_char_idx=100, end_char_idx=len(STORY))
    piece.relationships[NodeRelationship.SOURCE] = Document(text=STORY, id_="story").as_related_node_info()
    for node in parser.get_nodes_from_documents([piece]):
        assert STORY[node.start_char_idx : node.end_char_idx] == node.text
        assert node.ref_doc_id == "story"


def test_what_is_wrong_is_refused(parser, embedding):
    with pytest.raises(InvalidText, match=r"'broken'.*character 3"):
        parser.get_nodes_from_documents([*documents(), Document(text="bad\ud800", id_="broken")])
    with pytest.raises(InvalidParameter, match="MockEmbedding"):
        LongDocumentNodeParser(embed_model=MockEmbedding(embed_dim=2))
    with pytest.raises(InvalidParameter, match="document, passages, sentences"):
        LongDocumentNodeParser(embed_model=embedding, parts=("chapters",))
    with pytest.raises(InvalidParameter, match="did you mean passage_size"):
        LongDocumentNodeParser(embed_model=embedding, pasage_size=9)
    last = EddyEmbedding(model_name="eddy-tiny", method="prompteol")
    with pytest.raises(IncompatibleMethods, match="late=False"):
        LongDocumentNodeParser(embed_model=last, late=True)
    assert LongDocumentNodeParser(embed_model=last).get_nodes_from_documents(documents())


def test_travels_by_configuration(parser, embedding):
    data = pickle.dumps(parser)
    assert len(data) < 4_000 and parser.embed_model is embedding, "pickling must not change the object"
    loaded = pickle.loads(data)
    assert loaded.embed_model._engine is None
    assert ids(loaded, documents()) == ids(parser, documents())
    assert copy.deepcopy(parser).embed_model.embedder is embedding.embedder
    again = LongDocumentNodeParser.from_dict(parser.to_dict())
    assert again.to_dict() == parser.to_dict()


def test_pipeline_into_chroma_keeps_the_parser_s_vectors(parser, embedding, tmp_path):
    client = chromadb.PersistentClient(path=str(tmp_path))
    cosine = {"hnsw": {"space": "cosine"}}
    collection = client.create_collection("library", embedding_function=None, configuration=cosine)
    store = ChromaVectorStore(chroma_collection=collection)
    pipeline = IngestionPipeline(transformations=[parser, embedding], vector_store=store, cache=IngestionCache())
    expected = {node.node_id: node.embedding for node in parser.get_nodes_from_documents(documents())}
    for _ in range(2):  # the second run changes nothing: not the ids, not the number of rows
        nodes = pipeline.run(documents=documents())
        rows = collection.get(include=["embeddings"])
        assert [node.node_id for node in nodes] == list(expected) and set(rows["ids"]) == set(expected)
        for id_, vector in zip(rows["ids"], rows["embeddings"], strict=True):
            assert np.abs(vector - expected[id_]).max() <= 1e-5


def test_other_nodes_of_the_pipeline_are_embedded(parser, embedding):
    late = parser.get_nodes_from_documents(documents())
    kept = [list(node.embedding) for node in late]
    foreign = LongDocumentNodeParser(
        embed_model=EddyEmbedding(model_name="eddy-tiny", method="plain:exit=2"), passage_size=24
    ).get_nodes_from_documents(documents())
    changed = parser.get_nodes_from_documents(documents())[0]
    changed.set_content("Another text.")
    fresh = TextNode(text="A node without a vector.")
    unmarked = TextNode(text="A vector of somebody.", embedding=[1.0, 0.0])
    embedding([*late, *foreign, changed, fresh, unmarked])
    assert [node.embedding for node in late] == kept
    for node in (foreign[0], changed, fresh, unmarked):
        expected = embedding.get_text_embedding(node.get_content(MetadataMode.EMBED))
        assert np.abs(np.subtract(node.embedding, expected)).max() <= 1e-5
        assert "eddy_fingerprint" not in node.metadata, "it says nothing of this vector"


def test_the_ingestion_cache_follows_the_parser_s_settings(parser, embedding):
    other = {"model_name": "eddy-tiny", "method": "plain:exit=2"}
    changes = [{}, {"passage_size": 12}, {"late": True}, {"embed_model": other}]
    usual = {"embed_model": embedding, "passage_size": 24}
    keys = [get_transformation_hash(documents(), LongDocumentNodeParser(**{**usual, **change})) for change in changes]
    assert len(set(keys)) == len(changes) and keys[0] == get_transformation_hash(documents(), parser)


TIDES = (
    "The moon pulls the water of the sea. Twice a day the harbour fills. At full moon the tide is highest. "
    "Bread needs flour, water and salt. The dough rests overnight. A hot oven gives a good crust. "
    "A pendulum swings once in two seconds. The weights are wound up by hand. The clock strikes the hours."
)
YES = "Yes. No. Yes.\n\nYes. He said it twice: yes. " * 3
ALL: tuple[Part, ...] = ("document", "passages", "sentences")


def parsed(embedding: EddyEmbedding, parts: Sequence[Part] = ALL, **options: object) -> list[BaseNode]:
    parser = LongDocumentNodeParser(embed_model=embedding, passage_size=30, parts=parts, **options)
    return parser.get_nodes_from_documents(
        [Document(text=TIDES, id_="tides", metadata={"author": "A. Clerk"}), Document(text=YES, id_="yes")]
    )


def of(nodes: Sequence[BaseNode], part: str) -> list[TextNode]:
    return [node for node in nodes if isinstance(node, TextNode) and node.metadata["eddy_part"] == part]


def test_every_level_has_the_engine_s_vectors_and_exact_places(embedding):
    nodes = parsed(embedding)
    texts = {"tides": TIDES, "yes": YES}
    assert len({node.node_id for node in nodes}) == len(nodes), "a passage of one sentence is another row than it"
    assert [node.node_id for node in parsed(embedding)] == [node.node_id for node in nodes]
    for node in nodes:
        assert texts[node.ref_doc_id][node.start_char_idx : node.end_char_idx] == node.text
    for name, text in texts.items():
        long = embedding.embedder.encode_long(text, passage_size=30)
        mine = [node for node in nodes if node.ref_doc_id == name]
        expected = [long.vector, *(p.vector for p in long.passages), *(s.vector for s in long.sentences)]
        assert len(mine) == len(expected)
        for node, vector in zip(mine, expected, strict=True):
            assert np.abs(np.subtract(node.embedding, vector)).max() <= 1e-5
        assert mine[0].metadata["eddy_n_tokens"] == long.n_tokens


@pytest.mark.parametrize("parts", [ALL, ("document", "sentences"), ("sentences",)])
def test_parents_hold_their_children(embedding, parts):
    nodes = parsed(embedding, parts[::-1])
    levels = [of(nodes, part) for part in parts]
    by_id = {node.node_id: node for node in nodes}
    assert get_root_nodes(nodes) == levels[0] and get_leaf_nodes(nodes) == levels[-1]
    for above, below in pairwise(levels):
        held = [child.node_id for parent in above for child in parent.child_nodes]
        assert held == [node.node_id for node in below], "each once, in order"
        for node in below:
            parent = by_id[node.parent_node.node_id]
            assert parent.ref_doc_id == node.ref_doc_id
            assert parent.start_char_idx <= node.start_char_idx < node.end_char_idx <= parent.end_char_idx
            assert (node.parent_node.hash, node.parent_node.metadata) == (parent.hash, parent.metadata)
            assert "author" in node.metadata or node.ref_doc_id == "yes"


def test_neighbours_are_of_one_level_and_one_document(embedding):
    nodes = parsed(embedding)
    for part in ALL:
        level = of(nodes, part)
        for left, right in pairwise(level):
            same = left.ref_doc_id == right.ref_doc_id
            assert (left.next_node.node_id if left.next_node else None) == (right.node_id if same else None)
            assert (right.prev_node.node_id if right.prev_node else None) == (left.node_id if same else None)
    apart = parsed(embedding, include_prev_next_rel=False)
    assert all(node.next_node is None and node.prev_node is None for node in apart)
    assert all(node.parent_node for node in of(apart, "sentences"))


def test_sentences_found_together_become_their_passage(embedding, tmp_path):
    nodes = parsed(embedding, ("passages", "sentences"))
    collection = chromadb.PersistentClient(path=str(tmp_path)).create_collection(
        "leaves", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
    )
    store = ChromaVectorStore(chroma_collection=collection)
    context = StorageContext.from_defaults(vector_store=store, docstore=SimpleDocumentStore())
    context.docstore.add_documents(nodes)
    index = VectorStoreIndex(get_leaf_nodes(nodes), storage_context=context, embed_model=embedding)
    tide = of(nodes, "passages")[0]
    held = [child.node_id for child in tide.child_nodes]
    assert len(held) == 3
    found = index.as_retriever(similarity_top_k=len(of(nodes, "sentences")))
    # All sentences found: every passage takes the place of its own.
    merged = AutoMergingRetriever(found, context).retrieve("When is the tide highest?")
    assert {hit.node.node_id for hit in merged} == {node.node_id for node in of(nodes, "passages")}
    few = index.as_retriever(similarity_top_k=2).retrieve("A pendulum swings once in two seconds.")
    assert any(hit.node.text == "A pendulum swings once in two seconds." for hit in few)
    merged = AutoMergingRetriever(index.as_retriever(similarity_top_k=2), context, simple_ratio_thresh=0.99)
    texts = {hit.node.text for hit in merged.retrieve("A pendulum swings once in two seconds.")}
    assert "A pendulum swings once in two seconds." in texts, "a single sentence is no majority"


def test_levels_travel_and_ids_of_one_s_own_run_through_all(embedding):
    parser = LongDocumentNodeParser(embed_model=embedding, parts=["sentences", "passages"])
    assert parser.parts == LongDocumentNodeParser.from_dict(parser.to_dict()).parts == ("passages", "sentences")
    nodes = parsed(embedding, id_func=lambda i, doc: f"{doc.node_id}/{i}")
    mine = [node.node_id for node in nodes if node.ref_doc_id == "tides"]
    assert mine == [f"tides/{number}" for number in range(len(mine))]


def test_headings_are_told_to_people_and_models_alike(embedding):
    text = "# Tides\n\nThe moon pulls.\n\n## Harbours\n\nTwice a day they fill. Then they are empty."
    document = Document(text=text, id_="tides", metadata={"source": "tides.md"})
    parser = LongDocumentNodeParser(embed_model=embedding, passage_size=1, passage_unit="sentences")
    nodes = parser.get_nodes_from_documents([document])
    told = ["Tides", "Tides > Harbours", "Tides > Harbours"]
    assert [node.metadata["heading_path"] for node in nodes] == told
    assert nodes[1].text == "## Harbours\n\nTwice a day they fill."
    assert "Tides > Harbours" in nodes[2].get_content(MetadataMode.LLM)
    assert "Tides > Harbours" not in nodes[2].get_content(MetadataMode.EMBED)
    embeddings = EddyEmbeddings(model_name="eddy-tiny", method="plain:exit=1")
    passages = embed_passages(
        [LangChainDocument(text, metadata={"source": "tides.md"})], embeddings, passage_size=1, passage_unit="sentences"
    )
    assert [passage.document.metadata["heading_path"] for passage in passages] == told
    bare = parser.get_nodes_from_documents([Document(text="No headings. None.")])
    assert all("heading_path" not in node.metadata for node in bare)
    without = parser.model_copy(update={"headings": False}).get_nodes_from_documents([document])
    assert " ".join(node.text for node in without).split() == text.split()
    assert not any("heading_path" in node.metadata for node in without)
    assert not {node.node_id for node in nodes} & {node.node_id for node in without}, "their vectors differ"
