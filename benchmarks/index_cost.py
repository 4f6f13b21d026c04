"""Disk and processor time of an index of real documents, and of many short ones; also beside another checkout.

    python benchmarks/index_cost.py FOLDER --questions FILE                     # on free cores; close everything else
    python benchmarks/index_cost.py FOLDER --questions FILE --beside ../earlier --write

The demo's readers read FOLDER (PDF, HTML and the like); its documents are cut, embedded by the method recommended for
the model, written, and asked. `--lines` documents of one line follow, of the bundled model and of the other. Each
measurement has a process of its own; those of two checkouts take turns, and the table has medians. Processor time is
user and system time of all threads and children. A line of FILE is `{"text": ...}`; without it, questions are pieces of
the documents.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from output import RESULTS, ROOT, put, say

PACKAGES = ("plugin", "adapters", "demos")
DROPPED, ASKED = 10, 100
"""Questions that are not counted, and how many are."""
WORDS = "ferry harbour winter ticket dog tide signal lamp rope crew market bridge letter garden storm engine".split()
HNSW_FILE = "data_level0.bin"
Found = dict[str, float]


def processor() -> float:
    """Seconds of processor time so far, of this process and of the children that it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def disk(folder: Path) -> Counter[str]:
    """Bytes below a folder, by the file or folder in it; all folders with HNSW files are one."""
    parts: Counter[str] = Counter()
    for path in filter(Path.is_file, folder.rglob("*")):
        own = folder / path.relative_to(folder).parts[0]
        parts["HNSW" if (own / HNSW_FILE).is_file() else own.name] += path.stat().st_size
    return parts


def child(script: str, *arguments: Any, checkout: Path = ROOT) -> Any:
    """Run a script with a checkout's packages; what it printed last, as JSON."""
    paths = os.pathsep.join(str(checkout.resolve() / package) for package in PACKAGES)
    command = [sys.executable, script, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return json.loads(done.stdout.splitlines()[-1])


def in_turn(runs: Sequence[Callable[[], Found]], rounds: int) -> list[Found]:
    """Medians of each, measured forwards in one round and backwards in the next."""
    rows: list[list[Found]] = [[] for _ in runs]
    for turn in range(rounds):
        for row, run in list(zip(rows, runs, strict=True))[:: -1 if turn % 2 else 1]:
            row.append(run())
    return [{name: median(each.get(name, 0.0) for each in row) for name in row[0]} for row in rows]


def table(found: dict[str, Found]) -> str:
    """A line for each figure, a column for each of what was measured, and the first two divided."""
    heads = [*found, *([" ÷ ".join([*found][:2])] if len(found) > 1 else [])]
    rows = [f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for name in dict.fromkeys(name for own in found.values() for name in own):
        values = [own.get(name) for own in found.values()]
        cells = ["" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values]
        first, second = (*values, None)[:2]
        quotient = [f"{first / second:.2f}" if first and second else ""]
        rows.append(f"| {name} | {' | '.join(cells + quotient[: len(heads) - len(cells)])} |")
    return "\n".join(rows)


@contextmanager
def _timed(found: Found, name: str, count: int = 1) -> Iterator[None]:
    """Put processor and wall time into `found`: in seconds, or, of several, in milliseconds each."""
    unit, factor = ("s", 1.0) if count == 1 else ("ms", 1000 / count)
    began = processor(), time.perf_counter()
    yield
    ended = processor(), time.perf_counter()
    for kind, start, end in zip(("processor", "wall"), began, ended, strict=True):
        found[f"{name}, {kind} {unit}"] = (end - start) * factor


def library(options: argparse.Namespace) -> Found:
    """Read, write and ask real documents."""
    from chroma_eddy import Document, open_index
    from eddy_embed import Embedder
    from readers_eddy.documents import read_documents

    found: Found = {}
    with _timed(found, "reading files"):
        read = read_documents([options.folder])
    documents = [
        Document(each.key, each.text, {"name": each.name, "title": each.title, "origin": each.origin}, each.page_starts)
        for each in read.documents
    ]
    questions = _questions(options.questions, [document.text for document in documents])
    embedder = Embedder(options.model)
    with tempfile.TemporaryDirectory() as place:
        sizes = {"passage_size": options.passage_size}
        with _timed(found, "embedding and writing"), open_index(place, "cost", embedder, **sizes) as index:
            report = index.upsert(documents)
        found |= {"documents": len(documents), "passages": report.passages, "tokens": report.tokens}
        parts = disk(Path(place))
        found["disk, MB"] = parts.total() / 1e6
        found |= {f"disk, MB: {part}": size / 1e6 for part, size in parts.most_common() if size}
        with open_index(place, "cost", embedder) as index:
            for name, more in (("a question", {}), ("a question, sentences marked", {"sentences": True})):
                for question in questions[:DROPPED]:
                    index.query(question, **more)
                with _timed(found, name, ASKED):
                    for question in questions[DROPPED:]:
                        index.query(question, **more)
    return found


def _questions(file: Path | None, texts: Sequence[str]) -> list[str]:
    if file is None:
        given = [" ".join(text.split()[at : at + 8]) for at in range(50, 1000, 50) for text in texts]
    else:
        given = [json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()]
    return list(islice(cycle(filter(None, given)), DROPPED + ASKED))


def lines(options: argparse.Namespace, model: str) -> Found:
    """Write documents of one line."""
    from chroma_eddy import Document, open_index
    from eddy_embed import Embedder

    draw = Random(0).choices
    documents = [Document(f"line/{at}", f"Entry {at}: {' '.join(draw(WORDS, k=12))}.") for at in range(options.lines)]
    found, embedder, name = Found(), Embedder(model), f"{options.lines:,} lines, {model}"
    with tempfile.TemporaryDirectory() as place:
        with _timed(found, name), open_index(place, "cost", embedder) as index:
            index.upsert(documents)
        found[f"{name}, disk, kB each"] = disk(Path(place)).total() / 1000 / len(documents)
    return found


RUNS: dict[str, Callable[[argparse.Namespace], Found]] = {
    "library": library,
    "lines": lambda options: lines(options, "eddy-tiny"),
    "lines of the model": lambda options: lines(options, options.model),
}


def main() -> None:
    """Measure, print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=Path, metavar="FILE")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--passage-size", type=int, default=128, help="most tokens in a passage")
    parser.add_argument("--lines", type=int, default=5_000, help="documents of one line")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="measure its packages too, in turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the table into results/index-speed.md")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        import chroma_eddy

        say(f"{options.run} with {chroma_eddy.__file__}")
        sys.stdout.write(f"{json.dumps(RUNS[options.run](options))}\n")
        return
    checkouts = {"earlier": options.beside, "now": ROOT} if options.beside else {"now": ROOT}
    if not all((checkout / package).is_dir() for checkout in checkouts.values() for package in PACKAGES):
        parser.error(f"--beside {options.beside} has no folders {', '.join(PACKAGES)}; name a checkout of the project")
    found: dict[str, Found] = {head: {} for head in checkouts}
    for name in RUNS:
        runs = [partial(child, __file__, *sys.argv[1:], "--run", name, checkout=own) for own in checkouts.values()]
        for own, more in zip(found.values(), in_turn(runs, options.rounds), strict=True):
            own |= more
            say(f"{name}: {more}")
    text = f"{table(found)}\n\n{os.cpu_count()} cores, {options.model}, medians of {options.rounds} rounds in turn."
    sys.stdout.write(f"{text}\n")
    if options.write:
        put(RESULTS / "index-speed.md", "index-cost", text)


if __name__ == "__main__":
    main()
