"""What an explanation says of windows, copies and entries is what happens in the pass."""

from __future__ import annotations

import pytest
from tests import families
from tests.comparison import TEXTS, embedder

from eddy_embed.encoding.explain import HiddenPlaceholder
from eddy_embed.text.sequence import Role


@pytest.mark.parametrize(
    ("family", "method", "layers"),
    [
        ("mistral", "htp:range=1-3,exit=4", (2, 3, 4)),
        ("gemma2", "htp:range=2-4,exit=-1", (3, 5)),
        ("gemma3", "tp", (2, 4, 5)),
        ("mistral", "tp:prompt=cot,placeholders=2,range=3-4,exit=-1", (4, 5, 6)),
    ],
)
def test_what_a_window_hides_of_the_placeholders_is_counted(family: str, method: str, layers: tuple[int, ...]) -> None:
    explained = embedder(family, method).explain(TEXTS[0])
    width = families.SLIDING
    expected = []
    for role in (Role.BPST, Role.PST):
        none = partly = 0
        placed = [at for at, token in enumerate(explained.tokens) if token.role == role]
        for at, token in enumerate(explained.tokens):
            before = [place for place in placed if place < at]
            seen = [place for place in before if place > at - width]
            none += token.role == Role.TEXT and bool(before) and not seen
            partly += token.role == Role.TEXT and 0 < len(seen) < len(before)
        if placed:
            expected.append(HiddenPlaceholder(role, width, layers, none, partly))
    assert explained.hidden == expected and expected[0].none > 0
    shown = (
        f"a window of 12 tokens, in layers {', '.join(map(str, layers))}: {expected[0].none} tokens of text see no <"
    )
    assert shown in str(explained)


def test_nothing_is_hidden_without_a_window_or_within_it() -> None:
    for family, text in (("llama", TEXTS[0]), ("mistral", "Salt.")):
        explained = embedder(family, "htp:range=1-3").explain(text)
        assert explained.hidden == [] and "a window of" not in str(explained)
    assert embedder("mistral", "plain").explain(TEXTS[0]).hidden == []
    assert embedder("mistral", "htp:range=3-3").explain(TEXTS[0]).hidden == []


def test_copies_at_the_exit_are_shown() -> None:
    shown = embedder("llama", "htp:range=1-5,exit=4,pool=all").explain(TEXTS[0])
    assert (shown.rewired, shown.copied_at_exit) == ([2, 3, 4], [4])
    assert "copies    inputs of layers 2 to 4, and the output of layer 4" in str(shown)
    only = embedder("llama", "htp:range=4-5,exit=4,pool=all").explain(TEXTS[0])
    assert only.rewired == [] and "copies    output of layer 4" in str(only)
    for method in ("htp:range=1-4,exit=4,pool=all", "htp:range=1-5,exit=4"):
        assert embedder("llama", method).explain(TEXTS[0]).copied_at_exit == []


@pytest.mark.parametrize("method", ["kv:layers=2", "plain:pool=hybrid", "echo:preset=released", "plain:pool=weighted"])
def test_weights_are_shares_of_what_is_read(method: str) -> None:
    tokens = embedder("llama", method).explain("Salt and smoke").tokens
    assert sum(token.weight for token in tokens) == pytest.approx(1)
    if "kv" in method or "hybrid" in method:  # the last token stands for itself and in the mean
        counted = sum(token.weight > 0 for token in tokens)
        assert tokens[-1].weight == pytest.approx(0.5 + 0.5 / counted)


def test_entries_are_shown_as_they_are() -> None:
    one = embedder("llama", "kv:layers=2-5,exit=4").explain("Salt.")
    assert (one.rerouted, one.entries, one.rebased) == ([2, 3, 4], 1, False)
    assert "last token's keys and values in layers 2, 3, 4" in str(one) and "turned" not in str(one)
    more = str(embedder("llama", "kv:layers=2,n=3,rebase=true").explain("Salt."))
    assert "last 3 tokens' keys and values in layers 2, turned to before the first token" in more
    none = embedder("llama", 'kv:layers="",n=2,rebase=true').explain("Salt.")
    assert (none.rerouted, none.entries, none.rebased) == ([], 0, False) and "keys" not in str(none)
