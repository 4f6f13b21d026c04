"""Speed and memory beside other libraries, as ratios measured in alternation within one run.

    make bench                                                   # everything; hours on two cores
    python benchmarks/bench.py --part peers --model smollm2

Parts: `peers` (other libraries' time over Eddy's, on real models), `quality` (everyone's vectors on pairs of sentences:
needs EDDY_EVAL_DATA), `memory`. Each finished part is added to `--journal`, and the same command resumes after it.
`--write` adds the journal's rows to `benchmarks/results/speed-MACHINE.json` and makes the tables of `results/README.md`
from all of these files. Close everything else: other load widens the spread of the ratios.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable
from importlib.metadata import version
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import torch
from output import RESULTS, ROOT, say
from peers import libraries, measure
from speed import memory, report, texts
from transformers.utils import logging

PARTS = ("peers", "quality", "memory")
MODELS = ("smollm2",)
"""What peers run on, unless said otherwise."""
FULL = {"rounds": 3, "texts": 80, "words": 300, "tokens": 2048}
TRIAL = {"rounds": 2, "texts": 12, "words": 40, "tokens": 128}


def main() -> None:
    """Measure what is asked for and not yet in the journal, write."""
    options = parsed(sys.argv[1:])
    torch.set_num_threads(options.threads)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    done = {row["key"]: row for row in read(options.journal)}
    for key, named, asked in units(options):
        if key in done:
            continue
        say(f"== {key}")
        found = MEASURES[named["part"]](asked, TRIAL if options.trial else FULL)
        done[key] = {"key": key, **named, "found": found, **about(options)}
        options.journal.parent.mkdir(parents=True, exist_ok=True)
        with options.journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[key]) + "\n")
        gc.collect()  # models and peers' processes, before the next ones are loaded
    if options.write:
        report.write(list(done.values()), RESULTS)


def parsed(given: list[str]) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="may be repeated; default: all")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--peer", action="append", help="words of its name; may be repeated; default: all")
    parser.add_argument(
        "--model", action="append", help="of the parts peers and quality: smollm2 or a GGUF file; may be repeated"
    )
    parser.add_argument("--openvino", type=Path, metavar="PYTHON", help="has sentence-transformers[openvino]: a peer")
    parser.add_argument("--llama-cpp", type=Path, metavar="PYTHON", help="has llama-cpp-python: a peer")
    parser.add_argument("--trial", action="store_true", help="short texts and two rounds, to try the benchmark itself")
    parser.add_argument("--journal", type=Path, default=ROOT / "runs" / "speed.jsonl")
    parser.add_argument("--models", type=Path, default=ROOT / "runs" / "models", help="where model folders are made")
    parser.add_argument("--write", action="store_true", help="add to the results and write the page")
    return parser.parse_args(given)


def units(options: argparse.Namespace) -> list[tuple[str, dict[str, Any], argparse.Namespace]]:
    """What is measured at a time: its key in the journal, its names in the results, and how it is measured.

    Raises:
        SystemExit: No peer has such a name.
    """
    known = list(libraries.PEERS)
    for make, python in ((libraries.llama_cpp, options.llama_cpp), (libraries.openvino, options.openvino)):
        known += make(python) if python else ()
    chosen = [each for each in known if not options.peer or any(word in each.name for word in options.peer)]
    if not chosen:
        raise SystemExit(f"--peer {options.peer}: none of {[each.name for each in known]} has such a word")
    beside = {"peers": chosen, "quality": [libraries.EDDY, *chosen]}
    found = []
    for part in options.part or PARTS:
        if part == "memory":
            named = {"part": part, "shape": memory.SHAPE, "layers": memory.LAYERS, "dtype": memory.DTYPE}
            found.append((f"memory {memory.SHAPE} {memory.DTYPE} {memory.LAYERS} layers", named, options))
        for model, peer in product(options.model or MODELS, beside.get(part, ())):
            shape = Path(model).name.removesuffix(".gguf")
            key = f"{part} {shape}, {peer.name}, threads: {options.threads}"
            named = {"part": part, "shape": shape, "peer": peer.name}
            found.append((key, named, argparse.Namespace(**{**vars(options), "model": model, "beside": peer})))
    return found


def read(journal: Path) -> list[dict[str, Any]]:
    """What is done."""
    return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()] if journal.exists() else []


def about(options: argparse.Namespace) -> dict[str, Any]:
    """What a reader needs to know of the machine and the packages."""
    names = ("torch", "transformers", "sentence-transformers", "llama-index-embeddings-huggingface", "langchain-core")
    return {
        "machine": machine(),
        "threads": options.threads,
        "versions": {name: version(name) for name in names},
        "command": shlex.join(["python", "benchmarks/bench.py", *measuring(sys.argv[1:])]),
    }


def measuring(given: list[str]) -> list[str]:
    """Arguments without where files are, which changes nothing that is measured."""
    words = [part for each in given for part in (each.split("=", 1) if each.startswith("--") else [each])]
    kept = [each for before, each in pairwise(["", *words]) if not {before, each} & {"--journal", "--models"}]
    named = ["PYTHON" if before in ("--openvino", "--llama-cpp") else each for before, each in pairwise(["", *kept])]
    return [Path(each).name if before == "--model" else each for before, each in pairwise(["", *named])]


def machine() -> str:
    """The processor, and what of its instructions counts here. Machines in the cloud may bear one name for many."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    told = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", info.partition("\n\n")[0], re.MULTILINE))
    name = told.get("model name") or platform.processor()
    kind = [f"{word.split()[-1]} {told[word]}" for word in ("cpu family", "model") if word in told]
    flags = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in told.get("flags", "").split()]
    return f"{' '.join([name, *kind])} ({', '.join(flags)})"


def _peers(options: argparse.Namespace, size: dict[str, Any]) -> list[dict[str, Any]]:
    files = libraries.ModelFiles.of(options.model, options.models)
    sorts = _sorts(size["texts"] // 4, size["texts"] // 8, size["words"])
    sorts["long"] = texts.uniform(1, 8 * size["words"])
    return [told(row) for row in measure.rows(files, sorts, size["rounds"], options.beside)]


def _quality(options: argparse.Namespace, _: dict[str, Any]) -> dict[str, Any]:
    files = libraries.ModelFiles.of(options.model, options.models)
    return told(measure.quality(files, Path(os.environ["EDDY_EVAL_DATA"]), options.beside))


def _sorts(mixed: int, uniform: int, words: int) -> dict[str, list[str]]:
    """Texts of each sort: so many of mixed lengths, so many of so many words, and a query."""
    return {
        "mixed": texts.mixed(mixed),
        "uniform": texts.uniform(uniform, words),
        "one query": texts.uniform(1, 12),
    }


def _memory(_: argparse.Namespace, size: dict[str, Any]) -> dict[str, Any]:
    return {"rows": [told(row) for row in memory.rows()], "reba": told(memory.reba(size["tokens"]))}


def told(row: dict[str, Any]) -> dict[str, Any]:
    """Say a row on the terminal, and return it."""
    say(json.dumps(row))
    return row


MEASURES: dict[str, Callable[[argparse.Namespace, dict[str, Any]], Any]] = {
    "peers": _peers,
    "quality": _quality,
    "memory": _memory,
}

if __name__ == "__main__":
    main()
