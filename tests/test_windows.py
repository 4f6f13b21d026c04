"""Texts beyond the window: every token counted once, exact offsets, sizes kept, work that grows with length."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise, product
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import families
from tests.comparison import CORE, INSTRUCTION, METHODS, change_arguments, change_result, embedder
from tests.long_texts import BOOK, LINES, MARKDOWN, SENTENCE, TEXTS, TRANSCRIPT
from tests.selection import each_once, mostly_slow, turns

from eddy_embed import Embedder, methods
from eddy_embed.encoding import planner as planning
from eddy_embed.encoding.document import LongDocument, group_sentences
from eddy_embed.encoding.planner import Planner, TextPlan, Window, plan_windows
from eddy_embed.errors import TextTooLong
from eddy_embed.parts.layout import Layout
from eddy_embed.text import tokenizer as tokenizing
from eddy_embed.text.sentences import Segmenter
from eddy_embed.text.sentences.blocks import units
from eddy_embed.text.sequence import TokenSequence
from eddy_embed.text.tokenizer import Tokenizer

LAYOUTS = {
    name: methods.parse(name).layout or Layout() for name in ("plain", "tp:placeholders=2", "htp", "prompteol", "echo")
}


@cache
def tokenizer(kind: str) -> Tokenizer:
    return Tokenizer(families.TOKENIZERS[kind]())


def planner(layout: Layout, kind: str, max_length: int = 2**20, *, instruction: str | None = None) -> Planner:
    """What lays texts out; no model is needed for that."""
    return Planner(
        layout=layout,
        tokenizer=tokenizer(kind),
        prefix=tokenizer(kind).starting(layout.start, auto=True),
        segmenter=Segmenter("en"),
        max_length=max_length,
        overflow="window",
        instructions={"query": instruction, "document": instruction},
    )


def plan(text: str, layout: str, kind: str, max_length: int, *, instruction: str | None = None) -> TextPlan:
    """How a text is divided."""
    found = planner(LAYOUTS[layout], kind, max_length, instruction=instruction)
    return found.plan([text], "document", sentences=True)[0]


def characters(job: Window) -> set[int]:
    """Characters of the tokens that a job answers for."""
    starts, ends = job.sequence.starts[job.counted].tolist(), job.sequence.ends[job.counted].tolist()
    return {at for start, end in zip(starts, ends, strict=True) for at in range(start, end)}


def check(text: str, planned: TextPlan, max_length: int) -> None:
    """Every window fits, and every character is counted in exactly one."""
    counted: set[int] = set()
    for job in planned.windows:
        assert len(job.sequence) <= max_length
        own = characters(job)
        assert not own & counted
        counted |= own
    assert counted == set(range(len(text)))
    assert planned.truncated == 0


# --- every token counted once

WORDS = st.sampled_from(["a", "stone", "Brackwater", "x" * 40, "日本語", "。", "🙂", "👩‍🚀", "é", "1.5", "no."])
GAPS = st.sampled_from(["", " ", ". ", "! ", "\n", "\n\n", "   ", " " * 30, "\t", "? "])
ANY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=120)
MIXED = st.lists(st.tuples(WORDS, GAPS), min_size=1, max_size=60).map(lambda parts: "".join(map("".join, parts)))


@given(
    text=st.one_of(MIXED, ANY).filter(str.strip),
    layout=st.sampled_from(list(LAYOUTS)),
    kind=st.sampled_from(list(families.TOKENIZERS)),
    room=st.integers(8, 60),
)
@settings(max_examples=100)
def test_every_character_is_counted_once(text: str, layout: str, kind: str, room: int) -> None:
    shortest = plan("a", layout, kind, 2**20).windows[0].sequence
    # Room for each copy: eight tokens are enough for any character and for the blanks around a slice.
    max_length = room * (int(shortest.copies.max()) + 1) + len(shortest)
    check(text, plan(text, layout, kind, max_length), max_length)


def test_an_instruction_takes_its_room_in_every_window() -> None:
    text = "The lamp was lit before the tide came in. " * 12
    bare = plan(text, "plain", "metaspace", 80)
    told = plan(text, "plain", "metaspace", 80, instruction=INSTRUCTION)
    assert 1 < len(bare.windows) < len(told.windows)
    check(text, told, 80)


# Each text names what it is full of.
LONG = {
    **{"lines of one word": LINES[:5_000], "one sentence": SENTENCE[:7_000], "one word": "x" * 2_000},
    **{"no blanks": "潮水在夜里上涨桥不见了" * 200, "emoji": "🙂" * 600},
    **{"blank lines": ("It rose." + "\n" * 100) * 20, "blanks": "It rose." + " " * 4_000 + "It fell."},
}


@pytest.mark.parametrize("layout", ["plain", "htp"])
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_hostile_texts_are_read_once_in_full(text: str, layout: str) -> None:
    planned = plan(text, layout, "metaspace", 128)
    assert len(planned.windows) > 1
    check(text, planned, 128)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_too_small_a_window_is_refused_with_the_remedy(layout: str) -> None:
    text = "The river rose at night. By morning the bridge was gone! Who would carry the letters now?"
    enough = len(plan("a", layout, "metaspace", 2**20).windows[0].sequence) + 8
    for max_length in range(1, enough + 3):
        try:
            check(text, plan(text, layout, "metaspace", max_length), max_length)
        except TextTooLong as error:
            assert max_length < enough
            assert f"max_length={max_length}" in str(error) and "raise max_length" in str(error)
        else:
            assert max_length > 3


def test_plan_by_hand() -> None:
    # 8 units of 10 in a budget of 40: room to share is 40 // 8 = 5, less than a unit
    assert [(w.first, w.last) for w in plan_windows([10] * 8, 40)] == [(0, 3), (4, 7)]
    # 8 units of 5: windows of 8 are full, the one unit before may be read again
    assert [(w.first, w.last) for w in plan_windows([5] * 12, 40)] == [(0, 7), (7, 11)]
    # unit 2 fills its window alone, so nothing is shared
    assert [(w.first, w.last) for w in plan_windows([4, 4, 40, 4], 40)] == [(0, 1), (2, 2), (3, 3)]


# --- texts of all sorts

SIZE = 40


def long(text: str, **options: Any) -> LongDocument:
    return embedder("llama", "plain:exit=1").encode_long(text, **{"passage_size": SIZE, **options})


def visible(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_is_lost_and_sizes_are_kept(name: str) -> None:
    text = TEXTS[name]
    document = long(text)
    for spans in (document.sentences, document.passages):
        assert visible("".join(text[span.start : span.end] for span in spans)) == visible(text)
        assert all(a.end <= b.start and not text[a.end : b.start].strip() for a, b in pairwise(spans))
        assert all(np.isfinite(span.vector).all() for span in spans)
    levels = [sentence.level for sentence in Segmenter().sentences(text)]
    kept = set(units(levels))
    sizes = [sentence.n_tokens for sentence in document.sentences]
    passages = [(passage.first_sentence, passage.last_sentence) for passage in document.passages]
    for (first, last), (after, _) in pairwise(passages):
        together = sum(sizes[first : last + 1])
        # The first word of a window may take a token more.
        assert (first, last) in kept or together <= SIZE + document.n_windows
        follows = next(b for a, b in kept if a == after)
        assert together + sum(sizes[after : follows + 1]) > SIZE - document.n_windows, "the next would have fitted"
        assert not levels[last] or 0 < levels[after] <= levels[last], "a heading is parted from its text"
    assert document.n_truncated == 0


def under(document: LongDocument, wording: str) -> list[tuple[str, ...]]:
    return [p.headings for p in document.passages if wording in document.text[p.start : p.end]]


def test_passages_know_their_headings() -> None:
    document = long(MARKDOWN, passage_size=1)
    assert under(document, "Twice a day") == [("Tides",)]
    assert under(document, "level = staff") == [("Tides", "Measuring")]
    assert under(document, "Wind") == [("Tides", "Measuring", "Errors")]
    assert under(document, "It was lit") == [("Tides", "The lamp")]
    assert under(document, "# Empty") == [("Empty",)], "a heading without text stands alone"
    assert under(document, "The dough") == [("Bread",)]
    together = [document.text[p.start : p.end] for p in document.passages]
    assert "# Bread\n\nBread needs flour, water and salt." in together
    assert [p.headings for p in long("No headings here. None.").passages] == [()]
    (whole,) = long(MARKDOWN, passage_size=1000).passages
    sentences = long(MARKDOWN, passage_size=1000).sentences
    starts = {headings: MARKDOWN[sentences[at].start : sentences[at].end] for at, headings in whole.sections}
    assert whole.headings == ("Tides",) and "Twice a day" not in starts.values()
    assert starts["Tides", "Measuring", "Errors"] == "- Waves." and starts["Tides", "The lamp"].startswith("It was lit")
    lost_line_ends = long(f"# Tides\n\n## {'high ' * 201}\n\nOne.\n\n### Low\n\nTwo.", passage_size=1)
    assert under(lost_line_ends, "Two") == [("Tides", "Low")], "every passage would repeat the long heading"


def test_chapters_of_a_book() -> None:
    document = long(BOOK, passage_size=1)
    keepers = under(document, "came home")
    chapters = ["Chapter 1. The Boat", "Chapter 2. The Storm"]
    assert keepers == [(part, chapter) for part in ("PART ONE", "PART TWO") for chapter in chapters]
    for passage in document.passages:
        assert BOOK[passage.start : passage.end].count("Chapter") <= 1
    assert under(document, "PART TWO") == [("PART TWO", "Chapter 1. The Boat")], "both headings with their text"


# --- Work


def calls(work: Callable[[], object]) -> int:
    """Function calls that some work takes, those into C included."""
    count = 0

    def seen(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("text", [SENTENCE[:8_000], LINES[:4_000], MARKDOWN * 2, BOOK * 2, TRANSCRIPT[:1_500]])
def test_twice_the_text_is_twice_the_work(text: str) -> None:
    def work(text: str) -> Callable[[], object]:
        def run() -> None:
            found = Segmenter().sentences(text)
            group_sentences([1] * len(found), 3, [sentence.level for sentence in found])
            plan(text, "htp", "metaspace", 128)

        return run

    work(text)()  # caches
    once, twice = calls(work(text)), calls(work(f"{text}\n\n{text}"))
    assert once < twice < 2.3 * once


@pytest.mark.parametrize("text", [SENTENCE[:20_000], LINES[:20_000]], ids=["one sentence", "lines"])
def test_a_long_text_is_never_tokenized_in_one_piece(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "LONG", 8_000)
    monkeypatch.setattr(tokenizing, "TOGETHER", 8_000)
    monkeypatch.setattr(tokenizing, "STRETCH", 4_000)
    handed: list[int] = []

    def counted(tokenizer: tokenizing.Tokenizer, texts: list[str]) -> tuple[Any, ...]:
        handed.extend(map(len, texts))
        return tokenizer, texts

    change_arguments(monkeypatch, tokenizing.Tokenizer, "__call__", counted)
    planned = plan(text, "htp", "metaspace", 128)
    assert len(planned.windows) > 10
    # Once to count, once in windows that overlap by an eighth at most; a second time where the windows were too large.
    assert sum(handed) < 4 * len(text)
    assert max(handed) <= tokenizing.STRETCH + 2 * tokenizing.MARGIN < len(text)


@pytest.mark.parametrize("method", ["htp", "reba:pool=mean,piece=7+tempscale:tau=0.6"])
def test_windows_of_a_long_text_are_laid_out_as_they_are_run(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    e = embedder("llama", method, max_length=64, batch_tokens=128)
    text = 2 * TEXTS["german"]
    usual = e.encode_document(text)
    held: WeakSet[TokenSequence] = WeakSet()
    at_once: list[int] = []

    def seen(sequence: TokenSequence, *_: Any) -> TokenSequence:
        held.add(sequence)
        at_once.append(len(held))
        return sequence

    change_result(monkeypatch, Planner, "_lay", seen)
    monkeypatch.setattr(planning, "LONG", 100)
    assert np.abs(e.encode_document(text) - usual).max() <= 1e-6
    assert 3 * max(at_once) <= e.counts.windows / 2, "those of a pass, and those of the one before"


# --- Counted in stretches


@pytest.mark.parametrize(
    ("name", "kind"), each_once([name for name in TEXTS if name not in ("one sentence", "lines")], families.TOKENIZERS)
)
def test_places_in_stretches_are_those_of_the_whole(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = tokenizer(kind)([TEXTS[name]])
    monkeypatch.setattr(tokenizing, "TOGETHER", 100)
    monkeypatch.setattr(tokenizing, "STRETCH", 130)
    monkeypatch.setattr(tokenizing, "MARGIN", 50)
    starts, ends = tokenizer(kind).places(TEXTS[name])
    assert np.array_equal(starts, whole.starts) and np.array_equal(ends, whole.ends)


@pytest.mark.parametrize(
    ("method", "overflow"), mostly_slow(product(METHODS, ["window", "truncate"]), turns(CORE, ["window", "truncate"]))
)
def test_every_method_reads_them_the_same(method: str, overflow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planner = embedder("llama", method, max_length=160, overflow=overflow)._pipeline.planner
    text = TEXTS["german"]
    usual = planner.plan([text], "document", sentences=True)[0]
    monkeypatch.setattr(planning, "LONG", 100)
    first = planner.plan(["Salt.", text], "document", sentences=True)[1]
    assert np.array_equal(first.spans, usual.spans) and np.array_equal(first.levels, usual.levels)
    assert max(len(job.sequence) for job in first.windows) <= 160
    assert abs(sum(job.share for job in first.windows) - 1) < 1e-9
    assert (first.window_count > 1) == (overflow == "window")
    # What is counted is the text as it is; a rewritten one may have a few tokens more.
    apart = usual.tokens / 50 if planner.layout.revision else 1
    assert abs(first.tokens - usual.tokens) <= apart and abs(first.truncated - usual.truncated) <= apart
    if "template" in planner.layout.chosen and overflow == "window":
        # In a wording, the text's first or last token may be another than alone, and a window end a sentence earlier.
        assert abs(len(first.windows) - len(usual.windows)) <= max(1, len(usual.windows) / 8)
        return
    for mine, theirs in zip(first.windows, usual.windows, strict=True):
        assert np.array_equal(mine.sequence.ids, theirs.sequence.ids)
        assert np.array_equal(mine.counted, theirs.counted) and abs(mine.share - theirs.share) < 1e-3


def test_typographic_variants_are_read_as_typed() -> None:
    """A curly apostrophe is a rare token, which would find the texts that have curly ones."""
    e = Embedder("eddy-tiny", method="plain:exit=1", check=False)
    for typeset, typed in (
        ("The dog’s “bone” isn’t here.", "The dog's \"bone\" isn't here."),
        ("A well\u2011known, non\u2010stop\u00a0ferry.", "A well-known, non-stop ferry."),
    ):
        assert np.array_equal(e.encode_document(typeset), e.encode_document(typed))
        both = e.encode_long(f"{typeset} Bread rises. {typed}")
        assert both.sentences[0].end == len(typeset)  # offsets are those of the text as it is


# --- Large


SEGMENT = """
import resource, sys
from pathlib import Path
from eddy_embed.text.sentences import Segmenter
unit = sys.argv[1].encode().decode("unicode_escape")
text = (unit * (10_000_000 // len(unit) + 1))[:10_000_000]
last = 0
for sentence in Segmenter().sentences(text):
    assert not text[last : sentence.start].strip() and 0 < sentence.end - sentence.start <= 1000
    last = sentence.end
assert not text[last:].strip()
status = Path("/proc/self/status")  # where it is, getrusage counts the process that started this one, too
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(status.read_text().split("VmHWM:")[1].split()[0] if status.exists() else peak)
"""


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["The ferry left at noon. ", "x", "buoy\\n", ". "])
def test_ten_megabytes_are_segmented_in_bounded_memory(unit: str) -> None:
    child = subprocess.run([sys.executable, "-c", SEGMENT, unit], capture_output=True, text=True, timeout=600)
    assert child.returncode == 0, child.stderr
    kilobytes = int(child.stdout)
    # spaCy and the text take 300 MB; the rest is sentences, of which there are millions where each has few characters.
    assert kilobytes < (1_000_000 if unit in ("The ferry left at noon. ", "x") else 2_500_000)


@pytest.mark.slow
def test_ten_megabytes_on_one_line_are_embedded() -> None:
    sentence = "The ferry left the old harbour at noon, and nobody asked the keeper why the lamp was out again. "
    text = (sentence * (10_000_000 // len(sentence) + 1))[:10_000_000]
    e = Embedder("eddy-tiny", method="plain:exit=1")
    document = e.encode_long(text, parts=("document", "passages"))
    assert document.n_windows > 1000 and document.n_truncated == 0
    assert document.passages[0].start == 0 and document.passages[-1].end == len(text.rstrip())
    assert np.isfinite(document.vector).all()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 8_000_000
