"""The benchmarks: what they time and count, what they call a miss, and how their tables come about."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.comparison import loaded

from eddy_embed import Embedder

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def time(median: float) -> dict[str, float]:
    return {"median": median, "low": median, "high": median}


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


@pytest.mark.parametrize("method", ["plain", "htp", "echo"])
def test_texts_have_the_size_that_is_asked_for(method: str) -> None:
    from speed.texts import mixed, positions, text_of, uniform

    model, tokenizer = loaded("llama")
    embedder = Embedder(model, tokenizer=tokenizer, method=method)
    assert abs(positions(embedder, text_of(embedder, 400)) - 400) <= 4
    assert {len(text.split()) for text in uniform(3, 40)} == {40}
    lengths = [len(text.split()) for text in mixed(200)]
    assert min(lengths) >= 5 and max(lengths) <= 1500 and max(lengths) > 20 * min(lengths)


def test_misses_are_told() -> None:
    from speed.report import goals

    peers = [
        {
            "part": "peers",
            "peer": peer,
            "threads": 2,
            "found": [{"texts": texts, "batch_size": 1, "which": which, "time": time(median)}],
        }
        for peer, texts, which, median in (
            ("sentence-transformers, bfloat16", "mixed", "best", 1.05),
            ("sentence-transformers, bfloat16", "mixed", "default", 3.1),
            ("LlamaIndex HuggingFaceEmbedding, bfloat16", "mixed", "default", 2.9),
            ("LangChain HuggingFaceEmbeddings, bfloat16", "uniform", "default", 0.9),
            ("llama.cpp, as shipped", "long", "default and best", 3.9),
            ("llama.cpp, Q8_0", "long", "default and best", 1.5),
            ("Eddy, int8", "mixed", "default and best", 0.7),
            ("Eddy, int8", "one query", "default and best", 0.9),
        )
    ]
    peaks = {"echo": {"peak": 100}, "reba": {"peak": 140}, "reba:pool=mean": {"peak": 120}}
    rows = [*peers, {"part": "memory", "found": {"reba": {"goal": 1.3, "peaks": peaks}}}]
    head, _, *told = goals([{"shape": "s", "dtype": "d", **row} for row in rows])
    assert head.count("|") == 6 and len(told) == 5 and all(line.startswith("| s | d | ") for line in told)
    beside = ("mixed, threads: 2: sentence-transformers, bfloat16, batch size 1 | 1.05", "| 2.90", "| 3.90", "0.70")
    assert all(word in line for word, line in zip((*beside, "echo's | 1.40"), told, strict=True))


def test_a_process_of_another_environment_that_ends_is_told_of() -> None:
    from peers.libraries import ModelFiles, llama_cpp, openvino

    files = ModelFiles(Path("/nowhere.gguf"), Path("/nowhere"))
    for peer in (*openvino(Path("/bin/false")), *llama_cpp(Path("/bin/false"))):
        with pytest.raises(SystemExit, match=r"_worker.py ended with 1; it was asked .*/nowhere"):
            peer.make(files)


def test_a_peer_is_tried_with_larger_batches_while_they_are_not_much_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    from peers import measure
    from peers.libraries import Peer

    spent = {1: 1.2, 4: 1.0, 10: 1.4, 16: 1.6, 64: 0.1}
    tried: list[int] = []

    def encode(size: int, texts: list[str]) -> None:
        tried.append(size)

    monkeypatch.setattr(measure, "seconds", lambda run: (run(), spent[tried[-1]])[1])
    peer = Peer("a library", lambda _: lambda size: partial(encode, size), batch=10)
    assert measure._best(lambda size: partial(encode, size), peer, ["a"] * 5) == 4
    assert sorted(set(tried)) == [1, 4, 10, 16]


def test_what_says_where_files_are_is_left_out_of_a_command() -> None:
    import bench

    given = "--part peers --openvino /here/python --models /there --llama-cpp=/here --journal=/j --model /a/b.gguf"
    told = "--part peers --openvino PYTHON --llama-cpp PYTHON --model b.gguf"
    assert " ".join(bench.measuring(given.split())) == told


def test_every_peer_and_type_of_number_has_a_row_of_its_own_in_the_journal() -> None:
    import bench

    def keys(*given: str) -> list[str]:
        return [key for key, _, _ in bench.units(bench.parsed(list(given)))]

    several = keys("--part", "memory", "--shape", "eddy-tiny", "--dtype", "float32", "--dtype", "bfloat16")
    assert several == ["memory eddy-tiny float32", "memory eddy-tiny bfloat16"]
    some = ["--part", "peers", "--openvino", "python", "--llama-cpp", "python", "--peer", "OpenVINO", "--peer", "BF16"]
    names = ("llama.cpp, BF16", *(f"sentence-transformers (OpenVINO), {each}" for each in ("bfloat16", "int8")))
    assert keys(*some, "--model", "/there/gemma.gguf", "--threads", "1") == [
        f"peers gemma, {name}, threads: 1" for name in names
    ]
    every = keys("--openvino", "python")
    assert len(every) == len(set(every)) and {key.partition(" ")[0] for key in every} == set(bench.PARTS)
    with pytest.raises(SystemExit, match=r"\['Other'\]: none of \['sentence-transformers, .* has such a word"):
        keys("--peer", "Other")


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
    from long_retrieval import _read, _tables

    files = _read()
    assert files and all(told["rows"] for told in files)
    assert _tables(files) in (BENCHMARKS.parent / "docs" / "long-documents.md").read_text(encoding="utf-8")


def test_time_inside_another_part_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import long_speed

    now = iter([0.0, 1.0, 4.0, 6.0])
    monkeypatch.setattr(long_speed.time, "perf_counter", lambda: next(now))
    clock = long_speed.Clock()
    with clock.part("outer"), clock.part("inner"):
        pass
    assert clock.spent == {"outer": 1.0 + 2.0, "inner": 3.0}
