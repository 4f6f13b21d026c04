"""`eddy diagnose` end to end: what it finds, what it leaves out and why, the report, the pictures, and refusals."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from tests import families

from eddy_embed import Embedder, methods
from eddy_embed.analysis.diagnose import Extent, diagnose, figures
from eddy_embed.analysis.diagnose.geometry import alignment, mean_cosine, uniformity
from eddy_embed.analysis.layers import intrinsic_dimension
from eddy_embed.analysis.plots import save
from eddy_embed.cli import main
from eddy_embed.errors import InvalidParameter, InvalidText

WHO = ["The miller", "A ferryman", "My aunt", "The baker", "The old pilot"]
DID = ["mended", "sold", "forgot", "painted"]
WHAT = ["the lamp", "two oars", "a map of the river", "her boots", "the bell", "some bread"]
TEXTS = [
    f"{who} {did} {what}{' before the tide turned' * (at % 4)}."
    for at, who in enumerate(WHO)
    for did in DID
    for what in WHAT
]
SMALL = Extent(attention=1, gradients=2, tokens=16, probes=2, bins=3)


def looked_at(family: str, method: str, texts: list[str], **options):
    model, tokenizer = families.build(family)
    return diagnose(model, texts, method=method, tokenizer=tokenizer, **{"extent": SMALL, **options})


def embedder(family: str, method: str) -> Embedder:
    model, tokenizer = families.build(family)
    return Embedder(model, tokenizer=tokenizer, method=method)


@pytest.fixture(scope="module")
def kv():
    pairs = [(TEXTS[0], TEXTS[1]), (TEXTS[5], TEXTS[7])]
    return looked_at("llama", "kv:layers=3-4,exit=5", TEXTS, pairs=pairs, tau=0.7)


def test_numbers_are_those_of_the_methods_vectors(kv) -> None:
    assert [side.method for side in kv.sides] == ["kv:layers=3-4,exit=5", "kv:layers=3-4,exit=5+tempscale:tau=0.7"]
    sizes = np.array(embedder("llama", "plain").count_tokens(TEXTS))
    assert sum(each["texts"] for each in kv.bins) == len(TEXTS)
    for side in kv.sides:
        own = embedder("llama", side.method)
        vectors = own.encode_document(TEXTS).astype(np.float64)
        assert side.space["uniformity"] == pytest.approx(uniformity(vectors), abs=1e-5)
        one, other = (own.encode_document([TEXTS[at] for at in pair]) for pair in ((0, 5), (1, 7)))
        assert side.space["nearest"] in (0, 0.25, 0.5, 0.75, 1) and 0 < side.space["largest_dimension"] < 1
        assert side.space["alignment"] == pytest.approx(alignment(one, other), abs=1e-5)
        for at, each in enumerate(kv.bins):
            inside = vectors[(sizes >= each["from"]) & (sizes <= each["to"])]
            assert len(inside) == each["texts"]
            assert side.cosine[at] == pytest.approx(mean_cosine(inside), abs=1e-5)
            apart = np.linalg.norm(inside - vectors.mean(0), axis=1).mean()
            assert side.distance[at] == pytest.approx(apart, abs=1e-5)
    assert [level.layer for level in kv.levels] == [0, 1, 2, 3, 4, 5]
    for level in kv.levels[1:]:
        rows = embedder(
            "llama", f"kv:layers={'3-4' if level.layer > 3 else 3 if level.layer == 3 else 1},exit={level.layer}"
        )
        if level.layer >= 3:
            vectors = rows.encode_document(TEXTS)
            assert level.cosine == pytest.approx(mean_cosine(vectors), abs=1e-4)
        assert level.dimension > 0
    raw = Embedder(
        *families.build("llama")[:1],
        tokenizer=families.build("llama")[1],
        method="kv:layers=3-4,exit=5",
        normalize=False,
    )
    assert kv.levels[-1].dimension == pytest.approx(intrinsic_dimension(raw.encode_document(TEXTS)), rel=1e-3)


def test_what_is_inside_has_the_shape_of_the_model(kv) -> None:
    for side in kv.sides:
        assert np.shape(side.sigma) == np.shape(side.share) == (len(kv.bins), 5)
        assert np.shape(side.states) == (len(kv.bins), 6)
    assert len(kv.even_sigma) == len(kv.bins) and kv.even_sigma == sorted(kv.even_sigma)
    told = kv.sensitivity
    assert told.texts == 2 and len(told.mean.places) == len(told.last.places) == 20
    assert np.mean(told.mean.places) == pytest.approx(1) and np.mean(told.last.example) == pytest.approx(1)
    assert len(told.tokens) == len(told.mean.example) == len(kv.entries.curve.example)
    assert 0 < told.last_evenness <= 1 and 0 < told.mean_evenness <= 1
    assert kv.entries.layers == [3, 4] and all(0 < paid < 1 for paid in kv.entries.paid)
    assert np.mean(kv.entries.curve.places) == pytest.approx(np.mean(kv.entries.paid), rel=1e-6)
    assert set(kv.left_out) == {"tokens in the mean"}, "kv averages and reads the last token"


def test_the_same_numbers_give_the_same_pictures(kv, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one.svg", "other.svg")]
    for file in files:
        save(figures._layers(kv), file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_temperature_of_ones_own_is_taken_off_for_the_comparison() -> None:
    found = looked_at("llama", "plain+tempscale:tau=0.5", TEXTS[:30], tau=0.9)
    assert [side.method for side in found.sides] == ["plain", "plain+tempscale:tau=0.5"]
    assert found.about["method"] == "plain+tempscale:tau=0.5"
    assert set(found.left_out) == {"alignment", "intrinsic dimension", "attention on the re-routed entry"}
    assert found.settings["levels"][2]["dimension"] is None
    json.dumps(found.settings, allow_nan=False)


@pytest.mark.parametrize(
    ("family", "method", "left"),
    [
        ("bloom", "plain", {"attention"}),
        ("llama", "plain:exit=0", {"attention"}),
        ("llama", "reba", {"layers below the exit", "tokens in the mean"}),
        ("bert", "plain", set()),
        ("gpt2", "plain+whiten", set()),
    ],
)
def test_what_cannot_be_measured_is_named_with_the_reason(family: str, method: str, left: set[str]) -> None:
    always = {"alignment", "intrinsic dimension", "attention on the re-routed entry"}
    found = looked_at(family, method, TEXTS[:12])
    assert set(found.left_out) == always | left
    assert all(len(reason) > 20 for reason in found.left_out.values())
    assert found.sensitivity is not None and len(found.sides) == 2
    assert (found.largest_token is None) == (method == "reba")
    assert (found.even_sigma == []) == (family == "bert" or "attention" in left)
    if "whiten" in method:
        assert found.sides[0].space["mean_cosine"] < 0.1


def test_texts_cut_to_lengths_differ_in_nothing_else() -> None:
    long = [text for text in TEXTS if "tide" in text][:60:3]
    found = looked_at(
        "llama", "plain", long, extent=Extent(lengths=(10, 16), attention=1, gradients=1, tokens=9, probes=1)
    )
    assert [(each["from"], each["to"]) for each in found.bins] == [(10, 10), (16, 16)]
    assert found.about["cut"] and found.about["texts"] == found.bins[1]["texts"] <= 20
    for lengths, said in [((12, 4), "must be numbers of tokens that rise"), ((4, 500), "0 of 20 texts have 500")]:
        with pytest.raises(InvalidParameter, match=said):
            looked_at("llama", "plain", long, extent=Extent(lengths=lengths))


def test_one_length_is_one_bin_and_the_draw_is_repeatable() -> None:
    same = [f"{who} {did} it." for who in ("Ann", "Bob") for did in DID]
    extent = Extent(texts=5, attention=1, gradients=1, tokens=8, probes=1, seed=3)
    one, other = (looked_at("qwen3", "plain", same, extent=extent).settings for _ in range(2))
    assert one == other and one["about"]["texts"] == 5


@pytest.mark.parametrize(
    ("texts", "said"), [([], "has 0 different ones"), (["One."], "has 1 different one;"), (["One."] * 3, "1 different")]
)
def test_fewer_than_two_texts(texts: list[str], said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        looked_at("llama", "plain", texts)


# --- The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("diagnose")
    model, tokenizer = families.build("qwen3")
    model.save_pretrained(path / "tiny")
    tokenizer.save_pretrained(path / "tiny")
    (path / "texts.txt").write_text("\n".join(["<script>alert('x')</script> & $x^2$ _y_.", *TEXTS[:12]]))
    (path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS[:12]))
    rows = [{"a": TEXTS[0], "b": TEXTS[1], "score": 5}, {"a": TEXTS[2], "b": TEXTS[3], "score": 1}]
    (path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "empty.txt").write_text("")
    (path / "one.txt").write_text("One text.\n")
    (path / "bad.jsonl").write_text('{"text": 5}\n')
    return path


def run(capsys, monkeypatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["eddy", "diagnose", *arguments])
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return int(stop.value.code or 0), out, err


def test_the_report_needs_nothing_beside_it(folder: Path, capsys, monkeypatch) -> None:
    given = [str(folder / "tiny"), str(folder / "texts.txt"), "--method", "kv:layers=2", "--bins", "2"]
    code, out, _ = run(capsys, monkeypatch, *given, "-o", str(folder / "out"), "--pairs", str(folder / "pairs.jsonl"))
    assert code == 0
    assert "Uniformity" in out and "Alignment" in out and "the re-routed entry: " in out
    assert "…" not in out and out.count("distance") == 2  # nothing is cut on a narrow terminal
    assert "Left out, intrinsic dimension: an estimate needs 100 different texts" in out
    names = {"length", "layers", "attention", "sensitivity", "entries"}
    assert {each.name for each in (folder / "out").iterdir()} == {
        "report.html",
        "diagnosis.json",
        *(f"{name}.svg" for name in names),
    }
    page = (folder / "out" / "report.html").read_text()
    assert not re.search(r"(?:src|href)=\"(?!data:)|url\(|@import|https?://(?!www\.w3\.org)", page)
    assert page.count("data:image/svg+xml;base64,") == len(names)
    assert "<script>alert" not in page and page.count("<script") == 1
    inside = re.search(r'<script type="application/json" id="diagnosis">(.*?)</script>', page)
    told = json.loads((folder / "out" / "diagnosis.json").read_text())
    assert inside and json.loads(inside[1]) == told and told["about"]["pairs"] == 1
    assert told["about"]["texts"] == 13 and told["entries"]["layers"] == [2]


@pytest.mark.slow
def test_json_alone_and_pictures_as_png(folder: Path, capsys, monkeypatch) -> None:
    given = [str(folder / "tiny"), str(folder / "texts.jsonl"), "--method", "plain", "--bins", "2", "--json"]
    code, out, _ = run(capsys, monkeypatch, *given, "-o", str(folder / "png"), "--pictures", "png", "--lengths", "7,9")
    told = json.loads(out)
    assert code == 0 and told["bins"][0]["tokens"] == "7" and told["sides"][1]["method"] == "plain+tempscale:tau=0.8"
    assert (folder / "png" / "length.png").read_bytes().startswith(b"\x89PNG")
    assert not (folder / "png" / "entries.png").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{f}/tiny", "{f}/absent.txt", "--method", "plain"], "absent.txt"),
        (["{f}/tiny", "{f}/empty.txt", "--method", "plain"], "empty.txt is empty"),
        (["{f}/tiny", "{f}/one.txt", "--method", "plain"], "the sample has 1 different one;"),
        (["{f}/tiny", "{f}/bad.jsonl", "--method", "plain"], "bad.jsonl, line 1 must be"),
        (["{f}/tiny", "{f}/texts.txt"], "--method"),
        (["{f}/tiny", "{f}/texts.txt", "--method", "plane"], "unknown method 'plane'"),
        (["{f}/tiny", "{f}/texts.txt", "--method", "plain", "--lengths", "8,x"], "numbers of tokens"),
        (["{f}/tiny", "{f}/texts.txt", "--method", "plain", "--tau", "0"], "tau=0"),
        (["{f}/tiny", "{f}/texts.txt", "--method", "plain", "--pairs", "{f}/texts.jsonl"], "line 1 must be"),
        (["{f}/tiny", "{f}/texts.txt", "--method", "plain", "-o", "{f}/no/where"], "no folder"),
    ],
)
def test_refusals_are_one_sentence(arguments: list[str], said: str, folder: Path, capsys, monkeypatch) -> None:
    code, out, err = run(capsys, monkeypatch, *(each.format(f=folder) for each in arguments))
    assert code != 0 and out == "" and said in err


def test_blank_lines_are_refused(folder: Path, capsys, monkeypatch) -> None:
    (folder / "blank.txt").write_text("One.\n\nTwo.\n")
    code, _, err = run(capsys, monkeypatch, str(folder / "tiny"), str(folder / "blank.txt"), "--method", "plain")
    assert code == 1 and "line 2 is blank" in err
    with pytest.raises(InvalidText):
        looked_at("llama", "plain", ["One.", "  "])


def test_a_method_made_by_hand_can_be_diagnosed() -> None:
    method = methods.plain() | methods.tempscale(tau=0.9)
    found = looked_at("llama", method, TEXTS[:6])
    assert [side.method for side in found.sides] == ["plain", "plain+tempscale:tau=0.9"]
