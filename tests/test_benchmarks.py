"""The benchmarks: what they time and count, and how their tables come about."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent

# --- speed


def test_a_ratio_is_the_median_of_rounds_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    from speed import timing

    order: list[str] = []
    spent = {"one": iter([2.0, 9.0, 4.0]), "base": iter([1.0, 3.0, 2.0])}

    def seconds(run: Any, repeat: int) -> float:
        run()
        return next(spent[order[-1]])

    monkeypatch.setattr(timing, "seconds", seconds)
    found = timing.ratio(lambda: order.append("one"), lambda: order.append("base"), rounds=3)
    assert " ".join(order) == "one base base one one base base one"
    assert (found.median, found.low, found.high) == (2.0, 2.0, 2.5)
    assert (found.seconds, found.base, found.rounds) == (4.0, 2.0, 3)


def test_machines_have_files_of_their_own_and_the_page_has_them_all(tmp_path: Path) -> None:
    from speed import report

    page = tmp_path / "performance.md"
    page.write_text("".join(f"<!-- {part}: begin -->\n<!-- {part}: end -->\n" for part in ("peers", "memory")))
    peaks = {name: {"peak": 100, "over": 2**20} for name in ("echo", "reba")}

    def row(machine: str, shape: str) -> dict[str, Any]:
        found = {"reba": {"tokens": 512, "peaks": peaks}}
        named = {"key": f"memory {shape}", "part": "memory", "shape": shape, "dtype": "float32", "layers": 4}
        about = {"machine": machine, "threads": 1, "versions": {"torch": "2"}, "command": "python bench.py"}
        return {**named, "found": found, **about}

    report.write([row("CPU family 1 (avx2)", "one"), row("CPU family 2 (avx2)", "other")], tmp_path, page)
    report.write([row("CPU family 1 (avx2)", "third")], tmp_path, page)
    heads = [line for line in page.read_text().splitlines() if line.startswith("**")]
    assert heads == [
        f"**{shape}, 4 layers, float32**, CPU family {family} (avx2), 1 thread; torch 2."
        for shape, family in (("one", 1), ("third", 1), ("other", 2))
    ]
    files = {each.name: json.loads(each.read_text())["rows"] for each in tmp_path.glob("*.json")}
    assert {name: [each["shape"] for each in found] for name, found in files.items()} == {
        "speed-cpu-family-1.json": ["one", "third"],
        "speed-cpu-family-2.json": ["other"],
    }
    with pytest.raises(SystemExit, match="not for a table"):
        report.write([{**row("CPU", "tried"), "command": "python bench.py --trial"}], tmp_path, page)


def test_a_model_has_a_table_of_its_run_on_the_most_threads() -> None:
    """The default batch size before the best one, which may be the same; a dash for what was not measured."""
    from speed.report import SORTS, peers

    def row(peer: str, threads: int, *times: tuple[str, str, float]) -> dict[str, Any]:
        found = [
            {"texts": texts, "words": 100, "which": which, "time": {"median": t, "low": t, "high": t, "base": 0.5}}
            for texts, which, t in times
        ]
        about = {"machine": "CPU", "versions": {"torch": "2"}, "shape": "smollm2", "threads": threads}
        return {"part": "peers", "peer": peer, "found": found, **about}

    whole = [(sort, "default and best", 2.0) for sort in SORTS]
    batched = row("one", 2, ("mixed", "default", 3.0), ("mixed", "best", 1.5), *whole[1:])
    scored = {"part": "quality", "shape": "smollm2", "peer": "other", "machine": "CPU", "found": {"spearman": 0.5}}
    (table,) = peers([batched, row("other", 1, *whole), row("other", 2, *whole[1:]), scored])
    assert table.startswith("**smollm2**, CPU, 2 threads; torch 2.")
    spread = "2.00 [2.00, 2.00]"
    assert table.splitlines()[4:] == [
        f"| **Eddy, bfloat16** |{' 200 words/s |' * 4}  |",
        f"| one, default batch size | 3.00 [3.00, 3.00] |{f' {spread} |' * 3}  |",
        f"| the best batch size | 1.50 [1.50, 1.50] |{f' {spread} |' * 3}  |",
        f"| other | – |{f' {spread} |' * 3} 0.500 |",
    ]


# --- long documents


def document(*places: tuple[int, int]) -> Any:
    return SimpleNamespace(passages=[SimpleNamespace(start=start, end=end) for start, end in places])


def test_a_passage_counts_for_what_it_holds_half_of_or_what_holds_half_of_it() -> None:
    from long_retrieval import held_by

    documents = [document((0, 40), (40, 100), (100, 110)), document((0, 30), (30, 60))]
    spans = [np.array([(0, 50, 7), (52, 104, 3), (106, 110, 5)]), np.array([(0, 60, 1)])]
    # 7: the first passage is all its own, of the second it has 10 of 60; 3: 48 of 52, and 4 of 10; 5: 4 of 4.
    assert held_by(documents, spans).tolist() == [[1, 3], [1, 4], [3, 1], [5, 2], [7, 0]]


def test_the_best_passage_of_a_unit_is_its_score() -> None:
    from long_retrieval import Library, scored

    library = Library("by hand", [], [], ["a", "b"], [{1: 1.0}, {2: 1.0}], "")
    pairs = np.array([[0, 0], [0, 3], [1, 1], [2, 2]])
    cosines = np.array([[0.1, 0.5, 0.2, 0.4], [0.1, 0.5, 0.2, 0.9]])
    found = scored(library, pairs, cosines)
    assert found["mrr@10"].tolist() == [1.0, 1 / 3]
    assert found["ndcg@10"].tolist() == pytest.approx([1.0, 1 / 2])


def test_joined_documents_know_where_each_text_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    import long_retrieval
    from long_retrieval import TOGETHER, joined

    monkeypatch.setattr(long_retrieval, "digest", lambda task: "")
    texts = [f"Text {number}." * (number % 3 + 1) for number in range(2 * TOGETHER + 5)]
    ids = [str(number) for number in range(len(texts))]
    task: Any = SimpleNamespace(name="t", texts=texts, ids=ids, queries=["q"], grades=[{"4": 1.0}])
    library = joined(task, None)
    assert len(library.texts) == 3 and library.grades == [{4: 1.0}]
    for text, rows in zip(library.texts, library.spans, strict=True):
        assert all(text[start:end] == texts[number] for start, end, number in rows.tolist())
    assert sorted(int(number) for rows in library.spans for number in rows[:, 2]) == list(range(len(texts)))


def test_the_page_shows_what_was_measured_of_every_model() -> None:
    from long_retrieval import _read, _table

    files = _read()
    assert files and all(told["rows"] for told in files)
    assert _table(files) in (ROOT / "docs" / "long-documents.md").read_text(encoding="utf-8")


# --- index


def test_disk_is_told_by_part_and_all_hnsw_folders_are_one(tmp_path: Path) -> None:
    from index_cost import disk

    sizes = {"chroma.sqlite3": 3, "a1/data_level0.bin": 5, "a1/header.bin": 1, "b2/data_level0.bin": 7, "eddy.x/y/z": 2}
    for name, size in sizes.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    assert disk(tmp_path) == {"chroma.sqlite3": 3, "HNSW": 13, "eddy.x": 2}


def test_checkouts_take_turns_and_their_medians_are_divided() -> None:
    from index_cost import in_turn, table

    order: list[str] = []
    spent = {"earlier": iter([8.0, 90.0, 6.0]), "now": iter([1.0, 2.0, 3.0])}

    def run(name: str) -> Any:
        order.append(name)
        return {"disk, MB": next(spent[name]), **({"copies, MB": 4.0} if name == "earlier" else {})}

    earlier, now = in_turn([lambda: run("earlier"), lambda: run("now")], 3)
    assert " ".join(order) == "earlier now now earlier earlier now"
    assert table({"earlier": earlier, "now": now}).splitlines()[2:] == [
        "| disk, MB | 8 | 2 | 4.00 |",
        "| copies, MB | 4 |  |  |",
    ]


def test_an_index_of_drawn_vectors_is_written_asked_and_opened(tmp_path: Path) -> None:
    from index_systems import RUNS

    asked = {"passages": 120, "questions": 5, "model": "eddy-tiny", "method": "plain:exit=0", "folder": str(tmp_path)}
    options: Any = SimpleNamespace(**asked)
    found = RUNS["index"](options)
    assert (
        found["dimensions"] == 320 and found["recall@10"] == 1 and found["disk, GB per 10^6 passages"] > 2 * 320 * 4e-3
    )
    for by in ("itself", "chromadb"):
        assert RUNS[by](options)[f"first answer by {by}, s"] > 0


def test_documents_of_one_line_are_written(tmp_path: Path) -> None:
    from index_cost import RUNS

    found = RUNS["lines"](SimpleNamespace(lines=60))
    assert found["60 lines, eddy-tiny, disk, kB each"] > 320 * 4 / 1000
    assert found["60 lines, eddy-tiny, processor s"] > 0


# --- paraphrases


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty paragraphs of 365 or 367 characters; their first sentence has 159 or 160."""
    import paraphrases

    paragraphs = [f"Question: {'Word ' * 30}number {at}. {'More ' * 40}of {at}." for at in range(40)]
    with lzma.open(tmp_path / "some-00.txt.xz", "wt", encoding="utf-8") as file:
        file.write("\n\n".join(paragraphs))
    monkeypatch.setattr(paraphrases, "OTHERS", {"some-00.txt.xz": 20})
    return tmp_path


def asked(text: str, passage: str, start: int, **changed: Any) -> Any:
    from paraphrases import Question

    digest = hashlib.sha256(passage.encode()).hexdigest()[:16]
    return Question(text, "dev", "some", "some-00.txt.xz", start, start + len(passage), changed.get("digest", digest))


def test_paraphrases_are_built_from_the_corpus_and_become_a_task(corpus: Path, tmp_path: Path) -> None:
    from evaluation.tasks import Retrieval, find_tasks
    from paraphrases import NAME, check, collection, library, write

    passage = f"{'Word ' * 30}number 0."
    question = asked("which term stands first", passage, len("Question: "))
    passages = library(corpus, [question])
    # Every second paragraph, the first of them by the passage that answers; every fourth ends after its first sentence.
    assert len(passages) == 20 and passages[question.id] == passage
    lengths = Counter(len(text) for text in passages.values())
    assert lengths == {159: 2, 160: 3, 365: 3, 367: 12}
    assert check([question], passages) == [0.0]
    write(tmp_path / "retrieval" / NAME, [question], passages)
    (task,) = find_tasks(tmp_path)
    assert isinstance(task, Retrieval) and task.grades == [{question.id: 1.0}]
    assert dict(zip(task.ids, task.texts, strict=True)) == passages
    found = collection([question], passages)
    hits: Any = [SimpleNamespace(document=id_) for id_ in ("some-00:9", question.id)]
    assert found.judge(0, hits) == 0.5 and found.sets == {"all": [0], "dev": [0], "some": [0]}


def test_a_question_in_the_passages_own_words_is_refused(corpus: Path) -> None:
    from paraphrases import check, library, share

    from chroma_eddy.words.terms import TermAnalyzer

    analyzer = TermAnalyzer("en")
    assert share(analyzer, "How do numbers of boats grow?", "The boat was numbered.") == pytest.approx(2 / 3)
    passage = f"{'Word ' * 30}number 0."
    question = asked("the number of ships", passage, len("Question: "))
    passages = library(corpus, [question])
    with pytest.raises(SystemExit, match="50% of the terms of 'the number of ships' stand in the passage"):
        check([question], passages)
    twice = asked("which term stands first", passage, len("Question: "))
    with pytest.raises(SystemExit, match="'which term stands first' is asked 2 times"):
        check([twice, twice], passages)
    other = asked("which term stands first", passage, len("Question: "), digest="0" * 16)
    with pytest.raises(SystemExit, match="do not hold the passage that answers 'which term stands first'"):
        library(corpus, [other])
    with pytest.raises(SystemExit, match=r"no some-00\.txt\.xz in"):
        library(corpus / "elsewhere", [question])


def test_the_questions_at_hand_are_paraphrases_of_passages_that_differ() -> None:
    from paraphrases import FILE, OTHERS, Question

    questions = [Question(**json.loads(line)) for line in FILE.read_text(encoding="utf-8").splitlines()]
    assert len(questions) >= 210 and len({each.question for each in questions}) == len(questions)
    assert len({each.id for each in questions}) == len(questions) and {each.file for each in questions} <= set(OTHERS)
    assert {each.split for each in questions} == {"dev", "test"}
