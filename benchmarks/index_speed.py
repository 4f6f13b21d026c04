"""Rows per second into Chroma, time of a question and disk, beside the stores of LlamaIndex and LangChain.

    python benchmarks/index_speed.py                      # on two free cores; close everything else
    python benchmarks/index_speed.py --passages 20000     # less of it

Each system runs in a process of its own, over the same 100,000 passages in cosine space, in batches as it takes them
by itself or as its documentation advises. No model runs: vectors are drawn at random, of the bundled model's width and
of length 1, and the time that drawing takes is not counted, so what is measured is the database and what stands around
it. Vectors without any order are the hardest that there are for an approximate search: `recall` says how many of the
ten that are nearest are among the ten found. Only Eddy's index also holds sentences and whole documents.

Results go to `benchmarks/results/index-speed.json` as they come, and the table to `index-speed.md` there when all
systems have been measured. Interrupted, the same command goes on with those that are missing. `--passages 400
--json FILE` tries it, and writes nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from index_systems import BATCH, IN_DOCUMENT, NEAREST, RUNS, SENTENCES
from output import RESULTS, put, say

PASSAGES = 100_000
QUESTIONS = 200
NAMES = {
    "index": "`open_index`, with sentences and documents",
    "server": "the same, on a `chroma run` server",
    "llama-index eddy": "`EddyChromaVectorStore`",
    "langchain eddy": "`EddyChroma`",
    "llama-index": "LlamaIndex's `ChromaVectorStore`",
    "langchain": "LangChain's `Chroma`",
}


def main() -> None:
    """Measure what is missing, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=PASSAGES)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--system", action="append", choices=list(NAMES), help="may be repeated; default: all")
    parser.add_argument("--again", action="store_true", help="measure also what was measured already")
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/index-speed.json")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        sys.stdout.write(f"{json.dumps(RUNS[options.run](options))}\n")
        return
    target = options.json or RESULTS / "index-speed.json"
    sizes = {"passages": options.passages, "questions": options.questions, "batch": BATCH}
    kept = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    rows: dict[str, Any] = kept.get("rows", {}) if kept.get("sizes") == sizes else {}
    for system in options.system or NAMES:
        if system in rows and not options.again:
            continue
        began = time.perf_counter()
        more = ["--passages", str(options.passages), "--questions", str(options.questions)]
        command = [sys.executable, __file__, *more, "--run", system]
        child = subprocess.run(command, capture_output=True, text=True)
        if child.returncode:
            raise SystemExit(f"{system}: {child.stderr}")
        rows[system] = json.loads(child.stdout.splitlines()[-1])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps({"sizes": sizes, "rows": rows}, indent=1) + "\n", encoding="utf-8")
        say(f"{system}: {rows[system]} in {time.perf_counter() - began:.0f} s")
    say(table(rows, sizes))
    if options.json is None and set(rows) == set(NAMES):
        put(RESULTS / "index-speed.md", "index-speed", table(rows, sizes))


def table(rows: dict[str, Any], sizes: dict[str, int]) -> str:
    """A row for each system and kind of question, with ratios to LlamaIndex's own store."""
    base = rows.get("llama-index")
    lines = [
        "| written by | rows/s | passages/s | bytes per row | query for | p50 ms | p95 ms | recall@10 |",
        "|---|---:|---:|---:|---|---:|---:|---:|",
    ]
    for system, name in NAMES.items():
        if system not in rows:
            continue
        row = rows[system]
        passages = sizes["passages"] / row["seconds"]
        told = f" ({passages * base['seconds'] / sizes['passages']:.2f} ×)" if base else ""
        first = f"| {name} | {row['rows'] / row['seconds']:,.0f} | {passages:,.0f}{told} | {row['bytes']:,.0f} "
        for kind, times in row["asked"].items():
            ratio = f" ({times['p50'] / base['asked']['passages']['p50']:.2f} ×)" if base else ""
            recall = f"{times['recall']:.2f}" if "recall" in times else ""
            lines.append(f"{first}| {kind} | {times['p50']:.1f}{ratio} | {times['p95']:.1f} | {recall} |")
            first = "| | | | "
    width = next(iter(rows.values()))["width"] if rows else 0
    return "\n".join(lines) + (
        f"\n\n{about()}. {sizes['passages']:,} passages of {SENTENCES} sentences, {IN_DOCUMENT} per document; "
        f"random unit vectors of {width} dimensions; {sizes['questions']} queries for the nearest {NEAREST}. In "
        "brackets: the ratio to LlamaIndex's own store; above 1 is faster for passages/s and slower for p50."
    )


def about() -> str:
    """What a reader needs to know of the machine and the packages."""
    names = ("chromadb", "llama-index-vector-stores-chroma", "langchain-chroma")
    return ", ".join([f"{os.cpu_count()} cores", *(f"{name} {version(name)}" for name in names)])


if __name__ == "__main__":
    main()
