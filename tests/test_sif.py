"""Tokens weighed in means by how rare they are: windows and parts; `test_methods` has whole texts."""

from __future__ import annotations

import numpy as np
import pytest
from tests.comparison import TEXTS, embedder, loaded
from tests.reference.readout import sif, unit
from tests.test_long import TEXT, WINDOW, passes_of
from tokenizers import Tokenizer as Fast
from tokenizers import models
from transformers import PreTrainedTokenizerFast

from eddy_embed.errors import InvalidParameter
from eddy_embed.parts.token_weights import TokenWeights
from eddy_embed.text.tokenizer import Tokenizer

A = 1e-2
"""For vocabularies of a few hundred tokens, where the default would weigh all but a few the same."""


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_windows_and_their_parts_equal_the_reference(family: str) -> None:
    """A document is the weighted mean over all of its windows' tokens, whatever weight each window has."""
    _, tokenizer = loaded(family)
    e = embedder(family, f"plain+sif:a={A}", max_length=WINDOW)
    windows = passes_of(e, family, "plain", TEXT)
    states = [
        (window.spans[index], sif(tokenizer, window.done.layout.ids[at], A), window.done.h[at])
        for window in windows
        for index in window.counted
        for at in [window.done.layout.text[index]]
    ]
    whole = e.encode_long(TEXT, passage_size=20)
    assert np.abs(whole.vector - unit(sum(weight * h for _, weight, h in states))).max() <= 1e-5
    assert np.abs(whole.vector - e.encode_document(TEXT)).max() <= 1e-6
    for part in [*whole.sentences, *whole.passages]:
        inside = [weight * h for (start, _), weight, h in states if part.start <= start < part.end]
        assert np.abs(part.vector - unit(sum(inside))).max() <= 1e-5
        assert part.n_tokens == len(inside)
    first = whole.sentences[0]
    word = e.encode_words(TEXT, [(first.start, first.end)])[0]
    assert np.abs(word - first.vector).max() <= 1e-6


def test_vectors_without_normalisation_are_means() -> None:
    """Their length is that of a mean, not of a sum."""
    e = embedder("llama", f"plain+sif:a={A}", normalize=False)
    plain = embedder("llama", "plain", normalize=False)
    lengths = [float(np.linalg.norm(each.encode_document(TEXTS[0]))) for each in (e, plain)]
    assert 0.3 < lengths[0] / lengths[1] < 3
    texts = [TEXTS[0], TEXTS[1], TEXTS[2]]
    alone = np.stack([e.encode_document(text) for text in texts])
    assert np.abs(e.encode_document(texts) - alone).max() <= 1e-4


def test_explain_shows_the_weights() -> None:
    _, tokenizer = loaded("llama")
    e = embedder("llama", f"plain+sif:a={A}")
    tokens = e.explain(TEXTS[0]).tokens
    own = [token for token in tokens if token.weight]
    assert sum(token.weight for token in tokens) == pytest.approx(1)
    expected = np.array([sif(tokenizer, token.id, A) for token in own])
    assert [token.weight for token in own] == pytest.approx((expected / expected.sum()).tolist())


def test_common_tokens_weigh_less_and_marks_least() -> None:
    for family in ("llama", "gpt2"):
        _, tokenizer = loaded(family)
        ranks = embedder(family, "plain")._pipeline.planner.tokenizer.ranks()
        weights = TokenWeights(1e-3).of(ranks)
        vocabulary = tokenizer.get_vocab()
        assert len(weights) == max(vocabulary.values()) + 1 and ranks.max() < len(weights)
        assert weights[vocabulary["."]] == weights[vocabulary["e"]] == weights.min() < weights.max()


def test_ids_with_gaps_have_weights() -> None:
    gapped = PreTrainedTokenizerFast(
        tokenizer_object=Fast(models.WordLevel({"a": 0, "tide": 3, "rises": 40, "[UNK]": 7}, unk_token="[UNK]"))
    )
    ranks = Tokenizer(gapped).ranks()
    assert (len(ranks), ranks[40], ranks[0]) == (41, 40, 0)


def test_common_characters_behind_a_vocabulary_are_common() -> None:
    """As SentencePiece orders it: pieces first, then characters, the most common ones first."""
    words = {"<unk>": 0, **{f"▁word{number}": number for number in range(1, 900)}, "の": 900, "は": 901, "鬱": 999}
    ordered = PreTrainedTokenizerFast(tokenizer_object=Fast(models.WordLevel(words, unk_token="<unk>")))
    ranks = Tokenizer(ordered).ranks()
    assert (ranks[900], ranks[901], ranks[999], ranks[899]) == (0, 1, 2, 899)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("plain:pool=last+sif", "pool=last is none"),
        ("prompteol+sif", "leave sif"),
        ("plain:pool=hybrid+sif", "pool=hybrid"),
        ("plain+sif:a=0", "a=0 must be a number above 0"),
        ("plain+sif:a=-1", "a=-1 must be"),
    ],
)
def test_weights_without_a_mean_are_refused(method: str, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        embedder("llama", method)
