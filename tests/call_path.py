"""The files of ours that one call runs through, in the order in which they are entered.

python -m tests.call_path --write     # lists them in docs/design.md
"""

from __future__ import annotations

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
    """What README's first lines do."""
    Embedder("eddy-tiny", method="htp").encode_document(["a"])


def entered() -> list[tuple[str, str]]:
    """Each file whose functions run, with the first of them; code that runs when a module is imported does not count."""
    run()
    found: dict[str, str] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(str(PLUGIN)):
            found.setdefault(
                str(Path(code.co_filename).relative_to(PLUGIN)),
                code.co_qualname if sys.version_info >= (3, 11) else code.co_name,
            )

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(found.items())


if __name__ == "__main__":
    for number, (file, name) in enumerate(entered(), 1):
        print(number, file, name)
