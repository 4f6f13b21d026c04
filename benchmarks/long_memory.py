"""Peak memory against the length of the text: it should be flat beyond the window.

    python benchmarks/long_memory.py

embeds texts of 1,000 to 100,000 words, each in a process of its own, and writes the peaks to
`benchmarks/results/MODEL-memory.json` and a curve to `docs/pictures/long-memory.svg`. `--words 1000,4000` tries it on
short texts, and then writes only what `--json` and `--plot` name.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from grid import RESULTS, ROOT, say

WORDS = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 100_000)
SYSTEMS = ("plain", "htp", "tp", "kv:pool=mean")
PARTS = ("document", "document,passages", "document,passages,sentences")
CHILD = """
import json, resource, sys
from texts import story
from eddy_embed import Embedder, __version__
words, model, method, parts, warm = json.loads(sys.argv[1])
unit = 1 if sys.platform == "darwin" else 1024
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
text = story(words)
embedder = Embedder(model, method=method)
embedder.encode_long(story(warm), parts=parts)
ready = peak()
found = embedder.encode_long(text, parts=parts)
print(json.dumps({"words": len(text.split()), "bytes": len(text.encode()), "tokens": found.n_tokens,
    "windows": found.n_windows, "cut": found.n_truncated, "passages": len(found.passages),
    "sentences": len(found.sentences), "ready": ready, "peak": peak(), "window": embedder.max_length,
    "fingerprint": embedder.fingerprint, "version": __version__}))
"""


def main() -> None:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="eddy-tiny")
    parser.add_argument("--words", default=",".join(map(str, WORDS)), help="lengths, with commas between them")
    parser.add_argument("--method", action="append", help=f"default: {', '.join(SYSTEMS)}")
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/MODEL-memory.json")
    parser.add_argument("--plot", type=Path, help="default: docs/pictures/long-memory.svg")
    options = parser.parse_args()
    lengths = [int(words) for words in options.words.split(",")]
    whole = lengths == list(WORDS)
    runs = [(method, PARTS[0]) for method in options.method or SYSTEMS]
    runs += [(runs[0][0], parts) for parts in PARTS[1:]]
    rows = [
        {"method": method, "parts": parts, **_measured(words, options.model, method, parts)}
        for method, parts in runs
        for words in lengths
    ]
    about = {
        "model": options.model,
        "command": " ".join(["python", "benchmarks/long_memory.py", *sys.argv[1:]]),
        "unit": "bytes; `ready` is the peak after a short text, before the long one",
        "rows": rows,
    }
    name = Path(options.model).name
    target = options.json or (RESULTS / f"{name}-memory.json" if whole else None)
    picture = options.plot or (ROOT / "docs" / "pictures" / "long-memory.svg" if whole else None)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        say(f"written: {target}")
    if picture is not None:
        picture.parent.mkdir(parents=True, exist_ok=True)
        _draw(picture, rows, name)
        say(f"written: {picture}")


def _measured(words: int, model: str, method: str, parts: str) -> dict[str, Any]:
    given = json.dumps([words, model, method, parts.split(","), 50])
    child = subprocess.run(
        [sys.executable, "-c", CHILD, given], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    if child.returncode:
        raise SystemExit(f"{method}, {parts}, {words} words: {child.stderr}")
    row: dict[str, Any] = json.loads(child.stdout)
    more = (row["peak"] - row["ready"] - row["bytes"]) / 2**20
    say(f"{method:<16} {parts:<28} {row['words']:>7} words {row['windows']:>4} windows {more:>7.1f} MiB over the text")
    return row


def _draw(path: Path, rows: list[dict[str, Any]], name: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for (method, parts), found in groupby(rows, lambda row: (row["method"], row["parts"])):
        points = [(row["words"], (row["peak"] - row["ready"] - row["bytes"]) / 2**20) for row in found]
        label = method if parts == PARTS[0] else f"{method}, {parts.replace(',', ' + ')}"
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label)
    axes.set(xscale="log", xlabel="words in the text", ylabel="MiB over model and text", title=f"Peak memory, {name}")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(path)


if __name__ == "__main__":
    main()
