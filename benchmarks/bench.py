"""Speed and memory, as ratios measured in alternation within one run.

    make bench                           # everything; several hours on two cores
    python benchmarks/bench.py --part overhead --shape base --dtype bfloat16

Parts: `peers` (other libraries over Eddy, on real models), `quality` (everyone's vectors on pairs of sentences: needs
EDDY_EVAL_DATA), `overhead` (methods over a plain pass of as many tokens, and reading at half depth), `limit` (Eddy over
the model's matrix products and attention alone), `products` (oneDNN's over torch's usual ones, prepacked weights over
weights as stored, and bfloat16 over float32), `budget` (tokens in a forward pass), `memory`, `growth`. Each finished
part is added to `--journal`, and the same command resumes after it. The results are
`benchmarks/results/speed-MACHINE.json` and the tables of docs/performance*.md. Close everything else: other load widens
the spread of the ratios.
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
from speed import budget, growth, limit, memory, multiplying, overhead, report, shapes, texts
from transformers.utils import logging

from eddy_embed.model.speed.onednn_linear import prepack
from eddy_embed.utils.glibc_malloc import keep_freed

PARTS: dict[str, tuple[tuple[str, int | None], ...]] = {
    "overhead": (("eddy-tiny", None), ("qwen3-0.6b", 4)),
    "peers": (),
    "quality": (),
    "limit": (("smollm2-135m", None), ("qwen3-0.6b", 4)),
    "products": (("eddy-tiny", None), ("base", None)),
    "budget": (("eddy-tiny", None),),
    "memory": (("qwen3-0.6b", 4),),
    "growth": (("eddy-tiny", None), ("base", None)),
}
"""What is measured, and on which models with how many of their layers unless said otherwise: those that do not take
hours there. None: all. Peers run on `MODELS`."""
MODELS = ("smollm2",)
DTYPES = {"limit": ("float32", "bfloat16", "int8"), "products": ("float32",), "memory": ("float32",)}
"""Types of number, where they are not both; peers have their own."""
FULL = {"rounds": 5, "texts": 80, "words": 300, "lengths": overhead.LENGTHS}
TRIAL = {"rounds": 2, "texts": 12, "words": 40, "lengths": (128,)}


def main() -> None:
    """Measure what is asked for and not yet in the journal, write."""
    options = parsed(sys.argv[1:])
    torch.set_num_threads(options.threads)
    keep_freed()  # as `eddy embed` and `eddy serve` do; peers run in this process too
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    done = {row["key"]: row for row in read(options.journal)}
    for key, named, asked in units(options):
        if key in done:
            continue
        say(f"== {key}")
        found = MEASURES[named["part"]](asked.shape, asked.dtype, asked, TRIAL if options.trial else FULL)
        done[key] = {"key": key, **named, "found": found, **about(options)}
        options.journal.parent.mkdir(parents=True, exist_ok=True)
        with options.journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[key]) + "\n")
        gc.collect()  # models and peers' processes, before the next ones are loaded
    if options.write:
        report.write(list(done.values()), RESULTS, ROOT / "docs")


def parsed(given: list[str]) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="may be repeated; default: all")
    parser.add_argument("--shape", action="append", choices=["eddy-tiny", *shapes.SHAPES], help="may be repeated")
    parser.add_argument("--dtype", action="append", choices=["float32", "bfloat16", "int8"], help="may be repeated")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--layers", type=int, help="fewer than the shape has")
    parser.add_argument("--peer", action="append", help="words of its name; may be repeated; default: all")
    parser.add_argument(
        "--model", action="append", help="of the parts peers and quality: smollm2 or a GGUF file; may be repeated"
    )
    parser.add_argument("--openvino", type=Path, metavar="PYTHON", help="has sentence-transformers[openvino]: a peer")
    parser.add_argument("--llama-cpp", type=Path, metavar="PYTHON", help="has llama-cpp-python: a peer")
    parser.add_argument("--trial", action="store_true", help="short texts and two rounds, to try the benchmark itself")
    parser.add_argument("--journal", type=Path, default=ROOT / "runs" / "speed.jsonl")
    parser.add_argument("--models", type=Path, default=ROOT / "runs" / "models", help="where model folders are made")
    parser.add_argument("--write", action="store_true", help="write the results and the page from the whole journal")
    return parser.parse_args(given)


def units(options: argparse.Namespace) -> list[tuple[str, dict[str, Any], argparse.Namespace]]:
    """What is measured at a time: its key in the journal, its names in the results, and how it is measured.

    Raises:
        SystemExit: No peer has such a name, or a part knows no such dtype.
    """
    known = list(libraries.PEERS)
    for make, python in ((libraries.llama_cpp, options.llama_cpp), (libraries.openvino, options.openvino)):
        known += make(python) if python else ()
    chosen = [each for each in known if not options.peer or any(word in each.name for word in options.peer)]
    if not chosen:
        raise SystemExit(f"--peer {options.peer}: none of {[each.name for each in known]} has such a word")
    if "int8" in (options.dtype or ()) and set(options.part or PARTS) != {"limit"}:
        raise SystemExit("--dtype int8 is for --part limit; the part peers has int8 beside it")
    beside = {"peers": chosen, "quality": [libraries.EDDY, *chosen]}
    found = []
    for part in options.part or PARTS:
        for model, peer in product(options.model or MODELS, beside.get(part, ())):
            shape = Path(model).name.removesuffix(".gguf")
            key = f"{part} {shape}, {peer.name}, threads: {options.threads}"
            named = {"part": part, "shape": shape, "peer": peer.name}
            found.append((key, named, argparse.Namespace(**{**vars(options), "shape": model, "beside": peer})))
        dtypes = options.dtype or DTYPES.get(part, ("float32", "bfloat16"))
        shaped = [(shape, None) for shape in options.shape or ()] or PARTS[part]
        for (shape, usual), dtype in product(shaped if part not in beside else (), dtypes):
            layers = options.layers or usual
            key = f"{part} {shape} {dtype}{f' {layers} layers' if layers else ''}"
            named = {"part": part, "shape": shape, "layers": layers, "dtype": dtype}
            found.append(
                (key, named, argparse.Namespace(**{**vars(options), "shape": shape, "dtype": dtype, "layers": layers}))
            )
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


def _model(shape: str, dtype: str, options: argparse.Namespace) -> Any:
    """A model as Eddy loads one by name."""
    model = shapes.random_model(shape, dtype, layers=options.layers)
    prepack(model)
    return model


def _overhead(shape: str, dtype: str, options: argparse.Namespace, size: dict[str, Any]) -> dict[str, Any]:
    model, own = _model(shape, dtype, options), shapes.tokenizer()
    rows = [told(row) for row in overhead.rows(model, own, size["lengths"], size["rounds"])]
    return {"methods": rows, "half": told(overhead.half_depth(model, own, size["lengths"][-1], size["rounds"]))}


def _peers(model: str, _: str, options: argparse.Namespace, size: dict[str, Any]) -> list[dict[str, Any]]:
    files = libraries.ModelFiles.of(model, options.models)
    sorts = _sorts(size["texts"] // 4, size["texts"] // 8, size["words"])
    sorts["long"] = texts.uniform(1, 8 * size["words"])
    return [told(row) for row in measure.rows(files, sorts, min(3, size["rounds"]), options.beside)]


def _quality(model: str, _: str, options: argparse.Namespace, __: dict[str, Any]) -> dict[str, Any]:
    files = libraries.ModelFiles.of(model, options.models)
    return told(measure.quality(files, Path(os.environ["EDDY_EVAL_DATA"]), options.beside))


def _limit(shape: str, dtype: str, options: argparse.Namespace, size: dict[str, Any]) -> list[dict[str, Any]]:
    model, own = _model(shape, "bfloat16" if dtype == "int8" else dtype, options), shapes.tokenizer()
    sorts = {"mixed": texts.mixed(size["texts"] // 4), "uniform": texts.uniform(size["texts"] // 8, size["words"])}
    return [
        told({"sort": sort, **limit.row(model, own, chosen, size["rounds"], dtype)}) for sort, chosen in sorts.items()
    ]


def _products(shape: str, dtype: str, options: argparse.Namespace, size: dict[str, Any]) -> list[dict[str, Any]]:
    model, halved = (shapes.random_model(shape, kind, layers=options.layers) for kind in (dtype, "bfloat16"))
    sorts = _sorts(size["texts"] // 4, size["texts"] // 8, size["words"])
    return [told(row) for row in multiplying.rows(model, halved, shapes.tokenizer(), sorts, size["rounds"])]


def _sorts(mixed: int, uniform: int, words: int) -> dict[str, list[str]]:
    """Texts of each sort: so many of mixed lengths, so many of so many words, and a query."""
    return {
        "mixed": texts.mixed(mixed),
        "uniform": texts.uniform(uniform, words),
        "one query": texts.uniform(1, 12),
    }


def _budget(shape: str, dtype: str, options: argparse.Namespace, size: dict[str, Any]) -> list[dict[str, Any]]:
    model, own = _model(shape, dtype, options), shapes.tokenizer()
    return [told(row) for row in budget.rows(model, own, texts.mixed(size["texts"] // 2), size["rounds"])]


def _memory(shape: str, dtype: str, options: argparse.Namespace, size: dict[str, Any]) -> dict[str, Any]:
    rows = [told(row) for row in memory.rows(shape, options.layers, dtype)]
    return {"rows": rows, "reba": told(memory.reba(shape, size["lengths"][-1], options.layers, dtype))}


def _growth(shape: str, dtype: str, options: argparse.Namespace, size: dict[str, Any]) -> dict[str, Any]:
    model, own = _model(shape, dtype, options), shapes.tokenizer()
    most = model.config.max_position_embeddings if not options.trial else 256
    tokens = tuple(each for each in growth.TOKENS if each <= most)
    counts = growth.TEXTS if shape == "eddy-tiny" and not options.trial else growth.TEXTS[:3]
    batch = growth.BATCH if not options.trial else growth.BATCH[:3]
    return growth.curves(model, own, tokens, batch, counts, min(3, size["rounds"]))


def told(row: dict[str, Any]) -> dict[str, Any]:
    """Say a row on the terminal, and return it."""
    say(json.dumps(row))
    return row


MEASURES: dict[str, Callable[[str, str, argparse.Namespace, dict[str, Any]], Any]] = {
    "peers": _peers,
    "quality": _quality,
    "overhead": _overhead,
    "limit": _limit,
    "products": _products,
    "budget": _budget,
    "memory": _memory,
    "growth": _growth,
}

if __name__ == "__main__":
    main()
