"""TempScale: neutral at 1, one temperature a role, and applied behind the cap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests import families
from tests.comparison import TEXTS, change_arguments, embedder, gap
from tests.selection import mostly_slow

from eddy_embed.model.attention import kernels
from eddy_embed.model.attention.blocked import AttentionSpec
from eddy_embed.parts.attention import Temperature
from eddy_embed.parts.layout import TextRole

ALL = [*families.FAMILIES, *families.MORE_FAMILIES]


@pytest.mark.parametrize("neutral", ["tempscale:tau=1", "tempscale:rule=rate,rate=0"])
@pytest.mark.parametrize("family", mostly_slow(ALL, families.FAMILIES))
def test_neutral_settings_change_nothing(family: str, neutral: str) -> None:
    assert np.array_equal(
        embedder(family, f"htp+{neutral}").encode_document(TEXTS), embedder(family, "htp").encode_document(TEXTS)
    )


def test_queries_may_have_their_own() -> None:
    both = embedder("llama", "plain+tempscale:tau=0.9,query_tau=0.5")
    assert np.array_equal(
        both.encode_document(TEXTS), embedder("llama", "plain+tempscale:tau=0.9").encode_document(TEXTS)
    )
    assert np.array_equal(both.encode_query(TEXTS), embedder("llama", "plain+tempscale:tau=0.5").encode_query(TEXTS))


def test_one_token_has_nothing_to_sharpen() -> None:
    # The logarithm of 1 is 0: equal logits, and a softmax over one of them is 1 all the same.
    (one, two), method = ("a", "salt"), "plain+start:token=none+tempscale:rule=log"
    log, plain = embedder("qwen3", method), embedder("qwen3", "plain+start:token=none")
    assert len(log.explain(one).tokens) == 1 < len(log.explain(two).tokens)
    assert np.array_equal(log.encode_document(one), plain.encode_document(one))
    assert np.abs(log.encode_document(two) - plain.encode_document(two)).max() > 1e-4


@pytest.mark.parametrize(
    ("method", "role", "factor"),
    [
        ("tempscale:query_tau=0.5", "query", 1 / 0.5),
        ('tempscale:lengths="1:1,25:0.7,26:0.5"', "document", 1 / 0.7),
        ("tempscale:rule=log,tau=0.5", "document", np.log(25) / 0.5),
    ],
)
def test_the_effective_factor_is_explained(method: str, role: TextRole, factor: float) -> None:
    # 22 tokens of text behind <s>, and two placeholders.
    e = embedder("llama", f"tp:placeholders=2+{method}")
    explained = e.explain("aaaaaaaaaaaaaaaaaaaaaa", role=role)
    assert len(explained.tokens) == 25 and explained.logits == pytest.approx(factor)


def _in_front_of_the_cap(patch: pytest.MonkeyPatch) -> None:
    def moved(query: Any, key: Any, value: Any, traits: AttentionSpec, factor: float, *more: Any) -> Any:
        return (query, key, value, replace(traits, scale=traits.scale * factor), 1.0, *more)

    change_arguments(patch, kernels, "blocked", moved)


def _forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Temperature, "factor", lambda self, length, query: 1.0)


@pytest.mark.parametrize(
    ("family", "mutate"), [("llama", _forgotten), ("gemma2", _forgotten), ("gemma2", _in_front_of_the_cap)]
)
def test_a_mutation_is_noticed(family: str, mutate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    method = "plain+tempscale"  # which equals the reference without them: `test_methods`
    assert gap(embedder(family, method, exactly=True), family, method, TEXTS) > 1e-4
