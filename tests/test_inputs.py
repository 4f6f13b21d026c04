"""Options of other libraries' kinds, and texts in odd containers or odd scripts, to the embedder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.comparison import embedder, loaded
from tests.selection import turns

from eddy_embed import Embedder, Reranker
from eddy_embed.errors import EddyError, InvalidParameter, InvalidText
from eddy_embed.text.sequence import Role

SCRIPTS = {
    "right to left": "המעבורת יוצאת בצהריים. הכלבים נוסעים חינם! מי שומר על המגדלור? "
    "العبّارة تغادر ظهراً. هل تسافر الكلاب مجاناً؟ نعم.",
    "both directions": "He said \u2067שלום, עולם\u2069 twice. Then \u200fABC\u200f (123) came. Why? اَلْكَلْب ran.",
    "families and flags": "👨\u200d👩\u200d👧\u200d👦 went home. 🏳\ufe0f\u200d🌈 waved! 🇩🇪🇫🇷🇯🇵 met? 👩🏽\u200d🚀 flew. "
    "1\ufe0f\u20e3 won. ❤\ufe0f\u200d🔥\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f Ended.",
    "combining marks": "Cafe\u0301 au lait. Z\u0351\u036b\u0343a\u0321l\u0489go came! A\u030a\u0323 ring? ก็ดี. "
    "नमस्ते दुनिया। कैसे हो? Tiê\u0301ng.",
    "no spaces": "渡し船は正午に出る。犬は無料だ！灯台守は誰？「はい」と言った。한국어는 띄어쓴다. 좋아요! ภาษาไทยไม่มี",
    "mixed": "Привет, мир. Γειά σου! שלום. 你好。Hello 👋🏿 world… ﷽ ½ ℃ ﬁn. 𝔘𝔫𝔦𝔠𝔬𝔡𝔢! 𓀀𓂀 ends.",
    "controls": "A\x01b. C\x07d!\x1b[31m Red?\x0b Next.\x0c Page. \x85Line. \u2028Sep. \u200b\ufeffHidden. "
    "\u00adSoft. \ufffd \U0010ffff.",
    "carriage returns": "One.\rTwo.\r\nThree.\n\rFour.\r\r\nFive. ",
}
"""Texts with what breaks offsets: direction marks, joined emoji, combining marks, controls."""


def test_what_no_model_can_have_is_refused_before_it_is_looked_for() -> None:
    for options in ({"device": "nowhere"}, {"dtype": "float17"}):
        with pytest.raises(InvalidParameter, match=next(iter(options))):
            Embedder("nowhere", "plain", **options)
    for name in ("x" * 5000, "a\0b", "a\ud800", "~nobody/model"):
        with pytest.raises(EddyError) as error:
            Embedder(name, method="plain")
        assert len(str(error.value)) < 500


@pytest.mark.parametrize("flag", ["false", "", 0, None])
def test_foreign_code_runs_for_true_alone(flag: Any) -> None:
    for kind in (Embedder, Reranker):
        with pytest.raises(TypeError, match=f"trust_remote_code={flag!r} must be True or False"):
            kind("eddy-tiny", trust_remote_code=flag)


def test_options_may_be_objects_of_torch_numpy_and_pathlib(tmp_path: Path) -> None:
    usual = Embedder("eddy-tiny", method="plain", max_length=64)
    options = {"device": torch.device("cpu"), "dtype": torch.float32, "cache_folder": tmp_path}
    e = Embedder("eddy-tiny", method="plain", max_length=np.int64(64), batch_size=np.int32(2), **options)  # type: ignore[arg-type]
    assert e.fingerprint == usual.fingerprint
    model, tokenizer = loaded("llama")
    shared = Embedder(model, tokenizer=tokenizer, method="plain", device=torch.device("cpu"), dtype=torch.float32)
    assert shared.fingerprint == embedder("llama", "plain").fingerprint


def test_containers_of_texts() -> None:
    e = embedder("llama", "plain")
    expected = e.encode_document(["one", "two"])
    for texts in (
        np.array(["one", "two"]),
        ("one", "two"),
        (text for text in ["one", "two"]),
        {1: "one", 2: "two"}.values(),
    ):
        assert np.array_equal(e.encode_document(texts), expected)
    calls = [e.encode_document, e.encode_query, e.encode_long, e.count_tokens, embedder("llama", "plain+centre").fit]
    for call in calls:
        for texts in ({"one": 1}, {"one", "two"}, np.array("one"), np.array([["one", "two"]])):
            with pytest.raises(TypeError, match="texts must be a string or a list of strings, not a"):
                call(texts)  # type: ignore[arg-type]
        with pytest.raises(InvalidText, match="text 1 is a NoneType"):
            call(np.array(["one", None], object))


@pytest.mark.parametrize(("family", "script", "late"), turns(["llama", "gemma2"], SCRIPTS, [True, True, False, False]))
def test_offsets_are_exact_in_every_script(family: str, script: str, late: bool) -> None:
    text = SCRIPTS[script] * 9
    e = embedder(family, "htp", max_length=120)
    document = e.encode_long(text, passage_size=24, late=late)
    assert document.n_windows > 1 and len(document.sentences) > 3
    gaps = [0, *(edge for sentence in document.sentences for edge in (sentence.start, sentence.end)), len(text)]
    assert gaps == sorted(gaps) and not any(text[a:b].strip() for a, b in zip(gaps[::2], gaps[1::2], strict=True))
    for passage in document.passages:
        inside = document.sentences[passage.first_sentence : passage.last_sentence + 1]
        assert (passage.start, passage.end) == (inside[0].start, inside[-1].end)
    read = sum(passage.n_tokens for passage in document.passages)
    # By itself, each passage may begin with a token more.
    assert read <= document.n_tokens + (0 if late else len(document.passages))
    assert document.n_tokens == e.count_tokens(text)
    for span in (*document.sentences, *document.passages):
        assert np.isfinite(span.vector).all() and text[span.start : span.end].strip() == text[span.start : span.end]
    tokens = [token for token in embedder(family, "htp").explain(SCRIPTS[script]).tokens if token.role == Role.TEXT]
    assert {at for token in tokens for at in range(token.start, token.end)} >= {
        at for at, character in enumerate(SCRIPTS[script]) if character.isalnum()
    }
    word = document.sentences[1]
    vectors = e.encode_words(text[:200], [(word.start, word.end), (word.start, word.start + 1)])
    assert vectors.shape == (2, e.dimension) and np.isfinite(vectors).all()
