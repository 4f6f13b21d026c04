"""Keyword search: terms, BM25 against plain loops, fusion, and a keyword index that keeps up with the rows."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from tests.adapters.indexes import MAIN, SENTENCES, documents, rows
from tests.adapters.killing import stop_at

from chroma_eddy import ALPHA, Document, Index, StorageError, TermAnalyzer, memory_client, open_index, search
from chroma_eddy.keywords import KeywordIndex
from eddy_embed import Embedder
from eddy_embed.integrations.shared import unrelated_cosines

LINES = ("Granite cools slowly.", "The ferry leaves at noon.")
ASKED = "When do boats of granite with a deep keel leave?"

# --- Terms

TERMS = (
    ("The dog’s bone; dogs' bones.", "the dog bone dog bone"),
    ("the DOG'S bone", "the dog bone"),
    ("Running, ran: RUNS", "run ran run"),
    ("naïve café ﬁnd Ｗｉｄｅ", "naiv cafe find wide"),
    ("soft\u00adhyphen co-operate well—known", "softhyphen cooper co oper well known"),
    ("cafe\u0301 max_length H2O H₂O", "cafe max length h2o h2o"),
    ("渡し船は。船", "渡 渡し し し船 船 船は は 船"),
    ("iPhone手机 배가 𠮷", "iphon 手 手机 机 배 배가 가 𠮷"),
    ("ﾊﾟﾘ ﾊﾞｽ", "パ パリ リ バ バス ス"),
    ("C# C++17 F#. (A+) g++ .NET AT&T R&D #1", "c# c++ 17 f# a+ g++ .net net at&t at r&d 1"),
    ("Notepad++ .bashrc a+b x+1 ++i issue#12", "notepad++ notepad .bashrc bashrc a b x 1 i issu 12"),
    ("e-mail wi‑fi O’Brien don't USA U.S.A. WiFi", "email e mail wifi wi fi obrien o brien don t usa usa wifi"),
    ("COVID-19 COVID19 AB-1234", "covid19 covid 19 covid19 covid 19 ab1234 ab 1234"),
    ("state-of-the-art", "state of the art"),
    ("1,299.00 1.299,00 1299 3.5", "1299.00 1299 1 299 00 1299.00 1299 1 299 00 1299 3.5 3 5"),
    ("1,299 1’000’000 10.0.0.1", "1.299 1299 1 299 1000000 1 000 000 10.0.0.1 10 0 0 1"),
    ("٢٠٢٦ ２０２６ २०२६", "2026 2026 2026"),
    ("الْعَرَبِيَّة كـتاب שָׁלוֹם", "العربية كتاب שלום"),
    ("łódź Øre đà œuvre encyclopædia ığ", "lodz ore da oeuvr encyclopaedia ig"),
    ("growth¹² m² Eddy™", "growth12 growth 12 m2 eddi ™"),
    ("boat🚢 👩\u200d🚀 ❤️ 👍🏽 🇩🇪", "boat 🚢 👩🚀 ❤ 👍 🇩🇪"),
    ("हिन्दी भाषा", "हिन्दी भाषा"),
    ("!! … —", ""),
    ("ﷺ", "صلى الله عليه وسلم"),
    # dots join nothing that is another word
    ("1.2.3 v1.2.3 1.2.3-beta", "1.2.3 1 2 3 v1.2.3 v1 2.3 2 3 1.2.3beta 1.2.3 1 2 3 beta"),
    ("python3.11 Python 3.11", "python3.11 python3 python 3 11 python 3.11 3 11"),
    (
        "1.5-inch 3.5mm 1,000-2,500",
        "1.5inch 1.5 1 5 inch 3.5 3 5 mm 1.0002.500 1.000 1000 1 000 2.500 2500 2 500",
    ),
    ("a.py x.y.z main.c", "a py xyz mainc main c"),
    ("in the U.S. The end. So", "in the us the end so"),
    ("Ph.D. Node.js ASP.NET H.264 p.m.", "phd ph d nodej node js aspnet asp net h264 h 264 pm"),
    ("getTideLevel XMLHttpRequest", "gettidelevel get tide level xmlhttprequest xml http request"),
    ("1\u2009000 2\u202f500.50 iPhone McDonald", "1.000 1000 1 000 2500.50 2500 2 500 50 iphon mcdonald"),
    ("the U.S.The e.g.the", "the u s the eg the"),
    ("docs.python.org foo.bar.baz", "doc python org foo bar baz"),
    ("wait...what a . b .. c.", "wait what a b c"),
    ("non-C++ a C#-like .NET-based R&D-heavy", "non c++ a c# like .net net base r&d heavi"),
)


def test_terms() -> None:
    analyzer = TermAnalyzer("en")
    for text, expected in TERMS:
        terms = list(analyzer(text))
        assert [term.text for term in terms] == expected.split() == analyzer.texts(text), text
        assert all(text[term.start : term.end].strip() for term in terms), text


def test_a_question_loses_its_stop_words_unless_it_has_no_others() -> None:
    analyzer = TermAnalyzer("en")
    asked = analyzer.of_question("Why does the ferry leave the ferry's harbour?")
    assert asked == ["ferri", "leav", "ferri", "harbour"]
    assert analyzer.of_question("To be or not to be") == ["to", "be", "or", "not", "to", "be"]
    assert TermAnalyzer("de").of_question("Warum fahren die Fähren?") == ["fahr", "fahr"]
    assert TermAnalyzer("xx").of_question("the ferries") == ["the", "ferries"]


# --- BM25


def quantised(length: int) -> int:
    """Lengths are stored in a byte: exact up to 40, then with four binary digits above 24."""
    over = length - 24
    shift = max(over.bit_length() - 4, 0) if over > 0 else 0
    return 24 + (over >> shift << shift) if over > 0 else length


def naive_bm25(texts: dict[str, list[str]], question: list[str]) -> dict[str, float]:
    """BM25 of every text (Robertson and Zaragoza 2009, with Lucene's idf), in loops."""
    mean = sum(map(len, texts.values())) / len(texts)
    scores = dict.fromkeys(texts, 0.0)
    for term in question:
        having = [id_ for id_, terms in texts.items() if term in terms]
        idf = math.log(1 + (len(texts) - len(having) + 0.5) / (len(having) + 0.5))
        for id_ in having:
            count = Counter(texts[id_])[term]
            scores[id_] += idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * quantised(len(texts[id_])) / mean))
    return scores


def naive_weight(texts: dict[str, list[str]], term: str) -> float:
    having = sum(term in terms for terms in texts.values())
    return math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))


@pytest.mark.parametrize("on_disk", [True, False])
def test_bm25_is_that_of_plain_loops(tmp_path: Path, embedder: Embedder, on_disk: bool) -> None:
    draw, vectors = random.Random(0), np.random.default_rng(0).normal(size=(60, embedder.dimension))
    vocabulary = [f"w{chr(97 + at // 26)}{chr(97 + at % 26)}x" for at in range(40)]
    texts = {f"t{at}": draw.choices(vocabulary, range(40, 0, -1), k=draw.randint(1, 90)) for at in range(60)}
    with open_index(tmp_path if on_disk else memory_client(), "notes", embedder) as index:
        lines, owners = [" ".join(terms) for terms in texts.values()], [f"d{id_[-1]}" for id_ in texts]
        index.upsert_rows(list(texts), lines, vectors, [{"n": id_[-1]} for id_ in texts], owners, embedder.fingerprint)
        for _ in range(5):
            question = draw.choices([*vocabulary[:20], "unknown"], k=5)
            expected = {id_: score for id_, score in naive_bm25(texts, question).items() if score}
            hits = index.query(" ".join(question), 100, alpha=0)
            assert {hit.id: hit.bm25 for hit in hits} == pytest.approx(expected, rel=1e-5)
            for hit in hits:
                weights = {match.term: match.weight for match in hit.matches}
                assert weights == pytest.approx({term: naive_weight(texts, term) for term in weights})
            chosen = index.query(" ".join(question), 100, alpha=0, documents=["d1", "d2"], where={"n": {"$ne": "2"}})
            assert {hit.id for hit in chosen} == {id_ for id_ in expected if id_[-1] == "1"}


def test_a_damaged_folder_is_a_failure_of_the_disk(folder: Path, embedder: Embedder) -> None:
    for path in folder.glob("eddy.words/*/meta.json"):
        path.write_text("{")
    with open_index(folder, "notes", embedder) as index:
        with pytest.raises(StorageError, match=r"keyword index(.|\n)*check\(\)"):
            index.query("ferry")
        assert index.query("ferry", alpha=1)
        index.check()
        assert index.query("granite", 1)[0].bm25


# --- Fusion


def naive_fusion(index: Index, question: str, alpha: float) -> dict[str, float]:
    """Every passage by both true scores, in loops; a sentence's by its document and start."""
    held = rows(index)[MAIN]
    analyzer = TermAnalyzer("en")
    terms = analyzer.of_question(question)
    asked = index.embedder.encode_query(question).astype(np.float64)
    near = {id_: float(np.dot(vector, asked) / np.linalg.norm(vector)) for id_, (vector, _, _) in held.items()}
    mean = sum(near.values()) / len(near)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in near.values()) / len(near))
    passages = {
        id_: [term.text for term in analyzer(f"{row.get('heading_path', '')}\n{text}")]
        for id_, (_, row, text) in held.items()
    }
    bm25 = naive_bm25(passages, terms)
    length = math.sqrt(sum((n * naive_weight(passages, term)) ** 2 for term, n in Counter(terms).items()))
    scores = {}
    for id_, (_, row, text) in held.items():
        typed = [word in text.lower() for word in question.lower().split()]
        same = sorted(bm25[other] for other in held if held[other][1]["eddy_document"] == row["eddy_document"])
        keywords = 1.5 * (bm25[id_] + sum(same[-5:]) / 5) / length + 4 * (sum(typed) / len(typed)) ** 8
        scores[id_] = alpha * (near[id_] - mean) / deviation + (1 - alpha) * keywords
    for hit in index.query(question, 1000, sentences=True, alpha=1):
        for mark in hit.sentences:
            held_terms = {term.text for term in analyzer(mark.text)}
            words = 1.5 * sum(naive_weight(passages, term) for term in terms if term in held_terms) / length
            meant = (mark.cosine - mean) / deviation
            scores[f"{hit.document} {mark.start}"] = alpha * meant + (1 - alpha) * words
    return scores


@pytest.mark.parametrize(
    ("asked", "alpha"),
    [(ASKED, ALPHA), ("Keel, keel: deep granite and a zeppelin", 0.1), ("zeppelins, glaciers?!", 0.5)],
)
def test_vectors_and_keywords_are_fused(shelf: Index, asked: str, alpha: float) -> None:
    """Words that are nowhere in the library leave the vectors alone."""
    expected = naive_fusion(shelf, asked, alpha)
    hits = shelf.query(asked, 1000, alpha=alpha, sentences=True)
    fused = {hit.id: hit.fused for hit in hits}
    fused |= {f"{hit.document} {mark.start}": mark.fused for hit in hits for mark in hit.sentences}
    assert fused == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert [hit.fused for hit in hits] == sorted((hit.fused for hit in hits), reverse=True)
    texts = {document.id: document.text for document in documents()}
    terms = {hit.id: TermAnalyzer("en").texts(hit.text) for hit in hits}
    weights = {t: n * naive_weight(terms, t) for t, n in Counter(TermAnalyzer("en").of_question(asked)).items()}
    for hit in hits:
        assert hit.best is max(hit.sentences, key=lambda sentence: sentence.fused)
        words = [texts[hit.document][match.start : match.end].casefold() for match in hit.matches]
        assert all(word.startswith(match.term[:4]) for word, match in zip(words, hit.matches, strict=True))
        assert (hit.bm25 == 0) == (hit.coverage == 0) == (not hit.matches)
        share = sum(weight for term, weight in weights.items() if term in terms[hit.id]) / sum(weights.values())
        assert hit.coverage == pytest.approx(share)
    keywords = {hit.id: hit.fused for hit in shelf.query(asked, 1000, alpha=0)}  # alone, they find what shares one
    assert set(keywords) == {hit.id for hit in hits if hit.matches}
    assert list(keywords.values()) == sorted(keywords.values(), reverse=True)
    for hit in (hit for hit in hits if hit.id in keywords):
        assert hit.fused == pytest.approx(alpha * hit.deviation + (1 - alpha) * keywords[hit.id], abs=1e-5)
    near = shelf.query(asked, 1000, alpha=1)
    assert {hit.id for hit in near} == {hit.id for hit in hits}
    assert all(hit.fused == hit.cosine and hit.bm25 is None and not hit.matches for hit in near)
    if alpha == ALPHA:
        assert hits == shelf.query(asked, 1000, sentences=True)


def test_a_passage_is_found_by_the_keywords_of_its_headings(tmp_path: Path, embedder: Embedder) -> None:
    text = "# Harbours\n\n## Zeppelins\n\nThey land at noon.\n\n## Boats\n\nThey leave at noon."
    with open_index(tmp_path, "notes", embedder, passage_size=6) as index:
        index.upsert([Document("notes.md", text)])
        for _ in range(2):
            hits = index.query("zeppelin", alpha=0)
            (hit,) = [hit for hit in hits if "land" in hit.text]
            assert hit.headings == "Harbours > Zeppelins" and hit.bm25 and hit.coverage == 1
            assert all("leave" not in hit.text for hit in hits)
            index.check(full=True)  # which reads them anew


def test_conditions_give_the_same_hits_whether_the_best_rows_or_all_are_asked(
    shelf: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chroma gets no ids together with conditions, which it compares with each other one by one."""
    get, broad = chromadb.Collection.get, list[bool]()

    def seen(collection: chromadb.Collection, ids: Any = None, where: Any = None, *more: Any, **options: Any) -> Any:
        assert ids is None or not (where or options.get("where_document"))
        broad.append("eddy_vector" in repr(where))
        return get(collection, ids, where, *more, **options)

    monkeypatch.setattr(chromadb.Collection, "get", seen)
    for options in (
        {"where": {"shelf": "a"}},
        {"where": {"shelf": "a"}, "where_document": {"$contains": "Granite"}},
        {"where": {"eddy_document": {"$eq": "papers/1"}}},  # which looks like the index's own
        {"where": {"shelf": "z"}},
        {"where": {"page": {"$lte": 1}}, "documents": ["papers/0", "papers/1"], "alpha": 0},
    ):
        answers = []
        for most, *breadths in ((0, 10), (1000, 1), (1000, 1, 10), (1000, 10)):
            monkeypatch.setattr(search, "_MOST_ASKED", most)
            monkeypatch.setattr(search, "_BREADTHS", breadths)
            broad.clear()
            hits = shelf.query("granite keel", 3, fetch_k=3, **options)
            answers.append([(hit.id, hit.fused) for hit in hits])
            assert any(broad) == (most > 0)
        assert all(answer == answers[0] for answer in answers)
        both, near, same = (
            {hit.id for hit in shelf.query("granite keel", 1000, **{**options, "alpha": alpha})}
            for alpha in (None, 1, 0)
        )
        assert both == near >= same


def test_diverse_hits_of_both(shelf: Index) -> None:
    best, *_ = ids = [hit.id for hit in shelf.query(ASKED, 4)]
    assert [hit.id for hit in shelf.query(ASKED, 4, mmr=True, lambda_mult=1.0)] == ids
    diverse = [hit.id for hit in shelf.query(ASKED, 4, mmr=True, lambda_mult=0.0)]
    assert diverse[0] == best and set(diverse) != set(ids)


def test_scores_say_how_likely_a_text_is_about_the_question(shelf: Index) -> None:
    """From 0 to 1, by what the number of passages leaves alone, and never rising along the hits but where MMR chose."""
    mean, deviation = unrelated_cosines(shelf.embedder)

    def naive(share: float | None, cosine: float) -> float:
        above = (cosine - mean) / deviation
        return 1 / (1 + math.exp(3.6 - above if share is None else 4 - 8 * share - 0.4 * above))

    for options in ({}, {"alpha": 0}, {"alpha": 1}, {"unit": "document"}, {"unit": "sentence"}):
        hits, lowest = shelf.query(ASKED, 1000, **options), 1.0
        for hit in hits:
            lowest = min(lowest, naive(hit.coverage, hit.cosine))
            assert hit.score == pytest.approx(lowest) and 0 < hit.score < 1
        assert hits[0].score > hits[-1].score
    diverse = shelf.query(ASKED, 4, mmr=True, lambda_mult=0.0, sentences=True)
    assert [hit.score for hit in diverse] == pytest.approx([naive(hit.coverage, hit.cosine) for hit in diverse])
    for mark in diverse[0].sentences:
        terms = {match.term: match.weight for match in diverse[0].matches if mark.start <= match.start < mark.end}
        assert (mark.score > naive(0, mark.cosine)) == bool(terms)


# --- Keeping up


def check_keywords(index: Index) -> None:
    """Whether a question with all words of the documents finds every passage by its keywords."""
    hits = index.query(" ".join(SENTENCES), 1000, alpha=0)
    assert {hit.id for hit in hits} == {*index.get()["ids"]}


def test_keywords_are_those_of_the_rows_after_every_change(folder: Path, index: Index) -> None:
    index.upsert([Document("papers/1", "A zeppelin over the harbour.")])
    assert index.query("zeppelin", 1)[0].document == "papers/1"
    index.remove(["papers/2"])
    check_keywords(index)
    index.sync(documents(3))
    assert not index.query("zeppelin", 5, alpha=0)
    index.reindex(Embedder("eddy-tiny", method="plain:exit=1", check=False), passage_size=40)
    check_keywords(index)
    assert [path.name for path in (folder / "eddy.words").iterdir()] == [index.collection.metadata["eddy_id"]]


@pytest.mark.parametrize("made_by", ["another version", "nobody"])
@pytest.mark.parametrize("change", ["write", "reindex"])
def test_keywords_that_are_not_on_disk_are_read_anew(made_by, change, folder: Path, embedder: Embedder) -> None:
    (complete,) = folder.glob("eddy.words/*/complete")
    complete.write_text(made_by) if made_by != "nobody" else complete.unlink()
    for file in complete.parent.glob("*.idx"):
        file.unlink()
    with open_index(folder, "notes", embedder) as index:
        assert index.query("granite", 1)[0].bm25  # read into memory
        if change == "write":
            index.remove(["none"])
        else:
            index.reindex(Embedder("eddy-tiny", method="plain:exit=1", check=False))
        check_keywords(index)
    assert len(list(folder.glob("eddy.words/*/complete"))) == 1


def test_in_memory_keywords_are_read_again_after_another_wrote_meanwhile(embedder: Embedder, monkeypatch) -> None:
    client, write = memory_client(), chromadb.Collection.upsert
    with open_index(client, "notes", embedder) as index, open_index(client, "notes", embedder) as other:
        index.upsert(documents(2))
        assert index.query("granite", 1)[0].bm25

        def overtaken(self: chromadb.Collection, *columns: object) -> None:
            monkeypatch.setattr(chromadb.Collection, "upsert", write)
            other.upsert([Document("new", "A zeppelin over the harbour.")])
            write(self, *columns)

        monkeypatch.setattr(chromadb.Collection, "upsert", overtaken)
        index.upsert([Document("next", "A balloon over the harbour.")])
        for question, document in (("zeppelin", "new"), ("balloon", "next")):
            assert [hit.document for hit in index.query(question, 9, alpha=0)] == [document]


def test_frameworks_rows_are_found_before_their_keywords_are_there(tmp_path: Path, embedder: Embedder) -> None:
    vectors = embedder.encode_document(list(LINES))

    def write(index: Index, count: int) -> None:
        ids = ["p0", "p1"][:count]
        index.upsert_rows(ids, LINES[:count], vectors[:count], [{}] * count, ["book"] * count, embedder.fingerprint)

    with open_index(tmp_path, "notes", embedder) as index:
        write(index, 1)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_at(patch, 1, KeywordIndex, "put")
            write(index, 2)
        with open_index(tmp_path, "notes", embedder) as reader:
            assert {hit.id for hit in reader.query("granite ferry", 9)} == {"p0", "p1"}
        index.collection.delete(ids=["p0"])
        assert {hit.id for hit in index.query("granite ferry", 9)} == {"p1"}
        write(index, 2)
        assert all(hit.bm25 for hit in index.query("granite ferry", 9))
    with open_index(memory_client(), "notes", embedder) as index:
        write(index, 2)
        index.collection.delete(ids=[index.query("granite ferry", 9)[1].id])  # of which keywords in memory do not hear
        assert len(index.query("granite ferry", 9)) == 1


# --- What users type

PAGES = {
    "cat": "猫在树下睡觉。",
    "korean": "배가 항구에 있다.",
    "csharp": "Services are written in C# and run on .NET.",
    "cpp": "The kernel of the library is C++.",
    "c": "C has no classes, and R and Go neither.",
    "wifi": "The WiFi of the ferry costs nothing; write an E-Mail, by Node.js.",
    "covid": "COVID19 closed the harbour in 2026; Mr. O'Brien, Ph.D. of the U.S.A., paid 1,299.00.",
    "arabic": "كُتِبَ في ٢٠٢٦",
    "deep": "A deep\nkeel needs deep water. Boats wait for the tide 🚢.",
    "shallow": "A keel that is deep; boats leave.",
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory, embedder: Embedder) -> Iterator[Index]:
    with open_index(tmp_path_factory.mktemp("pages"), "pages", embedder) as index:
        index.upsert(Document(id_, text) for id_, text in PAGES.items())
        yield index


OPERATORS: tuple[tuple[str, set[str]], ...] = (
    ('"deep keel"', {"deep"}),
    ("boats with a “DEEP keel”?", {"deep"}),
    ("deep keel -tide", {"shallow"}),
    ('keel -"deep keel"', {"shallow"}),
    ("keel -TIDE, please", {"shallow"}),
    ("keel --tide -t", {"deep", "shallow"}),
    ('"c#"', {"csharp"}),
    ('"O’Brien"', {"covid"}),
    ('"ee"', set()),
    ('"树下"', {"cat"}),
)


def test_phrases_and_excluded_words_are_honoured(pages: Index) -> None:
    for asked, wanted in OPERATORS:
        assert {hit.document for hit in pages.query(asked, 10, alpha=0)} == wanted, asked
        hits = {hit.document for hit in pages.query(asked, 10)}
        assert wanted <= hits and (hits == wanted or "-" in asked), asked
    condition = {"where_document": {"$contains": "A "}}
    assert {hit.document for hit in pages.query("keel --tide -t", 10, alpha=0, **condition)} == {"deep", "shallow"}
    assert not pages.query('"c#"', 10, alpha=0, **condition)
    assert len(pages.query('"deep keel"', 10, alpha=1)) == 10


def test_longer_questions_are_prose(pages: Index) -> None:
    words = 'Which of the boats has a keel "as shallow" as any, -tide or not, and floats well'.split()
    assert len(words) == 17
    assert {hit.document for hit in pages.query(" ".join(words), 10, alpha=0)} >= {"deep", "shallow"}
    assert not pages.query(" ".join(words[1:]), 10, alpha=0)
