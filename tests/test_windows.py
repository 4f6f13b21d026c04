"""Texts beyond the window: the plan, the count of every token, and the vectors of windowed documents."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import families
from tests.comparison import INSTRUCTION
from tests.long_texts import LINES, SENTENCE

from eddy_embed import methods
from eddy_embed.encoding.planner import Planner, TextPlan, Window, plan_windows
from eddy_embed.errors import TextTooLong
from eddy_embed.parts.layout import Layout
from eddy_embed.text.sentences import Segmenter
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
