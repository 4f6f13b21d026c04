"""Methods that are the same computation under another name, and methods that are what transformers computes."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from tests import families
from tests.comparison import CORE, METHODS, TEXTS, embedder, loaded, sentences_of
from tests.reference import methods as reference
from tests.selection import each_once, mostly_slow

from eddy_embed import Embedder
from eddy_embed.methods.prompts import EOL

ALL = [*families.FAMILIES, *families.MORE_FAMILIES]
RANGES = ["range=2-3,exit=4", "range=1-4,exit=-1", "range=1-6,exit=-2,seed=3"]
SENTENCE = "The river rose at night, and the bridge was gone"


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("family", mostly_slow([*ALL, *families.OWN_ATTENTION], families.FAMILIES))
def test_every_exit_is_the_hidden_state_of_transformers(family: str) -> None:
    model, tokenizer = families.build(family)
    encoded = tokenizer(TEXTS[0], return_special_tokens_mask=True)
    ids, specials = encoded["input_ids"], encoded["special_tokens_mask"]
    if not any(specials):
        ids, specials = [tokenizer.bos_token_id, *ids], [1, *specials]
    text = [at for at, special in enumerate(specials) if not special]
    # Older versions of transformers leave Gemma 2's soft cap out of their fused attention.
    eager = copy.deepcopy(model.base_model)
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        out = eager(torch.tensor([ids]), output_hidden_states=True, use_cache=False)
    states = out.hidden_states
    assert torch.equal(states[-1], out.last_hidden_state)
    exits = range(-families.LAYERS - 1, families.LAYERS + 1) if family in families.FAMILIES else (0, 3, -2, -1)
    for exit_layer in exits:
        vector = Embedder(model, tokenizer=tokenizer, method=f"plain:exit={exit_layer}").encode_document(TEXTS[0])
        expected = unit(states[exit_layer][0, text].numpy().mean(0))
        assert np.abs(vector - expected).max() <= 1e-5


@pytest.mark.parametrize(
    ("family", "method"),
    each_once(families.FAMILIES, ["tp", "tp:prompt=prompteol,placeholders=2", "htp", "htp:k=2,pool=all"]),
)
def test_an_empty_range_is_the_same_layout_unrewired(family: str, method: str) -> None:
    name, parameters = {"tp": ("tp", {}), "htp": ("htp", {})}.get(method, (method.partition(":")[0], {}))
    more = "," if ":" in method else ":"
    empty = [embedder(family, f"{method}{more}range={at}-{at}").encode_document(TEXTS) for at in (1, 3, 6)]
    assert np.array_equal(empty[0], empty[1]) and np.array_equal(empty[0], empty[2])
    assert np.abs(embedder(family, f"{method}{more}range=1-3").encode_document(TEXTS) - empty[0]).max() > 1e-3
    assert np.abs(embedder(family, "plain:exit=-2").encode_document(TEXTS) - empty[0]).max() > 1e-3
    if method == name:
        model, tokenizer = loaded(family)
        for text, vector in zip(TEXTS, empty[0], strict=True):
            options = {"sentences": sentences_of(text)}
            expected = reference.embed(name, parameters | {"range": (1, 1)}, model, tokenizer, text, **options)
            assert np.abs(vector - expected).max() <= 1e-5


@pytest.mark.parametrize(("family", "parameters"), each_once(families.FAMILIES, RANGES))
def test_one_block_without_summary_is_token_prepending(family: str, parameters: str) -> None:
    # One sentence, no wording behind it: its last token is the sequence's.
    one = embedder(family, f"htp:local_only=true,{parameters}").encode_document(SENTENCE)
    assert np.abs(one - embedder(family, f"tp:{parameters}").encode_document(SENTENCE)).max() <= 1e-6
    several = [embedder(family, f"htp:local_only=true,k=9,{parameters}"), embedder(family, f"tp:{parameters}")]
    assert np.abs(several[0].encode_document(TEXTS[0]) - several[1].encode_document(TEXTS[0])).max() <= 1e-6


@pytest.mark.parametrize(("family", "parameters"), each_once(families.FAMILIES, RANGES[:2]))
def test_one_block_is_token_prepending_from_the_text_end(family: str, parameters: str) -> None:
    # Blanks behind the text are the sequence's last token, and not the text's.
    texts = [TEXTS[0], TEXTS[2] + "\n", SENTENCE + " \n\n"]
    block = embedder(family, f"htp:local_only=true,k=9,{parameters}").encode_document(texts)
    text, last = (embedder(family, f"tp:source={s},{parameters}").encode_document(texts) for s in ("text", "last"))
    assert np.abs(block - text).max() <= 1e-6
    assert np.abs(block[1:] - last[1:]).max() > 1e-4


@pytest.mark.parametrize("family", families.FAMILIES)
def test_a_wording_written_out_is_the_named_prompt(family: str) -> None:
    wordings = (EOL, EOL.replace(":", ":{placeholder}", 1))
    named, written, marked = (
        embedder(family, f"tp:prompt={prompt},range=1-3").encode_document(TEXTS)
        for prompt in ("prompteol", *map(json.dumps, wordings))
    )
    assert np.array_equal(named, written) and np.array_equal(named, marked)


@pytest.mark.parametrize("family", families.FAMILIES)
def test_the_last_layer_of_one_is_every_layer(family: str) -> None:
    one, two = (
        [embedder(family, f"reba:exit={at}{only}").encode_document(TEXTS) for only in ("", ",last_layer_only=true")]
        for at in (1, 2)
    )
    assert np.array_equal(*one) and np.abs(two[0] - two[1]).max() > 1e-4


@pytest.mark.parametrize("family", families.FAMILIES)
def test_blocks_of_more_tokens_than_there_are_are_one_block(family: str) -> None:
    by_tokens, by_sentences = (embedder(family, f"htp:{m}").encode_document(TEXTS[:2]) for m in ("every=500", "k=9"))
    assert np.abs(by_tokens - by_sentences).max() <= 1e-6


@pytest.mark.parametrize("family", families.FAMILIES)
def test_one_sentence_in_blocks_of_any_size_is_one_block(family: str) -> None:
    vectors = [embedder(family, f"htp:k={k}").encode_document(SENTENCE) for k in (1, 2, 50)]
    assert np.array_equal(vectors[0], vectors[1]) and np.array_equal(vectors[0], vectors[2])
    apart, together = (embedder(family, f"htp:k={k}").encode_document(TEXTS[0]) for k in (1, 2))
    assert np.abs(apart - together).max() > 1e-4


@pytest.mark.parametrize("family", families.FAMILIES)
def test_the_seed_decides_only_where_there_are_placeholders(family: str) -> None:
    for method in ("tp", "htp"):
        first, again, other = (embedder(family, f"{method}:seed={s}").encode_document(TEXTS) for s in (0, 0, 1))
        assert np.array_equal(first, again)
        assert np.abs(first - other).max() > 1e-4


@pytest.mark.parametrize("method", mostly_slow(METHODS, CORE))
def test_the_text_form_makes_the_same_vectors(method: str) -> None:
    e = embedder("llama", method)
    again = embedder("llama", str(e.method))
    assert np.array_equal(e.encode_document(TEXTS), again.encode_document(TEXTS))
