"""Variants of the placeholder methods, where a reference does not show them: long texts, and parts of texts."""

from __future__ import annotations

import numpy as np
import pytest
from tests.comparison import embedder, exact, loaded, sentences_of
from tests.reference import methods as reference
from tests.reference.readout import unit
from tests.reference.revised import by_sentence

from eddy_embed import methods
from eddy_embed.parts.layout import Blocks, Layout

QUOTED = 'He said: "Go." Nobody went\n\n "Why?" asked Ann.\tShe knew'
LONG = "One. Two three four five six seven. Eight nine ten. " * 12


@pytest.mark.parametrize("method", ["htp:every=auto", "htp:every=3", "htp:every=1", "htp:every=5,local_only=true"])
def test_blocks_of_tokens_are_as_long_in_every_window_as_in_the_document(method: str) -> None:
    whole = embedder("llama", method)._pipeline.planner.plan([LONG], "document", sentences=True)[0]
    e = embedder("llama", method, max_length=64)
    assert whole.spans is not None and e.method.layout is not None and isinstance(e.method.layout.blocks, Blocks)
    every = e.method.layout.blocks.every
    length = whole.tokens // len(whole.spans) if every == "auto" else every
    jobs = e._pipeline.planner.plan([LONG], "document")[0].windows
    assert len(jobs) > 5 and max(len(job.sequence) for job in jobs) <= 64
    kinds = 1 if "local" in method else 2
    for job in jobs:
        assert len(job.sequence.edges) == kinds * -(-len(job.sequence.text) // length)
        between = np.diff(job.sequence.edges[-(len(job.sequence.edges) // kinds) :, 0])
        assert (between == length + 1).all()


def test_instructions_may_stand_as_in_htps_experiments() -> None:
    # The reference puts a blank behind an instruction: what stands before the text is read alike, and not pooled.
    parameters, options = {"pool": "weighted"}, {"instruction": "Find it Text:"}
    model, tokenizer = loaded("llama")
    e = embedder("llama", "plain:pool=weighted,preset=htp", exactly=True, query_instruction="Find it")
    for text in ("The ferry leaves.", QUOTED):
        expected = reference.embed("plain", parameters, model, tokenizer, text, **options)
        assert np.abs(exact(e, [text], "query")[0] - expected).max() <= 1e-9
    both = methods.parse("plain:preset=htp+htp+readout:exit=none")
    assert both.layout == Layout(blocks=Blocks(), instructed="{instruction} Text: {prompt}")
    assert both.readout == methods.htp().readout


@pytest.mark.parametrize("max_length", [None, 48])
@pytest.mark.parametrize("text", [QUOTED + " and went home", LONG.replace(". ", "\n\n")])
def test_parts_of_rewritten_texts_are_parts_of_the_users(text: str, max_length: int | None) -> None:
    e = embedder("llama", "htp:range=1-3,released_text=true", exactly=True, max_length=max_length)
    document = e.encode_long(text, late=True)
    assert [(s.start, s.end) for s in document.sentences] == list(sentences_of(text))
    jobs = e._pipeline.planner.plan([text], "document")[0].windows
    assert (len(jobs) > 1) == (max_length is not None and document.n_tokens > 48)
    for job in jobs:
        own = job.sequence.text
        assert 0 <= job.sequence.starts[own].min() and job.sequence.ends[own].max() <= len(text)
    assert sum(sentence.n_tokens for sentence in document.sentences) <= document.n_tokens + len(jobs)
    assert np.abs(document.vector - e.encode_document(text)).max() <= 1e-6
    if len(jobs) == 1:
        model, tokenizer = loaded("llama")
        parameters = {"range": (1, 3), "released_text": True}
        states, spans = reference.token_states("htp", parameters, model, tokenizer, text, sentences=sentences_of(text))
        _, written = by_sentence(text, sentences_of(text))
        for sentence, (start, end) in zip(document.sentences, written, strict=True):
            inside = [state for state, (first, last) in zip(states, spans, strict=True) if start < last <= end]
            assert sentence.n_tokens == len(inside)
            assert np.abs(sentence.vector - unit(np.mean(inside, axis=0))).max() <= 1e-5


def test_a_rewritten_text_is_cut_where_the_users_is() -> None:
    e = embedder("llama", "htp:range=1-3,released_text=true", max_length=40, overflow="truncate")
    text = LONG.replace(". ", "\n\n")
    document = e.encode_long(text, late=True)
    assert document.n_truncated > 0 and document.sentences[-1].end < len(text)
    kept = text[: document.sentences[-1].end]
    again = embedder("llama", "htp:range=1-3,released_text=true").encode_document(kept)
    assert np.abs(document.vector - again).max() <= 1e-5
