"""The start token: once, ahead of everything, where the tokenizer puts nothing there; without weight, never copied."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tests import families
from tests.comparison import METHODS, TEXTS, embedder, exact, loaded, sentences_of
from tests.reference import methods as reference
from tests.reference.forward import forward
from tests.reference.readout import unit
from tests.selection import mostly_slow, turns
from transformers import PreTrainedTokenizerFast

from eddy_embed import Embedder, methods
from eddy_embed.errors import IncompatibleMethods, InvalidParameter, UnsupportedModel
from eddy_embed.text.sequence import Role, TokenSequence
from eddy_embed.text.tokenizer import Tokenizer

DECODERS = families.FAMILIES | families.MORE_FAMILIES | families.OWN_ATTENTION
STARTED = [name for name, family in DECODERS.items() if family.tokenizer == "byte-level"]
"""Decoders whose tokenizer puts nothing ahead of a text."""
OWN = [name for name, family in DECODERS.items() if family.tokenizer != "byte-level"]
"""Those whose tokenizer puts a start token there itself."""
NONE = "+start:token=none"
COMPARED = [
    *("plain", "tp:range=1-4,placeholders=2", "htp:range=1-4,exit=-1", "echo", "reba"),
    "reba:k=3,piece=5,exit=-2+last2avg",
]
RELEASED = [
    *("echo:preset=released", "reba:variant=released", "htp:range=1-3,released_text=true"),
    *(f"{method}:released_text=true" for method in ("tp", "prompteol", "cot", "knowledge", "metaeol")),
]


def laid_out(e: Embedder, text: str) -> list[TokenSequence]:
    return [window.sequence for window in e._pipeline.planner.plan([text], "document")[0].windows]


# --- where it stands


@pytest.mark.parametrize("method", ["plain", "htp", "echo", "metaeol", "reba"])
def test_every_window_and_wording_has_it_once(method: str) -> None:
    text = " ".join(3 * TEXTS)
    sequences = laid_out(embedder("gpt2", method, max_length=96), text)
    assert len(sequences) > 2
    for sequence in sequences:
        assert np.flatnonzero(sequence.roles == Role.SPECIAL).tolist() == [0] and len(sequence) <= 96


# --- where nothing changes


@pytest.mark.parametrize("family", [*OWN, *families.ENCODERS])
def test_models_with_a_start_token_and_encoders_are_as_they_were(family: str) -> None:
    for method in ("plain",) if family in families.ENCODERS else ("plain", "htp", "echo"):
        usual, without = embedder(family, method), embedder(family, method + NONE)
        assert np.array_equal(usual.encode_document(TEXTS[::3]), without.encode_document(TEXTS[::3]))
        assert usual.fingerprint == without.fingerprint and "start" not in usual.settings
    prefix = usual._pipeline.planner.prefix.tolist()
    assert prefix == ([] if family in families.T5S else loaded(family)[1]("a")["input_ids"][:1])


@pytest.mark.parametrize("method", RELEASED)
def test_methods_as_released_have_none(method: str) -> None:
    e = embedder("gpt2", method)
    assert all(sequence.roles[0] != Role.SPECIAL for sequence in laid_out(e, TEXTS[0]))
    assert "start" not in e.settings
    with pytest.raises(IncompatibleMethods, match="both set start"):
        methods.parse(f"{method}+start:token=the")


# --- which token it is


@pytest.mark.parametrize(
    ("special", "named", "first"),
    [
        (["<a>", "<b>", "<|endoftext|>"], {"bos_token": "<a>", "eos_token": "<b>"}, "<|endoftext|>"),
        (["<a>", "<b>"], {"bos_token": "<a>", "eos_token": "<b>"}, "<a>"),
        (["<a>", "<b>"], {"eos_token": "<b>"}, "<b>"),
        (["<a>", "<b>"], {}, None),
    ],
)
def test_the_token_between_texts_else_the_start_token_else_the_end_token(
    special: list[str], named: dict[str, str], first: str | None
) -> None:
    own = PreTrainedTokenizerFast(tokenizer_object=families._byte_level(300, special), **named)
    expected = [] if first is None else [special.index(first)]
    assert Tokenizer(own).starting("auto", auto=True).tolist() == expected
    for asked, auto in ((None, True), ("auto", False)):
        assert Tokenizer(own).starting(asked, auto=auto).tolist() == []
    assert Tokenizer(own).starting("<b>", auto=False).tolist() == [1]


@pytest.mark.parametrize(
    ("family", "token"), [("gpt2", "."), ("qwen3", "Ġthe"), ("llama", "</s>"), ("gemma2", "<pad>")]
)
def test_a_token_of_ones_own(family: str, token: str) -> None:
    model, tokenizer = loaded(family, exactly=True)
    e = embedder(family, f"plain+start:token={token}", exactly=True)
    encoded = tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]
    start = tokenizer.convert_tokens_to_ids(token)
    expected = unit(forward(model, [start, *encoded])[-1][1:].mean(0).numpy())
    assert np.abs(exact(e, TEXTS[:1])[0] - expected).max() <= 1e-9
    assert e.settings["start"] == [start]
    assert e.fingerprint not in {embedder(family, form, exactly=True).fingerprint for form in ("plain", "plain" + NONE)}


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_a_token_that_the_vocabulary_lacks_is_refused(family: str) -> None:
    said = r"start token '<nope>' is not in the vocabulary; name one that is, or auto or none"
    with pytest.raises(InvalidParameter, match=said):
        embedder(family, "plain+start:token=<nope>")
    with pytest.raises(UnsupportedModel, match="no reason for a start token"):
        embedder("bert", "plain+start:token=<pad>")
    with pytest.raises(InvalidParameter, match=f"piece=512, 2 times, takes {families.WINDOW + 1} tokens"):
        embedder("gpt2", "reba:piece=512")


# --- what it decides


CELLS = [
    (family, method, start)
    for family, method, start in product(STARTED, COMPARED, (True, False))
    if not (method.startswith("reba") and family in families.OWN_ATTENTION)
]
USUAL = [(family, *case) for family, case in turns(STARTED, product(COMPARED[::-1], (True, False)))]


@pytest.mark.parametrize(("family", "method", "start"), mostly_slow(CELLS, USUAL))
def test_equals_the_reference(family: str, method: str, start: bool) -> None:
    model, tokenizer = loaded(family)
    e = embedder(family, method if start else method + NONE, exactly=True)
    name, parameters = METHODS[method]
    for text, vector in zip(TEXTS[::3], exact(e, TEXTS[::3]), strict=True):
        expected, other = (
            reference.embed(name, {**parameters, "start": s}, model, tokenizer, text, sentences=sentences_of(text))
            for s in (start, not start)
        )
        assert np.abs(vector - expected).max() <= 1e-9
        assert np.abs(vector - other).max() > 1e-4
