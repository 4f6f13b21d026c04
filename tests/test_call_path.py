"""One call runs through few files, and docs/design.md lists them."""

from __future__ import annotations

import pytest
from tests.call_path import BEGIN, END, PAGE, listed


def test_the_design_page_lists_the_files_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDDY_DTYPE")  # the call names no dtype
    found = listed()
    assert found.count("\n") <= 31
    assert found == PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
