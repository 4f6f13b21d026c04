"""Methods that are the same computation under another name, and methods that are what transformers computes."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest
from tests import families
from tests.comparison import TEXTS, embedder
from tests.selection import each_once
from tests.test_windows import planner

from eddy_embed import methods
from eddy_embed.methods.prompts import EOL
from eddy_embed.parts.layout import Layout
from eddy_embed.text.sequence import TokenSequence

SENTENCE = "The river rose at night, and the bridge was gone"


@pytest.mark.parametrize(
    ("family", "method"),
    each_once(families.FAMILIES, ["tp", "tp:prompt=prompteol,placeholders=2", "htp", "htp:k=2,pool=all"]),
)
def test_an_empty_range_is_the_same_layout_unrewired(family: str, method: str) -> None:
    more = "," if ":" in method else ":"
    empty = [embedder(family, f"{method}{more}range={at}-{at}").encode_document(TEXTS) for at in (1, 3, 6)]
    assert np.array_equal(empty[0], empty[1]) and np.array_equal(empty[0], empty[2])
    assert np.abs(embedder(family, f"{method}{more}range=1-3").encode_document(TEXTS) - empty[0]).max() > 1e-3
    assert np.abs(embedder(family, "plain:exit=-2").encode_document(TEXTS) - empty[0]).max() > 1e-3


SAME = [
    # One sentence, no wording behind it: its last token is the sequence's.
    ("htp:local_only=true", "tp", [SENTENCE]),
    ("htp:local_only=true,k=9", "tp", [TEXTS[0], SENTENCE]),
    # Blanks behind the text are the sequence's last token, and not the text's.
    ("htp:local_only=true,k=9", "tp:source=text", [TEXTS[0], f"{TEXTS[2]}\n", f"{SENTENCE} \n\n"]),
    ("htp:every=500", "htp:k=9", TEXTS[:2]),
    ("htp:k=1", "htp:k=50", [SENTENCE]),
    ("tp:prompt=prompteol", f"tp:prompt={json.dumps(EOL)}", TEXTS),
    ("tp:prompt=prompteol", f"tp:prompt={json.dumps(EOL.replace(':', ':{placeholder}', 1))}", TEXTS),
]


@pytest.mark.parametrize("kind", families.TOKENIZERS)
@pytest.mark.parametrize(("one", "other", "texts"), SAME)
def test_layouts_under_two_names_are_one(one: str, other: str, texts: list[str], kind: str) -> None:
    layouts = [methods.parse(method).layout or Layout() for method in (one, other)]
    pairs = zip(*(planner(layout, kind).plan(texts, "document") for layout in layouts), strict=True)
    for mine, theirs in ([found.windows[0].sequence for found in pair] for pair in pairs):
        for field in fields(TokenSequence):
            if field.name != "edges":
                assert np.array_equal(getattr(mine, field.name), getattr(theirs, field.name)), field.name
        assert set(map(tuple, mine.edges.tolist())) == set(map(tuple, theirs.edges.tolist()))
