"""Layouts: those of the reference for every method and tokenizer, and by hand what no tokenizer of ours gives."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from tests import families
from tests.comparison import METHODS, TEXTS, embedder, exact, loaded, sentences_of
from tests.families import TOKENIZERS
from tests.reference import methods as reference
from tests.reference.forward import forward
from tests.reference.readout import unit
from tests.reference.revised import by_sentence
from tests.selection import mostly_slow, turns
from tests.test_windows import planner
from transformers import PreTrainedTokenizerFast

from eddy_embed import Embedder, methods
from eddy_embed.errors import IncompatibleMethods, InvalidParameter, UnsupportedModel
from eddy_embed.parts.layout import Blocks, Layout
from eddy_embed.text.sequence import PLACEHOLDER_ID, Role, TokenSequence
from eddy_embed.text.tokenizer import Tokenizer, Tokens

S, T, PST, BPST = Role.SPECIAL, Role.TEXT, Role.PST, Role.BPST
BOS = np.array([100])
ODD = [
    "\n ab: cd.\n\n  Then, on: 日本語。Nobody! (Or) did they?",
    '"(cd," said 🙂',
    "No stop here\nnor here",
    "Find it: now.) And? Go",
]
ONE_OF_EACH = {
    repr(layout): method
    for method, (name, parameters) in METHODS.items()
    if name not in ("metaeol", "reba") and "prompts" not in parameters
    for layout in [methods.parse(method).layout]
    if layout is not None and not layout.end
}
"""A method of each layout; wordings one behind the other and repeated texts are compared as vectors alone."""


def laid_out(sequence: TokenSequence) -> tuple[object, ...]:
    """Ids, kinds of placeholders by position, edges, and positions of the text."""
    kinds = {at: int(role == BPST) for at, role in enumerate(sequence.roles.tolist()) if role in (PST, BPST)}
    ids = np.where(sequence.ids == PLACEHOLDER_ID, 0, sequence.ids).tolist()
    return ids, kinds, set(map(tuple, sequence.edges.tolist())), sequence.text.tolist()


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("method", [*ONE_OF_EACH.values(), 'tp:prompt="\\"{placeholder}({text}",placeholders=3'])
def test_sequences_are_those_of_the_reference(method: str, kind: str) -> None:
    name, parameters = METHODS.get(method, ("tp", {"prompt": '"{placeholder}({text}', "placeholders": 3}))
    layout = methods.parse(method).layout
    assert layout is not None
    for role, instruction in (("document", None), ("query", "find: it")):
        planned = planner(layout, kind, instruction=instruction).plan([*TEXTS, *ODD], role)
        for text, found in zip([*TEXTS, *ODD], planned, strict=True):
            sequence = found.windows[0].sequence
            options = {"role": role, "instruction": instruction, "sentences": sentences_of(text)}
            right = reference.layout(name, parameters, TOKENIZERS[kind](), text, **options)
            assert laid_out(sequence) == (right.ids, right.placeholders, set(right.edges), right.text), text
            if not parameters.get("released_text"):
                own = sequence.starts[sequence.text].tolist(), sequence.ends[sequence.text].tolist()
                assert list(zip(*own, strict=True)) == right.spans, text


# --- by hand


def test_a_template_for_queries() -> None:
    layout = Layout("c: {text}", query_template="q: {text}", instructed="{instruction} Text: {prompt} end")
    assert layout.fill("a", "document", None).string == "c: a"
    assert layout.fill("a", "query", None).string == "q: a"
    assert layout.fill("{text}", "query", "{prompt}").string == "{prompt} Text: q: {text} end"
    assert layout.fill("{text}", "query", "{prompt}").slots.tolist() == [[18, 24]]
    assert Layout("{{{text}}}").fill("a", "document", None).string == "{a}"


@pytest.mark.parametrize(
    ("instructed", "string"),
    [
        ("{{{instruction}}} {prompt}", "{find {it}} a"),
        ("{prompt} {{prompt}} {instruction}", "a {prompt} find {it}"),
        ("{{{prompt}}}, {instruction}", "{a}, find {it}"),
        ("{{instruction}} {instruction}: {prompt}", "{instruction} find {it}: a"),
    ],
)
def test_doubled_braces_around_an_instruction_are_braces(instructed: str, string: str) -> None:
    prompt = Layout(instructed=instructed).fill("a", "document", "find {it}")
    assert prompt.string == string
    assert [prompt.string[start:end] for start, end in prompt.slots.tolist()] == ["a"]


ABC = [(0, 1), (1, 3), (3, 4)]
"""Tokens a, .b, c of "a.bc"."""


@pytest.mark.parametrize(
    ("text", "offsets", "sentences", "roles", "edges"),
    [
        # ".b" ends the first sentence, so the second begins with "c".
        # 0 <s> | 1 2 B-PST | 3 PST | 4 a 5 .b | 6 PST | 7 c
        ("a.bc", ABC, [(0, 2), (2, 4)], [S, BPST, BPST, PST, T, T, PST, T], {(1, 5), (2, 7), (3, 5), (6, 7)}),
        # The "b" is a sentence of its own: its PST stands where it would begin, behind ".b".
        # 0 <s> | 1 2 3 B-PST | 4 PST | 5 a 6 .b | 7 PST | 8 PST | 9 c
        (
            *("a.bc", ABC, [(0, 2), (2, 3), (3, 4)], [S, BPST, BPST, BPST, PST, T, T, PST, PST, T]),
            {(1, 6), (2, 6), (3, 9), (4, 6), (7, 6), (8, 9)},
        ),
        # The tokenizer drops characters 2 and 3, the second sentence, which has no placeholders then.
        # 0 <s> | 1 2 B-PST | 3 PST | 4 a 5 . | 6 PST | 7 c
        (
            *("a.??c", [(0, 1), (1, 2), (4, 5)], [(0, 2), (2, 4), (4, 5)], [S, BPST, BPST, PST, T, T, PST, T]),
            {(1, 5), (2, 7), (3, 5), (6, 7)},
        ),
    ],
)
def test_borders_of_tokens_that_are_none_of_sentences(
    text: str, offsets: Any, sentences: Any, roles: list[Role], edges: set[tuple[int, int]]
) -> None:
    prompt = Layout(blocks=Blocks()).fill(text, "document", None, np.array(sentences))
    tokens = Tokens(np.arange(1, len(offsets) + 1), *np.array(offsets).T)
    laid = Layout(blocks=Blocks()).arrange(prompt, tokens, BOS)
    assert laid.roles.tolist() == roles and set(map(tuple, laid.edges.tolist())) == edges


# --- variants where a reference does not show them: long texts, and parts of texts

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


# --- the start token: once, ahead of everything, where the tokenizer puts nothing there; without weight, never copied

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


def sequences_of(e: Embedder, text: str) -> list[TokenSequence]:
    return [window.sequence for window in e._pipeline.planner.plan([text], "document")[0].windows]


# --- where it stands


@pytest.mark.parametrize("method", ["plain", "htp", "echo", "metaeol", "reba"])
def test_every_window_and_wording_has_it_once(method: str) -> None:
    text = " ".join(3 * TEXTS)
    sequences = sequences_of(embedder("gpt2", method, max_length=96), text)
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
    assert all(sequence.roles[0] != Role.SPECIAL for sequence in sequences_of(e, TEXTS[0]))
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
def test_a_start_token_and_none_equal_the_reference(family: str, method: str, start: bool) -> None:
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
