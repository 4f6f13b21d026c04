"""Choosing a method: combinations, own texts and questions, the choice on a set that is not reported, its record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests import families
from tests.command_line import run

from eddy_embed.analysis import plots
from eddy_embed.analysis.evaluate import choice, grid
from eddy_embed.analysis.evaluate.own_texts import read_own_texts
from eddy_embed.analysis.evaluate.results import Cost, TaskResult
from eddy_embed.analysis.evaluate.systems import System
from eddy_embed.errors import InvalidParameter

# --- One method under several values


@pytest.mark.parametrize(
    ("method", "specs", "expected"),
    [
        ("htp:k=3", ["k=1,2"], ["htp", "htp:k=2"]),
        ("kv:layers=2", ['layers=3-5,"3,5"', " bias = 0.5 "], ["kv:layers=3-5,bias=0.5", 'kv:layers="3,5",bias=0.5']),
        (
            "tp+tempscale",
            ["range=1-2,1-4", "tau=0.7,1.0"],
            [f"tp:range=1-{end}+tempscale{tau}" for end in (2, 4) for tau in (":tau=0.7", ":tau=1.0")],
        ),
        (
            "kv:layers=2+tp+readout",
            ["readout.exit=-1,-2", "tp.placeholders=2"],
            [f"kv:layers=2+tp:placeholders=2+readout{end}" for end in ("", ":exit=-2")],
        ),
    ],
)
def test_combinations(method: str, specs: list[str], expected: list[str]) -> None:
    assert [point.method for point in grid.points(method, grid.parse_varied(specs))] == expected


@pytest.mark.parametrize(
    ("method", "spec", "said"),
    [
        *(("htp", spec, "must be a parameter and its values") for spec in ("exit", "exit=", "exit=-1,,-2")),
        ("htp", "exit=-1,-1", "given twice"),
        ("htp", "tau=0.5", "has no parameter 'tau'; it has htp."),
        ("kv+tp+readout", "exit=-1", "write kv.exit or tp.exit or readout.exit"),
        ("htp", "k=1.5", "k=1.5 must be a whole number"),
        ("plane", "exit=-1", "unknown method"),
    ],
)
def test_what_cannot_be_varied(method: str, spec: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        grid.points(method, grid.parse_varied([spec]))


def outcome(text: str, values: list[float], layers: int = 3) -> TaskResult:
    return TaskResult(System(text), "dev", {"accuracy": np.array(values)}, Cost(1.0, 10, 10, layers, layers), {})


def test_curves_keep_the_order_of_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first curve lacks a value, because the model could not run it."""
    points = grid.points("tp", {"exit": ("4", "3", "2"), "range": ("1-4", "1-2")})
    found = {point.method: outcome(point.method, [0.0, 1.0]) for point in points if point.others == "range=1-2"}
    found[points[0].method] = outcome(points[0].method, [1.0, 1.0])
    found.pop(points[1].method)
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append(figure))
    plots.draw_scores(Path("curve.svg"), {"dev": grid.curves(found, points)}, "exit", ["4", "3", "2"])
    (axes,) = drawn[0].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4", "3", "2"]
    assert {line.get_label(): list(line.get_xdata()) for line in axes.lines} == {"range=1-4": [0], "range=1-2": [1, 2]}


# --- The choice


def test_a_method_is_chosen_where_its_interval_is_above_zero() -> None:
    found = [outcome("bm25", [1.0] * 40), outcome("plain:exit=0", [0.9] * 40), outcome("plain", [0.5, 0.7] * 20)]
    chosen = choice.choose(found, System("plain"), {System("plain:exit=0")})
    assert str(chosen).splitlines() == [
        "plain:exit=0 is above plain by 0.300 (0.270 to 0.330) on 40 items of dev",
        "chosen on dev; report scores on other sets",
        "method  plain:exit=0",
    ]
    assert chosen.settings["best"] == chosen.settings["method"] == "plain:exit=0"
    assert chosen.settings["difference"] == [0.3, 0.27, 0.33]
    near = outcome("htp", [0.5, 0.9, 0.4, 0.7] * 10)
    tied = choice.choose([*found, near], System("plain"), {System("htp")})
    assert tied.best is near and tied.method == "plain"
    assert "40 items of dev show no method above plain; the best, htp, differs by 0.025" in str(tied)


def test_a_tie_that_costs_less_is_named() -> None:
    rng = np.random.default_rng(0)
    good = (rng.random(400) < 0.8).astype(float)
    good[:10] = 0, 0, 0, 1, 1, 1, 1, 1, 1, 1
    near = good.copy()
    near[:5] = 0, 0, 0, 0, 1
    found = [outcome("plain", (rng.random(400) < 0.3).astype(float).tolist(), 6)]
    found += [outcome(f"plain:exit={at}", near.tolist(), at) for at in (5, 3)]
    found.append(outcome("plain:exit=4", good.tolist(), 4))
    chosen = choice.choose(found, System("plain"), {each.system for each in found})
    assert chosen.method == "plain:exit=4" and [tie.cost.layers for tie in chosen.ties] == [3, 5]
    assert "a tie with the best, at 0.75× its work: plain:exit=3" in str(chosen)


def test_what_cannot_be_measured_is_not_chosen() -> None:
    found = [outcome("plain", [0.0, 1.0])]
    with pytest.raises(InvalidParameter, match="none of the methods can be run"):
        choice.choose(found, System("plain"), {System("htp")})
    with pytest.raises(InvalidParameter, match="the baseline echo cannot be run"):
        choice.choose(found, System("echo"), {System("plain")})


# --- Texts and questions of one's own

TEXTS = {
    "tides.md": "# Tides\n\nThe tide turns twice a day. The moon pulls the sea.",
    "bread/rye.txt": "Rye bread needs a sour dough. It bakes for an hour. The crust is dark.",
    "comets.txt": "A comet is a ball of ice. Its tail points away from the sun.",
    "blank.txt": " \n",
}
QUESTIONS = [
    {"question": "What pulls the sea?", "documents": ["tides.md"]},
    {"question": "How long does rye bread bake?", "documents": ["bread/rye.txt"]},
    {"question": "Where does a tail point?", "documents": ["comets.txt", "tides.md"]},
]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / name).write_text(text, encoding="utf-8")
    (tmp_path / "texts" / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)) + "\n", encoding="utf-8")
    return tmp_path


def test_own_texts_are_a_retrieval_task(own: Path) -> None:
    task = read_own_texts(own / "texts", own / "q.jsonl")
    assert (task.ids, task.blank) == (["bread/rye.txt", "comets.txt", "tides.md"], 1)
    assert dict(zip(task.ids, task.texts, strict=True)) == {name: TEXTS[name] for name in task.ids}
    assert task.queries == [each["question"] for each in QUESTIONS]
    assert [sorted(grades) for grades in task.grades] == [sorted(each["documents"]) for each in QUESTIONS]
    (own / "q.jsonl").write_text(json.dumps(QUESTIONS[0]), encoding="utf-8")
    with pytest.raises(InvalidParameter, match="has 1 questions, and methods are compared on 2 or more"):
        read_own_texts(own / "texts", own / "q.jsonl")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", r"line 4: '{' must be"),
        ("[" * 200_000, "must be"),
        ('{"question": "Who?"}', "must be"),
        ('{"question": "Who?", "documents": "tides.md"}', "must be"),
        ('{"question": "Who?", "documents": [["tides.md"]]}', "must be"),
        ('{"question": "Who?", "documents": ["rye.txt"]}', "'rye.txt' is no text in .*name files as 'b"),
        ('{"question": "Who?", "documents": ["blank.txt"]}', "'blank.txt' is no text in"),
        ('{"question": " ", "documents": ["tides.md"]}', "are empty"),
    ],
)
def test_questions_of_another_form_are_refused(own: Path, line: str, said: str) -> None:
    with (own / "q.jsonl").open("a", encoding="utf-8") as file:
        file.write(line)
    with pytest.raises(InvalidParameter, match=said):
        read_own_texts(own / "texts", own / "q.jsonl")


def test_the_recommended_method_is_kept_on_few_questions(own: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(choice, "CANDIDATES", ("plain:exit=0", "plain:exit=99"))
    given = ["eddy-tiny", "--texts", str(own / "texts"), "--questions", str(own / "q.jsonl")]
    code, out, err = run(capsys, monkeypatch, "evaluate", *given)
    rows = [line.split("`")[1] for line in out.splitlines() if line.startswith("| `")]
    posts, best = ("", "+whiten", "+whiten:power=0.5"), "plain:exit=0+sif+filter"
    assert code == 0 and sorted(rows) == sorted(["bm25", *(f"{m}{p}" for m in ("plain:exit=0", best) for p in posts)])
    assert f"3 items of texts show no method above {best}" in out and out.endswith(f"method  {best}\n")
    assert err.count("recommended for retrieval") == 1 and err.count("left out: plain:exit=99") == 3


# --- The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder, and three tasks, of which one lies there under two names."""
    path = tmp_path_factory.mktemp("choice")
    for part in families.build("bert"):
        part.save_pretrained(path / "tiny")
    (path / "data" / "sts").mkdir(parents=True)
    texts = ["The river floods.", "The river is high.", "A loaf of rye.", "Bread and butter.", "A comet at night."]
    for name, shift in (("dev", 0), ("again", 0), ("test", 1)):
        rows = [
            {"a": a, "b": b, "score": (i * j + shift) % 5} for i, a in enumerate(texts) for j, b in enumerate(texts)
        ]
        (path / "data" / "sts" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_command_chooses_records_reports_and_goes_on(folder: Path, capsys, monkeypatch) -> None:
    given = ["evaluate", str(folder / "tiny"), "--data", str(folder / "data"), "--dev", "dev", "--task", "test"]
    given += ["--method", "plain+tempscale", "--vary", "tau=0.6,0.8,1.0", "--vary", "exit=-1,-2,-9"]
    record, curve, kept = (folder / name for name in ("chosen.json", "curve.svg", "all.jsonl"))
    given += ["-o", str(kept), "--record", str(record), "--plot", str(curve)]
    code, out, err = run(capsys, monkeypatch, *given)
    assert code == 0 and err.count("left out: ") == 3
    tried, _, reported = out.partition("method  ")
    method = reported.splitlines()[0]
    told = json.loads(record.read_text())
    scores = {row["system"]: row["scores"]["spearman"][0] for row in told["outcomes"]}
    ours = {name: score for name, score in scores.items() if "tempscale" in name or name == "plain"}
    assert len(ours) == 7 and told["chosen"]["method"] == method in ours
    assert ours[told["chosen"]["best"]] == max(ours.values()) and tried.count("| `") == len(scores)
    assert f"| `{method}`" in reported and "test, spearman" in reported and "test, spearman" not in tried
    assert told["dev"] == "dev" and set(told["reported"]) == {"test"} and told["dev_data"] != told["reported"]["test"]
    assert told["varied"] == {"tau": ["0.6", "0.8", "1.0"], "exit": ["-1", "-2", "-9"]}
    assert told["command"].startswith("eddy evaluate ") and curve.read_text().startswith("<?xml")
    lines = kept.read_text()
    code, again, err = run(capsys, monkeypatch, *given)
    assert (code, again) == (0, out) and err.count("measured before") == len(lines.splitlines())
    assert kept.read_text() == lines


VARY, OWN = ["-m", "plain", "--vary", "exit=-1,-2"], ["--texts", ".", "--questions", "q.jsonl"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([*VARY, "--dev", "dev", "--task", "dev"], "dev is to be reported"),
        ([*VARY, "--dev", "dev", "--task", "again"], "dev, which holds the same data as again, is to be reported"),
        ([*VARY, "--dev", "absent"], "no task 'absent'"),
        (VARY, "nothing is chosen on a set that you report"),
        (["--record", "chosen.json"], "nothing is chosen on a set that you report"),
        ([*VARY, "--dev", "dev", "--record", "chosen.txt"], ".json"),
        ([*VARY, "--dev", "dev", "--plot", "curve.pdf"], ".svg"),
        ([*VARY, "--dev", "dev", "--plot", "none/curve.png"], "no folder"),
        ([*VARY, "--dev", "dev", "--vary", "range=1-3"], "no parameter 'range'"),
        ([*VARY, "--dev", "dev", "-m", "htp"], "one method is varied"),
        ([*OWN, "--dev", "dev"], "one set is chosen on"),
        (OWN[:2], "belong together"),
        (["--dev", "dev", "--fit-samples", "50"], "--task"),
        (["--collapse", "--dev", "dev"], "measures no tasks"),
        (["--dev", "dev", "--rerank", "9"], "judges what is reported"),
        (["--output", "a.json"], ".jsonl"),
        (["--fit-samples", "1,50"], "at least 2"),
        (["--plot", "a.svg"], "--fit-samples"),
    ],
)
def test_refusals_come_before_the_work(more: list[str], said: str, folder: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    given = [str(folder / "tiny"), "--data", str(folder / "data"), *more]
    code, out, err = run(capsys, monkeypatch, "evaluate", *given)
    assert code != 0 and out == "" and said in err
