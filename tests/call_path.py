"""The files of ours that one call runs through, in the order in which they are entered.

python -m tests.call_path --write     # lists them in docs/design.md
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from eddy_embed import Embedder

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "plugin" / "eddy_embed"
PAGE = ROOT / "docs" / "design.md"
BEGIN, END = "<!-- call path: begin -->\n", "<!-- call path: end -->"


def run() -> None:
    """The call."""
    Embedder("eddy-tiny", method="htp", check=False).encode_document(["a"])


def steps(call: Callable[[], object]) -> list[str]:
    """The file of each function that runs, as `plugin/eddy_embed/...`; code that runs at import does not count."""
    files: list[str] = []
    ours = tuple(f"{ROOT / folder}/" for folder in ("plugin", "adapters"))

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(ours):
            files.append(str(Path(code.co_filename).relative_to(ROOT)))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return files


def moves(files: list[str]) -> int:
    """How often the next function is in another file than the one before."""
    return sum(file != other for file, other in pairwise(files))


def listed() -> str:
    """The list as it stands in docs/design.md: each file with the first line of its docstring."""
    run()
    entered = dict.fromkeys(str((ROOT / file).relative_to(PLUGIN)) for file in steps(run))
    heads = {file: ast.get_docstring(ast.parse((PLUGIN / file).read_text(encoding="utf-8"))) or "" for file in entered}
    return "".join(f"1. `{file}`: {head.splitlines()[0]}\n" for file, head in heads.items())


def write() -> None:
    """Put the list into docs/design.md."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + listed() + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        sys.stdout.write(listed())
