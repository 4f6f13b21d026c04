"""Texts as they are: nothing lost, offsets exact, headings with their text, sizes kept, work that grows with length.

Ten megabytes on one line among them.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from tests import families
from tests.comparison import CORE, METHODS, change_arguments, change_result, embedder
from tests.long_texts import BOOK, LINES, MARKDOWN, SENTENCE, TEXTS, TRANSCRIPT
from tests.selection import each_once, mostly_slow, turns
from tests.test_windows import plan, tokenizer

from eddy_embed import Embedder
from eddy_embed.encoding import planner as planning
from eddy_embed.encoding.document import LongDocument, group_sentences
from eddy_embed.encoding.planner import Planner
from eddy_embed.text import tokenizer as tokenizing
from eddy_embed.text.sentences import Segmenter
from eddy_embed.text.sentences.blocks import units
from eddy_embed.text.sequence import TokenSequence

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
from eddy_embed.text.sentences import Segmenter
unit = sys.argv[1].encode().decode("unicode_escape")
text = (unit * (10_000_000 // len(unit) + 1))[:10_000_000]
last = 0
for sentence in Segmenter().sentences(text):
    assert not text[last : sentence.start].strip() and 0 < sentence.end - sentence.start <= 1000
    last = sentence.end
assert not text[last:].strip()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["The ferry left at noon. ", "x", "buoy\\n", ". "])
def test_ten_megabytes_are_segmented_in_bounded_memory(unit: str) -> None:
    child = subprocess.run([sys.executable, "-c", SEGMENT, unit], capture_output=True, text=True, timeout=600)
    assert child.returncode == 0, child.stderr
    kilobytes = int(child.stdout) // (1024 if sys.platform == "darwin" else 1)
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
