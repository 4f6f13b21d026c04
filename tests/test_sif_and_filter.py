"""What is read off a model's vocabulary: weights of tokens by how rare they are, and directions that are taken out.

Windows, parts, fits and limits; `test_methods` has whole texts.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.comparison import TEXTS, embedder, loaded
from tests.reference.readout import filtered, sif, unit
from tests.test_long import TEXT, WINDOW, passes_of
from tokenizers import Tokenizer as Fast
from tokenizers import models
from transformers import PreTrainedTokenizerFast

from eddy_embed.errors import InvalidParameter
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
    whole = e.encode_long(TEXT, passage_size=20, late=True)
    assert np.abs(whole.vector - unit(sum(weight * h for _, weight, h in states))).max() <= 1e-5
    assert np.abs(whole.vector - e.encode_document(TEXT)).max() <= 1e-6
    for part in [*whole.sentences, *whole.passages]:
        inside = [weight * h for (start, _), weight, h in states if part.start <= start < part.end]
        assert np.abs(part.vector - unit(sum(inside))).max() <= 1e-5
        assert part.n_tokens == len(inside)
    ends = (whole.sentences[0], whole.sentences[-1])  # words beyond the window are read where they stand
    words = e.encode_words(TEXT, [(sentence.start, sentence.end) for sentence in ends])
    assert np.abs(words - [sentence.vector for sentence in ends]).max() <= 1e-6


def test_explain_shows_the_weights() -> None:
    _, tokenizer = loaded("llama")
    tokens = embedder("llama", f"plain+sif:a={A}").explain(TEXTS[0]).tokens
    own = [token for token in tokens if token.weight]
    expected = np.array([sif(tokenizer, token.id, A) for token in own])
    assert [token.weight for token in own] == pytest.approx((expected / expected.sum()).tolist())


def ranks(vocabulary: dict[str, int], unknown: str) -> np.ndarray:
    fast = Fast(models.WordLevel(vocabulary, unk_token=unknown))
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=fast)).ranks()


def test_ids_with_gaps_and_common_characters_behind_a_vocabulary_have_ranks() -> None:
    gapped = ranks({"a": 0, "tide": 3, "rises": 40, "[UNK]": 7}, "[UNK]")
    assert (len(gapped), gapped[40], gapped[0]) == (41, 40, 0)
    # As SentencePiece orders it: pieces first, then characters, the most common ones first.
    words = {"<unk>": 0, **{f"▁word{number}": number for number in range(1, 900)}, "の": 900, "は": 901, "鬱": 999}
    assert ranks(words, "<unk>")[[900, 901, 999, 899]].tolist() == [0, 1, 2, 899]


def test_weights_without_a_mean_and_directions_that_are_not_there_are_refused() -> None:
    for method, message in {
        "plain:pool=last+sif": "pool=last is none",
        "prompteol+sif": "leave sif",
        "plain:pool=hybrid+sif": "pool=hybrid",
        "plain+sif:a=0": "a=0 must be a number above 0",
        "plain+filter:drop=0": "at least 1",
        "plain+filter:drop=64": "below the vectors' width of 64",
    }.items():
        with pytest.raises(InvalidParameter, match=message):
            embedder("llama", method)


# --- directions taken out

LONG = " ".join(TEXTS[:3])


def test_every_part_of_a_document_is_filtered() -> None:
    model, _ = loaded("llama")
    raw, e = embedder("llama", "plain", normalize=False), embedder("llama", "plain+filter:drop=4")
    before, after = raw.encode_long(LONG, passage_size=20), e.encode_long(LONG, passage_size=20)
    table = model.get_input_embeddings().weight
    for old, new in zip(before.passages + before.sentences, after.passages + after.sentences, strict=True):
        assert np.abs(new.vector - unit(filtered(old.vector, table, 4))).max() < 1e-5
    assert e.dimension == raw.dimension and e.fingerprint != embedder("llama", "plain+filter:drop=5").fingerprint
