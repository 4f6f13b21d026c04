"""Sentences: exact offsets on any text, exact expectations on hard cases, and the limits that are known."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eddy_embed.errors import InvalidParameter, InvalidText
from eddy_embed.text.sentences import RULES, Segmenter, Sentence, languages, sentence_rules
from eddy_embed.text.sentences.blocks import CONTINUED

CASES = json.loads((Path(__file__).parent / "fixtures" / "segment.json").read_text(encoding="utf-8"))
BORDER = "⏐"


def texts(text: str, language: str = "en", max_chars: int = 1000) -> list[str]:
    return [sentence.text for sentence in Segmenter(language, max_chars).sentences(text)]


@cache
def read(marked: str, language: str) -> list[str]:
    return texts(marked.replace(BORDER, ""), language)


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


@pytest.mark.parametrize("name", [name for name in CASES if name != "limits"])
def test_hard_cases(name):
    for case in CASES[name]:
        assert read(case["marked"], case["language"]) == parts(case["marked"]), case["kind"]


def test_known_limits():
    """Each of these is wrong, for the reason that the fixture gives; whoever mends one moves it to the cases above."""
    for case in CASES["limits"]:
        assert case["wanted"].replace(BORDER, "") == case["marked"].replace(BORDER, "") and case["why"]
        assert read(case["marked"], case["language"]) == parts(case["marked"]) != parts(case["wanted"])


def test_a_change_of_the_rules_changes_their_name():
    outputs = [read(case["marked"], case["language"]) for cases in CASES.values() for case in cases]
    outputs.append(texts(" ".join(map(" ".join, outputs)), max_chars=40))
    digest = hashlib.sha256(json.dumps(outputs).encode()).hexdigest()[:16]
    assert (RULES, digest) == ("spacy-rules-4", "38ef4427f26ecc3a"), "sentences differ: raise the number in RULES"


HARD_PIECES = [
    *" \t\n\r\f\v\x00\x1c\x85\xa0\u2028\u2029\u3000\u200b\u200d\ufeff",
    *".!?…。！？．؟।¿¡;:,—-#*_`~|>([{<)]}\"'“”„«»「」",
    *"aZ1é中あ한ا\u0301\u0e33\U0001f600\U0001f1e6\U0001f1e7\U0001f3fd",
    *["\r\n", "\n\n", "```", "~~~", "\n```\n", "\n- ", "\n1. ", "\n| a |", "\n---\n", "|---|---|", "\nANNA: ", "# "],
    *["Dr. ", "e.g. ", "U.S. ", "3.14", "z. B. ", "No. 5", "... ", ". . . ", "Hello. ", '." ', " I ", "http://a.b/c. "],
]
any_text = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.lists(st.sampled_from(HARD_PIECES), max_size=80).map("".join),
    st.lists(st.text(max_size=30), max_size=8)
    .map("\n".join)
    .filter(lambda text: not re.search("[\ud800-\udfff]", text)),
)


@settings(max_examples=150)
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


# Over-long sentences

GRAPHEMES = ["e\u0301\u0323", "👩🏽\u200d💻", "🇩🇪", "\u1112\u1161\u11ab", "❤\ufe0f"]


@pytest.mark.parametrize(
    ("most", "marked"),
    [
        (60, "The first clause is here; ⏐the second, which is longer, follows it: ⏐a third one ends it all"),
        (12, "one, two, ⏐three, four, ⏐five"),
        (12, "one two ⏐three four ⏐five"),
        (12, "abcdefghijab⏐cdefghijabcd⏐efghij"),
        (14, "我们今天去公园，明天去学校；⏐后天再说"),
        (10, f"hi ⏐{'x' * 10}⏐{'x' * 10}⏐xxxxx ⏐there you"),  # the words around a long one stay whole
        *((2 * len(unit) + 1, BORDER.join([unit * 2] * 10)) for unit in GRAPHEMES),
    ],
    ids=str,
)
def test_over_long_sentences_are_cut_at_the_best_border(most, marked):
    assert texts(marked.replace(BORDER, ""), max_chars=most) == parts(marked)


def test_code_and_rows_are_cut_only_when_too_long():
    for text in ("x = f(a, b); " * 10, "| cell one | cell two; three |" * 4):
        fenced = f"```\n{text}\n```"
        assert texts(fenced)[1] == text.strip()
        check_exact(fenced, Segmenter(max_chars=20).sentences(fenced), 20)


# Layout of the text


LONG_LINE = ("and a line with many more words than the others have in this text, " * 4).strip()
WRAPPED = "these are lines of a\nwrapped text that\n" * 20


@pytest.mark.parametrize(
    "marked",
    [
        *("\u200b", "\ufeff\n\n\u200b", "\x00", "...", "—", "🎉"),  # a text without words is one sentence
        *("One.\n\n\u200b⏐\n\nTwo.", "\ufeff\n\nOne."),  # an invisible line joins its neighbour
        # Line breaks mean paragraphs where lines are long; a long one in wrapped prose parts only its own neighbours.
        f"A heading⏐\n{LONG_LINE} end⏐\nAnother heading⏐\n{LONG_LINE} end",
        f"{WRAPPED}⏐{LONG_LINE}⏐\n{WRAPPED}",
        "apple\n⏐banana\n⏐cherry pie",
        # Wrapped lines that look like items or labels go on.
        "It was shown by\nA. Smith that dogs bark",
        "It was shown in chapter\n5. ⏐The rest is\nlong.",
        "There was one thing to\nNote: it rained that day.",
        "```\nOne line that\nis wrapped. ⏐Two.",  # an unclosed fence does not swallow the rest
        *("above\n⏐***\n⏐below", "> one or two\n> words\n>⏐\n> three"),
    ],
    ids=lambda marked: repr(marked[:20]),
)
def test_the_layout_parts_and_joins_sentences(marked):
    assert texts(marked.replace(BORDER, ""), max_chars=5000) == parts(marked)


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
        ("Run it.\n\n# Load the tides\nload()\n\n# Save them\nsave()", []),  # remarks in a listing that a loader bared
        ("Restart it.\n\n# reboot now\n\nThen wait.", []),
        ("One.\n\n# The sea\n\nTwo.\n\n# The bay\n\nThree.", [(1, "# The sea"), (1, "# The bay")]),
        ("Read on.\n\nNOTE\n\nIt is wet.\n\nNOTE\n\nIt is cold.\n\nPRICE\n\nNine.", []),  # labels
        ("THE FERRY\n\nIT LEFT AT NOON\n\nNOBODY ASKED", []),  # capitals say nothing in a text of capitals
    ],
)
def test_headings_that_are_underlined_or_stand_in_comments_and_code(text, headings):
    sentences = Segmenter().sentences(text)
    assert [(sentence.level, sentence.text) for sentence in sentences if sentence.level] == headings


LINES = {
    1: ["# Mark", "Book the second."],
    2: ["Chapter IV", "Kapitel 3: Das Boot", "第十二章 河"],
    3: ["2.1 Winds", "THE END OF IT"],
    0: [
        *("NO!", "IV", "ANNA:", "An ordinary line", "####### Seven marks", "第三部分的水。"),
        *("2.1 metres of water stood there.", "Part one of the plan was done by noon yesterday."),
    ],
}


@pytest.mark.parametrize("level", LINES)
def test_lines_that_are_headings(level):
    for line in LINES[level]:
        text = f"# TIDES\n\nA sentence before it.\n\n{line}\n\nAnother one behind it."
        _, first, *inside, last = Segmenter().sentences(text)
        levels = [level] + [CONTINUED if level else 0] * (len(inside) - 1)
        assert [sentence.level for sentence in (first, *inside, last)] == [0, *levels, 0], line


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


LENGTH = 20_000
RUNS = ["(" * 250 + "a. B" + ")" * 290 + ". Next ", "A." + ")" * LENGTH + " Next.", "x" * LENGTH + ". Next. Last"]


def test_runs_of_one_unit_are_cut_exactly():
    for unit in (*UNITS, *RUNS):
        text = unit * max(1, LENGTH // len(unit)) + "x"
        check_exact(text, Segmenter().sentences(text), 1000)


def test_a_full_vocabulary_is_replaced(monkeypatch):
    expected = texts("One word. Two words.")
    first = sentence_rules.get_pipeline("en")
    monkeypatch.setattr(sentence_rules, "_MOST_NEW_STRINGS", -1)
    assert texts("One word. Two words.") == expected
    assert sentence_rules.get_pipeline("en") is not first


# Parameters


def test_languages_need_no_further_package():
    for language in ("ja", "ko", "th", "vi", "zh", "ru", "he", "xx"):
        assert texts("One here. Two there! Three?", language) == ["One here.", "Two there!", "Three?"], language
    assert {"en", "de", "zh", "xx"} <= set(languages())


def test_unknown_languages_impossible_limits_and_half_characters_are_refused():
    for language in ("", "english", "xy", "EN", "../en"):
        with pytest.raises(InvalidParameter, match=rf"{re.escape(repr(language))}.*languages\(\)"):
            Segmenter(language)
    for most in (0, -1):
        with pytest.raises(InvalidParameter, match="max_chars"):
            Segmenter(max_chars=most)
    with pytest.raises(InvalidText, match="character 3"):
        Segmenter().sentences("abc\ud83dd")
