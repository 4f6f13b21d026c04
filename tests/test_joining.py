"""Which methods join, which are refused and why, and what a joined method is."""

from __future__ import annotations

import pytest

from eddy_embed import methods
from eddy_embed.errors import IncompatibleMethods
from eddy_embed.parts.layout import Blocks, Layout
from eddy_embed.parts.readout import Readout

WORDINGS = ["prompteol", "cot", "knowledge", "metaeol", "echo", "kv"]
"""Each brings a template; kv also entries."""
PLACED = ["tp", "htp"]
POSTS = ["centre", "standardise", "abtt", "whiten"]
AVERAGES = ["last2avg", "layeravg"]
STAND_INS = ["recommended", "best", "fast"]
BOTH_SET = {
    "post": POSTS,
    "average": AVERAGES,
    "template": WORDINGS,
    "placeholders": PLACED,
    "recommended": STAND_INS,
}
WHOLE = ["plain", *WORDINGS, *PLACED, "reba"]
"""Each brings a readout."""
TWO = "both set readout"


PAIRS = {
    frozenset({"kv", "reroute"}): "both set reroute",
    frozenset({"reroute"}): "both set reroute",
    frozenset({"tempscale"}): "both set temperature",
    frozenset({"truncate"}): "both set post",
    frozenset({"sif"}): "both set weights",
    frozenset({"filter"}): "both set filter",
    frozenset({"readout"}): TWO,
    frozenset({"readout", "reba"}): "a readout of its own",
    frozenset({"htp", "echo"}): "divide a text that stands there once",
    frozenset({"reba"}): "both set repetition",
    frozenset({"reba", "plain"}): TWO,
}
"""Pairs with a reason of their own."""


def reason(one: str, other: str) -> str | None:
    """Why two methods do not join; None where they do."""
    pair = {one, other}
    for part, group in BOTH_SET.items():
        if pair <= {*group}:
            return f"both set {part}"
    if frozenset(pair) in PAIRS:
        return PAIRS[frozenset(pair)]
    if not pair <= {*WHOLE}:
        return None
    return "a repeated text stands alone" if "reba" in pair else TWO


def test_the_table_knows_every_method() -> None:
    joined = {"truncate", "tempscale", "reroute", "start", "sif", "filter", "readout", *AVERAGES}
    # What is recommended is not known before there is a model: until then it joins all but itself.
    assert {*WHOLE, *POSTS, *joined, *STAND_INS} == set(methods.names())


@pytest.mark.parametrize("one", methods.names())
def test_every_pair_joins_or_is_refused_with_the_reason(one: str) -> None:
    for other in methods.names():
        text, expected = f"{one}+{other}", reason(one, other)
        if expected is None:
            joined = methods.parse(text)
            assert str(joined) == text and methods.parse(str(joined)) == joined
            assert joined == methods.parse(one) | methods.parse(other)
            assert joined.settings == methods.parse(f"{other}+{one}").settings
            continue
        with pytest.raises(IncompatibleMethods, match=expected) as caught:
            methods.parse(text)
        assert one in str(caught.value) and other in str(caught.value)
        settled = methods.parse("readout:pool=last,exit=-2")
        if expected == TWO and {one, other} <= {*WHOLE} - {"reba"}:
            joined = methods.parse(f"{text}+readout:pool=last,exit=-2")
            assert joined.readout == settled.readout and f"{text}+readout:pool=mean" in str(caught.value)
            assert joined.settings == methods.parse(f"{other}+readout:pool=last,exit=-2+{one}").settings
        else:
            with pytest.raises(IncompatibleMethods):
                methods.parse(f"{text}+readout:pool=last,exit=-2")


def test_a_joined_layout_has_the_wording_of_one_and_the_placeholders_of_the_other() -> None:
    kv = methods.kv("2").layout
    assert kv is not None
    joined = methods.parse('kv:layers="2"+tp:placeholders=2,source=text+readout')
    assert joined.layout == Layout(kv.template, kv.query_template, placeholders=2, source="text")
    assert (joined.readout, joined.reroute) == (Readout(pool=None), methods.kv("2").reroute)
    joined = methods.parse("htp:k=3+prompteol+readout:pool=weighted")
    assert joined.layout == Layout(methods.prompts.EOL, blocks=Blocks(3))
    # The text form of a combination that has a name of its own is another, the vectors are the same.
    assert methods.parse("prompteol+tp+readout:pool=last,exit=none").settings == methods.tp("prompteol").settings
