"""The benchmarks of speed: what they count, what they call a miss, and that each of them runs."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from eddy_embed import Embedder

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture(scope="module")
def small() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from speed import shapes

        return shapes.random_model("small"), shapes.tokenizer()
    finally:
        sys.path.remove(str(BENCHMARKS))


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


def test_operations_are_those_that_torch_counts(small: Any) -> None:
    import gpu

    model, _ = small
    model.set_attn_implementation("eager")
    try:
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            model.base_model(input_ids=torch.ones(3, 64, dtype=torch.long), use_cache=False)
    finally:
        model.set_attn_implementation("sdpa")
    # Eager attention multiplies what causality hides, too.
    hidden = 4 * 3 * (64 * 64 - 64 * 65 / 2) * 4 * 32 * 4
    rotary = 2 * 3 * 64 * 16
    assert counter.get_total_flops() == pytest.approx(gpu.flops(model, 3, 64) + hidden, abs=rotary)


def test_the_limit_runs_every_layer_and_every_sequence(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from speed import limit

    model, _ = small
    products: list[tuple[int, int]] = []
    attended: list[int] = []
    attention = limit.functional.scaled_dot_product_attention

    def counted(weight: torch.Tensor) -> Any:
        return lambda states: products.append((len(states), weight.numel()))

    def watched(query: torch.Tensor, *rest: torch.Tensor, **more: Any) -> torch.Tensor:
        attended.append(query.shape[2])
        return attention(query, *rest, **more)

    monkeypatch.setattr(limit, "fastest", counted)
    run = limit.least(model, [5, 30, 9], batch_tokens=32)
    monkeypatch.setattr(limit.functional, "scaled_dot_product_attention", watched)
    run()
    weights = sum(each.numel() for name, each in model.base_model.named_parameters() if "proj" in name)
    assert sum(tokens * size for tokens, size in products) == 44 * weights
    assert sorted(attended) == sorted(4 * [5, 30, 9])


@pytest.mark.parametrize("method", ["plain", "htp", "echo"])
def test_texts_have_the_size_that_is_asked_for(method: str, small: Any) -> None:
    from speed.texts import mixed, positions, text_of, uniform

    embedder = Embedder(small[0], tokenizer=small[1], method=method, max_length=600)
    assert abs(positions(embedder, text_of(embedder, 400)) - 400) <= 4
    assert {len(text.split()) for text in uniform(3, 40)} == {40}
    lengths = [len(text.split()) for text in mixed(200)]
    assert min(lengths) >= 5 and max(lengths) <= 1500 and max(lengths) > 20 * min(lengths)


def test_exponents_of_powers() -> None:
    from speed.growth import exponent

    assert exponent({size: 3.0 * size**1.5 for size in (1, 10, 100, 1000)}) == 1.5


def test_misses_are_told() -> None:
    from speed.report import goals

    def time(median: float) -> dict[str, float]:
        return {"median": median, "low": median, "high": median}

    half = {"time": time(0.5), "goal": 0.55, "bytes": 7, "expected": 8}
    methods = [
        {"length": 512, "method": "tp", "time": time(1.2), "goal": 1.03},
        {"length": 512, "method": "kv", "time": time(1.01), "goal": 1.05},
    ]
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
    rows = [
        {"part": "overhead", "found": {"methods": methods, "half": half}},
        *peers,
        {"part": "limit", "found": [{"sort": "mixed", "time": time(1.5), "goal": 1.15}]},
        {"part": "memory", "found": {"reba": {"goal": 1.3, "peaks": peaks}}},
    ]
    head, _, *told = goals([{"shape": "s", "dtype": "d", **row} for row in rows])
    assert head.count("|") == 6 and len(told) == 8 and all(line.startswith("| s | d | ") for line in told)
    beside = ("mixed, threads: 2: sentence-transformers, bfloat16, batch size 1 | 1.05", "| 2.90", "| 3.90", "0.70")
    words = ("`tp` | 1.20", "| 7 | 8 |", *beside, "limit | 1.50", "echo's | 1.40")
    assert all(word in line for word, line in zip(words, told, strict=True))


def test_machines_have_tables_and_files_of_their_own(tmp_path: Path) -> None:
    from speed import report

    page, details = tmp_path / "performance.md", tmp_path / "performance-measurements.md"
    page.write_text("<!-- goals: begin -->\n<!-- goals: end -->\n")
    details.write_text("<!-- budget: begin -->\n<!-- budget: end -->\n")
    time = {"median": 0.5, "low": 0.5, "high": 0.5}

    def row(machine: str, shape: str) -> dict[str, Any]:
        named = {"key": f"budget {shape}", "part": "budget", "shape": shape, "dtype": "float32", "layers": 4}
        found = [{"batch_tokens": 512, "over": 8192, "time": time}]
        about = {"machine": machine, "threads": 1, "versions": {"torch": "2"}, "command": "python bench.py"}
        return {**named, "found": found, **about}

    rows = [row("CPU family 1 (avx2)", "one"), row("CPU family 2 (avx2)", "other"), row("CPU family 1 (avx2)", "third")]
    report.write(rows, tmp_path, tmp_path)
    first, second = details.read_text().split("CPU family 2 (avx2), 1 thread; torch 2.")
    assert "CPU family 1 (avx2), 1 thread; torch 2." in first
    assert "| one, 4 layers |" in first and "| third, 4 layers |" in first and "| other, 4 layers |" in second
    files = {each.name: json.loads(each.read_text())["rows"] for each in tmp_path.glob("*.json")}
    assert {name: [each["shape"] for each in found] for name, found in files.items()} == {
        "speed-cpu-family-1.json": ["one", "third"],
        "speed-cpu-family-2.json": ["other"],
    }


def test_peers_have_a_table_for_each_model_and_number_of_threads() -> None:
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
    single, double = peers([batched, row("other", 1, *whole), row("other", 2, *whole[1:]), scored])
    assert single.startswith("**smollm2**, CPU, 1 thread; torch 2.") and double.startswith(
        "**smollm2**, CPU, 2 threads"
    )
    spread = "2.00 [2.00, 2.00]"
    assert single.splitlines()[4:] == [
        f"| **Eddy, bfloat16** |{' 200 words/s |' * 4}  |",
        f"| other |{f' {spread} |' * 4} 0.500 |",
    ]
    assert double.splitlines()[5:] == [
        f"| one, default batch size | 3.00 [3.00, 3.00] |{f' {spread} |' * 3}  |",
        f"| the best batch size | 1.50 [1.50, 1.50] |{f' {spread} |' * 3}  |",
        f"| other | – |{f' {spread} |' * 3} 0.500 |",
    ]


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

    several = keys("--part", "memory", "--part", "limit", "--shape", "base", "--dtype", "float32")
    assert several == ["memory base float32", "limit base float32"]
    some = ["--part", "peers", "--openvino", "python", "--llama-cpp", "python", "--peer", "OpenVINO", "--peer", "BF16"]
    names = ("llama.cpp, BF16", *(f"sentence-transformers (OpenVINO), {each}" for each in ("bfloat16", "int8")))
    assert keys(*some, "--model", "/there/gemma.gguf", "--threads", "1") == [
        f"peers gemma, {name}, threads: 1" for name in names
    ]
    every = keys("--openvino", "python")
    assert len(every) == len(set(every)) and {key.partition(" ")[0] for key in every} == set(bench.PARTS)
    with pytest.raises(SystemExit, match=r"\['Other'\]: none of \['sentence-transformers, .* has such a word"):
        keys("--peer", "Other")


def test_growth_is_drawn_for_every_model(tmp_path: Path) -> None:
    from speed import growth

    curve = {"sizes": [64, 128], "seconds": [1.0, 2.0], "exponent": 1.25}
    growth.draw(
        tmp_path / "g.svg", {"one": {"tokens": curve, "texts": curve}, "other": {"tokens": curve, "texts": curve}}
    )
    assert (tmp_path / "g.svg").read_text(encoding="utf-8").count("<!-- one: exponent 1.25") == 2


@pytest.mark.slow
def test_the_benchmark_of_accelerators_runs_on_a_processor(tmp_path: Path) -> None:
    target = tmp_path / "gpu.json"
    given = "gpu.py --device cpu --shape small --tokens 128 --rounds 2 --json"
    child = subprocess.run(
        [sys.executable, *given.split(), str(target)], cwd=BENCHMARKS, capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr
    rows = json.loads(target.read_text(encoding="utf-8"))["rows"]
    first = rows[0]
    assert first["tokens_per_s"] > 0 and 0 < first["share"] and first["gap"] < 1e-2
    methods = {row["method"].partition(":")[0] for row in rows if "method" in row}
    assert methods == {"plain+tempscale", "tp", "htp", "kv", "reba", "echo"}
    assert rows[-1]["peaks"]
