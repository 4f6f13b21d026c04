"""Score methods on tasks, beside words and a baseline, with intervals and cost.

    python benchmarks/evaluate.py smollm2 --data $EDDY_EVAL_DATA --task stsb_dev --method htp --method prompteol

`--data` is a folder with `sts/`, `retrieval/` and `classification/`, as docs/measuring.md describes it. `--output`
keeps every outcome in a .jsonl file as soon as it is there, those of single queries and pairs too, so mind the data's
licence; the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from evaluation.results import WORDS, ResultStore, with_baseline
from evaluation.runner import Evaluation
from evaluation.tasks import find_tasks
from output import say

from eddy_embed import Embedder
from eddy_embed.cli.options import method_in_full
from eddy_embed.encoding.validation import PASSAGE_SIZE
from evaluation import tables


def main(given: list[str] | None = None) -> None:
    """Measure what is not known yet, and print the tables."""
    command = argparse.ArgumentParser(description="Score methods on tasks, beside words and a baseline.")
    command.add_argument("model", help="a name that `eddy models` shows, a folder or .gguf file, or a Hugging Face id")
    command.add_argument("--data", type=Path, default=os.environ.get("EDDY_EVAL_DATA"), help="default: $EDDY_EVAL_DATA")
    command.add_argument("--task", action="append", help="a task of the folder; may be repeated; default: all")
    command.add_argument("--method", action="append", default=[], help="a method's text form; may be repeated")
    command.add_argument("--baseline", default="plain", help="what others are compared with; default: plain")
    command.add_argument("--passage-size", type=int, default=PASSAGE_SIZE, help="most tokens in a passage")
    command.add_argument("--output", type=Path, help="a .jsonl file that keeps every outcome")
    command.add_argument("--fresh", action="store_true", help="measure again what the output holds already")
    command.add_argument("--device")
    command.add_argument("--dtype", default="auto")
    options = command.parse_args(given)
    if options.data is None:
        command.error("name the folder of the tasks with --data, or set EDDY_EVAL_DATA")
    tasks = find_tasks(Path(options.data), options.task)
    texts = (options.baseline, *options.method)
    baseline, *asked = (text if text in WORDS else method_in_full(options.model, text) for text in texts)
    load = partial(Embedder, options.model, device=options.device, dtype=options.dtype)
    measuring = Evaluation(load, options.passage_size, ResultStore(options.output, fresh=options.fresh), say)
    outcomes = measuring.run(with_baseline(asked, baseline), tasks)
    legend = tables.legend(baseline, options.passage_size)
    parts = [tables.table(outcomes, baseline), legend, tables.retrieval_table(outcomes)]
    sys.stdout.write("\n\n".join(filter(None, parts)) + "\n")


if __name__ == "__main__":
    main()
