"""The method that a new library takes when nobody names one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.demo.conftest import opened, recommend, run

from eddy_demo.library.library import choose_settings, next_settings
from eddy_demo.library.settings import Choices, LibrarySettings, read_settings
from eddy_embed import Embedder
from eddy_embed.methods.recommended import Recommendation

MODEL, FAST, BEST = "eddy-tiny", "plain:exit=0", "plain:exit=1"


def test_a_new_library_takes_a_method_that_embeds_at_once(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Post-processing for a fit of one's own is left out, and what the table says later changes no library."""
    recommend(monkeypatch, Recommendation(FAST, post="whiten"))
    ingest = ("ingest", documents / "bread.txt", "--library", tmp_path, "--model", MODEL)
    made = run(*ingest)
    assert made.code == 0, made.err
    assert made.err.count("recommended") == made.err.count(f"Method {FAST}: recommended for retrieval on {MODEL}") == 1
    stored = read_settings(tmp_path)
    assert (stored.method, stored.plan) == (FAST, "best")
    with opened(tmp_path) as index:
        assert index.settings.fingerprint == Embedder(MODEL, method=FAST).fingerprint
    recommend(monkeypatch, Recommendation("tp"))
    assert "recommended" not in run(*ingest).err
    assert run("ask", "Where does mint grow?", "--library", tmp_path).code == 0
    assert read_settings(tmp_path) == stored
    refused = run(*ingest, "--method", "recommended")
    assert refused.code == 1 and f"with method {FAST}, not tp" in refused.err


def test_which_method_a_library_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that stands for another is stored in full; a library made anew takes what is recommended by then."""
    recommend(monkeypatch, Recommendation(BEST), FAST)
    for method, expected in (
        (None, (FAST, "fast")),
        ("fast", (FAST, "chosen")),
        ("best", (BEST, "chosen")),
        ("recommended", (BEST, "chosen")),
        ("tp", ("tp", "chosen")),
    ):
        settings = choose_settings(tmp_path, Choices(MODEL, method))
        assert (settings.method, settings.plan, settings.deepens) == (*expected, method is None), method
    chosen = LibrarySettings(MODEL, "plain:exit=2")
    assert next_settings(chosen, Choices()) == chosen
    assert next_settings(chosen, Choices(MODEL)) == LibrarySettings(MODEL, BEST, plan="best")
    for fast, expected in ((True, (FAST, "fast")), (False, (BEST, "best"))):
        settings = next_settings(chosen, Choices(fast=fast))
        assert (settings.method, settings.plan) == expected
    recommend(monkeypatch, Recommendation(FAST), FAST)
    assert choose_settings(tmp_path, Choices(MODEL)).plan == "best", "one method for both is one step"
    assert next_settings(LibrarySettings(MODEL, BEST, plan="best"), Choices()).method == FAST
