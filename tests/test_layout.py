"""Layouts: those of the reference for every method and tokenizer, and by hand what no tokenizer of ours gives."""

from __future__ import annotations

import numpy as np
import pytest
from tests.comparison import METHODS, TEXTS, sentences_of
from tests.families import TOKENIZERS
from tests.reference import methods as reference
from tests.test_windows import planner

from eddy_embed import methods
from eddy_embed.parts.layout import Blocks, Layout
from eddy_embed.text.sequence import PLACEHOLDER_ID, Role, TokenSequence
from eddy_embed.text.tokenizer import Tokens

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


def edges(sequence: TokenSequence) -> set[tuple[int, int]]:
    return {(int(destination), int(source)) for destination, source in sequence.edges}


def arranged(offsets: list[tuple[int, int]], sentences: list[tuple[int, int]], text: str) -> TokenSequence:
    prompt = Layout(blocks=Blocks()).fill(text, "document", None, np.array(sentences))
    starts, ends = np.array(offsets).T
    tokens = Tokens(np.arange(1, len(offsets) + 1), starts, ends)
    return Layout(blocks=Blocks()).arrange(prompt, tokens, BOS)


def test_a_token_across_two_sentences_is_the_left_ones() -> None:
    # Tokens a, .b, c of "a.bc": ".b" ends the first sentence, so the second begins with "c".
    # 0 <s> | 1 2 B-PST | 3 PST | 4 a 5 .b | 6 PST | 7 c
    laid = arranged([(0, 1), (1, 3), (3, 4)], [(0, 2), (2, 4)], "a.bc")
    assert laid.roles.tolist() == [S, BPST, BPST, PST, T, T, PST, T]
    assert edges(laid) == {(1, 5), (2, 7), (3, 5), (6, 7)}


def test_a_sentence_inside_a_token_is_ended_by_it() -> None:
    # Tokens a, .b, c again, the "b" being a sentence: its PST stands where it would begin, behind ".b".
    # 0 <s> | 1 2 3 B-PST | 4 PST | 5 a 6 .b | 7 PST | 8 PST | 9 c
    laid = arranged([(0, 1), (1, 3), (3, 4)], [(0, 2), (2, 3), (3, 4)], "a.bc")
    assert laid.roles.tolist() == [S, BPST, BPST, BPST, PST, T, T, PST, PST, T]
    assert edges(laid) == {(1, 6), (2, 6), (3, 9), (4, 6), (7, 6), (8, 9)}


def test_a_sentence_without_tokens_has_no_placeholders() -> None:
    # The tokenizer drops the second sentence's characters 2 and 3.
    # 0 <s> | 1 2 B-PST | 3 PST | 4 a 5 . | 6 PST | 7 c
    laid = arranged([(0, 1), (1, 2), (4, 5)], [(0, 2), (2, 4), (4, 5)], "a.??c")
    assert laid.roles.tolist() == [S, BPST, BPST, PST, T, T, PST, T]
    assert edges(laid) == {(1, 5), (2, 7), (3, 5), (6, 7)}
