"""What the terminal shows: prose wraps anew, code and lists keep their lines, and slices stay where they were."""

from __future__ import annotations

from eddy_demo.cli.console import pluralize
from eddy_demo.display_text import printable, unwrapped

LONG = "This line of prose is long enough to have been wrapped by an editor and"

# Each pair: a passage, and what is shown of it.
PASSAGES = [
    (f"{LONG}\ngoes on here.", f"{LONG} goes on here."),
    ("A title of its own.\nA short line.", "A title of its own.\nA short line."),
    ("begins in the middle\nof a line.", "begins in the middle of a line."),
    (f"# {LONG}\nText.", f"# {LONG}\nText."),
    (f"{LONG}\n\nA new paragraph.", f"{LONG}\n\nA new paragraph."),
    (f"- {LONG}\n  goes on\n- next item", f"- {LONG} goes on\n- next item"),
    (f"{LONG}\n- an item", f"{LONG}\n- an item"),
    (f"{LONG}\n1. an item", f"{LONG}\n1. an item"),
    (f"```\n{LONG.replace(' ', '_')}\ny = 2\n```", f"```\n{LONG.replace(' ', '_')}\ny = 2\n```"),
    (f"| {LONG} |\n| b |", f"| {LONG} |\n| b |"),
]


def test_hard_wrapped_prose_wraps_anew() -> None:
    for passage, shown in PASSAGES:
        assert len(unwrapped(passage)) == len(passage)
        assert unwrapped(passage).replace("\0", "") == shown


def test_control_characters_are_pictures() -> None:
    assert printable("a\x1b[2J\x00\x7f\x85\tb\n") == "a␛[2J␀␡\ufffd\tb\n"


def test_counts_read_as_a_person_writes_them() -> None:
    assert [pluralize(n, "query", "queries") for n in (0, 1, 2000)] == ["0 queries", "1 query", "2,000 queries"]
