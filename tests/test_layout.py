"""Layouts worked by hand, with a tokenizer to count on fingers."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from eddy_embed.errors import InvalidParameter
from eddy_embed.parts.layout import Layout
from eddy_embed.parts.placeholders import Blocks
from eddy_embed.text.sequence import PLACEHOLDER_ID, Role, Sequence, last_overlapping, owners, pack
from eddy_embed.text.tokenizer import Tokens

S, P, T, PST, BPST = Role.SPECIAL, Role.PROMPT, Role.TEXT, Role.PST, Role.BPST
BOS = np.array([100])
TEMPLATE = 'This sentence : "{text}" means in one word:"'


def tokens_of(string: str) -> Tokens:
    """A token is a word or a run of marks with the blank before it, or one blank; ids count from 1."""
    found = [(m.start(), m.end()) for m in re.finditer(r" ?\w+| ?[^\w\s]+|\s", string)]
    offsets = np.array(found, np.int64).reshape(-1, 2)
    return Tokens(np.arange(1, len(found) + 1), offsets[:, 0], offsets[:, 1])


def lay(layout: Layout, text: str, sentences: list[tuple[int, int]] | None = None, **options: str) -> Sequence:
    spans = None if sentences is None else np.array(sentences)
    role = options.get("role", "document")
    prompt = layout.fill(text, role, options.get("instruction"), spans)  # type: ignore[arg-type]
    return layout.arrange(prompt, tokens_of(prompt.string), BOS)


def edges(sequence: Sequence) -> set[tuple[int, int]]:
    return {(int(destination), int(source)) for destination, source in sequence.edges}


# --- what the model reads


def test_plain_text() -> None:
    laid = lay(Layout(), "a b")
    assert laid.ids.tolist() == [100, 1, 2]
    assert laid.roles.tolist() == [S, T, T]
    assert list(zip(laid.starts.tolist(), laid.ends.tolist(), strict=True)) == [(-1, -1), (0, 1), (1, 3)]
    assert laid.text.tolist() == [1, 2] and len(laid.edges) == 0 and len(laid) == 3


def test_an_instruction_stands_in_front_of_queries() -> None:
    # "find a b": find (0, 4), " a" (4, 6), " b" (6, 8); the text begins at 5, and " a" brings only a blank along
    laid = lay(Layout(), "a b", role="query", instruction="find")
    assert laid.roles.tolist() == [S, P, T, T]
    assert laid.starts.tolist() == [-1, -1, 0, 1] and laid.ends.tolist() == [-1, -1, 1, 3]


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


def test_tokens_that_straddle_the_border_of_the_text() -> None:
    # This(0,4) sentence(4,13) :(13,15) _"!(15,18) a(18,19) ?"(19,21) means(21,27) ...: the text is characters 17 to 20.
    # The token before it begins with the wording's quotation mark, so it is the wording's; the one behind begins with
    # the text's own "?", so it is the text's, up to the text's end.
    laid = lay(Layout(TEMPLATE), "!a?")
    assert laid.roles.tolist() == [S, P, P, P, P, T, T, P, P, P, P, P]
    assert laid.starts[laid.text].tolist() == [1, 2] and laid.ends[laid.text].tolist() == [2, 3]


def test_the_last_copy_is_the_text() -> None:
    # a(0,1) _again(1,7) :(7,8) _a(8,10)
    laid = lay(Layout("{text} again: {text}"), "a")
    assert laid.roles.tolist() == [S, T, P, P, T] and laid.copies.tolist() == [-1, 0, -1, -1, 1]
    assert laid.text.tolist() == [4] and laid.starts.tolist() == [-1, 0, -1, -1, 0]


# --- Token Prepending


@pytest.mark.parametrize("count", [1, 3])
def test_placeholders_stand_right_before_a_text_without_colon(count: int) -> None:
    laid = lay(Layout(placeholders=count), "a b")
    assert laid.ids.tolist() == [100, *[PLACEHOLDER_ID] * count, 1, 2]
    assert laid.roles.tolist() == [S, *[PST] * count, T, T]
    assert edges(laid) == {(1 + at, count + 2) for at in range(count)}


def test_placeholders_stand_behind_the_colon() -> None:
    # <s> This sentence : PST _" a b " means in one word :" : PST at 4, the last token at 13
    laid = lay(Layout(TEMPLATE, placeholders=1), "a b")
    assert laid.roles.tolist() == [S, P, P, P, PST, P, T, T, P, P, P, P, P, P]
    assert edges(laid) == {(4, 13)}


def test_colons_of_the_text_and_of_an_instruction_introduce_nothing() -> None:
    # <s> PST a : b, and <s> find : PST a b
    assert lay(Layout(placeholders=1), "a: b").roles.tolist() == [S, PST, T, T, T]
    laid = lay(Layout(placeholders=1), "a b", role="query", instruction="find:")
    assert laid.roles.tolist() == [S, P, P, PST, T, T]


def test_only_the_first_copy_is_introduced() -> None:
    # <s> say : PST a , now : a: the placeholder stands behind the first colon
    laid = lay(Layout("say: {text}, now: {text}", placeholders=1), "a")
    assert laid.roles.tolist() == [S, P, P, PST, T, P, P, P, T]
    assert edges(laid) == {(3, 8)}


@pytest.mark.parametrize(
    ("template", "at"),
    [  # <s> say : _" a " _now
        ('{placeholder}say: "{text}" now', 1),
        ('say:{placeholder} "{text}" now', 3),
        ('say: {placeholder}"{text}" now', 3),
        ('say: "{placeholder}{text}" now', 4),
        ('say: "{text}"{placeholder} now', 6),
        ('say: "{text}" now{placeholder}', 7),
    ],
)
def test_placeholders_stand_where_the_wording_says(template: str, at: int) -> None:
    laid = lay(Layout(template, placeholders=2), "a")
    roles = [S, P, P, P, T, P, P]
    assert laid.roles.tolist() == [*roles[:at], PST, PST, *roles[at:]]
    assert edges(laid) == {(at, 6 if at == 7 else 8), (at + 1, 6 if at == 7 else 8)}


def test_a_token_across_the_place_of_placeholders_stands_before_them() -> None:
    # <s> "( a: the placeholder is asked for between the marks
    assert lay(Layout('"{placeholder}({text}', placeholders=1), "a").roles.tolist() == [S, P, PST, T]


# --- Hierarchical Token Prepending

TEXT = "A b. C d. E."
SENTENCES = [(0, 4), (5, 9), (10, 12)]
# A(0,1) _b(1,3) .(3,4) _C(4,6) _d(6,8) .(8,9) _E(9,11) .(11,12): eight tokens, the sentences end with the 3rd, 6th, 8th


def test_blocks_of_one_sentence() -> None:
    # 0 <s> | 1 2 3 B-PST | 4 PST | 5 A 6 b 7 . | 8 PST | 9 C 10 d 11 . | 12 PST | 13 E 14 .
    laid = lay(Layout(blocks=Blocks()), TEXT, SENTENCES)
    assert laid.roles.tolist() == [S, BPST, BPST, BPST, PST, T, T, T, PST, T, T, T, PST, T, T]
    assert edges(laid) == {(1, 7), (2, 11), (3, 14), (4, 7), (8, 11), (12, 14)}
    assert laid.ids[laid.text].tolist() == list(range(1, 9))


def test_blocks_of_two_sentences() -> None:
    # 0 <s> | 1 2 B-PST | 3 PST | 4 .. 9 | 10 PST | 11 12
    laid = lay(Layout(blocks=Blocks(2)), TEXT, SENTENCES)
    assert laid.roles.tolist() == [S, BPST, BPST, PST, *[T] * 6, PST, T, T]
    assert edges(laid) == {(1, 9), (2, 12), (3, 9), (10, 12)}


@pytest.mark.parametrize("sentences", [3, 4, 100])
def test_one_block(sentences: int) -> None:
    laid = lay(Layout(blocks=Blocks(sentences)), TEXT, SENTENCES)
    assert laid.roles.tolist() == [S, BPST, PST, *[T] * 8]
    assert edges(laid) == {(1, 10), (2, 10)}


def test_one_kind_of_placeholder() -> None:
    # 0 <s> | 1 PST | 2 3 4 | 5 PST | 6 7 8 | 9 PST | 10 11
    local = lay(Layout(blocks=Blocks(summary=False)), TEXT, SENTENCES)
    assert local.roles.tolist() == [S, PST, T, T, T, PST, T, T, T, PST, T, T]
    assert edges(local) == {(1, 4), (5, 8), (9, 11)}
    # 0 <s> | 1 2 3 B-PST | 4 .. 11
    summary = lay(Layout(blocks=Blocks(local=False)), TEXT, SENTENCES)
    assert summary.roles.tolist() == [S, BPST, BPST, BPST, *[T] * 8]
    assert edges(summary) == {(1, 6), (2, 9), (3, 11)}


def test_blocks_behind_an_instruction() -> None:
    # 0 <s> 1 find | 2 B-PST 3 PST | 4 A 5 b
    laid = lay(Layout(blocks=Blocks()), "A b", [(0, 3)], role="query", instruction="find")
    assert laid.roles.tolist() == [S, P, BPST, PST, T, T]
    assert edges(laid) == {(2, 5), (3, 5)}


def arranged(offsets: list[tuple[int, int]], sentences: list[tuple[int, int]], text: str) -> Sequence:
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


def test_blocks_need_sentences() -> None:
    with pytest.raises(InvalidParameter, match="needs the text's sentences"):
        lay(Layout(blocks=Blocks()), TEXT)


# --- spans and packing


def test_owners() -> None:
    # Tokens:        0-2 2-4 4-4 5-7 7-9 9-10; spans 1-3 and 3-6: the first span a token overlaps is its owner.
    starts, ends = np.array([0, 2, 4, 5, 7, 9]), np.array([2, 4, 4, 7, 9, 10])
    assert owners(starts, ends, np.array([[1, 3], [3, 6]])).tolist() == [0, 0, 1, 1, -1, -1]
    assert owners(starts, ends, np.empty((0, 2), np.int64)).tolist() == [-1] * 6


def test_last_overlapping() -> None:
    starts, ends = np.array([0, 2, 4, 8]), np.array([2, 4, 6, 9])
    # 0-2: token 0; 0-3: token 1 begins inside; 6-8: nothing; 5-6: token 2; 0-9: token 3; 9-12: nothing
    spans = np.array([[0, 2], [0, 3], [6, 8], [5, 6], [0, 9], [9, 12]])
    assert last_overlapping(starts, ends, spans).tolist() == [0, 1, -1, 2, 3, -1]


def test_packing_lays_sequences_one_behind_the_other() -> None:
    one, other = lay(Layout(placeholders=1), "a"), lay(Layout(blocks=Blocks()), "A b", [(0, 3)])
    packed = pack([one, other, replace(one)])
    # <s> PST a | <s> B-PST PST A b | <s> PST a
    assert packed.offsets.tolist() == [0, 3, 8, 11]
    assert packed.positions.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2]
    assert packed.ids.tolist() == [100, 0, 1, 100, 0, 0, 1, 2, 100, 0, 1]
    assert sorted(map(tuple, packed.edges.tolist())) == [(1, 2), (4, 7), (5, 7), (9, 10)]
    assert packed.placeholders.tolist() == [[1, 0], [4, 1], [5, 0], [9, 0]]
