"""What `eddy diagnose` computes, against known answers and against transformers' own attention and gradients."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from scipy.special import hyp0f1
from tests import families
from tests.selection import slow

from eddy_embed import Embedder
from eddy_embed.analysis.diagnose import attention_spectra, geometry
from eddy_embed.analysis.diagnose.sensitivity import by_place, evenness, probes, sensitivity
from eddy_embed.analysis.diagnose.single_text import moved, see
from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.model import attention

TEXT = "The miller mended the lamp by the river. Nobody found the old map, and the bell was silent all day."
RNG = np.random.default_rng(5)


# --- The space of vectors


@pytest.mark.parametrize("width", [3, 8, 40])
def test_a_spherical_gaussian_is_as_uniform_as_can_be(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = np.random.default_rng(width).standard_normal((3000, width)) * 7
    monkeypatch.setattr(geometry, "PAIRS", 3000 * 77)  # blocks that do not come out even
    # E exp(-2 |x - y|^2) = exp(-4) E exp(4 u) for a coordinate u of a point on the sphere: a Bessel function.
    assert geometry.uniformity(cloud) == pytest.approx(-4 + np.log(hyp0f1(width / 2, 4.0)), abs=0.02)
    assert geometry.mean_cosine(cloud) == pytest.approx(0, abs=0.002)
    largest, effective = geometry.principal(cloud)
    assert largest < 1.3 / width and effective == pytest.approx(width, rel=0.03)


def test_equal_vectors_have_no_space() -> None:
    same = np.tile(RNG.standard_normal(6), (9, 1))
    assert geometry.mean_cosine(same) == pytest.approx(1)
    assert geometry.uniformity(same) == pytest.approx(0, abs=1e-12)
    assert geometry.alignment(same, same * 2) == 0
    assert geometry.distance_to(geometry.units(same).mean(0), same) == pytest.approx(0, abs=1e-12)
    assert np.isnan(geometry.principal(same)).all()


def test_isotropic_vectors_by_hand() -> None:
    axes = np.concatenate([np.eye(4), -np.eye(4)])
    assert geometry.principal(axes) == pytest.approx((0.25, 4))
    assert geometry.mean_cosine(axes) == pytest.approx(-1 / 7)
    assert geometry.distance_to(np.zeros(4), 3 * axes) == pytest.approx(1)
    assert geometry.uniformity(axes) == pytest.approx(np.log((6 * np.exp(-4) + np.exp(-8)) / 7))
    assert geometry.alignment(np.eye(3), np.eye(3)[[1, 2, 0]]) == pytest.approx(2)
    assert geometry.principal(np.outer([1, 2, -3, 4], [1.0, 2, 3]) * [1, 1, 1]) == pytest.approx((1, 1))


def test_shares_of_what_is_not_the_mean() -> None:
    assert geometry.high_share(np.ones((5, 3))) == 0
    assert geometry.high_share(np.eye(5)) == pytest.approx(0.8)
    signal = RNG.standard_normal((16, 3))
    spectrum = np.abs(np.fft.fft(signal, axis=0)) ** 2
    assert geometry.high_share(signal) == pytest.approx(spectrum[1:].sum() / spectrum.sum())


@pytest.mark.parametrize("number", [geometry.mean_cosine, geometry.uniformity])
def test_one_vector_has_no_neighbour(number) -> None:
    assert np.isnan(number(np.ones((1, 3))))
    with pytest.raises(InvalidParameter, match="shape"):
        number(np.full((2, 3), np.nan))
    with pytest.raises(InvalidParameter, match="two vectors each"):
        geometry.alignment(np.ones((2, 3)), np.ones((3, 3)))


# --- Attention as a filter


def test_uniform_attention_lets_nothing_through() -> None:
    found = attention_spectra.Filter.of(lambda: [torch.full((2, 30, 30), 1 / 30)])
    assert found.sigma.tolist() == [0, 0] and found.share.tolist() == [0, 0]


def test_attention_to_oneself_lets_all_through() -> None:
    found = attention_spectra.Filter.of(lambda: [torch.stack([torch.eye(20), torch.eye(20).flip(0)])])
    assert found.sigma == pytest.approx([1, 1]) and found.share == pytest.approx([0.95, 0.95])


@pytest.mark.parametrize("length", [1, 2, 7, 90])
def test_sigma_is_the_largest_singular_value(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    scores = torch.randn(3, length, length, generator=generator, dtype=torch.float64) * torch.tensor(
        [[[0.1]], [[1]], [[6]]]
    )
    whole = scores.softmax(-1)
    apart = (whole - whole.mean(1, keepdim=True)).numpy()
    for rows in (4, length):
        found = attention_spectra.Filter.of(partial(whole.split, rows, dim=1))
        assert found.sigma == pytest.approx([np.linalg.norm(each, 2) for each in apart], rel=1e-5, abs=1e-12)
        expected = [geometry.high_share(each) for each in whole.numpy()]
        assert found.share == pytest.approx(expected, abs=1e-9)


def test_paying_alike_to_all_earlier_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = np.tril(np.ones((40, 40)))
    whole = torch.from_numpy(seen / seen.sum(1, keepdims=True)).unsqueeze(0)
    expected = attention_spectra.Filter.of(lambda: [whole])
    monkeypatch.setattr(attention_spectra, "SCORES", 40 * 7)
    found = attention_spectra.Filter.of(partial(attention_spectra.uniform_attention, 40))
    assert found.sigma == pytest.approx(expected.sigma, rel=1e-6) and found.share == pytest.approx(
        expected.share, rel=1e-6
    )


WATCHED = ["llama", "gemma2", "gpt_oss", "qwen3", "bert", "modernbert", "t5"]


def eager(family: str, text: str) -> list[torch.Tensor]:
    """Attention of every layer as transformers computes it, each shape (heads, tokens, tokens)."""
    model, tokenizer = families.build(family)
    ids = torch.from_numpy(
        Embedder(model, tokenizer=tokenizer, method="plain")
        ._pipeline.planner.plan([text], "document")[0]
        .windows[0]
        .sequence.ids
    )[None]
    given = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            return [each[0].double() for each in model(input_ids=ids, output_attentions=True).attentions]
    finally:
        model.set_attn_implementation(given)


@pytest.mark.parametrize("rows", [2**24, 3 * 4 * 40], ids=["whole", "blocks"])
@pytest.mark.parametrize("family", WATCHED)
def test_watched_attention_is_the_models_own(family: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention.blocked, "SCORES", rows)
    model, tokenizer = families.build(family)
    found = see(Embedder(model, tokenizer=tokenizer, method="plain")._pipeline, TEXT)
    expected = eager(family, TEXT)
    assert len(found.sigma) == len(expected) == families.LAYERS
    for layer, whole in enumerate(expected):
        apart = (whole - whole.mean(1, keepdim=True)).numpy()
        assert found.sigma[layer] == pytest.approx(np.mean([np.linalg.norm(each, 2) for each in apart]), rel=1e-4)
        assert found.share[layer] == pytest.approx(
            np.mean([geometry.high_share(each) for each in whole.numpy()]), rel=1e-4
        )
    assert len(found.states) == families.LAYERS + 1 and found.entries == {}


def test_a_temperature_is_in_what_is_watched() -> None:
    model, tokenizer = families.build("llama")
    sharp = see(Embedder(model, tokenizer=tokenizer, method="plain+tempscale:tau=0.5")._pipeline, TEXT)
    assert (sharp.share > see(Embedder(model, tokenizer=tokenizer, method="plain")._pipeline, TEXT).share).all()


@pytest.mark.parametrize("entries", [1, 2])
def test_what_goes_to_the_entries_is_what_the_tokens_lack(entries: int) -> None:
    model, tokenizer = families.build("qwen3")
    embedder = Embedder(model, tokenizer=tokenizer, method=f"kv:layers=3-4,n={entries},bias=1.5")
    rows: list[np.ndarray] = []

    class Rest(attention_spectra.Spectra):
        def see(self, number, query, key, mass, members, traits, bias, paid) -> None:
            own = attention.Rows(query[0], key[0], mass[0], traits, members.factor, bias)
            rows.append(1 - torch.cat(list(own.blocks()), dim=1).sum(-1).mean(0).numpy())
            super().see(number, query, key, mass, members, traits, bias, paid)

    found = see(embedder._pipeline, TEXT)
    assert list(found.entries) == [3, 4]
    sequence = embedder._pipeline.planner.plan([TEXT], "document")[0].windows[0].sequence
    watch = Rest(filters=False)
    embedder._pipeline.open_runner.hidden([sequence], "document", watch)
    assert np.abs(rows[0]).max() < 1e-5
    for layer in (3, 4):
        assert watch.entries[layer] == pytest.approx(rows[layer - 1], abs=1e-5)
        assert found.entries[layer] == pytest.approx(rows[layer - 1][sequence.text], abs=1e-5)
        assert 0 < found.entries[layer].min() < found.entries[layer].max() < 1


def test_attention_out_of_reach_is_refused() -> None:
    model, tokenizer = families.build("bloom")
    with pytest.raises(UnsupportedModel, match="a watch cannot be put into it"):
        see(Embedder(model, tokenizer=tokenizer, method="plain")._pipeline, TEXT)


# --- Gradients


@pytest.mark.parametrize("count", [5, 12])
def test_sensitivity_of_a_linear_model_is_known(count: int) -> None:
    """y = the sum of W_i v_i: the Jacobian by v_i is W_i, whose norm all directions together give."""
    matrices = torch.randn(7, 12, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    matrices[3] = 0
    leaf = torch.randn(1, 7, 9, dtype=torch.float64, requires_grad=True)
    directions = probes(12, count)
    assert (directions @ directions.T - torch.eye(count)).abs().max() < 1e-12
    found = sensitivity(torch.einsum("idw,biw->d", matrices, leaf), leaf, directions)
    expected = np.array([np.linalg.norm(each) for each in matrices.numpy()])
    assert found[3] == 0
    assert found == pytest.approx(expected, rel=1e-12 if count == 12 else 0.4)


def test_few_directions_are_right_on_average() -> None:
    matrix = torch.randn(24, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    leaf = torch.zeros(1, 1, 6, dtype=torch.float64, requires_grad=True)
    found = [sensitivity(matrix @ leaf[0, 0], leaf, probes(24, 3, seed))[0] ** 2 for seed in range(300)]
    assert np.mean(found) == pytest.approx(float(matrix.square().sum()), rel=0.05)


@pytest.mark.parametrize(
    ("family", "method"),
    [("gemma2", "plain+tempscale:tau=0.7"), slow("llama", "plain"), slow("bloom", "plain"), slow("bert", "plain")],
)
def test_gradients_are_those_of_the_model(family: str, method: str) -> None:
    model, tokenizer = families.build(family)
    embedder = Embedder(model, tokenizer=tokenizer, method=method)
    found = moved(embedder._pipeline, TEXT[:40], families.HIDDEN)
    sequence = embedder._pipeline.planner.plan([TEXT[:40]], "document")[0].windows[0].sequence
    again = moved(embedder._pipeline, TEXT[:40], families.HIDDEN)
    assert np.array_equal(found.mean, again.mean) and len(found.last) == len(sequence.text)
    assert all(parameter.grad is None for parameter in model.parameters())
    if "tempscale" in method:
        assert (
            np.abs(
                found.last - moved(Embedder(model, tokenizer=tokenizer, method="plain")._pipeline, TEXT[:40], 64).last
            ).max()
            > 1e-3
        )
        return
    base = getattr(model, "model", None) or getattr(model, "transformer", model)
    ids = torch.from_numpy(sequence.ids)[None]
    inputs = base.get_input_embeddings()(ids).detach().requires_grad_()
    states = base(inputs_embeds=inputs).last_hidden_state[0]
    for readout, norms in ((states[torch.from_numpy(sequence.text)].mean(0), found.mean), (states[-1], found.last)):
        jacobian = torch.stack([torch.autograd.grad(value, inputs, retain_graph=True)[0][0] for value in readout])
        expected = jacobian.square().sum((0, 2)).sqrt()[torch.from_numpy(sequence.text)]
        assert norms == pytest.approx(expected.numpy(), rel=2e-3)


@pytest.mark.parametrize("method", ["htp", "kv:layers=2-4", "echo"])
def test_gradients_pass_through_copies_and_entries(method: str) -> None:
    """A first token is read by later ones only; copies and entries bring later tokens to earlier ones."""
    model, tokenizer = families.build("llama")
    embedder = Embedder(model, tokenizer=tokenizer, method=method)
    sequence = embedder._pipeline.planner.plan([TEXT], "document")[0].windows[0].sequence
    leaves: list[torch.Tensor] = []
    states, _ = embedder._pipeline.open_runner.hidden([sequence], "document", leaves=leaves)
    early = int(sequence.text[4])
    (gradient,) = torch.autograd.grad(states[early].square().sum(), leaves[0])
    behind = gradient[0, early + 1 :].abs().sum(-1)
    assert (behind > 0).any() == (method != "echo")
    with torch.inference_mode():
        own, _ = embedder._pipeline.open_runner.hidden([sequence], "document")
    assert (states.detach() - own).abs().max() < 1e-4


def test_evenness_and_places_by_hand() -> None:
    assert evenness(np.ones(6)) == 1
    assert evenness(np.eye(6)[2]) == pytest.approx(1 / 6)
    assert by_place(np.array([3.0, 1.0]), 4) == pytest.approx([1.5, 1.5, 0.5, 0.5])
    assert by_place(np.array([1.0, 2.0, 3.0]), 2) == pytest.approx([2 / 3, 4 / 3])
    assert by_place(np.ones(7), 20) == pytest.approx(np.ones(20))
