"""Questions to an index, against plain numpy."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from tests.adapters.indexes import DOCUMENTS, MAIN, SENTENCES_OF, documents, rows

from chroma_eddy import Hit, Index, open_index
from eddy_embed import Embedder
from eddy_embed.errors import InvalidParameter, InvalidText

ASKED = "When do boats with a deep keel leave?"


@pytest.fixture(scope="module")
def query(embedder) -> np.ndarray:
    return embedder.encode_query(ASKED)


def ranked(index: Index, part: str, query: np.ndarray, keep=lambda row: True) -> list[tuple[str, float]]:
    """Ids and cosines of all rows, best first."""
    found = [(id_, float(v @ query)) for id_, (v, row, _) in rows(index)[part].items() if keep(row)]
    return sorted(found, key=lambda pair: -pair[1])


def same(hits: list[Hit], expected: list[tuple[str, float]], k: int) -> bool:
    assert [hit.cosine for hit in hits] == pytest.approx([cosine for _, cosine in expected[:k]], abs=1e-5)
    return len(hits) == min(k, len(expected)) == len({hit.id for hit in hits})


@pytest.mark.parametrize(("unit", "part"), [("passage", MAIN), ("sentence", SENTENCES_OF), ("document", DOCUMENTS)])
def test_hits_are_the_nearest_with_true_cosines(unit, part, shelf, query):
    texts = {document.id: document for document in documents()}
    for k in (1, 4, 1000):
        hits = shelf.query(ASKED, k, unit=unit, alpha=1)
        assert same(hits, ranked(shelf, part, query), k)
        assert shelf.search([query, query], k, unit=unit)[1] == hits
        for hit in hits:
            own = texts[hit.document]
            assert hit.text == own.text[hit.start : hit.end] and hit.fused == hit.cosine
            if unit == "passage":
                assert hit.metadata == own.metadata
                assert (hit.page is None) == (not own.page_starts)


def test_filters(shelf, query):
    two = ["papers/1", "papers/4"]
    for options, keep in (
        ({"where": {"shelf": "a"}}, lambda row: row["shelf"] == "a"),
        ({"documents": two}, lambda row: row["eddy_document"] in two),
    ):
        assert same(shelf.query(ASKED, 100, alpha=1, **options), ranked(shelf, MAIN, query, keep), 100)
    assert not shelf.query(ASKED, documents=[]) and not shelf.query(ASKED, documents=two, where={"number": 2})
    words = shelf.query(ASKED, 100, where_document={"$contains": "Granite"}, documents=None)
    assert words and all("Granite" in hit.text for hit in words)
    first = shelf.query(ASKED, 100, where={"page": {"$lte": 1}})
    assert first and all(hit.page == 1 and hit.last_page in (1, 2) for hit in first)
    for unit in ("sentence", "document"):
        found = shelf.query(ASKED, 100, where={"shelf": "b"}, unit=unit)
        assert {hit.document for hit in found} == {f"papers/{at}" for at in (1, 3, 5)}


@pytest.mark.parametrize("method", ["plain:exit=0+sif+filter", "htp:exit=2"])
def test_sentences_are_marked_as_the_document_gives_them(method, tmp_path):
    """Read out of the passage where no layer runs; stored where layers run."""
    embedder = Embedder("eddy-tiny", method=method)
    with open_index(tmp_path, "notes", embedder, passage_size=24) as index:
        given = documents(3)
        index.upsert(given)
        assert (SENTENCES_OF in rows(index)) == (method != "plain:exit=0+sif+filter")
        asked = embedder.encode_query(ASKED)
        near = []
        for document in given:
            whole = embedder.encode_long(document.text, passage_size=24)
            lines = {(each.start, each.end): each.vector for each in whole.sentences}
            read = index.embedded(document.id)
            assert read is not None and [(each.start, each.end) for each in read.sentences] == list(lines)
            for mine, own in zip(read.sentences, lines.values(), strict=True):
                assert float(mine.vector @ own) == pytest.approx(1, abs=1e-3)
            hits = index.query(ASKED, 100, documents=[document.id], sentences=True, alpha=1)
            assert sorted((s.start, s.end) for hit in hits for s in hit.sentences) == list(lines)
            for hit in hits:
                wanted = {(s.start, s.end): float(lines[s.start, s.end] @ asked) for s in hit.sentences}
                assert [s.cosine for s in hit.sentences] == pytest.approx(list(wanted.values()), abs=1e-3)
                assert (hit.best.start, hit.best.end) == max(wanted, key=wanted.__getitem__)
            near += [float(vector @ asked) for vector in lines.values()]
        found = index.query(ASKED, 100, unit="sentence")
        assert [hit.cosine for hit in found] == pytest.approx(sorted(near, reverse=True), abs=1e-3)
        assert index.query(ASKED)[0].best is None


def test_sentences_are_read_by_the_model_where_their_vectors_are_not_stored(shelf, embedder, query, tmp_path):
    with open_index(tmp_path, "bare", embedder, passage_size=24, sentence_vectors=False) as bare:
        bare.upsert(documents(3))
        assert SENTENCES_OF not in rows(bare)
        for hit in bare.query(ASKED, 3, sentences=True, alpha=1):
            text = next(each.text for each in documents() if each.id == hit.document)
            first = len(text[: hit.start].rstrip())  # with the space before, which is part of the first token
            own = [(each.start - first, each.end - first) for each in hit.sentences]
            cosines = embedder.encode_words(text[first : hit.end], own) @ query
            assert [each.cosine for each in hit.sentences] == pytest.approx(cosines.tolist(), abs=1e-5)
        assert len(bare.query(ASKED, 3, unit="sentence")) == 3


def test_hybrid_questions_to_what_holds_little(tmp_path, embedder):
    """An index that was emptied, documents none of which is allowed, and passages that are all the same."""
    with open_index(tmp_path, "notes", embedder) as index:
        index.upsert([replace(each, text="The ferry leaves at noon.") for each in documents(3)])
        hits = index.query("When does the ferry leave?", 5)
        assert len(hits) == 3 and len({hit.score for hit in hits}) == 1
        assert index.query("ferry", 5, documents=[]) == []
        index.remove(list(index.entries()))
        assert index.query("ferry", 5) == []


@pytest.mark.parametrize("balance", [0.0, 0.3, 1.0])
def test_mmr_chooses_as_langchain_does(balance, shelf, query):
    held = rows(shelf)[MAIN]
    near = [id_ for id_, _ in ranked(shelf, MAIN, query)[:12]]
    chosen = maximal_marginal_relevance(query, [held[id_][0] for id_ in near], balance, 4)
    hits = shelf.query(ASKED, 4, mmr=True, alpha=1, fetch_k=12, lambda_mult=balance)
    assert [hit.cosine for hit in hits] == pytest.approx([float(held[near[at]][0] @ query) for at in chosen], abs=1e-5)


def test_what_does_not_go_together_is_refused(shelf, tmp_path, embedder):
    for wanted, said in (
        *(({name: 0}, name) for name in ("k", "fetch_k")),
        *(({"lambda_mult": 2}, "lambda_mult"), ({"unit": "words"}, "unit")),
        ({"documents": "papers/1"}, "documents='papers/1' must be a list of ids"),
        ({"sentences": True, "unit": "document"}, "sentences"),
        ({"alpha": 0.5, "unit": "document"}, "leave unit out"),
        ({"alpha": 1.1}, r"alpha=1\.1 must lie between 0, keywords alone, and 1, vectors alone"),
        ({"where_document": {"$regex": "(?=a)"}}, r"\(\?=a\)"),  # which only the database refuses: no failure of a disk
    ):
        with pytest.raises(InvalidParameter, match=said):
            shelf.query(ASKED, **wanted)
    with pytest.raises(InvalidParameter, match="needs the question's text"):
        shelf.search([0.1] * 320, alpha=0.5)
    for vector in ([0.5, 0.5], [0.0] * 320, [[float("nan")] * 320], [[0.1] * 319 + [float("inf")]]):
        with pytest.raises(InvalidParameter, match=r"'notes' takes finite ones, 320 wide"):
            shelf.search(vector)
    for question in (" ", "half \ud800"):
        with pytest.raises(InvalidText):
            shelf.query(question)
    with open_index(tmp_path, "empty", embedder) as empty:
        assert empty.query(ASKED) == [] and empty.status().documents == 0


def test_wrong_conditions_are_named(shelf) -> None:
    """Quoted where Chroma's client refuses them; its database says what is the matter."""
    for condition in ({"where": "n=1"}, {"where": {"n": {"$foo": 1}}}, {"where": {"a": 1, "b": 2}}):
        for call in (partial(shelf.query, ASKED), shelf.get, shelf.remove_rows):
            with pytest.raises(InvalidParameter, match=re.escape(repr(condition["where"]))):
                call(**condition)
    inside = {"$and": [{"n": 1}, {"$x": {"$gt": 2}}]}
    for condition in ({"where": {"n": float("nan")}}, {"where": inside}, {"where_document": {"$not_regex": "(?<a"}}):
        for call in (partial(shelf.query, ASKED), shelf.get):
            with pytest.raises(InvalidParameter, match="Chroma does not take the condition: "):
                call(**condition)
