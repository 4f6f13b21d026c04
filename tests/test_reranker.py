"""Re-ranking by the likelihood of the question: against a naive reference, and what the class promises."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests import families
from tests.comparison import change_result
from tests.reference.likelihood import likelihood
from tests.selection import mostly_slow

from eddy_embed import Embedder, Reranker
from eddy_embed.errors import InvalidParameter, InvalidText, NotFinite, TextTooLong, UnsupportedModel
from eddy_embed.model.head import LanguageModelHead
from eddy_embed.reranker import PROMPT, Likelihood

QUESTION = "where does a fish rest?"
TEXTS = ["Eddies form behind rocks. A fish rests in one.", "Bread rises.", "The ferry leaves at noon, and comes back."]
CAUSAL = [*families.FAMILIES, *families.MORE_FAMILIES]


def reranker(name: str, **settings: Any) -> Reranker:
    model, tokenizer = families.build(name)
    return Reranker(model, tokenizer=tokenizer, **settings)


def expected(name: str, question: str, text: str) -> float:
    """The reference's score, with the ids of the family's own tokenizer."""
    model, tokenizer = families.build(name)
    whole = PROMPT.format(passage=text, question=question)
    given = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    start = reranker(name)._likelihood.prefix.tolist()
    inside = [end > len(whole) - len(question) for _, end in given["offset_mapping"]]
    return likelihood(model, [*start, *given["input_ids"]], len(start) + inside.index(True))


@pytest.mark.parametrize("name", mostly_slow(CAUSAL, tuple(families.FAMILIES)))
def test_scores_are_those_of_the_reference(name: str) -> None:
    found = reranker(name).scores(QUESTION, TEXTS[:2])
    np.testing.assert_allclose(found, [expected(name, QUESTION, text) for text in TEXTS[:2]], atol=1e-4)


def test_a_fault_moves_scores_away_from_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    own, right = reranker("gemma2"), expected("gemma2", QUESTION, TEXTS[0])
    cap = families.build("gemma2")[0].config.final_logit_softcapping
    one_token_more = (Likelihood, "windows", lambda windows, *_: [(ids, count + 1) for ids, count in windows])
    without_cap = (LanguageModelHead, "scores", lambda scores, *_: cap * torch.atanh(scores / cap))
    for fault in (one_token_more, without_cap):
        with monkeypatch.context() as patch:
            change_result(patch, *fault)
            assert abs(float(own.scores(QUESTION, TEXTS[0])[0]) - right) > 1e-3
    change_result(monkeypatch, *without_cap)
    with pytest.raises(UnsupportedModel, match="differs from the model"):
        reranker("gemma2")


@pytest.mark.parametrize("name", mostly_slow(CAUSAL, ("llama", "gpt2")))
def test_a_score_depends_on_no_other_text(name: str) -> None:
    """In any order and number, also in passes of one text."""
    own, alone = reranker(name), reranker(name, batch_tokens=1)
    together = own.scores(QUESTION, TEXTS)
    np.testing.assert_allclose(together, own.scores(QUESTION, TEXTS[::-1])[::-1], atol=1e-5)
    np.testing.assert_allclose(together, alone.scores(QUESTION, TEXTS), atol=1e-5)
    assert together.dtype == np.float32 and (together < 0).all()


def test_the_model_stays_as_it_is_and_embeds_too(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = families.build("llama")
    before = copy.deepcopy(model.state_dict())
    output = model(torch.tensor([[5, 6, 7]])).logits
    own = Reranker(model, tokenizer=tokenizer)
    embedder = Embedder(model, "plain", tokenizer=tokenizer, check=False)
    vector, scores = embedder.encode_query(QUESTION), own.scores(QUESTION, TEXTS)
    with monkeypatch.context() as patch:
        patch.setattr(LanguageModelHead, "scores", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            own.scores(QUESTION, TEXTS)
    assert np.array_equal(own.scores(QUESTION, TEXTS), scores)
    assert np.array_equal(embedder.encode_query(QUESTION), vector)
    assert torch.equal(model(torch.tensor([[5, 6, 7]])).logits, output)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_of_a_long_text_the_best_window_counts() -> None:
    own = reranker("llama", max_length=200)
    text = " ".join(f"Sentence {number} says nothing of it." for number in range(30)) + " A fish rests behind a rock."
    windows = own._likelihood.windows(QUESTION, text)
    assert len(windows) > 2 and max(len(ids) for ids, _ in windows) <= 200
    assert own.scores(QUESTION, text)[0] == pytest.approx(max(own._likelihood._pass(windows)), abs=1e-5)


def test_seconds_leave_the_last_texts_unread_and_progress_is_told_and_ends_the_work() -> None:
    """The first pass always runs."""
    own = reranker("llama", batch_tokens=1)
    scores = own.scores(QUESTION, TEXTS, seconds=1e-9)
    assert np.isfinite(scores[0]) and np.isnan(scores[1:]).all()
    told = list[tuple[int, int, str]]()
    assert np.isfinite(own.scores(QUESTION, TEXTS, seconds=1e9, progress=lambda *given: told.append(given))).all()
    assert told == [(1, 3, "rerank"), (2, 3, "rerank"), (3, 3, "rerank")]

    def leave(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        own.scores(QUESTION, TEXTS, progress=leave)


def test_rank_has_the_form_of_a_cross_encoder() -> None:
    own = reranker("llama")
    scores = own.scores(QUESTION, TEXTS)
    ranked = own.rank(QUESTION, TEXTS, top_k=2, return_documents=True)
    order = np.argsort(-scores)[:2].tolist()
    assert ranked == [
        {"corpus_id": at, "score": pytest.approx(float(np.exp(scores[at]))), "text": TEXTS[at]} for at in order
    ]


def test_what_cannot_be_ranked_is_refused() -> None:
    order = "must name {passage} and then"
    for wrong, reason in (
        *(({"prompt": prompt}, order) for prompt in ("{passage}", "{question} {passage}", "{passage} {question}?")),
        ({"prompt": "{passage} {"}, "is malformed"),
        ({"max_length": 10**6}, "max_length=1000000"),
        ({"batch_tokens": 0}, "batch_tokens=0"),
    ):
        with pytest.raises(InvalidParameter, match=re.escape(reason)):
            reranker("llama", **wrong)
    own = reranker("llama")
    for question in ("", " \n", 3, "half \ud800"):
        with pytest.raises(InvalidText):
            own.scores(question, TEXTS)
    for text in (" ", None):
        with pytest.raises(InvalidText):
            own.scores(QUESTION, ["a", text])
    with pytest.raises(TextTooLong):
        own.scores("word " * 3000, TEXTS)
    with pytest.raises(InvalidParameter):
        own.scores(QUESTION, TEXTS, seconds=0)
    assert own.scores(QUESTION, []).shape == (0,)


def test_folders_rank_as_loaded_models_and_models_that_cannot_are_refused(tmp_path: Path) -> None:
    model, tokenizer = families.build("llama")
    with pytest.raises(UnsupportedModel, match="no language-model head"):
        Reranker(model.model, tokenizer=tokenizer)
    encoder, own = families.build("bert")
    with pytest.raises(UnsupportedModel, match="both directions"):
        Reranker(encoder, tokenizer=own)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    named = Reranker(tmp_path, dtype="float32")  # whose weights may be kept in another layout
    np.testing.assert_allclose(named.scores(QUESTION, TEXTS), reranker("llama").scores(QUESTION, TEXTS), atol=1e-4)
    transformers.AutoModel.from_config(model.config).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match="random weights are refused"):
        Reranker(tmp_path)


def test_a_model_that_overflows_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    own = reranker("llama")
    change_result(monkeypatch, LanguageModelHead, "scores", lambda scores, *_: scores * torch.nan)
    with pytest.raises(NotFinite, match="text 0: the model gave NaN"):
        own.scores(QUESTION, TEXTS)
