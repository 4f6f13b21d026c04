"""Sweeps: the combinations, the choice on a named development set, the record of it, and refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tests import families

from eddy_embed.analysis import plots
from eddy_embed.analysis.evaluate import grid
from eddy_embed.analysis.evaluate.results import Cost, TaskResult
from eddy_embed.analysis.evaluate.systems import System
from eddy_embed.cli import main
from eddy_embed.cli import sweep as cli
from eddy_embed.errors import InvalidParameter


@pytest.mark.parametrize(
    ("method", "specs", "expected"),
    [
        ("htp", ["exit=-1,-2"], ["htp:exit=-1", "htp:exit=-2"]),
        ("htp:k=3", ["k=1,2"], ["htp", "htp:k=2"]),
        ("tp+tempscale", ["range=1-2,1-4", "tau=0.7,1.0"], None),
        ("kv:layers=2", ['layers=3-5,"3,5"', "bias=0.5"], ["kv:layers=3-5,bias=0.5", 'kv:layers="3,5",bias=0.5']),
        ("tp:placeholders=2", [" placeholders = 1 , 2 "], ["tp", "tp:placeholders=2"]),
        ("kv+tp+readout", ["readout.exit=-1,-2", "tp.placeholders=2"], None),
    ],
)
def test_combinations(method: str, specs: list[str], expected: list[str] | None) -> None:
    found = grid.points(method, grid.parse_varied(specs))
    texts = [point.method for point in found]
    if method == "tp+tempscale":
        expected = [f"tp:range=1-{end}+tempscale{tau}" for end in (2, 4) for tau in (":tau=0.7", ":tau=1.0")]
        assert found[1].first == "1-2" and found[1].others == "tau=1.0"
    if method == "kv+tp+readout":
        assert len(texts) == 2 and all("tp:placeholders=2" in text for text in texts) and "exit=-2" in texts[1]
        return
    assert texts == expected


@pytest.mark.parametrize(
    ("method", "spec", "said"),
    [
        ("htp", "exit", "must be a parameter and its values"),
        ("htp", "exit=", "must be a parameter and its values"),
        ("htp", "exit=-1,,-2", "must be a parameter and its values"),
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
    with pytest.raises(InvalidParameter, match="given twice"):
        grid.parse_varied(["exit=-1", "exit=-2"])


def outcome(text: str, values: list[float], layers: int) -> TaskResult:
    return TaskResult(System(text), "dev", {"accuracy": np.array(values)}, Cost(1.0, 10, 10, layers, layers), {})


def test_the_best_is_chosen_and_ties_are_named_cheapest_first() -> None:
    rng = np.random.default_rng(0)
    good = (rng.random(400) < 0.8).astype(float)
    near = good.copy()
    near[:3] = 1 - near[:3]
    found = [
        outcome("plain", (rng.random(400) < 0.3).astype(float).tolist(), 6),
        outcome("plain:exit=5", near.tolist(), 5),
    ]
    found += [outcome("plain:exit=3", near[::-1].tolist(), 3), outcome("plain:exit=4", good.tolist(), 4)]
    best, ties = grid.choose(found)
    highest = max(each.score() for each in found)
    assert best.score() == highest and best is next(each for each in found if each.score() == highest)
    assert [tie.cost.layers for tie in ties] == sorted({3, 4, 5} - {best.cost.layers})
    told = grid.chosen_by(best, found[0])
    assert told["method"] == best.system.text and told["difference"][1] > 0
    with pytest.raises(InvalidParameter, match="none of the combinations"):
        grid.choose([])


def test_curves_keep_the_order_of_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first curve lacks a value, because the model could not run it."""
    combinations = grid.points("tp", {"exit": ("4", "3", "2"), "range": ("1-4", "1-2")})
    found = {
        point.method: outcome(point.method, [0.0, 1.0], 3) for point in combinations if point.values[1][1] == "1-2"
    }
    found[combinations[0].method] = outcome(combinations[0].method, [1.0, 1.0], 4)
    found.pop(combinations[1].method)
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append(figure))
    cli._draw(Path("curve.svg"), "dev", found, combinations)
    (axes,) = drawn[0].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4", "3", "2"]
    assert {line.get_label(): list(line.get_xdata()) for line in axes.lines} == {"range=1-4": [0], "range=1-2": [1, 2]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder, and two tasks of which one lies there under two names."""
    path = tmp_path_factory.mktemp("sweep")
    model, tokenizer = families.build("bert")
    model.save_pretrained(path / "tiny")
    tokenizer.save_pretrained(path / "tiny")
    (path / "data" / "sts").mkdir(parents=True)
    texts = ["The river floods.", "The river is high.", "A loaf of rye.", "Bread and butter.", "A comet at night."]
    for name, shift in (("dev", 0), ("again", 0), ("test", 1)):
        rows = [
            {"a": a, "b": b, "score": (i * j + shift) % 5} for i, a in enumerate(texts) for j, b in enumerate(texts)
        ]
        (path / "data" / "sts" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(capsys, monkeypatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["eddy", "sweep", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return int(stop.value.code or 0), out, err


def test_the_command_chooses_records_and_goes_on(folder: Path, capsys, monkeypatch) -> None:
    given = [str(folder / "tiny"), "--data", str(folder / "data"), "--dev", "dev", "--reported", "test"]
    given += ["--method", "plain+tempscale", "--vary", "tau=0.6,0.8,1.0", "--vary", "exit=-1,-2,-9"]
    given += [
        "-o",
        str(folder / "all.jsonl"),
        "--record",
        str(folder / "chosen.json"),
        "--plot",
        str(folder / "curve.svg"),
    ]
    code, out, err = run(capsys, monkeypatch, *given)
    assert code == 0 and err.count("left out: ") == 3
    method = out.splitlines()[-1].removeprefix("method  ")
    told = json.loads((folder / "chosen.json").read_text())
    scores = {row["system"]: row["scores"]["spearman"][0] for row in told["outcomes"]}
    assert len(scores) == 7 and told["chosen"]["method"] == method
    assert scores[method] == max(score for name, score in scores.items() if name != "plain")
    assert told["dev"] == "dev" and set(told["reported"]) == {"test"} and told["dev_data"] != told["reported"]["test"]
    assert told["varied"] == {"tau": ["0.6", "0.8", "1.0"], "exit": ["-1", "-2", "-9"]}
    assert told["command"].startswith("eddy sweep ") and (folder / "curve.svg").read_text().startswith("<?xml")
    kept = (folder / "all.jsonl").read_text()
    code, again, err = run(capsys, monkeypatch, *given)
    assert (code, again) == (0, out) and err.count("measured before") == 7
    assert (folder / "all.jsonl").read_text() == kept


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--dev", "dev", "--reported", "dev"], "dev is to be reported"),
        (["--dev", "dev", "--reported", "again"], "dev, which holds the same data as again, is to be reported"),
        (["--dev", "absent"], "no task 'absent'"),
        ([], "--dev"),
        (["--dev", "dev", "--record", "chosen.txt"], ".json"),
        (["--dev", "dev", "--plot", "curve.pdf"], ".svg"),
        (["--dev", "dev", "--vary", "range=1-3"], "no parameter 'range'"),
    ],
)
def test_refusals_come_before_the_work(more: list[str], said: str, folder: Path, capsys, monkeypatch) -> None:
    given = [str(folder / "tiny"), "--data", str(folder / "data"), "--method", "plain", "--vary", "exit=-1,-2", *more]
    code, out, err = run(capsys, monkeypatch, *given)
    assert code != 0 and out == "" and said in err
