"""Sentences: exact offsets on any text, exact expectations on hard cases, and the limits that are known."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eddy_embed.errors import InvalidParameter, InvalidText
from eddy_embed.text.sentences import RULES, Segmenter, Sentence, sentence_rules

CASES = json.loads((Path(__file__).parent / "fixtures" / "segment.json").read_text(encoding="utf-8"))
BORDER = "⏐"
SOLVED = [case for name in ("development", "held_out", "second_held_out") for case in CASES[name]]


def texts(text: str, language: str = "en", max_chars: int = 1000) -> list[str]:
    return [sentence.text for sentence in Segmenter(language, max_chars).sentences(text)]


def parts(marked: str) -> list[str]:
    return [part.strip() for part in marked.split(BORDER)]


def check_exact(text: str, sentences: list[Sentence], max_chars: int) -> None:
    at, rebuilt = 0, ""
    for sentence in sentences:
        gap = text[at : sentence.start]
        assert at <= sentence.start < sentence.end <= len(text)
        assert text[sentence.start : sentence.end] == sentence.text == sentence.text.strip() != ""
        assert not gap.strip()
        assert len(sentence.text) <= max_chars
        rebuilt += gap + sentence.text
        at = sentence.end
    assert not text[at:].strip()
    assert rebuilt + text[at:] == text


def test_hard_cases():
    wrong = {}
    for case in SOLVED:
        divided = texts(case["marked"].replace(BORDER, ""), case["language"])
        if divided != parts(case["marked"]):
            wrong[case["marked"]] = divided
    assert len(SOLVED) > 100 and wrong == {}


def test_known_limits():
    """Each is wrong, for the reason that the fixture gives; whoever mends one moves it to the cases above."""
    for case in CASES["limits"]:
        text = case["marked"].replace(BORDER, "")
        assert case["wanted"].replace(BORDER, "") == text and case["why"], text
        assert texts(text, case["language"]) == parts(case["marked"]) != parts(case["wanted"]), text


def test_a_change_of_the_rules_changes_their_name():
    outputs = [
        texts(case["marked"].replace(BORDER, ""), case["language"]) for cases in CASES.values() for case in cases
    ]
    outputs.append(texts(" ".join(map(" ".join, outputs)), max_chars=40))
    digest = hashlib.sha256(json.dumps(outputs).encode()).hexdigest()[:16]
    assert (RULES, digest) == ("spacy-rules-3", "38ef4427f26ecc3a"), "sentences differ: raise the number in RULES"


HARD_PIECES = [
    *" \t\n\r\f\v\x00\x1c\x85\xa0\u2028\u2029\u3000\u200b\u200d\ufeff",
    *".!?…。！？．؟।¿¡;:,—-#*_`~|>([{<)]}\"'“”„«»「」",
    *"aZ1é中あ한ا\u0301\u0e33\U0001f600\U0001f1e6\U0001f1e7\U0001f3fd",
    *["\r\n", "\n\n", "```", "~~~", "\n```\n", "\n- ", "\n1. ", "\n| a |", "\n---\n", "|---|---|", "\nANNA: ", "# "],
    *[
        "Dr. ",
        "e.g. ",
        "U.S. ",
        "3.14",
        "z. B. ",
        "No. 5",
        "... ",
        ". . . ",
        "Hello. ",
        '." ',
        "http://a.b/c?d. ",
        " I ",
    ],
]
any_text = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.lists(st.sampled_from(HARD_PIECES), max_size=80).map("".join),
    st.lists(st.text(max_size=30), max_size=8)
    .map("\n".join)
    .filter(lambda text: not re.search("[\ud800-\udfff]", text)),
)


@settings(max_examples=250)
@given(any_text, st.sampled_from([1, 2, 3, 7, 20, 100, 1000]), st.sampled_from(["en", "de", "zh", "xx"]))
@example("a" + "\u0301" * 50, 7, "en")
@example("\u200b\n\nA. \n\n\ufeff", 3, "en")
@example("```\na. B\n", 1000, "en")
@example(" .!?\n\n\t。", 1, "zh")
def test_exact_on_any_text(text, max_chars, language):
    segmenter = Segmenter(language, max_chars)
    sentences = segmenter.sentences(text)
    check_exact(text, sentences, max_chars)
    assert Segmenter(language, max_chars).sentences(text) == sentences


@settings(max_examples=100)
@given(
    st.lists(
        st.lists(st.sampled_from([piece for piece in HARD_PIECES if not set(piece) & set("`~")]), max_size=20)
        .map("".join)
        .filter(lambda text: any(c.isalnum() for c in text)),
        min_size=2,
        max_size=3,
    )
)
def test_what_stands_behind_a_blank_line_has_no_influence(paragraphs):
    segmenter = Segmenter("en")
    whole = "\n\n".join(paragraphs)
    # Invisible sentences alone may join over a blank line.
    visible = [s for s in texts(whole) if any(c.isalnum() for c in s)]
    apart = [s.text for p in paragraphs for s in segmenter.sentences(p) if any(c.isalnum() for c in s.text)]
    strip = "\u200b\u200d\ufeff\x00 \n\r\f\v\t\x1c\x85\xa0\u2028\u2029\u3000"
    assert [s.strip(strip) for s in visible] == [s.strip(strip) for s in apart]


@pytest.mark.parametrize("text", ["\u200b", "\ufeff\n\n\u200b", "\x00", "...", "—", "🎉"])
def test_text_without_words_is_one_sentence(text):
    assert texts(text) == [text]


def test_invisible_lines_join_their_neighbour():
    assert texts("One.\n\n\u200b\n\nTwo.") == ["One.\n\n\u200b", "Two."]
    assert texts("\ufeff\n\nOne.") == ["\ufeff\n\nOne."]


# Over-long sentences


def test_over_long_sentences_are_cut_at_the_best_border():
    text = "The first clause is here; the second, which is longer, follows it: a third one ends it all"
    assert texts(text, max_chars=60) == [
        "The first clause is here;",
        "the second, which is longer, follows it:",
        "a third one ends it all",
    ]
    assert texts("one, two, three, four, five", max_chars=12) == ["one, two,", "three, four,", "five"]
    assert texts("one two three four five", max_chars=12) == ["one two", "three four", "five"]
    assert texts("abcdefghij" * 3, max_chars=12) == ["abcdefghijab", "cdefghijabcd", "efghij"]
    assert texts("我们今天去公园，明天去学校；后天再说", "zh", max_chars=14) == [
        "我们今天去公园，明天去学校；",
        "后天再说",
    ]


def test_a_word_longer_than_the_limit_leaves_the_words_around_it_whole():
    assert texts("hi " + "x" * 25 + " there you", max_chars=10) == ["hi", "x" * 10, "x" * 10, "xxxxx", "there you"]


@pytest.mark.parametrize("unit", ["e\u0301\u0323", "👩🏽\u200d💻", "🇩🇪", "\u1112\u1161\u11ab", "❤\ufe0f"])
def test_hard_cuts_keep_graphemes_whole(unit):
    pieces = texts(unit * 20, max_chars=2 * len(unit) + 1)
    assert pieces == [unit * 2] * 10


@pytest.mark.parametrize("text", ["x = f(a, b); " * 10, "| cell one | cell two; three |" * 4])
def test_code_and_rows_are_cut_only_when_too_long(text):
    fenced = f"```\n{text}\n```"
    assert texts(fenced)[1] == text.strip()
    check_exact(fenced, Segmenter(max_chars=20).sentences(fenced), 20)


# Layout of the text


def test_line_breaks_mean_paragraphs_where_lines_are_long():
    long = "This paragraph goes on and on with many words until nobody could call it a wrapped line any more, " * 3
    text = f"A heading\n{long.strip()} end\nAnother heading\n{long.strip()} end"
    assert texts(text) == ["A heading", f"{long.strip()} end", "Another heading", f"{long.strip()} end"]


def test_one_long_line_in_wrapped_prose_parts_only_its_own_neighbours():
    long = ("and a line with many more words than the others have in this text, " * 4).strip()
    wrapped = "these are lines of a\nwrapped text that\n" * 20
    assert texts(f"{wrapped}{long}\n{wrapped}", max_chars=5000) == [wrapped.strip(), long, wrapped.strip()]


def test_lists_of_words_are_units():
    assert texts("apple\nbanana\ncherry pie") == ["apple", "banana", "cherry pie"]


def test_wrapped_lines_that_look_like_items_or_labels_go_on():
    assert texts("It was shown by\nA. Smith that dogs bark") == ["It was shown by\nA. Smith that dogs bark"]
    assert texts("It was shown in chapter\n5. The rest is\nlong.") == [
        "It was shown in chapter\n5.",
        "The rest is\nlong.",
    ]
    assert texts("There was one thing to\nNote: it rained that day.") == [
        "There was one thing to\nNote: it rained that day."
    ]


def test_an_unclosed_fence_does_not_swallow_the_rest():
    assert texts("```\nOne line that\nis wrapped. Two.") == ["```\nOne line that\nis wrapped.", "Two."]


def test_rules_and_quoted_blank_lines_part_paragraphs():
    assert texts("above\n***\nbelow") == ["above", "***", "below"]
    assert texts("> one or two\n> words\n>\n> three") == ["> one or two\n> words\n>", "> three"]


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("Why two licences?\n===\nText.", [(1, "Why two licences?\n===")]),
        ("It overrides two things:\n------\nText.", [(2, "It overrides two things:\n------")]),
        ("A title\nover two lines\n=====\nText.", [(1, "A title\nover two lines\n=====")]),
        ("That was all.\n------\nText.", []),
        ("Wrapped prose of\ntwo lines\n------\nText.", []),
        ("See you then!\n--\nAda", []),
        ("# One\n\n<!--\n## Two\n\nIt is hidden.\n-->\n\n## Three", [(1, "# One"), (2, "## Three")]),
        (
            "# One <!-- own --> words\n## Two <!--\n## Three -->\n## Four",
            [(1, "# One <!-- own --> words"), (2, "## Two <!--"), (2, "## Four")],
        ),
        ("<!-- Nothing closes this.\n# One", [(1, "# One")]),
        ("```\n<!--\n```\n# One\n\n-->", [(1, "# One")]),
        ("- Item\n\n  ```\n  # remark\n  ```\n\n      # remark\n\n# One", [(1, "# One")]),
    ],
)
def test_headings_that_are_underlined_or_stand_in_comments_and_code(text, headings):
    found = Segmenter().sentences(text)
    assert [(each.level, each.text) for each in found if each.level] == headings


# Long and hostile input


def test_long_lines_are_split_like_short_ones():
    expected = [f"Sentence number {n} was written by Dr. Who, e.g. in the U.S. Army." for n in range(4000)]
    assert texts(" ".join(expected)) == expected
    assert len(" ".join(expected)) > 250_000


UNITS = [
    *("a", "(", ".", ". ", "? ", "A. ", "!a", "他。", "e\u0301", ".😀", "\n", "- a. b\n", "```\n", " ."),
    *('"', ' "', '. "'),
]
UNITS += ['? " ', "! ' ", "A: b\n", "|\n", "# ", "\x00", "9. ", "a.b@", "I... ", "a?\u200b"]


RUNS = ["(" * 250 + "a. B" + ")" * 290 + ". Next ", "A." + ")" * 60_000 + " Next.", "x" * 60_000 + ". Next. Last"]


@pytest.mark.parametrize("unit", [*UNITS, *RUNS])
def test_runs_of_one_unit_are_cut_exactly(unit):
    text = unit * max(1, 60_000 // len(unit)) + "x"
    check_exact(text, Segmenter().sentences(text), 1000)


def test_a_full_vocabulary_is_replaced(monkeypatch):
    expected = texts("One word. Two words.")
    first = sentence_rules.get_pipeline("en")
    monkeypatch.setattr(sentence_rules, "_MOST_NEW_STRINGS", -1)
    assert texts("One word. Two words.") == expected
    assert sentence_rules.get_pipeline("en") is not first


def test_threads_share_a_pipeline():
    many = [f"Dr. {word} came. He saw {n}.5 of them! {'Then ' * n}left." for n, word in enumerate("abcdefgh" * 20)]
    alone = [texts(text) for text in many]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(texts, many)) == alone


# Parameters


@pytest.mark.parametrize("language", ["ja", "ko", "th", "vi", "zh", "ru", "he", "xx"])
def test_languages_need_no_further_package(language):
    assert texts("One here. Two there! Three?", language) == ["One here.", "Two there!", "Three?"]


@pytest.mark.parametrize("language", ["", "english", "xy", "EN", "../en"])
def test_unknown_languages_are_refused(language):
    with pytest.raises(InvalidParameter, match=r"languages\(\)") as error:
        Segmenter(language)
    assert repr(language) in str(error.value)


@pytest.mark.parametrize("max_chars", [0, -1])
def test_impossible_limits_are_refused(max_chars):
    with pytest.raises(InvalidParameter, match="max_chars"):
        Segmenter(max_chars=max_chars)


def test_lone_surrogates_are_refused():
    with pytest.raises(InvalidText, match="character 3"):
        Segmenter().sentences("abc\ud83dd")


def test_fingerprint_and_copies():
    segmenter = Segmenter("de", max_chars=200)
    assert segmenter.fingerprint == f"{RULES}:de:200"
    assert repr(segmenter) == "Segmenter(language='de', max_chars=200)"
    assert pickle.loads(pickle.dumps(segmenter)).fingerprint == segmenter.fingerprint
    sentence = segmenter.sentences("Ja.")[0]
    assert pickle.loads(pickle.dumps(sentence)) == sentence == Sentence(0, 3, "Ja.")
    with pytest.raises(AttributeError):
        sentence.start = 1


def test_a_segmenter_is_made_without_loading_spacy():
    code = (
        "import sys; from eddy_embed.text.sentences import Segmenter; s = Segmenter('en'); s.fingerprint\n"
        "assert not {'spacy', 'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_composed_and_decomposed_text_have_equal_borders():
    text = "Élan vital. Ça va? Über alles! Ñandú."
    decomposed = texts(unicodedata.normalize("NFD", text))
    assert [unicodedata.normalize("NFC", sentence) for sentence in decomposed] == texts(text)
