"""`eddy tune`: a user's own texts and questions, the table, and the verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from eddy_embed.analysis.evaluate.own_texts import read_own_texts
from eddy_embed.analysis.evaluate.results import Cost, TaskResult
from eddy_embed.analysis.evaluate.systems import System
from eddy_embed.cli import main, tune
from eddy_embed.errors import InvalidParameter

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
def folder(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / name).write_text(text, encoding="utf-8")
    (tmp_path / "texts" / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)) + "\n", encoding="utf-8")
    return tmp_path


def test_own_texts_are_a_retrieval_task(folder: Path) -> None:
    task = read_own_texts(folder / "texts", folder / "q.jsonl")
    assert (task.ids, task.blank) == (["bread/rye.txt", "comets.txt", "tides.md"], 1)
    assert dict(zip(task.ids, task.texts, strict=True)) == {name: TEXTS[name] for name in task.ids}
    assert task.queries == [each["question"] for each in QUESTIONS]
    assert [sorted(grades) for grades in task.grades] == [sorted(each["documents"]) for each in QUESTIONS]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", r"line 4: '{' must be"),
        ("[1]", "must be"),
        ('{"question": "Who?"}', "must be"),
        ('{"question": "Who?", "documents": "tides.md"}', "must be"),
        ("[" * 200_000, "must be"),
        ('{"question": "Who?", "documents": [["tides.md"]]}', "must be"),
        ('{"question": "Who?", "documents": ["rye.txt"]}', "'rye.txt' is no text in .*name files as 'b"),
        ('{"question": "Who?", "documents": ["blank.txt"]}', "'blank.txt' is no text in"),
        ('{"question": " ", "documents": ["tides.md"]}', "are empty"),
        ('{"question": "Who?", "documents": []}', "are empty"),
    ],
)
def test_questions_of_another_form_are_refused(folder: Path, line: str, said: str) -> None:
    with (folder / "q.jsonl").open("a", encoding="utf-8") as file:
        file.write(line)
    with pytest.raises(InvalidParameter, match=said):
        read_own_texts(folder / "texts", folder / "q.jsonl")


def test_one_question_is_too_few(folder: Path) -> None:
    (folder / "q.jsonl").write_text(json.dumps(QUESTIONS[0]), encoding="utf-8")
    with pytest.raises(InvalidParameter, match="has 1 questions, and methods are compared on 2 or more"):
        read_own_texts(folder / "texts", folder / "q.jsonl")


def test_the_command_shows_all_and_keeps_the_recommended_on_few_questions(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "CANDIDATES", ("plain:exit=0", "plain:exit=99"))
    given = ["eddy-tiny", "--data", str(folder / "texts"), "--questions", str(folder / "q.jsonl"), "-m", "plain"]
    monkeypatch.setattr(sys, "argv", ["eddy", "tune", *given])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert not stop.value.code, err
    rows = [line.split("`")[1] for line in out.splitlines() if line.startswith("| `")]
    assert sorted(rows) == [
        *("bm25", "echo:exit=1", "echo:exit=1+whiten", "echo:exit=1+whiten:power=0.5", "plain"),
        *("plain:exit=0", "plain:exit=0+whiten", "plain:exit=0+whiten:power=0.5"),
    ]
    assert out.endswith("3 questions show no method above the recommended one\nmethod  echo:exit=1\n")


def outcome(text: str, values: list[float]) -> TaskResult:
    return TaskResult(System(text), "texts", {"ndcg@10": np.array(values)}, Cost(), {})


def test_a_method_is_named_where_its_interval_is_above_zero() -> None:
    found = [outcome("bm25", [1.0] * 40), outcome("plain:exit=0", [0.9] * 40), outcome("plain", [0.5, 0.7] * 20)]
    told = tune._verdict(found, System("plain"), 40)
    assert told == "above plain, the recommended one, by 0.300 (0.270 to 0.330) on 40 questions\nmethod  plain:exit=0"
    assert tune._verdict([found[0], found[2]], System("plain"), 40).endswith("method  plain")
