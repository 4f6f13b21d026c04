"""Layers by intrinsic dimension: the estimate, the rules on the curve, the states it is taken from, and the command."""

from __future__ import annotations

import json
from importlib import import_module
from math import nan
from pathlib import Path

import numpy as np
import pytest
import torch
from tests import families
from tests.command_line import run
from tests.comparison import AllDouble, loaded
from tests.reference import forward, twonn
from tests.selection import mostly_slow

from eddy_embed import Embedder, methods
from eddy_embed.analysis import layers
from eddy_embed.errors import InvalidParameter, InvalidText, TextTooLong
from eddy_embed.model.backbone import Backbone

# In the package, these names are those of functions.
intrinsic_dimension, measure = (
    import_module(f"eddy_embed.{name}") for name in ("utils.intrinsic_dimension", "analysis.layers.measure")
)
ROOT = Path(__file__).resolve().parent.parent
WHO = ["The miller", "A ferryman", "My aunt", "The baker", "Nobody", "The old pilot", "A child", "The surveyor"]
DID = ["mended", "sold", "forgot", "painted", "carried", "found", "weighed", "burnt"]
WHAT = ["the lamp", "two oars", "a map of the river", "her boots", "the bell", "some bread", "a letter", "the chart"]
SENTENCES = [f"{who} {did} {what}." for who in WHO for did in DID for what in WHAT]


# --- The estimate


def sphere(d: int, points: int, width: int = 40) -> np.ndarray:
    """Points spread evenly over a sphere of d dimensions, far from the origin of a space of many more."""
    rng = np.random.default_rng(d)
    directions = rng.standard_normal((points, d + 1))
    axes, _ = np.linalg.qr(rng.standard_normal((width, d + 1)))
    return directions / np.linalg.norm(directions, axis=1, keepdims=True) @ axes.T + 1e3


def test_known_dimensions_are_found() -> None:
    estimates = {d: layers.intrinsic_dimension(sphere(d, 2000)) for d in (1, 2, 3, 5, 8, 10, 20, 30)}
    assert {d: value for d, value in estimates.items() if d <= 10 and abs(value - d) > 0.1 * d} == {}
    assert list(estimates.values()) == sorted(estimates.values())


@pytest.mark.parametrize("points", [3, 4, 101, 250])
def test_equals_the_reference(points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = np.random.default_rng(points).standard_normal((points, 12)) ** 3
    expected = twonn.dimension(cloud.tolist())
    assert layers.intrinsic_dimension(cloud) == pytest.approx(expected, rel=1e-12)
    assert layers.intrinsic_dimension(cloud * 1e-3 + 1e3) == pytest.approx(expected, rel=1e-9)
    monkeypatch.setattr(intrinsic_dimension, "DISTANCES", 7 * points)  # blocks that do not come out even
    assert layers.intrinsic_dimension(cloud) == pytest.approx(expected, rel=1e-12)


def test_duplicates_count_once() -> None:
    cloud = sphere(3, 150)
    again = np.concatenate([cloud, cloud[:70], cloud[:5]])
    assert layers.intrinsic_dimension(again) == layers.intrinsic_dimension(cloud)


@pytest.mark.parametrize("cloud", [np.eye(9), np.ones((50, 4)), np.eye(4)[:2]], ids=["even", "one", "two"])
def test_clouds_without_a_dimension(cloud: np.ndarray) -> None:
    assert np.isnan(layers.intrinsic_dimension(cloud))


def test_what_are_no_points_is_refused() -> None:
    for bad in (np.ones(5), np.full((9, 2), np.inf)):
        with pytest.raises(InvalidParameter, match="shape"):
            layers.intrinsic_dimension(bad)


# --- The rules

VALLEY = [nan, 12, 14, 13, 12, 9, 7, 7.5, 8, 9, 10, 11, *range(12, 20)]  # 20 states; the minimum is h[6]
TWO = [nan, 12, 14, 6, 10, 9, 7, 7.2, 7.8, 9, 6.8, 8, *range(12, 20)]  # h[3], h[6] and h[10]


@pytest.mark.parametrize(
    ("curve", "minima", "form"),
    [
        (VALLEY, (6,), "kv:layers=7-9"),  # equation 4: states 6 .. 6 + floor(0.1 * 20)
        ([*VALLEY[:5], 9, 9.4, *VALLEY[6:]], (7,), "kv:layers=8-10"),  # a bump of less than a tenth divides nothing
        (VALLEY[:10], (6,), "kv:layers=7-8"),
        (TWO, (3, 6, 10), 'kv:layers="7-8,11"'),  # at most 1.1 * 6.8, behind the first four layers
        ([nan, 9, 7, 8, 7, 9], (2, 4), 'kv:layers="3,5"'),
        ([nan, 9, 7, 7, 9, 9], (2,), "kv:layers=3"),  # equal and nothing between: one minimum
        ([9, 9, 9, 9, 9], (), "kv:layers=2-5"),  # flat: all behind the first
        ([5, 6, 7, 8, 9, 10, 11, 12, 13, 14], (), "kv:layers=3"),  # rising: the lowest is at the border
        ([9, 8, 7, 6, 5], (), "kv:layers=5"),
        ([10, 9.5, 10, 9.8], (), "kv:layers=1-4"),  # dents of less than a tenth
        ([10, 9, 10], (1,), "kv:layers=2"),  # a tenth exactly
        ([10, 8, 8.5, 5], (), "kv:layers=4"),  # lower still on the right
        ([10, nan, 8, nan, 10], (2,), "kv:layers=3"),
    ],
)
def test_the_rules(curve: list[float], minima: tuple[int, ...], form: str) -> None:
    proposal = layers.propose(curve)
    assert proposal.minima == minima == layers.clear_minima(curve)
    assert proposal.rule == ("one minimum" if len(minima) == 1 else "low region")
    assert proposal.method == form
    assert methods.parse(form).reroute.layers == proposal.layers


def test_a_width_of_ones_own() -> None:
    for curve, width, form in (
        (VALLEY, 1, "kv:layers=7"),
        (VALLEY, 20, "kv:layers=7-20"),
        (TWO, 2, 'kv:layers="7-9,11-12"'),
        ([9, 8, 7, 6, 5], 3, "kv:layers=5"),
    ):
        assert layers.propose(curve, width).method == form


def test_widths_that_the_model_has_not_and_no_estimate_at_all() -> None:
    for width in (0, 21, 1.5, True):
        with pytest.raises(InvalidParameter, match="width="):
            layers.propose(VALLEY, width)
    with pytest.raises(InvalidParameter, match="sentences"):
        layers.propose([3, nan, nan, nan, nan, nan])


# --- The states


@pytest.mark.parametrize("family", mostly_slow(families.FAMILIES, ["gpt2", "gemma2"]))
def test_states_are_those_of_the_last_token_at_every_layer(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    right = measure.last_states
    monkeypatch.setattr(measure, "last_states", lambda *given: seen.append(right(*given)) or seen[-1])
    model, tokenizer = loaded(family, exactly=True)
    with AllDouble():
        found = layers.measure(model, SENTENCES, tokenizer=tokenizer, count=100, batch_tokens=500)
    (read,) = seen
    assert read.shape == (families.LAYERS, 100, families.HIDDEN)
    for at, text in list(enumerate(layers.draw(SENTENCES, 100)))[::33]:
        ids = tokenizer(f'"Context: {text}" Compress the Context in one word:', add_special_tokens=False)["input_ids"]
        front = {"llama": [1], "gemma2": [0]}.get(family, [tokenizer.bos_token_id])
        expected = forward.forward(model, [*front, *ids])[: families.LAYERS]
        assert np.abs(read[:, at] - torch.stack([h[-1] for h in expected]).numpy()).max() < 1e-9
    # The last token of the prompt is always the same, and gemma2's first layer sees no further than the prompt's end.
    alike = 2 if family == "gemma2" else 1
    assert np.isnan(found.dimensions[:alike]).all()
    # gpt2 adds its learned positions before the first layer.
    lengths = {len(tokenizer(text)["input_ids"]) for text in layers.draw(SENTENCES, 100)}
    assert set(found.different[:alike]) == {len(lengths) if family == "gpt2" else 1}
    for level in range(alike, families.LAYERS):
        assert found.dimensions[level] == pytest.approx(twonn.dimension(read[level].tolist()), rel=1e-9)
    assert found.proposal == layers.propose(found.dimensions)


def test_the_choice_of_sentences() -> None:
    assert layers.draw([*SENTENCES, *SENTENCES], len(SENTENCES)) == SENTENCES
    chosen = layers.draw(SENTENCES, 100)
    assert chosen == layers.draw(SENTENCES, 100) == sorted(set(chosen), key=SENTENCES.index)
    assert chosen != layers.draw(SENTENCES, 100, seed=1)
    for sentences, count, said in (
        (SENTENCES[:99] * 2, 100, "has 99 different sentences, 100 are needed; add text to it$"),
        (SENTENCES[:3], 1000, "has 3 different sentences, 100 are needed; add text to it$"),
        (SENTENCES[:300], 1000, "has 300 .* 1000 are needed; .* ask for 100 to 300 .*--sentences 300$"),
        (SENTENCES, 99, "sentences=99 are too few"),
        (SENTENCES, 0, "sentences=0"),
    ):
        with pytest.raises(InvalidParameter, match=said):
            layers.draw(sentences, count)


def test_a_sentence_beyond_the_window_and_a_misspelt_argument_are_named() -> None:
    model, tokenizer = loaded("llama")
    with pytest.raises(TextTooLong, match="aaaa"):
        layers.measure(model, [*SENTENCES[:99], "aaaa " * families.WINDOW], tokenizer=tokenizer, count=100)
    with pytest.raises(InvalidParameter, match="tokeniser"):
        layers.measure(model, SENTENCES, tokeniser=tokenizer, count=100)


def test_samples(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("Salt keeps\nfish. Bread needs flour.\n\nNo stop here\nnor here\n")
    assert layers.read_sentences(tmp_path / "b.txt")[:2] == ["Salt keeps\nfish.", "Bread needs flour."]
    as_lines = ["Salt keeps", "fish. Bread needs flour.", "No stop here", "nor here"]
    assert layers.read_sentences(tmp_path / "b.txt", lines=True) == as_lines
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.md").write_text("# Tides\n\nThe tide turns.\n")
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    assert layers.read_sentences(tmp_path)[2:] == ["No stop here\nnor here", "# Tides", "The tide turns."]
    (tmp_path / "d.txt").write_bytes(b"caf\xe9")
    with pytest.raises(InvalidText, match=r"d.txt: byte 3"):
        layers.read_sentences(tmp_path)


# --- The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in a folder, and a sample beside it."""
    path = tmp_path_factory.mktemp("model")
    for part in families.build("qwen3"):
        part.save_pretrained(path / "tiny")
    (path / "sample.txt").write_text("\n".join(SENTENCES))
    return path


def test_the_command_prints_the_method_to_use(folder: Path, capsys, monkeypatch) -> None:
    given = [str(folder / "tiny"), "--sample", str(folder / "sample.txt"), "--lines", "--sentences", "150"]
    code, out, _ = run(capsys, monkeypatch, "layers", *given)
    form = out.splitlines()[-1].removeprefix("method  ")
    assert code == 0 and out.count("h[") >= families.LAYERS and f"150 of {len(SENTENCES)}" in out
    assert out.count("re-route") == len(methods.parse(form).reroute.layers)
    assert Embedder(str(folder / "tiny"), method=form).encode_document("Salt.").shape == (families.HIDDEN,)
    _, out, _ = run(capsys, monkeypatch, "layers", *given, "--json")
    told = json.loads(out)
    assert told["method"] == form and told["seed"] == 0 and told["dimensions"][0] is None
    assert told == layers.measure(folder / "tiny", SENTENCES, count=150).settings
    _, out, _ = run(capsys, monkeypatch, "layers", *given, "--width", "6")
    assert out.splitlines()[-1].endswith("6") and out.splitlines()[-1] != form


@pytest.mark.slow
def test_the_entry_of_the_bundled_model_is_among_what_is_found() -> None:
    found = layers.measure("eddy-tiny", layers.read_sentences(ROOT / "docs"))
    assert all(3 < value < 30 for value in found.dimensions[1:])
    entry = Embedder("eddy-tiny", method="kv").method.reroute.layers
    assert entry and set(entry) <= set(found.proposal.layers)


def test_kv_without_an_entry_gives_the_command() -> None:
    with pytest.raises(InvalidParameter, match="eddy layers MODEL --sample FILE"):
        methods.resolve(methods.parse("kv"), Backbone("llama", 32, 4096, 32000, 4096))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--sample", "absent.txt"], "absent.txt"),
        (["--sample", "{folder}/tiny"], "no .txt or .md"),
        (["--sample", "{folder}/tiny/config.json"], "config.json must be"),
        (["--sample", "{folder}/sample.txt", "--lines", "--sentences", "100", "--width", "9"], "width=9"),
        (["--sample", "{folder}/sample.txt", "--lines", "--sentences", "5000"], "5000 are needed"),
        (["--sample", "{folder}/sample.txt", "--language", "zz"], "zz"),
    ],
)
def test_refusals_are_one_sentence(more: list[str], said: str, folder: Path, capsys, monkeypatch) -> None:
    arguments = [each.format(folder=folder) for each in more]
    code, out, err = run(capsys, monkeypatch, "layers", str(folder / "tiny"), *arguments)
    assert code != 0 and out == "" and said in err
