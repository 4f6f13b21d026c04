"""What an explanation says of copies, entries and weights is what happens in the pass."""

from __future__ import annotations

import pytest
from tests.comparison import TEXTS, embedder


@pytest.mark.parametrize("method", ["kv:layers=2", "plain:pool=hybrid", "echo:preset=released", "plain:pool=weighted"])
def test_weights_are_shares_of_what_is_read(method: str) -> None:
    tokens = embedder("llama", method).explain("Salt and smoke").tokens
    assert sum(token.weight for token in tokens) == pytest.approx(1)
    if "kv" in method or "hybrid" in method:  # the last token stands for itself and in the mean
        counted = sum(token.weight > 0 for token in tokens)
        assert tokens[-1].weight == pytest.approx(0.5 + 0.5 / counted)


def test_layers_are_those_that_run() -> None:
    copied = embedder("llama", "htp:range=1-5,exit=4").explain(TEXTS[0])
    assert (copied.rewired, copied.averaged, copied.rerouted, copied.watched) == ([2, 3, 4], [4], [], [])
    assert embedder("llama", "kv:layers=2-5,exit=4").explain("Salt.").rerouted == [2, 3, 4]
    assert embedder("llama", "last2avg").explain("Salt.").averaged == [5, 6]


def test_the_text_form_has_a_line_for_each_fact() -> None:
    shown = str(embedder("llama", "kv:layers=2-3,exit=4+tempscale:tau=0.5").explain(TEXTS[0])).splitlines()
    facts = dict(line.split(maxsplit=1) for line in shown[: shown.index("")])
    assert list(facts) == "method layers pooling rerouted logits kernels tokens windows memory".split()
    assert (facts["layers"], facts["rerouted"], facts["logits"]) == ("4 of 6 run, 4 read", "2, 3", "times 2")
