"""Numbers of the alarm for collapsed methods, beside a quality, for the table in docs/diagnose.md.

    python benchmarks/collapse.py --data $EDDY_EVAL_DATA --model smollm2

prints a row for each method: Spearman's correlation on every fifth pair of STS-B's development set, the alarm's four
numbers, its seconds, and whether it warns.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
from grid import say

from eddy_embed import Embedder
from eddy_embed.analysis.evaluate.metrics import spearman
from eddy_embed.encoding.collapse import measure
from eddy_embed.errors import EddyError

NONE = "+start:token=none"
METHODS = (
    *("plain", "plain:exit=-2", "plain:exit=-8", "plain:exit=0", "plain:exit=0+sif", "plain+sif", "plain:pool=last"),
    *("htp", "htp:exit=-1", "tp", "prompteol", "cot", "knowledge", "echo", "echo:exit=-2", "reba"),
    *("kv", "kv:layers=12-18"),
    *(f"{method}{NONE}" for method in ("plain", "plain:exit=-2", "plain:exit=-2+sif", "plain:exit=-8", "prompteol")),
    *(f"{method}{NONE}" for method in ("htp", "htp:exit=-1", "tp", "echo:exit=-2", "kv:layers=12-18")),
)


def main() -> None:
    """Measure and print."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--data", type=Path, default=os.environ.get("EDDY_EVAL_DATA"))
    given.add_argument("--model", default="smollm2")
    given.add_argument("methods", nargs="*", default=METHODS)
    options = given.parse_args()
    with open(options.data / "sts" / "stsb_dev.jsonl", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][::5]
    gold = np.array([row["score"] for row in rows])
    say("| method | Spearman | cosine | dimension | token | nearest | seconds | warns |")
    say("|---|---|---|---|---|---|---|---|")
    for method in options.methods:
        try:
            embedder = Embedder(options.model, method=method, check=False)
        except EddyError:
            continue  # layers that this model lacks, or of which none are known
        with embedder:
            first, second = (embedder.encode_document([row[side] for row in rows]) for side in "ab")
            began = time.perf_counter()
            found = measure(embedder._pipeline, embedder.method)
            seconds = time.perf_counter() - began
        quality = float(spearman((first * second).sum(axis=1), gold)[0])
        numbers = (quality, found.cosine, found.dimension, found.token, found.nearest)
        shown = " | ".join("–" if np.isnan(number) else f"{number:.3f}" for number in numbers)
        say(f"| `{method}` | {shown} | {seconds:.2f} | {'yes' if found.fault else ''} |")


if __name__ == "__main__":
    main()
