"""The files of ours that one call runs through, in the order in which they are entered.

python -m tests.call_path --write     # lists them in docs/design.md
"""

from __future__ import annotations

import ast
import inspect
import sys
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


def entered() -> list[str]:
    """Each file whose functions run; code that runs at import does not count."""
    run()
    found: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(f"{PLUGIN}/"):
            found.append(str(Path(code.co_filename).relative_to(PLUGIN)))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(dict.fromkeys(found))


def listed() -> str:
    """The list as it stands in docs/design.md: each file with the first line of its docstring."""
    heads = {
        file: ast.get_docstring(ast.parse((PLUGIN / file).read_text(encoding="utf-8"))) or "" for file in entered()
    }
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
