"""Peak memory against the length of the text: it should be flat beyond the window.

    python benchmarks/long_memory.py

embeds texts of 1,000 to 100,000 words, each in a process of its own, and writes the peaks to
`benchmarks/results/MODEL-memory.json` and a curve to `docs/long-memory.svg`. `--words 1000,4000` tries it on short
texts, and then writes only what `--json` and `--plot` name. What was measured stands in a journal, a line for each
process: interrupted, the same command goes on.

The peak is that of the resident memory beyond the loaded model, the text and the vectors returned. What the engine
needs and what the allocator keeps are told apart: all runs but one are told to hand large blocks back when they are
free (`MALLOC_MMAP_THRESHOLD_`, of glibc), the other leaves the allocator as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from output import RESULTS, ROOT, say

from eddy_embed import __version__
from eddy_embed.analysis.plots import save

WORDS = (1_000, 3_000, 10_000, 30_000, 100_000)
SYSTEMS = ("plain:exit=-7", "htp:exit=-7", "kv:layers=2,pool=mean,exit=-7")
"""Early exits: further layers take time, and no more memory, since one layer's states are held at a time."""
PARTS = ("document", "document,passages", "document,passages,sentences")
BLOCKS = {"MALLOC_MMAP_THRESHOLD_": str(2**18)}
CHILD = """
import json, resource, sys
from texts import story
from eddy_embed import Embedder, __version__
words, model, method, parts, warm = json.loads(sys.argv[1])
unit = 1 if sys.platform == "darwin" else 1024
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
text = story(words)
embedder = Embedder(model, method=method, dtype="float32")
embedder.encode_long(story(warm), parts=parts)
ready = peak()
found = embedder.encode_long(text, parts=parts)
vectors = found.vector.nbytes * (1 + len(found.passages) + len(found.sentences))
print(json.dumps({"words": len(text.split()), "bytes": len(text.encode()), "tokens": found.n_tokens,
    "windows": found.n_windows, "cut": found.n_truncated, "passages": len(found.passages),
    "sentences": len(found.sentences), "vectors": vectors, "ready": ready, "peak": peak(),
    "window": embedder.max_length, "fingerprint": embedder.fingerprint, "version": __version__}))
"""


def main() -> None:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="eddy-tiny")
    parser.add_argument("--words", default=",".join(map(str, WORDS)), help="lengths, with commas between them")
    parser.add_argument("--method", action="append", help=f"default: {', '.join(SYSTEMS)}")
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/MODEL-memory.json")
    parser.add_argument("--plot", type=Path, help="default: docs/long-memory.svg")
    parser.add_argument("--journal", type=Path, default=ROOT / "runs" / "long-memory.jsonl")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    options = parser.parse_args()
    if options.fresh:
        options.journal.unlink(missing_ok=True)
    lengths = [int(words) for words in options.words.split(",")]
    whole = lengths == list(WORDS)
    runs = [(method, PARTS[0], "blocks back") for method in options.method or SYSTEMS]
    runs += [(runs[0][0], parts, "blocks back") for parts in PARTS[1:]]
    runs += [(runs[0][0], PARTS[0], "as it is")]
    rows = [
        _row(
            options.journal,
            {"model": options.model, "method": method, "parts": parts, "allocator": way, "asked": words},
        )
        for method, parts, way in runs
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
    picture = options.plot or (ROOT / "docs" / "long-memory.svg" if whole else None)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        say(f"written: {target}")
    if picture is not None:
        picture.parent.mkdir(parents=True, exist_ok=True)
        _draw(picture, rows, name)
        say(f"written: {picture}")


def _row(journal: Path, about: dict[str, Any]) -> dict[str, Any]:
    """A measurement, out of the journal where this version has made it before."""
    identity = {**about, "version": __version__}
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    for row in map(json.loads, lines):
        if identity.items() <= row.items():
            return dict(row)
    row = {**identity, **_measured(*(about[name] for name in ("asked", "model", "method", "parts", "allocator")))}
    journal.parent.mkdir(parents=True, exist_ok=True)
    with journal.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(row)}\n")
    return row


def _measured(words: int, model: str, method: str, parts: str, way: str) -> dict[str, Any]:
    given = json.dumps([words, model, method, parts.split(","), 50])
    child = subprocess.run(
        [sys.executable, "-c", CHILD, given],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        env=os.environ | (BLOCKS if way == "blocks back" else {}),
    )
    if child.returncode:
        raise SystemExit(f"{method}, {parts}, {words} words: {child.stderr}")
    row: dict[str, Any] = json.loads(child.stdout)
    say(
        f"{method:<30} {parts:<28} {way:<11} {row['words']:>7} words {row['windows']:>4} windows "
        f"{_beyond(row):>7.1f} MiB beyond the output, {row['vectors'] / 2**20:.1f} MiB of vectors"
    )
    return row


def _beyond(row: dict[str, Any]) -> float:
    """MiB over model, text and vectors."""
    return float(row["peak"] - row["ready"] - row["bytes"] - row["vectors"]) / 2**20


def _draw(path: Path, rows: list[dict[str, Any]], name: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for (method, parts, way), found in groupby(rows, lambda row: (row["method"], row["parts"], row["allocator"])):
        points = [(row["words"], _beyond(row)) for row in found]
        label = method if parts == PARTS[0] else f"{method}, {parts.replace(',', ' + ')}"
        usual = way == "as it is"
        label += ", allocator as it is" if usual else ""
        axes.plot(*zip(*points, strict=True), "--" if usual else "-", marker="o", markersize=3, label=label)
    axes.set(xscale="log", xlabel="words in the text", ylabel="MiB beyond model, text and vectors")
    axes.set(title=f"Peak memory, {name}", ylim=(0, None))
    axes.legend(frameon=False, fontsize="small")
    save(figure, path)


if __name__ == "__main__":
    main()
