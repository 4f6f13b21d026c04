"""The alarm where a method collapses on a model: it sounds for real cases, and for no sound method."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.command_line import run
from tests.comparison import TEXTS, embedder
from tests.selection import slow

import eddy_embed.embedder
from eddy_embed import Embedder
from eddy_embed.encoding import collapse
from eddy_embed.encoding.collapse import PAIRS, Collapse, dimension_share, nearest_share
from eddy_embed.errors import MethodCollapse

SENTENCES = [text for pair in PAIRS for text in pair]
SOUND = Collapse(cosine=0.99, dimension=0.1, token=0.3, place="the first token", nearest=0.3)
NONE = "+start:token=none"


@pytest.fixture(autouse=True)
def alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alarm, which other tests do without."""
    monkeypatch.setattr(eddy_embed.embedder, "warn_of_collapse", collapse.warn_of_collapse)


@pytest.fixture
def alarmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alarm that every measurement sets off, of few sentences."""
    monkeypatch.setattr(collapse, "FEWEST_NEAREST", 1.1)
    monkeypatch.setattr(collapse, "PAIRS", PAIRS[:3])


def silent(model: str, method: str, **options) -> Embedder:
    with warnings.catch_warnings():
        warnings.simplefilter("error", MethodCollapse)
        return Embedder(model, method=method, **options)


# --- real models


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (f"plain:exit=-2{NONE}", r"the first token has 6\d% of the mean over a sentence \(limit: 45%\)"),
        slow(f"htp{NONE}", r"a single dimension has 7\d% of the variance \(limit: 15%\)"),
        slow(f"htp:exit=-1{NONE}", r"[12]\d% of sentences are nearest to their paraphrase \(limit: 28%\)"),
    ],
)
def test_a_method_that_collapses_warns_once_in_one_line(
    method: str, said: str, fetched_smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDDY_CACHE", str(fetched_smollm2))
    with pytest.warns(MethodCollapse, match=said) as caught:
        embedder = Embedder("smollm2", method=method)
        embedder.with_instructions(text="A text.").encode_document("The ferry leaves at noon.")
    (warning,) = (each for each in caught if each.category is MethodCollapse)
    text = str(warning.message)
    assert text.startswith(f"{method} collapses on smollm2: ") and "\n" not in text and len(text) < 400
    assert "put a start token ahead of texts" in text
    assert warning.filename == __file__


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("smollm2", "plain:exit=0+sif"),
        *(slow("smollm2", method) for method in ("htp", "plain:exit=-2", "prompteol", f"plain{NONE}")),
        *(("eddy-tiny", method) for method in ("plain", "plain:pool=last", "htp:exit=-7", "cot", "kv", "metaeol")),
        *(slow("eddy-tiny", method) for method in ("plain:exit=0+sif", "tp", "echo:exit=-8")),
    ],
)
def test_sound_methods_do_not_warn_and_count_nothing(
    model: str, method: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if model == "smollm2":
        monkeypatch.setenv("EDDY_CACHE", str(request.getfixturevalue("fetched_smollm2")))
    counts = silent(model, method).counts
    assert counts.texts == counts.positions == 0


# --- when nothing is measured


def test_check_language_and_post_processing_decide_whether_it_is_measured(alarmed: None, tmp_path: Path) -> None:
    with pytest.warns(MethodCollapse, match="eddy-tiny"):
        Embedder("eddy-tiny", method="plain")
    silent("eddy-tiny", "plain", check=False)
    silent("eddy-tiny", "plain", language="de")
    fitted = silent("eddy-tiny", "plain+whiten").fit(TEXTS)
    silent("eddy-tiny", "plain+whiten", fitted=fitted)
    with pytest.warns(MethodCollapse):
        Embedder("eddy-tiny", method="plain+truncate:dims=64")


def test_tokenizers_that_make_nonsense_of_english_and_texts_that_do_not_fit_are_no_alarm(
    alarmed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", MethodCollapse)
        embedder("llama", "plain")  # more than three tokens a word
    silent("eddy-tiny", "plain", max_length=4, overflow="error")
    unknown = silent("eddy-tiny", "plain", check=False)._pipeline.planner.tokenizer([SENTENCES[0]])[0].ids[0]
    monkeypatch.setattr("eddy_embed.text.tokenizer.Tokenizer.unknown", property(lambda self: unknown))
    silent("eddy-tiny", "plain")


def test_the_command_line_warns_in_one_line(alarmed: None, capsys, monkeypatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # to be put back
    with pytest.warns(MethodCollapse) as caught:
        code, out, _ = run(capsys, monkeypatch, "embed", "A lamp.", "--model", "eddy-tiny", "--method", "plain")
    assert code == 0 and len(json.loads(out)["vector"]) > 0
    (each,) = caught
    line = warnings.formatwarning(each.message, each.category, each.filename, each.lineno)
    assert line.startswith("eddy: plain collapses on eddy-tiny: ") and line.count("\n") == 1 and ".py" not in line


# --- the numbers


def test_thresholds_have_two_sides() -> None:
    assert SOUND.fault is None and replace(SOUND, token=float("nan")).fault is None
    for changes, said in (
        ({"token": 0.46}, "the first token has 46%"),
        ({"dimension": 0.16}, "single dimension has 16%"),
        ({"nearest": 0.24}, "24% of sentences"),
    ):
        assert said in str(replace(SOUND, **changes).fault)


def test_shares_of_vectors() -> None:
    near = np.eye(6)
    assert nearest_share(near, near + 0.1) == 1
    assert nearest_share(near, near[[1, 2, 3, 4, 5, 0]]) == 0
    assert nearest_share(np.ones((3, 2)), np.ones((3, 2))) == 0, "a tie is not nearer"
    assert dimension_share(np.array([[1.0, 0, 5], [3, 0, 5], [2, 1, 5]])) == pytest.approx((2 / 3) / (2 / 3 + 2 / 9))
    assert np.isnan(dimension_share(np.ones((4, 3))))
