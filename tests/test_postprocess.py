"""Post-processing: learned in one pass what a direct computation gives, stored, and applied to every vector alike."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from calibrations import write
from tests import families
from tests.selection import each_once, slow

from eddy_embed import Embedder, methods
from eddy_embed.encoding import build, calibration
from eddy_embed.encoding.encoder import VectorFinalizer
from eddy_embed.errors import FingerprintMismatch, IncompatibleMethods, InvalidParameter, NotFinite
from eddy_embed.integrations.shared import unrelated_cosines
from eddy_embed.parts.postprocess import Fitted, Post, fit
from eddy_embed.text.calibration import CalibrationText
from eddy_embed.utils.arrays import unit
from eddy_embed.utils.moments import RunningCovariance

TEXTS = [
    f"Shelf {number} holds {what}. Nobody has counted them since spring, and the list is lost."
    for number, what in enumerate("maps ropes lamps jars bells coins keys nets".split())
]

FEW = CalibrationText(TEXTS, ["Where are the maps?", "Who counts the keys?"], "general:few")
"""In place of the general text."""


def cone(count: int, width: int = 12, seed: int = 0) -> np.ndarray:
    """Vectors far from the origin and close together, as a language model's are."""
    generator = np.random.default_rng(seed)
    return generator.standard_normal((count, width)) @ generator.standard_normal((width, width)) + 100.0


def seen(vectors: np.ndarray, batch: int = 7) -> RunningCovariance:
    moments = RunningCovariance(vectors.shape[1])
    for first in range(0, len(vectors), batch):
        moments.add(vectors[first : first + batch])
    return moments


def made_by(method: str, **options: Any) -> Embedder:
    model, tokenizer = families.build("llama")
    return Embedder(model, tokenizer=tokenizer, method=method, **options)


embedder = cache(made_by)


def test_shrinkage_is_the_published_formula() -> None:
    # Ledoit and Wolf 2004, section 3.2, with its inner products divided by the width, written as sums over vectors.
    for n in (2, 5, 50, 1000):
        x = cone(n)
        centred = x - x.mean(0)
        covariance = sum(np.outer(row, row) for row in centred) / n
        sphere = np.trace(covariance) / 12 * np.eye(12)
        dispersion = np.sum((covariance - sphere) ** 2) / 12
        error = sum(np.sum((np.outer(row, row) - covariance) ** 2) for row in centred) / n**2 / 12
        assert seen(x).shrinkage == pytest.approx(min(error, dispersion) / dispersion, rel=1e-6), n


def test_whitening_keeps_the_strongest_components() -> None:
    x = cone(500)
    whole, few = fit(Post("whiten"), seen(x)), fit(Post("whiten", dims=3), seen(x))
    assert np.array_equal(few.apply(x), whole.apply(x)[:, :3])
    axes = whole.matrix / np.linalg.norm(whole.matrix, axis=0)
    variances = ((x - x.mean(0)) @ axes).var(0)
    assert np.all(np.diff(variances) < 0)


@pytest.mark.parametrize("power", [0.25, 0.5, 1.0])
def test_partial_whitening_divides_by_a_power_of_each_components_deviation(power: float) -> None:
    x = cone(500)
    moments = seen(x)
    sphere = np.trace(moments.covariance) / 12 * np.eye(12)
    shrunk = (1 - moments.shrinkage) * np.cov(x.T, bias=True) + moments.shrinkage * sphere
    variances, axes = np.linalg.eigh(shrunk)
    expected = (x - x.mean(0)) @ axes @ np.diag(variances ** (-power / 2))
    y = fit(Post("whiten", power=power), moments).apply(x)
    # Components may be turned and reordered; what they say of two vectors is the same.
    assert np.allclose(y @ y.T, expected @ expected.T)


def test_a_dimension_that_does_not_vary_is_not_blown_up() -> None:
    x = cone(40)
    x[:, 3] = 7.0
    y = fit(Post("standardise"), seen(x)).apply(x)
    assert np.abs(y[:, 3]).max() < 1e-6 and np.allclose(np.delete(y, 3, 1).std(0), 1)


def test_abtt_leaves_nothing_along_the_top_components() -> None:
    x = cone(200)
    y = fit(Post("abtt", components=2), seen(x)).apply(x)
    _, _, axes = np.linalg.svd(x - x.mean(0), full_matrices=False)
    assert np.abs(y @ axes[:2].T).max() < 1e-9
    assert np.allclose(y @ axes[2:].T, (x - x.mean(0)) @ axes[2:].T)


def test_the_digest_changes_with_what_was_learned() -> None:
    fitted = fit(Post("whiten"), seen(cone(30)))
    parts = (
        *({"matrix": 2 * fitted.matrix}, {"query_mean": fitted.mean}, {"mean": fitted.mean + 1}),
        *({"post": replace(fitted.post, keep=3)}, {"post": Post("centre")}, {"post": Post("whiten", power=0.5)}),
    )
    assert len({fitted.digest, *(replace(fitted, **part).digest for part in parts)}) == 7


def test_bad_values_are_refused(tmp_path) -> None:
    for text, message in (
        ("abtt:k=0", "at least 1"),
        ("whiten:dims=0", "at least 1"),
        ("truncate:dims=0", "truncate: dims=0 must be at least 1"),
        ("whiten:dims=4+truncate:dims=5", "dims=5 were asked for, whiten keeps 4"),
        *((f"whiten:power={power}", "must be above 0 and at most 1") for power in (0, 1.5)),
    ):
        with pytest.raises(InvalidParameter, match=message):
            methods.parse(text)
    for text in ("truncate:dims=3+truncate:dims=2", "centre+truncate:dims=3+whiten"):
        with pytest.raises(IncompatibleMethods, match="both set post"):
            methods.parse(text)
    with pytest.raises(InvalidParameter, match="13 components"):
        fit(Post("whiten", dims=13), seen(cone(30)))
    with pytest.raises(NotFinite):
        seen(np.full((2, 3), np.nan))
    with pytest.raises(InvalidParameter, match="fit it first"):
        Fitted.load(tmp_path / "absent.npz")
    for content in (b"", b"PK\x03\x04 cut short", b"not a file of numbers"):
        (tmp_path / "post.npz").write_bytes(content)
        with pytest.raises(InvalidParameter, match=r"post\.npz"):
            Fitted.load(tmp_path / "post.npz")


def test_vectors_that_do_not_differ_teach_nothing() -> None:
    for post in ("centre", "abtt", "whiten"):
        e = embedder(f"plain+{post}")
        for texts in (["Jars."], ["Jars.", "Jars."]):
            with pytest.raises(InvalidParameter, match="that differ"):
                e.fit(texts)


@pytest.mark.parametrize("post", ["standardise", slow("centre"), slow("whiten:power=0.5")])
def test_a_model_is_calibrated_on_general_text_once(post: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("EDDY_CACHE", str(tmp_path))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fresh = partial(made_by, f"plain:exit=3+{post}")
    monkeypatch.setattr(calibration, "calibration_text", lambda: FEW)
    monkeypatch.setattr(build, "calibration_text", lambda: FEW)
    e, raw, text = fresh(), embedder("plain:exit=3"), FEW
    fingerprint = e.fingerprint
    assert not e.is_fitted and not list(tmp_path.rglob("*.npz")), "the fingerprint needs no calibration"
    asked = e.encode_query(TEXTS)
    assert "Calibrating, once" in capsys.readouterr().err, "on a terminal"
    (file,) = tmp_path.rglob("*.npz")
    assert e.fingerprint == fingerprint and not e.is_fitted and e.counts.texts == len(TEXTS)
    fitted = fresh().fit(text.passages, text.questions)
    assert e.post is not None and e.post.general == text.name and e.post.count == len(text.passages)
    assert np.abs(e.post.mean - raw.encode_document(text.passages).mean(0)).max() < 1e-5
    expected = e.post.apply(raw.encode_query(TEXTS), "query")
    assert np.abs(asked - expected / np.linalg.norm(expected, axis=1, keepdims=True)).max() < 1e-5
    assert e.post.query_mean is not None and np.abs(e.post.query_mean - fitted.query_mean).max() < 1e-5

    written = file.stat().st_mtime_ns
    assert np.array_equal(fresh().encode_query(TEXTS), asked) and file.stat().st_mtime_ns == written, "read again"
    assert not capsys.readouterr().err
    file.write_bytes(b"PK")
    assert np.abs(fresh().encode_query(TEXTS) - asked).max() < 1e-5, "a damaged file is made anew"
    assert len(Fitted.load(file).mean) == len(e.post.mean)
    monkeypatch.setenv("EDDY_CACHE", str(file / "no folder"))
    assert np.abs(fresh().encode_query(TEXTS) - asked).max() < 1e-5, "without a cache it is fitted again"

    instructed, again = fresh(query_instruction="Find it:"), e.with_instructions(query="Find it:")
    assert again.fingerprint == instructed.fingerprint != fingerprint
    assert np.abs(again.encode_query(TEXTS) - instructed.encode_query(TEXTS)).max() < 1e-5
    calibrated, shared = e.post, e.encode_query(TEXTS)
    e.fit(TEXTS[:4], text.questions)
    assert e.post is not calibrated and np.abs(e.encode_query(TEXTS) - shared).max() > 1e-3
    assert e.is_fitted and e.fingerprint != fingerprint
    with pytest.raises(FingerprintMismatch, match="query_instruction"):
        e.with_instructions(query="Find it:")


def test_cosines_of_unrelated_texts_are_computed_once_for_what_makes_vectors(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("EDDY_CACHE", str(tmp_path))
    monkeypatch.setattr(calibration, "calibration_text", lambda: FEW)
    text, files = FEW, []
    for method, options in (("plain:exit=2", {}), ("plain:exit=2", {"normalize": False}), ("plain:exit=2+centre", {})):
        one, again = (made_by(method, **options) for _ in range(2))
        cosines = unit(one.encode_query(text.questions)) @ unit(one.encode_document(text.passages)).T
        counted = copy.copy(one.counts)
        assert unrelated_cosines(one) == pytest.approx((cosines.mean(), cosines.std()), abs=1e-5)
        assert one.counts == counted
        with monkeypatch.context() as patch:
            patch.setattr(calibration, "calibration_text", lambda: text._replace(questions=[]))
            assert unrelated_cosines(again) == unrelated_cosines(one)
        files.append(len(list(tmp_path.glob("unrelated/*.json"))))
    assert files == [1, 2, 3]


POSTS = ["centre", "abtt:k=2", "whiten:dims=6", "centre+truncate:dims=9", "truncate:dims=4+whiten:dims=6,power=0.5"]


@pytest.mark.parametrize(("post", "method"), each_once(POSTS, ["plain+filter:drop=4", "htp", "prompteol"]))
def test_fitting_changes_every_vector_alike(method: str, post: str, tmp_path) -> None:
    raw = embedder(method)
    processed = made_by(f"{method}+{post}")
    fitted = processed.fit(TEXTS)
    assert processed.post is fitted
    passages = [part.vector for document in raw.encode_long(TEXTS, late=False) for part in document.passages]
    assert fitted.count == len(passages)
    assert np.abs(fitted.mean - np.mean(passages, axis=0)).max() < 1e-5
    expected = fitted.apply(raw.encode_query(TEXTS), "query")[:, : fitted.post.keep]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.abs(processed.encode_query(TEXTS) - expected).max() < 1e-5
    assert processed.dimension == fitted.post.dimension(families.HIDDEN) == processed.encode_query("Jars.").shape[0]

    late = method != "prompteol"
    direct, before = processed.encode_long(TEXTS[0], late=late), raw.encode_long(TEXTS[0], late=late)
    for mine, other in zip(
        [direct, *direct.sentences, *direct.passages], [before, *before.sentences, *before.passages], strict=True
    ):
        after = fitted.apply(other.vector)[: fitted.post.keep]
        assert np.abs(mine.vector - after / np.linalg.norm(after)).max() < 1e-5

    fitted.save(tmp_path / "post.npz")
    opened = made_by(f"{method}+{post}", fitted=tmp_path / "post.npz")
    assert opened.fingerprint == processed.fingerprint != raw.fingerprint
    assert np.array_equal(opened.encode_query(TEXTS), processed.encode_query(TEXTS))
    assert methods.parse(str(raw.with_post(fitted).method)).post == raw.with_post(fitted).method.post == fitted.post
    assert np.array_equal(raw.with_post(fitted).encode_query(TEXTS), processed.encode_query(TEXTS))


@pytest.mark.parametrize("method", ["prompteol", "htp+last2avg"])
def test_truncation_keeps_the_first_dimensions(method: str) -> None:
    whole, cut = embedder(method), embedder(f"{method}+truncate:dims=5")
    expected = whole.encode_query(TEXTS)[:, :5]
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.abs(cut.encode_query(TEXTS) - expected).max() < 1e-6
    assert np.array_equal(embedder(f"truncate:dims=5+{method}").encode_query(TEXTS), cut.encode_query(TEXTS))
    late = cut.encode_long(TEXTS[0], late=False)
    assert {cut.dimension} == {len(span.vector) for span in [*late.passages, *late.sentences]} == {5}
    assert cut.fingerprint != whole.fingerprint and cut.with_post(None).method == whole.method
    assert embedder(f"{method}+truncate").dimension == whole.dimension
    for fit_nothing in (whole.fit, cut.fit):
        with pytest.raises(InvalidParameter, match="no post-processing"):
            fit_nothing(TEXTS)
    with pytest.raises(InvalidParameter, match="65 dimensions were asked for, vectors have 64"):
        embedder(f"{method}+truncate:dims=65")


def test_a_file_goes_with_the_maker_of_its_vectors_alone(tmp_path) -> None:
    model, tokenizer = families.build("llama")
    path = tmp_path / "post.npz"
    made = Embedder(model, tokenizer=tokenizer, method="plain:exit=3+centre", max_length=200)
    made.fit(TEXTS).save(path)

    def opened(other=model, **options):
        return Embedder(other, **{"tokenizer": tokenizer, "method": "plain:exit=3+centre", "fitted": path, **options})

    # What changes no vector that it was fitted on, or queries only.
    for options in ({"max_length": 200}, {"overflow": "error"}):
        assert np.array_equal(opened(**options).encode_document("A text."), opened().encode_document("A text."))
    assert opened(max_length=200).fingerprint == made.fingerprint
    changed = copy.deepcopy(model)
    with torch.no_grad():
        changed.model.layers[0].mlp.up_proj.weight.mul_(1.5)
    for said, options in {
        "method.readout.exit 3, here 4": {"method": "plain:exit=4+centre"},
        "method.rewire.span None, here": {"method": "htp:exit=3+centre"},
        "method.readout.pool 'mean', here 'last'": {"method": "plain:pool=last,exit=3+centre"},
        "text_instruction None, here 'Read:'": {"text_instruction": "Read:"},
        r"start None, here \[\d+\]": {"method": "plain:exit=3+centre+start:token=</s>"},
        "weights ": {"other": changed},
    }.items():
        with pytest.raises(FingerprintMismatch, match=f"(?s)^The post-processing was fitted .*{said}") as error:
            opened(**options)
        assert "fit it again" in str(error.value)
        with pytest.raises(FingerprintMismatch, match="fitted with another"):
            opened(**{**options, "fitted": None}).with_post(Fitted.load(path))
    for method, message in (("htp+whiten", "asks for"), ("htp+centre", "width 12")):
        with pytest.raises(InvalidParameter, match=message):
            opened(method=method, fitted=fit(Post("centre"), seen(cone(5))))
    # A mean of queries is theirs alone, also that of the general ones.
    made.fit(TEXTS, ["When does the ferry leave?", "What rose?"]).save(path)
    with pytest.raises(FingerprintMismatch, match="query_instruction None, here 'Find it:'"):
        opened(query_instruction="Find it:")


@pytest.mark.parametrize("post", [Post("centre"), Post("abtt", components=2), Post("whiten", dims=5, power=0.5)])
def test_queries_lose_a_mean_of_their_own_if_one_is_given(post: Post, tmp_path) -> None:
    library, asked = cone(300), cone(200, seed=1) + 5.0
    fitted, plain = fit(post, seen(library), seen(asked)), fit(post, seen(library))
    assert np.array_equal(fitted.apply(library), plain.apply(library))
    # Drawn towards the library's mean by the squared error to be expected over the squared distance.
    gap = asked.mean(0) - library.mean(0)
    error = (asked.var(0).sum() + library.var(0).sum() / 200) / 200
    mean = asked.mean(0) - min(1.0, error / (gap @ gap)) * gap
    shifted = plain.apply(asked - mean + library.mean(0))
    assert np.allclose(fitted.apply(asked, "query"), shifted, rtol=0, atol=1e-9 * np.abs(shifted).max())
    assert np.abs(fitted.apply(asked, "query").mean(0)).max() < 0.1 * np.abs(plain.apply(asked).mean(0)).max()
    fitted.save(tmp_path / "post.npz")
    again = Fitted.load(tmp_path / "post.npz")
    assert (again.post, again.count) == (post, 300) and again.digest == fitted.digest != plain.digest
    assert np.array_equal(again.apply(asked, "query"), fitted.apply(asked, "query"))


def test_infinity_before_a_head_is_an_error_even_if_the_head_bounds_it() -> None:
    finish = VectorFinalizer(normalize=True, head=cast("Any", np.tanh))
    assert np.isfinite(finish(np.array([1.0, 2.0]), 0)).all()
    with pytest.raises(NotFinite, match="text 3"):
        finish(np.array([np.inf, 2.0]), 3)


@pytest.mark.parametrize(("model", "method"), [("eddy-tiny", "plain:exit=1+standardise"), slow("smollm2", "best")])
def test_a_calibration_that_comes_with_eddy_is_used_for_all_that_it_was_made_by(
    model: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("EDDY_CACHE", str(tmp_path / "cache"))
    if model == "smollm2":
        model = str(request.getfixturevalue(model))
    write(tmp_path / "made", [model], method)
    (file,) = (tmp_path / "made").glob("*.npz")
    if model == "eddy-tiny":
        assert not (calibration.SHIPPED / file.name).exists(), "its recommended methods learn nothing"
        monkeypatch.setattr(calibration, "SHIPPED", tmp_path / "made")
    made, usual = Fitted.load(file), calibration.fitted_on
    monkeypatch.setattr(calibration, "fitted_on", None)
    for same in ({}, {"dtype": "bfloat16"}):
        used = Embedder(model, method, check=False, **same).post
        assert used is not None and (used.digest, used.made_by) == (made.digest, made.made_by)
        for name in ("mean", "matrix", "query_mean"):
            assert np.allclose(getattr(used, name), getattr(made, name), rtol=1e-2, atol=1e-4)
    for other in ({"method": f"{method}+truncate:dims=9"}, {"query_instruction": "Find:"}):
        with pytest.raises(TypeError):  # it would be fitted
            _ = Embedder(model, **{"method": method, **other}, check=False).post
    monkeypatch.setattr(calibration, "fitted_on", usual)
    with monkeypatch.context() as patch:
        patch.setattr(calibration, "SHIPPED", tmp_path / "none")
        computed = Embedder(model, method, dtype="float32", check=False).post
    assert computed is not None and np.allclose(computed.mean, made.mean, atol=1e-5)
