"""The embedder's surface: bad input, options, counts, explanations, progress, closing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests import families
from tests.comparison import INSTRUCTION, TEXTS, embedder, loaded
from tests.selection import slow

from eddy_embed import Embedder
from eddy_embed.errors import EddyError, FingerprintMismatch, InvalidParameter, InvalidText
from eddy_embed.text.sequence import Role


def make(**options: Any) -> Embedder:
    return embedder("llama", options.pop("method", "htp"), **options)


@pytest.fixture(scope="module")
def shared() -> Embedder:
    return make()


# --- texts

CALLS = ["encode_document", "encode_query", "encode_long", "explain"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"text 0 is empty \(''\)"),
        (" \n\t ", "text 0 is blank"),
        ("\u3000\u00a0", "text 0 is blank"),
        ([b"abc"], "text 0 is a (bytes|list), not a string"),
        ([None], "text 0 is a (NoneType|list), not a string"),
        ("ab\ud800c", r"text 0 holds the lone surrogate U\+D800 at character 2"),
        ("\udfff", r"lone surrogate U\+DFFF at character 0"),
    ],
    ids=str,
)
def test_bad_texts_are_named(call: str, text: Any, message: str, shared: Embedder) -> None:
    before = str(shared.counts)
    with pytest.raises(InvalidText, match=message):
        getattr(shared, call)(text)
    assert str(shared.counts) == before


@pytest.mark.parametrize("bad", ["", " ", None, 3, b"x", "x\udead"], ids=repr)
def test_a_bad_text_among_good_ones_is_named_by_its_index(bad: Any, shared: Embedder) -> None:
    for call in (shared.encode_document, shared.encode_query, shared.encode_long):
        with pytest.raises(InvalidText, match="text 2 "):
            call(["a", "b", bad, "c"])


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


def test_nul_is_a_character_like_any_other(shared: Embedder) -> None:
    assert np.abs(shared.encode_document("a\0b") - shared.encode_document("ab")).max() > 1e-3
    assert [(t.start, t.end) for t in shared.explain("a\0b").tokens if t.role == Role.TEXT][-1] == (2, 3)


@pytest.mark.parametrize(
    ("family", "special"), [("llama", "</s>"), ("llama", "<unk>"), ("gpt2", "<|endoftext|>"), ("gemma2", "<eos>")]
)
def test_what_looks_like_a_special_token_is_text(family: str, special: str) -> None:
    _, tokenizer = loaded(family)
    number = tokenizer.convert_tokens_to_ids(special)
    assert number in tokenizer(f"a {special} b")["input_ids"], "the tokenizer itself reads it as special"
    tokens = embedder(family, "plain").explain(f"a {special} b").tokens
    inside = [token for token in tokens if token.role == Role.TEXT]
    assert number not in [token.id for token in inside] and len(inside) > 4
    assert number in tokenizer(f"a {special} b")["input_ids"], "the user's tokenizer is left as it was"


# --- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"max_length": 1025}, "max_length=1025 must lie between 1 and the model's window of 1024"),
        ({"overflow": "cut"}, "overflow='cut' is unknown; choose one of window, error, truncate"),
        ({"language": "klingon"}, "language='klingon'"),
    ],
    ids=str,
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    model, tokenizer = loaded("llama")
    with pytest.raises(InvalidParameter, match=message):
        Embedder(model, **({"tokenizer": tokenizer, "method": "htp"} | options))


def test_an_instruction_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidText, match=r"query_instruction holds the lone surrogate U\+D800 at character 5"):
        make(query_instruction="find \ud800")


def test_roles_are_checked(shared: Embedder) -> None:
    with pytest.raises(InvalidParameter, match="role='passage' is unknown; choose one of document, query"):
        shared.explain("a", role="passage")  # type: ignore[arg-type]


def test_instructions_go_to_their_role() -> None:
    plain, query, text = make(), make(query_instruction=INSTRUCTION), make(text_instruction=INSTRUCTION)
    document = plain.encode_document(TEXTS[0])
    assert np.array_equal(plain.encode_query(TEXTS[0]), document)
    assert np.array_equal(query.encode_document(TEXTS[0]), document)
    assert np.array_equal(query.encode_query(TEXTS[0]), text.encode_document(TEXTS[0]))
    assert np.abs(query.encode_query(TEXTS[0]) - document).max() > 1e-3
    assert np.array_equal(text.encode_query(TEXTS[0]), document)
    assert np.array_equal(text.encode_long(TEXTS[0]).vector, text.encode_document(TEXTS[0]))


def test_other_instructions_are_those_of_another_embedder() -> None:
    base = make(text_instruction="Read this:")
    before = base.fingerprint, base.encode_query(TEXTS)
    other = base.with_instructions(query="Which boat?")
    made = make(query_instruction="Which boat?", text_instruction="Read this:")
    assert other.fingerprint == made.fingerprint != base.fingerprint
    assert np.array_equal(other.encode_query(TEXTS), made.encode_query(TEXTS))
    assert np.array_equal(other.encode_document(TEXTS), base.encode_document(TEXTS))
    assert np.abs(other.encode_query(TEXTS) - before[1]).max() > 1e-3
    assert (base.fingerprint, base.counts.texts) == (before[0], 2 * len(TEXTS))
    bare = other.with_instructions(query="", text="")
    assert np.array_equal(bare.encode_query(TEXTS), make().encode_query(TEXTS))
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
    with pytest.raises(InvalidParameter, match="passage"):
        shared.count_tokens("a", role="passage")  # type: ignore[call-overload]


@pytest.mark.parametrize("method", ["plain", "htp", "echo:preset=released", "tp:prompt=prompteol,placeholders=2"])
def test_tokens_of_a_role_are_those_of_its_pass(method: str) -> None:
    e = make(method=method, query_instruction=INSTRUCTION)
    for role in ("document", "query"):
        passes = [e.explain(text, role=role).sequence_tokens for text in TEXTS]
        assert e.count_tokens(TEXTS, role=role) == passes
    long = "The keeper wrote a line in the log. " * 60
    assert e.count_tokens(long, role="document") > e.max_length, "not divided into windows"
    wordings = ["A {text}", "A longer wording: {text} and so on"]
    alone = [make(method=f'metaeol:prompts="{each}"').count_tokens(long, role="document") for each in wordings]
    together = make(method='metaeol:prompts="{}"'.format("\\n".join(wordings)))
    assert together.count_tokens(long, role="document") == alone[1] > alone[0]


# --- explanations


def test_an_explanation_shows_the_pass() -> None:
    explained = make(method="htp:range=1-3,exit=-2").explain("One. Two.")
    roles = [token.role for token in explained.tokens]
    assert roles[:3] == [Role.SPECIAL, Role.BPST, Role.BPST] and roles.count(Role.PST) == 2
    assert [token.piece for token in explained.tokens][:4] == ["<s>", "<B-PST>", "<B-PST>", "<PST>"]
    assert [token.id for token in explained.tokens][:4] == [1, -1, -1, -1]
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
    assert sum(token.weight for token in explained.tokens) == pytest.approx(1)


def test_kernels_and_queries_are_explained() -> None:
    e = embedder("gemma2", "prompteol:exit=-1", query_instruction=INSTRUCTION)
    query, document = e.explain("Salt.", role="query"), e.explain("Salt.")
    assert query.kernels == ["blocked"] * families.LAYERS and query.rewired == []
    assert query.sequence_tokens > document.sequence_tokens and query.text_tokens == document.text_tokens
    assert query.tokens[-1].weight == 1 and query.tokens[-1].role == Role.PROMPT


def test_the_text_form_of_an_explanation() -> None:
    explained = make(method="htp:range=1-3").explain("One. Two.")
    lines = str(explained).splitlines()
    assert any(line.startswith("method") and "htp:range=1-3" in line for line in lines)
    assert any("fused" in line and "5" in line for line in lines)
    assert any(f"{explained.bytes / 2**20:.1f} MiB" in line for line in lines)
    rows = [line for line in lines if "<B-PST>" in line]
    sources = [token.source for token in explained.tokens if token.role == Role.BPST]
    assert [int(row.split()[-1]) for row in rows] == sources
    long = make(method="plain", max_length=100).explain("The tide came in. " * 60)
    assert long.windows > 3 and f"windows   {long.windows}" in str(long) and "more tokens" in str(long)
    assert len(str(long).splitlines()) < 60


# --- progress


def test_progress_counts_up_to_the_total() -> None:
    seen: list[tuple[int, int, str]] = []
    e = make(max_length=64, batch_tokens=64)
    documents = e.encode_long([" ".join(TEXTS), *TEXTS], progress=lambda *step: seen.append(step))
    total = sum(document.n_windows for document in documents)
    assert total > len(documents)
    assert seen[-1] == (total, total, "embed")
    done = [step[0] for step in seen]
    assert done == sorted(set(done)) and len(seen) > 2
    assert {step[1:] for step in seen} == {(total, "embed")}


def test_a_failing_callback_stops_the_work_and_nothing_else() -> None:
    e = make()

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        e.encode_long(TEXTS, progress=fail)
    assert e.encode_document("a").shape == (families.HIDDEN,)


def test_a_bar_is_shown_on_standard_error_only_if_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    quiet = make()
    quiet.encode_document(TEXTS)
    assert capfd.readouterr() == ("", "")
    quiet.encode_document(TEXTS, show_progress=True)
    out, err = capfd.readouterr()
    assert out == "" and "Embedding" in err and "4/4" in err
    make(show_progress=True).encode_document(TEXTS, show_progress=False)
    assert capfd.readouterr() == ("", "")


def test_one_text_has_a_bar_where_it_is_read_in_windows(capfd: pytest.CaptureFixture[str]) -> None:
    e = make(show_progress=True)
    e.encode_document("short")
    assert capfd.readouterr() == ("", "")
    e.encode_document("A long text. " * 200)
    assert e.counts.windowed_texts == 1 and f"{e.counts.windows - 1}/{e.counts.windows - 1}" in capfd.readouterr().err


# --- closing


def test_a_closed_embedder_says_so() -> None:
    with make() as e:
        assert e.encode_document("a").shape == (e.dimension,)
    for call in (e.encode_document, e.encode_query, e.encode_long, e.explain):
        with pytest.raises(EddyError, match="closed; make a new one"):
            call("a")
    e.close()


def test_closing_keeps_the_owners_model() -> None:
    model, tokenizer = loaded("llama")
    first = Embedder(model, tokenizer=tokenizer, method="htp")
    second = Embedder(model, tokenizer=tokenizer, method="htp")
    expected = second.encode_document("a")
    first.close()
    assert np.array_equal(second.encode_document("a"), expected)


@pytest.mark.parametrize(
    ("name", "value"), [("device", "meta"), ("dtype", "bfloat16"), ("revision", "main"), ("model_kwargs", {"a": 1})]
)
def test_a_loaded_model_takes_no_options_of_loading(name: str, value: object) -> None:
    model, tokenizer = loaded("llama")
    with pytest.raises(InvalidParameter, match=name):
        Embedder(model, tokenizer=tokenizer, method="plain", **{name: value})
    Embedder(model, tokenizer=tokenizer, method="plain", device="cpu", dtype="float32")


def test_a_keyword_that_the_model_refuses_is_named() -> None:
    with pytest.raises(InvalidParameter, match="no_such_option"):
        Embedder("eddy-tiny", method="plain", model_kwargs={"no_such_option": 1})
