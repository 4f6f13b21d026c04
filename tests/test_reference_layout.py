"""Layouts of the references, counted on fingers."""

from __future__ import annotations

import pytest

from families import TOKENIZERS
from reference.methods import layout
from reference.words import words

TEXT = '"Look," said Dr. Halvorsen: the café 🙂 stays.\n\n  Then 日本語。Nobody asked! Or did they, on the bridge?'


# --- tokenizers


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_end_token_is_dropped_and_text_is_covered(kind):
    tokenizer = TOKENIZERS[kind]()
    done = layout("plain", {}, tokenizer, TEXT)
    assert tokenizer.eos_token_id not in done.ids[1:]  # the byte-level one's is the start token too
    assert done.text == list(range(len(done) - len(done.text), len(done)))
    assert done.ids[0] == tokenizer.bos_token_id and len(done) - len(done.text) == 1
    bare = layout("plain", {"start": False}, tokenizer, TEXT)
    assert bare.ids == (done.ids[1:] if kind == "byte-level" else done.ids) and bare.spans == done.spans
    seen = {c for start, end in done.spans for c in range(start, end)}
    assert {c for c in range(len(TEXT)) if not TEXT[c].isspace()} <= seen


# --- layouts by hand


def at(text, done):
    """The layout as a string: text tokens in their own letters, `P` and `B` placeholders, `.` the rest."""
    shown = ["."] * len(done)
    for position, (start, end) in zip(done.text, done.spans, strict=True):
        shown[position] = text[start:end]
    for position, kind in done.placeholders.items():
        shown[position] = "PB"[kind]
    return shown


def test_plain_by_hand():
    done = layout("plain", {}, words, "ab cd")
    assert done.ids == [100, 1, 2]  # the front token; ab; " cd"; the end token is gone
    assert at("ab cd", done) == [".", "ab", " cd"]
    assert not done.edges and not done.placeholders


def test_instruction_by_hand():
    # "find: ab cd": find | : | " ab" | " cd". The blank of " ab" lies between instruction and text, in neither.
    done = layout("plain", {}, words, "ab cd", instruction="find:")
    assert at("ab cd", done) == [".", ".", ".", "ab", " cd"]
    assert done.spans == [(0, 2), (2, 5)]


def test_prompteol_by_hand():
    # < | This | " sentence" | " :" | ' "' | ab | " cd" | '"' | " means" | " in" | " one" | " word" | ':"'
    done = layout("prompteol", {}, words, "ab cd")
    assert at("ab cd", done) == [".", ".", ".", ".", ".", "ab", " cd", ".", ".", ".", ".", ".", "."]


def test_straddling_token_belongs_to_the_left():
    # 'cd,"' : the comma and the template's closing mark are one token, ',"', and it starts in the text
    done = layout("prompteol", {}, words, "cd,")
    assert at("cd,", done)[5:8] == ["cd", ",", "."]
    # '"(cd' : the template's opening mark and the parenthesis are one token, ' "(', and it starts in the template
    done = layout("prompteol", {}, words, "(cd")
    assert at("(cd", done)[4:6] == [".", "cd"]


def test_tp_by_hand():
    done = layout("tp", {}, words, "ab cd")
    assert at("ab cd", done) == [".", "P", "ab", " cd"]
    assert done.edges == [(1, 3)]
    # 0 <, 1 This, 2 sentence, 3 " :", 4 P, 5 ' "', 6 ab, 7 " cd", 8 '"', 9 means, 10 in, 11 one, 12 word, 13 ':"'
    done = layout("tp", {"prompt": "prompteol"}, words, "ab cd")
    assert at("ab cd", done)[:8] == [".", ".", ".", ".", "P", ".", "ab", " cd"]
    assert done.edges == [(4, 13)] and len(done) == 14
    # two placeholders: 4 and 5, the last token moves to 14
    done = layout("tp", {"prompt": "prompteol", "placeholders": 2}, words, "ab cd")
    assert done.edges == [(4, 14), (5, 14)]
    # a colon of the instruction or of the text does not introduce the text slot of `plain`
    done = layout("tp", {}, words, "ab: cd", instruction="find: it")
    assert at("ab: cd", done) == [".", ".", ".", ".", "P", "ab", ":", " cd"]


def test_tp_by_hand_where_the_wording_says():
    done = layout("tp", {"prompt": "say: {text}{placeholder} now"}, words, "ab {placeholder}")
    at = done.text[-1] + 1
    assert list(done.placeholders) == [at] and done.edges == [(at, len(done) - 1)] and at == len(done) - 2


def test_htp_by_hand():
    # "ab cd. ef! gh": sentences [0,6) [7,10) [11,13); tokens ab | " cd" | . | " ef" | ! | " gh"
    text, sentences = "ab cd. ef! gh", [(0, 6), (7, 10), (11, 13)]
    done = layout("htp", {}, words, text, sentences=sentences)
    #       0    1    2    3    4    5     6      7    8    9      10   11   12
    row = [".", "B", "B", "B", "P", "ab", " cd", ".", "P", " ef", "!", "P", " gh"]
    assert at(text, done) == row
    # ends of the sentences: "." at 7, "!" at 10, " gh" at 12; B-PST_m and PST_m both take the end of S_m
    assert sorted(done.edges) == [(1, 7), (2, 10), (3, 12), (4, 7), (8, 10), (11, 12)]
    assert len(done) == 1 + 6 + 2 * 3

    done = layout("htp", {"k": 2}, words, text, sentences=sentences)  # blocks [0,10) and [11,13)
    assert at(text, done) == [".", "B", "B", "P", "ab", " cd", ".", " ef", "!", "P", " gh"]
    assert sorted(done.edges) == [(1, 8), (2, 10), (3, 8), (9, 10)]

    done = layout("htp", {"local_only": True}, words, text, sentences=sentences)
    assert at(text, done) == [".", "P", "ab", " cd", ".", "P", " ef", "!", "P", " gh"]
    assert sorted(done.edges) == [(1, 4), (5, 7), (8, 9)]

    done = layout("htp", {"global_only": True}, words, text, sentences=sentences)
    assert at(text, done) == [".", "B", "B", "B", "ab", " cd", ".", " ef", "!", " gh"]
    assert sorted(done.edges) == [(1, 6), (2, 8), (3, 9)]

    done = layout("htp", {}, words, text, sentences=sentences, instruction="find it")
    assert at(text, done) == [".", ".", ".", *row[1:]]


def test_htp_blanks_between_blocks_and_in_front():
    # "\nab.\n\ncd": blank | ab | . | blank | blank | cd with sentences [1,4) and [6,8): blanks are in no block
    text, sentences = "\nab.\n\ncd", [(1, 4), (6, 8)]
    done = layout("htp", {}, words, text, sentences=sentences)
    #                          0    1    2    3     4    5     6    7     8     9    10
    assert at(text, done) == [".", "B", "B", "\n", "P", "ab", ".", "\n", "\n", "P", "cd"]
    assert sorted(done.edges) == [(1, 6), (2, 10), (4, 6), (9, 10)]


def test_htp_token_across_two_sentences():
    # "ab.)cd": ab | .) | cd with sentences [0,3) and [3,6). ".)" starts in the first, so PST_2 stands before cd;
    # ".)" is also the last token that overlaps the first.
    done = layout("htp", {}, words, "ab.)cd", sentences=[(0, 3), (3, 6)])
    #                              0    1    2    3    4     5     6    7
    assert at("ab.)cd", done) == [".", "B", "B", "P", "ab", ".)", "P", "cd"]
    assert sorted(done.edges) == [(1, 5), (2, 7), (3, 5), (6, 7)]


def test_truncation_cuts_the_text_alone():
    text, sentences = "ab cd. ef! gh", [(0, 6), (7, 10), (11, 13)]
    assert at(text, layout("plain", {}, words, text, max_length=4)) == [".", "ab", " cd", "."]
    # prompteol over "ab cd." is 13 tokens: 5 in front, 3 of text ('."' starts in the text), 5 behind; 12 leave out '."'
    assert len(layout("prompteol", {}, words, "ab cd.")) == 13
    assert at("ab cd.", layout("prompteol", {}, words, "ab cd.", max_length=12))[4:8] == [".", "ab", " cd", "."]
    # 13 with three blocks; 5 text tokens need two blocks: 1 + 5 + 4 = 10; 3 need one: 1 + 3 + 2 = 6
    for limit, length in [(13, 13), (12, 10), (10, 10), (9, 9), (8, 6), (6, 6), (5, 5)]:
        assert len(layout("htp", {}, words, text, sentences=sentences, max_length=limit)) == length
    with pytest.raises(ValueError, match="no token"):
        layout("htp", {}, words, text, sentences=sentences, max_length=3)
