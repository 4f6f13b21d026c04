"""One call runs through few files, and docs/design.md lists them."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.call_path import BEGIN, END, PAGE, ROOT


def test_the_design_page_lists_the_files_of_a_call() -> None:
    # A process of its own: other tests cache and patch. Without the tests' dtype: the call names none.
    environment = {name: value for name, value in os.environ.items() if name != "EDDY_DTYPE"}
    command = [sys.executable, "-m", "tests.call_path"]
    listed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert listed.count("\n") <= 30
    assert listed == PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
