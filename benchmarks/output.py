"""Where benchmarks write: the folder of results, pages between markers, lines on standard error."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def say(line: str) -> None:
    """Write a line on standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def put(path: Path, name: str, text: str) -> None:
    """Write text between the markers `<!-- name: begin -->` and `<!-- name: end -->` of a file."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, rest = path.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    path.write_text(f"{before}{begin}{text.strip()}\n{end}{after}", encoding="utf-8")
