"""The embedder's surface: bad and odd input, options, counts, explanations, progress, closing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests import families
from tests.comparison import INSTRUCTION, TEXTS, embedder, loaded
from tests.mixed_texts import mixed_texts
from tests.selection import slow

from eddy_embed import Embedder, Reranker
from eddy_embed.errors import EddyError, FingerprintMismatch, InvalidParameter, InvalidText
from eddy_embed.text.sequence import Role


def make(**options: Any) -> Embedder:
    return embedder("llama", options.pop("method", "htp"), **options)


@pytest.fixture(scope="module")
def shared() -> Embedder:
    return make()


# --- texts

BAD = {
    "": r"is empty \(''\)",
    " \n\t ": "is blank",
    "\u3000\u00a0": "is blank",
    "ab\ud800c": r"holds the lone surrogate U\+D800 at character 2",
    "\udfff": r"holds the lone surrogate U\+DFFF at character 0",
    b"abc": "is a bytes, not a string",
    None: "is a NoneType, not a string",
}


def test_bad_texts_are_named(shared: Embedder) -> None:
    before = str(shared.counts)
    calls = (shared.encode_document, shared.encode_query, shared.encode_long, shared.explain)
    for text, message in BAD.items():
        for call in calls[:3]:
            with pytest.raises(InvalidText, match=f"text 2 {message}"):
                call(["a", "b", text, "c"])
        for call in calls if isinstance(text, str) else ():
            with pytest.raises(InvalidText, match=f"text 0 {message}"):
                call(text)
    assert str(shared.counts) == before


ODD = ["a", ".", "0", "\0", "a\0b", "\0" * 50, "\x01\x7f", "🙂", "\u200b", "e\u0301", "\ufeffa", "\U0010ffff"]


@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.parametrize("method", ["htp", slow("tp:prompt=prompteol"), slow("plain:pool=weighted")])
def test_odd_texts_have_vectors(family: str, method: str) -> None:
    e = embedder(family, method)
    for text in ODD:
        vector = e.encode_document(text)
        assert np.isfinite(vector).all() and abs(np.linalg.norm(vector) - 1) <= 1e-6, repr(text)
        document = e.encode_long(text, late=False)
        assert np.array_equal(document.vector, vector), repr(text)
        assert all(text[span.start : span.end].strip() for span in document.sentences), repr(text)


def test_what_looks_like_a_special_token_is_text() -> None:
    for family, special in {"llama": "</s>", "gpt2": "<|endoftext|>", "gemma2": "<eos>"}.items():
        _, tokenizer = loaded(family)
        number = tokenizer.convert_tokens_to_ids(special)
        tokens = embedder(family, "plain").explain(f"a {special} b").tokens
        inside = [token.id for token in tokens if token.role == Role.TEXT]
        assert number not in inside and len(inside) > 4
        assert number in tokenizer(f"a {special} b")["input_ids"], "the user's tokenizer is left as it was"


def test_containers_of_texts() -> None:
    e = embedder("llama", "plain")
    expected = e.encode_document(["one", "two"])
    assert e.encode_document([]).shape == (0, e.dimension)
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


@pytest.mark.parametrize(("family", "late"), [("llama", True), ("gemma2", False)])
def test_offsets_are_exact_in_every_script(family: str, late: bool) -> None:
    """And with direction marks, joined emoji, combining marks, controls and every end of line."""
    text = ". ".join(mixed_texts(150))
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
    tokens = [token for token in embedder(family, "plain").explain(text[:600]).tokens if token.role == Role.TEXT]
    covered = {at for token in tokens for at in range(token.start, token.end)}
    assert covered >= {at for at, character in enumerate(text[:600]) if character.isalnum()}
    word = document.sentences[1]
    vectors = e.encode_words(text[:200], [(word.start, word.end), (word.start, word.start + 1)])
    assert vectors.shape == (2, e.dimension) and np.isfinite(vectors).all()


# --- options


def test_bad_options_are_named(shared: Embedder) -> None:
    for options, message in (
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"max_length": 1025}, "max_length=1025 must lie between 1 and the model's window of 1024"),
        ({"overflow": "cut"}, "overflow='cut' is unknown; choose one of window, error, truncate"),
        ({"language": "klingon"}, "language='klingon'"),
        # Those of loading are for models that are loaded.
        *(({name: value}, name) for name, value in (("device", "meta"), ("dtype", "bfloat16"), ("revision", "main"))),
        ({"model_kwargs": {"a": 1}}, "model_kwargs"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            make(**options)
    make(device="cpu", dtype="float32")
    with pytest.raises(InvalidParameter, match="no_such_option"):
        Embedder("eddy-tiny", method="plain", model_kwargs={"no_such_option": 1})
    with pytest.raises(InvalidText, match=r"query_instruction holds the lone surrogate U\+D800 at character 5"):
        make(query_instruction="find \ud800")
    for call in (shared.explain, shared.count_tokens):
        with pytest.raises(InvalidParameter, match="role='passage' is unknown; choose one of document, query"):
            call("a", role="passage")  # type: ignore[operator]
    for flag, kind in (("false", Embedder), (0, Reranker), (None, Embedder)):
        with pytest.raises(TypeError, match=f"trust_remote_code={flag!r} must be True or False"):
            kind("eddy-tiny", trust_remote_code=flag)


def test_what_no_model_can_have_is_refused_before_it_is_looked_for() -> None:
    for options in ({"device": "nowhere"}, {"dtype": "float17"}):
        with pytest.raises(InvalidParameter, match=next(iter(options))):
            Embedder("nowhere", "plain", **options)
    for name in ("x" * 5000, "a\0b", "a\ud800", "~nobody/model"):
        with pytest.raises(EddyError) as error:
            Embedder(name, method="plain")
        assert len(str(error.value)) < 500


def test_options_may_be_objects_of_torch_numpy_and_pathlib(tmp_path: Path) -> None:
    usual = Embedder("eddy-tiny", method="plain", max_length=64)
    options = {"device": torch.device("cpu"), "dtype": torch.float32, "cache_folder": tmp_path}
    e = Embedder("eddy-tiny", method="plain", max_length=np.int64(64), batch_size=np.int32(2), **options)  # type: ignore[arg-type]
    assert e.fingerprint == usual.fingerprint
    shared = make(device=torch.device("cpu"), dtype=torch.float32)
    assert shared.fingerprint == make().fingerprint


def test_instructions_go_to_their_role_and_others_make_another_embedder() -> None:
    base = make(text_instruction="Read this:")
    before = base.fingerprint, base.encode_query(TEXTS)
    other = base.with_instructions(query="Which boat?")
    made = make(query_instruction="Which boat?", text_instruction="Read this:")
    assert other.fingerprint == made.fingerprint != base.fingerprint
    assert np.array_equal(other.encode_query(TEXTS), made.encode_query(TEXTS))
    assert np.array_equal(other.encode_document(TEXTS), base.encode_document(TEXTS))
    assert np.abs(other.encode_query(TEXTS) - before[1]).max() > 1e-3
    assert (base.fingerprint, base.counts.texts) == (before[0], 2 * len(TEXTS))
    bare, plain = other.with_instructions(query="", text=""), make()
    assert np.array_equal(bare.encode_query(TEXTS), plain.encode_query(TEXTS))
    # That of texts is not that of queries, also where a text is read as a long one.
    assert np.array_equal(base.encode_query(TEXTS), plain.encode_document(TEXTS))
    instructed = base.encode_document(TEXTS[0])
    assert np.array_equal(base.encode_long(TEXTS[0]).vector, instructed)
    assert np.abs(instructed - plain.encode_document(TEXTS[0])).max() > 1e-3
    fitted = make(method="plain+centre")
    fitted.fit(TEXTS)
    assert fitted.with_instructions().fingerprint == fitted.fingerprint
    with pytest.raises(FingerprintMismatch, match="instruction"):
        fitted.with_instructions(text="Read this:")


# --- counts


def test_counts_add_up() -> None:
    e = make(method="plain", max_length=40)
    assert vars(e.counts) == dict.fromkeys(vars(e.counts), 0)
    e.encode_document(TEXTS[1])
    one = e.explain(TEXTS[1]).text_tokens
    assert (e.counts.texts, e.counts.tokens, e.counts.windows) == (1, one, 1), "explain counts nothing"
    long = " ".join(TEXTS)
    document = e.encode_long([long, TEXTS[1]])[0]
    assert e.counts.texts == 3 and e.counts.tokens == 2 * one + document.n_tokens
    assert e.counts.windows == 2 + document.n_windows and e.counts.windowed_texts == 1
    assert e.counts.truncated_texts == e.counts.truncated_tokens == 0


def test_tokens_are_counted_without_a_pass(shared: Embedder) -> None:
    _, tokenizer = loaded("llama")
    bare = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in TEXTS]
    before = str(shared.counts)
    assert shared.count_tokens(TEXTS) == bare and shared.count_tokens(TEXTS[0]) == bare[0]
    assert shared.count_tokens(["", " "])[0] == 0 and shared.count_tokens([]) == []
    assert str(shared.counts) == before
    for call in (shared.count_tokens, lambda text: shared.count_tokens(text, role="query")):
        with pytest.raises(InvalidText, match="surrogate"):
            call("a\ud800")
    with pytest.raises(InvalidText, match="blank"):
        shared.count_tokens(" ", role="document")


@pytest.mark.parametrize("method", ["plain", "htp", "echo:preset=released", "tp:prompt=prompteol,placeholders=2"])
def test_tokens_of_a_role_are_those_of_its_pass(method: str) -> None:
    e = make(method=method, query_instruction=INSTRUCTION)
    for role in ("document", "query"):
        passes = [e.explain(text, role=role).sequence_tokens for text in TEXTS]
        assert e.count_tokens(TEXTS, role=role) == passes
    long = "The keeper wrote a line in the log. " * 60
    assert e.count_tokens(long, role="document") > e.max_length, "not divided into windows"


# --- explanations


def test_an_explanation_shows_the_pass() -> None:
    explained = make(method="htp:range=1-3,exit=-2").explain("One. Two.")
    first = explained.tokens[:4]
    assert [token.piece for token in first] == ["<s>", "<B-PST>", "<B-PST>", "<PST>"]
    assert [token.id for token in first] == [1, -1, -1, -1]
    assert (explained.exit_layer, explained.layers, explained.rewired) == (5, 6, [2, 3])
    assert explained.kernels == ["fused"] * 5 and explained.method == "htp:range=1-3,exit=-2"
    assert (explained.windows, explained.truncated, explained.dtype, explained.device) == (1, 0, "float32", "cpu")
    assert explained.sequence_tokens == len(explained.tokens) == explained.text_tokens + 1 + 4
    for at, token in enumerate(explained.tokens):
        if token.role == Role.TEXT:
            assert "One. Two."[token.start : token.end] and token.source is None
            assert token.weight == pytest.approx(1 / explained.text_tokens)
        else:
            assert (token.start, token.end, token.weight) == (-1, -1, 0)
        if token.role in (Role.PST, Role.BPST):
            assert token.source is not None and token.source > at
            assert explained.tokens[token.source].end in (4, 9), "the ends of the sentences"


def test_kernels_queries_and_the_layers_that_run_are_explained() -> None:
    e = embedder("gemma2", "prompteol:exit=-1", query_instruction=INSTRUCTION)
    query, document = e.explain("Salt.", role="query"), e.explain("Salt.")
    assert query.kernels == ["blocked"] * families.LAYERS and query.rewired == []
    assert query.sequence_tokens > document.sequence_tokens and query.text_tokens == document.text_tokens
    assert query.tokens[-1].weight == 1 and query.tokens[-1].role == Role.PROMPT
    copied = make(method="htp:range=1-5,exit=4").explain(TEXTS[0])
    assert (copied.rewired, copied.averaged, copied.rerouted, copied.watched) == ([2, 3, 4], [4], [], [])
    assert make(method="last2avg").explain("Salt.").averaged == [5, 6]


def test_weights_are_shares_of_what_is_read() -> None:
    for method in ("kv:layers=2", "plain:pool=hybrid", "echo:preset=released", "plain:pool=weighted"):
        tokens = make(method=method).explain("Salt and smoke").tokens
        assert sum(token.weight for token in tokens) == pytest.approx(1), method
        if "kv" in method or "hybrid" in method:  # the last token stands for itself and in the mean
            counted = sum(token.weight > 0 for token in tokens)
            assert tokens[-1].weight == pytest.approx(0.5 + 0.5 / counted), method


def test_the_text_form_has_a_line_for_each_fact() -> None:
    shown = str(make(method="kv:layers=2-5,exit=4+tempscale:tau=0.5").explain(TEXTS[0])).splitlines()
    facts = dict(line.split(maxsplit=1) for line in shown[: shown.index("")])
    assert list(facts) == "method layers pooling rerouted logits kernels tokens windows memory".split()
    assert (facts["layers"], facts["rerouted"], facts["logits"]) == ("4 of 6 run, 4 read", "2, 3, 4", "times 2")
    explained = make(method="plain", max_length=100).explain("The tide came in. " * 60)
    assert explained.windows > 3 and f"windows   {explained.windows}" in str(explained)
    assert len(str(explained).splitlines()) < 60


# --- progress


def test_progress_counts_up_to_the_total() -> None:
    seen: list[tuple[int, int, str]] = []
    e = make(max_length=64, batch_size=1)
    documents = e.encode_long([" ".join(TEXTS), *TEXTS], progress=lambda *step: seen.append(step))
    total = sum(document.n_windows for document in documents)
    assert total > len(documents)
    assert seen[-1] == (total, total, "embed")
    done = [step[0] for step in seen]
    assert done == sorted(set(done)) and len(seen) > 2
    assert {step[1:] for step in seen} == {(total, "embed")}


def test_a_bar_is_shown_on_standard_error_only_if_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    quiet, shown = make(), make(show_progress=True)
    quiet.encode_document(TEXTS)
    shown.encode_document(TEXTS, show_progress=False)
    shown.encode_document("one short text")
    assert capfd.readouterr() == ("", "")
    quiet.encode_document(TEXTS, show_progress=True)
    out, err = capfd.readouterr()
    assert out == "" and "Embedding" in err and "4/4" in err
    before = shown.counts.windows
    shown.encode_document("A long text. " * 200)
    windows = shown.counts.windows - before
    assert windows > 1 and f"{windows}/{windows}" in capfd.readouterr().err


# --- closing


def test_a_closed_embedder_says_so_and_leaves_the_owners_model() -> None:
    other = make()
    with make() as e:
        expected = e.encode_document("a")
    e.close()
    for call in (e.encode_document, e.encode_query, e.encode_long, e.explain):
        with pytest.raises(EddyError, match="closed; make a new one"):
            call("a")
    assert np.array_equal(other.encode_document("a"), expected)
