"""TempScale: neutral at 1, one temperature a role, applied behind the cap, and joined to every other method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests import families
from tests.comparison import TEXTS, embedder, gap

from eddy_embed import methods
from eddy_embed.attention import Temperature, Traits, dispatch
from eddy_embed.errors import IncompatibleMethods, InvalidParameter

ALL = [*families.FAMILIES, *families.MORE_FAMILIES]


@pytest.mark.parametrize("neutral", ["tempscale:tau=1", "tempscale:rule=rate,rate=0"])
@pytest.mark.parametrize("family", ALL)
def test_neutral_settings_change_nothing(family: str, neutral: str) -> None:
    assert np.array_equal(
        embedder(family, f"htp+{neutral}").encode_document(TEXTS), embedder(family, "htp").encode_document(TEXTS)
    )


@pytest.mark.parametrize("family", ALL)
def test_every_family_feels_it(family: str) -> None:
    sharp = embedder(family, "plain+tempscale:tau=0.5").encode_document(TEXTS)
    assert np.abs(sharp - embedder(family, "plain").encode_document(TEXTS)).max() > 1e-3


def test_queries_may_have_their_own() -> None:
    both = embedder("llama", "plain+tempscale:tau=0.9,query_tau=0.5")
    assert np.array_equal(
        both.encode_document(TEXTS), embedder("llama", "plain+tempscale:tau=0.9").encode_document(TEXTS)
    )
    assert np.array_equal(both.encode_query(TEXTS), embedder("llama", "plain+tempscale:tau=0.5").encode_query(TEXTS))


@pytest.mark.parametrize("rule", ["rule=log", "rule=rate,rate=0.3"])
def test_rules_by_length_do_not_depend_on_the_company(rule: str) -> None:
    e = embedder("gemma2", f"plain+tempscale:{rule}")
    alone = np.stack([e.encode_document(text) for text in TEXTS])
    assert np.abs(e.encode_document(TEXTS) - alone).max() < 1e-5


def test_factors_are_the_published_ones() -> None:
    assert Temperature(0.8).factor(7, query=False) == 1.25
    assert Temperature(0.8, 0.5).factor(7, query=True) == 2.0
    assert Temperature(rule="log").factor(10, query=False) == pytest.approx(2.302585)
    assert Temperature(rule="rate", rate=0.5).factor(10, query=False) == pytest.approx(2.1512925)


@pytest.mark.parametrize(
    "bad", ["tau=0", "tau=1.5", "tau=-1", "query_tau=2", "rule=cube", "rule=rate,rate=-1", "tau=warm"]
)
def test_values_outside_their_range_are_refused(bad: str) -> None:
    with pytest.raises(InvalidParameter):
        methods.parse(f"plain+tempscale:{bad}")


def test_one_temperature_and_only_beside_a_readout() -> None:
    with pytest.raises(IncompatibleMethods, match="temperature"):
        methods.parse("plain+tempscale+tempscale:tau=0.9")
    with pytest.raises(InvalidParameter, match="no readout"):
        embedder("llama", "tempscale")


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_forgotten_temperature_is_noticed(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Temperature, "factor", lambda self, length, query: 1.0)
    method = "plain+tempscale"
    assert gap(embedder(family, method, exactly=True), family, method, TEXTS) > 1e-4


def test_a_temperature_in_front_of_the_cap_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = dispatch.blocked

    def wrong(query: object, key: object, value: object, traits: Traits, factor: float) -> object:
        return right(query, key, value, replace(traits, scale=traits.scale * factor), 1.0)

    method = "plain+tempscale"
    assert gap(embedder("gemma2", method, exactly=True), "gemma2", method, TEXTS) <= 1e-9
    monkeypatch.setattr(dispatch, "blocked", wrong)
    assert gap(embedder("gemma2", method, exactly=True), "gemma2", method, TEXTS) > 1e-4
