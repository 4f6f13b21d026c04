"""What the first vector of a fresh process costs: processor seconds of every stage, and of `eddy embed` as a whole.

python benchmarks/first_vector.py [--model smollm2] [--runs 5]

OMP_NUM_THREADS=1 leaves out what threads cost that wait for each other.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys

from output import say

STAGES = """
import json, resource, sys
def mark(stage):
    used = resource.getrusage(resource.RUSAGE_SELF)
    marks.append((stage, used.ru_utime + used.ru_stime))
marks = []
mark("start of Python")
from eddy_embed.utils.garbage import collector_paused
with collector_paused():
    import torch
    mark("import of torch")
    import transformers.modeling_utils
    mark("import of transformers")
    from eddy_embed import Embedder
    mark("import of the rest")
embedder = Embedder(sys.argv[1])
mark("opening the model")
embedder.encode_query("one sentence")
mark("first vector")
print(json.dumps(marks))
"""
COMMAND = "from eddy_embed.cli import main; main()"


def run(code: str, *arguments: str) -> tuple[str, float]:
    """Standard output of a fresh process, and its processor seconds up to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.run([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return child.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def stages(model: str) -> dict[str, float]:
    """Processor seconds of each stage of one process."""
    printed, whole = run(STAGES, model)
    marks: list[tuple[str, float]] = json.loads(printed)
    since = [0.0, *(at for _, at in marks)]
    return {
        **{stage: at - before for (stage, at), before in zip(marks, since, strict=False)},
        "all up to the first vector": since[-1],
        "end of Python": whole - since[-1],
    }


def main() -> None:
    """Measure, and show a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    run(STAGES, asked.model)  # reads the files, and converts the model where that has not been done
    rows: dict[str, list[float]] = {}
    for _ in range(asked.runs):
        for stage, seconds in stages(asked.model).items():
            rows.setdefault(stage, []).append(seconds)
        rows.setdefault("eddy embed", []).append(run(COMMAND, "embed", "one sentence", "--model", asked.model)[1])
    say("| stage | processor seconds: median (least to most) |\n|---|---|")
    for stage, each in rows.items():
        say(f"| {stage} | {statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f}) |")


if __name__ == "__main__":
    main()
