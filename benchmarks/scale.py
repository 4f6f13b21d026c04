"""What 10^6, 10^8 and 10^9 passages need: GPUs and hours, rows and bytes, and how many servers.

    python benchmarks/scale.py                       # print the tables
    python benchmarks/scale.py --write               # into docs/scale.md
    python benchmarks/scale.py --rate 85000 --tokens 120 --sentences 5 --dimension 2048

Everything is arithmetic on what was measured elsewhere (`benchmarks/results/`) and on assumptions that can be given as
arguments; the rate of a GPU is one of these. A simulation of embedders, a bounded queue and a writer, some of which
fail, holds the formula of the hours.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "scale.md"
PASSAGES = (10**6, 10**8, 10**9)
RATES = (5_000, 50_000, 500_000)
"""Positions in a second that one GPU is assumed to run."""
DIMENSIONS = (320, 1024, 4096)
METHODS = {"plain": "plain", "htp": "htp:exit=-1", "echo": "echo:exit=-8+whiten"}
"""Methods, and the system in the results whose positions for a token of text are taken: no exit changes them."""
MEMORIES = (16, 64, 256)
"""Gigabytes of a server's memory."""
DAY = 24.0
USED = 0.8
"""Share of the memory that vectors may take."""
CHARACTERS = 4.5
"""Of a token."""


@dataclass(frozen=True)
class Library:
    """What is to be embedded.

    Attributes:
        passages: How many.
        tokens: In a passage.
        in_document: Passages in a document.
        sentences: In a passage.
    """

    passages: int
    tokens: int = 200
    in_document: int = 20
    sentences: int = 8

    def rows(self, parts: tuple[str, ...]) -> int:
        """Vectors of these parts."""
        own = {"documents": -(-self.passages // self.in_document), "passages": self.passages}
        return sum({**own, "sentences": self.passages * self.sentences}[part] for part in parts)

    @property
    def text_bytes(self) -> float:
        """Of all texts."""
        return self.passages * self.tokens * CHARACTERS


GRANULARITIES = {
    "documents": ("documents",),
    "passages": ("passages",),
    "passages, documents": ("passages", "documents"),
    "all three": ("passages", "documents", "sentences"),
}


@dataclass(frozen=True)
class Measured:
    """What the results of other benchmarks say.

    Attributes:
        rows_a_second: That one writer puts into an index on a server beside it.
        own_bytes: Of a row on disk, its vectors left out.
        positions: By method, positions run for a token of text, on long documents.
        tokens_a_second: Of the bundled model on the processor that the results were made on.
    """

    rows_a_second: float
    own_bytes: float
    positions: dict[str, float]
    tokens_a_second: float

    @classmethod
    def read(cls) -> Measured:
        """From `benchmarks/results/`."""
        index = _json("index-speed.json")["rows"]["server"]
        own = index["bytes"] - 4 * index["width"]
        costs = {each["system"]: each["cost"] for each in _json("eddy-tiny-positions.json")["outcomes"]}
        found = {name: costs[system]["positions"] / costs[system]["tokens"] for name, system in METHODS.items()}
        plain = costs["plain"]
        return cls(index["rows"] / index["seconds"], own, found, plain["tokens"] / plain["seconds"])


# --- Formulas


def gpu_hours(library: Library, factor: float, rate: float) -> float:
    """Hours that one GPU takes.

    Args:
        library: What is embedded.
        factor: Positions run for a token of text.
        rate: Positions in a second.
    """
    return library.passages * library.tokens * factor / rate / 3600


def writer_hours(rows: int, rows_a_second: float) -> float:
    """Hours that one writer takes."""
    return rows / rows_a_second / 3600


def run_hours(embedding: float, gpus: int, writing: float, writers: int = 1, lost: float = 0.0) -> float:
    """Hours of a run in which both go on at once: those of the slower side.

    Args:
        embedding: Hours that one GPU takes.
        gpus: How many.
        writing: Hours that one writer takes.
        writers: How many, each into a database of its own.
        lost: Share of an embedder's time that failures take.
    """
    return max(embedding / gpus / (1 - lost), writing / writers)


def lost_share(mean_hours: float, restart: float, batch: float) -> float:
    """Share of an embedder's time that failures take.

    Args:
        mean_hours: Between two failures of one embedder.
        restart: Hours until it works again, the model loaded.
        batch: Hours of a batch, half of which is done again.
    """
    return (restart + batch / 2) / (mean_hours + restart + batch / 2)


def vector_bytes(rows: int, dimension: int) -> int:
    """Of vectors in float32: in memory, in Parquet, on the wire."""
    return rows * dimension * 4


def server_bytes(rows: int, dimension: int, measured: Measured) -> float:
    """On the disk of a Chroma server, which has one copy of each vector."""
    return rows * (4 * dimension + measured.own_bytes)


def most_rows(memory: float, dimension: int) -> int:
    """Rows whose vectors a server of so many bytes of memory holds."""
    return int(USED * memory / (4 * dimension))


# --- Simulation


@dataclass(frozen=True)
class Run:
    """A run in small: hours throughout.

    Attributes:
        batches: How many there are.
        embed: Hours of one batch on one GPU.
        write: Hours of one batch in the writer.
        gpus: Embedders.
        queue: Finished batches that may wait for the writer.
        mean_hours: Between two failures of one embedder; 0: none fails.
        restart: Hours until it works again.
    """

    batches: int
    embed: float
    write: float
    gpus: int
    queue: int = 16
    mean_hours: float = 0.0
    restart: float = 0.0


def simulate(run: Run, seed: int = 0) -> float:
    """Hours until the last batch is written; an embedder with a finished batch waits where the queue is full."""
    chance = random.Random(seed)

    def lifetime() -> float:
        return chance.expovariate(1 / run.mean_hours) if run.mean_hours else float("inf")

    fails = [lifetime() for _ in range(run.gpus)]

    def finished(began: float, gpu: int) -> float:
        now = began
        while now + run.embed > fails[gpu]:
            now = max(now, fails[gpu]) + run.restart
            fails[gpu] = now + lifetime()
        return now + run.embed

    working = [(finished(0.0, gpu), gpu) for gpu in range(min(run.gpus, run.batches))]
    heapq.heapify(working)
    left, free = run.batches - len(working), 0.0
    begun: deque[float] = deque(maxlen=run.queue)  # when the writer began what was last in the queue
    while working:
        done, gpu = heapq.heappop(working)
        # It enters when the batch that many before it has left the queue.
        entered = max(done, begun[0]) if len(begun) == run.queue else done
        began = max(entered, free)
        begun.append(began)
        free = began + run.write
        if left:
            left -= 1
            heapq.heappush(working, (finished(entered, gpu), gpu))
    return free


def simulated() -> list[tuple[str, Run]]:
    """Runs that are simulated: GPUs slower than the writer, faster, and failing."""
    slow = Run(20_000, embed=0.01, write=0.0005, gpus=8)
    return [
        ("8 GPUs, the writer 2.5 times as fast", slow),
        ("32 GPUs, the writer 0.6 times as fast", replace(slow, gpus=32)),
        ("8 GPUs, each lost every 5 hours for 10 minutes", replace(slow, mean_hours=5, restart=1 / 6)),
        ("32 GPUs, likewise", replace(slow, gpus=32, mean_hours=5, restart=1 / 6)),
    ]


def formula(run: Run) -> float:
    """What the formulas say of a run."""
    lost = lost_share(run.mean_hours, run.restart, run.embed) if run.mean_hours else 0.0
    return run_hours(run.batches * run.embed, run.gpus, run.batches * run.write, lost=lost)


# --- Tables


def tables(library: Library, rates: tuple[int, ...], dimensions: tuple[int, ...]) -> str:
    """The page's tables.

    Args:
        library: Its sizes; the number of passages is each of `PASSAGES`.
        rates: Positions in a second.
        dimensions: Of the vectors.
    """
    measured = Measured.read()
    sizes = [replace(library, passages=count) for count in PASSAGES]
    return "\n\n".join(
        [
            _given(library, measured),
            "### GPUs and hours",
            _gpus(sizes, rates, measured),
            "### The writer",
            _writer(sizes, measured),
            "### Bytes",
            _bytes(sizes, dimensions, measured),
            "### One server",
            _servers(library, dimensions),
            "### The simulation",
            _simulation(),
        ]
    )


def _given(library: Library, measured: Measured) -> str:
    factors = ", ".join(f"`{name}` {value:.2f}" for name, value in measured.positions.items())
    return "\n".join(
        [
            f"*Assumed:* {library.tokens} tokens and {library.sentences} sentences per passage, {library.in_document} "
            f"passages per document, {CHARACTERS} characters per token.",
            "",
            "| measured | value |",
            "|---|---|",
            f"| positions run per token of a long document | {factors} |",
            f"| rows per second of one writer | {measured.rows_a_second:,.0f} |",
            f"| bytes per row on disk besides its vector | {measured.own_bytes:,.0f} |",
            f"| tokens per second of `eddy-tiny` on a CPU that also did other work | {measured.tokens_a_second:,.0f} |",
        ]
    )


def _gpus(sizes: list[Library], rates: tuple[int, ...], measured: Measured) -> str:
    heads = [f"{rate:,} positions/s" for rate in rates]
    lines = _head(["passages", "tokens", "method", *(f"GPU hours at {head}" for head in heads), "GPUs for one day"])
    for library in sizes:
        for method, factor in measured.positions.items():
            hours = [gpu_hours(library, factor, rate) for rate in rates]
            gpus = " / ".join(f"{max(1, _ceil(each / DAY)):,}" for each in hours)
            cells = [_power(library.passages), _short(library.passages * library.tokens), f"`{method}`"]
            lines.append(_line([*cells, *(_hours(each) for each in hours), gpus]))
    return "\n".join(lines)


def _writer(sizes: list[Library], measured: Measured) -> str:
    lines = _head(["passages", "rows for", "rows", "hours of one writer", "writers for one day"])
    for library in sizes:
        for name, parts in GRANULARITIES.items():
            hours = writer_hours(library.rows(parts), measured.rows_a_second)
            cells = [_power(library.passages), name, _short(library.rows(parts)), _hours(hours)]
            lines.append(_line([*cells, f"{max(1, _ceil(hours / DAY)):,}"]))
    return "\n".join(lines)


def _bytes(sizes: list[Library], dimensions: tuple[int, ...], measured: Measured) -> str:
    heads = [f"vectors, {each:,} dimensions" for each in dimensions]
    disks = [f"server's disk, {each:,}" for each in dimensions]
    lines = _head(["passages", "texts", "rows for", *heads, *disks])
    for library in sizes:
        for name, parts in GRANULARITIES.items():
            rows = library.rows(parts)
            cells = [_power(library.passages), _size(library.text_bytes), name]
            cells += [_size(vector_bytes(rows, each)) for each in dimensions]
            lines.append(_line([*cells, *(_size(server_bytes(rows, each, measured)) for each in dimensions)]))
    return "\n".join(lines)


def _servers(library: Library, dimensions: tuple[int, ...]) -> str:
    each_passage = replace(library, passages=library.in_document)
    lines = _head(["memory", "dimensions", "passages, rows for passages only", "passages, rows for all three"])
    for memory in MEMORIES:
        for dimension in dimensions:
            rows = most_rows(memory * 1e9, dimension)
            share = each_passage.rows(GRANULARITIES["all three"]) / each_passage.passages
            lines.append(_line([f"{memory} GB", f"{dimension:,}", _short(rows), _short(int(rows / share))]))
    return "\n".join(lines)


def _simulation() -> str:
    lines = _head(["run", "formula, hours", "simulated, hours", "difference"])
    for name, run in simulated():
        told, found = formula(run), simulate(run)
        lines.append(_line([name, f"{told:.2f}", f"{found:.2f}", f"{found / told - 1:+.1%}"]))
    return "\n".join(lines)


def _head(cells: list[str]) -> list[str]:
    return [_line(cells), f"|{'---|' * len(cells)}"]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _ceil(value: float) -> int:
    return int(-(-value // 1))


def _power(count: int) -> str:
    return f"10^{len(str(count)) - 1}"


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours < 100 else f"{hours:,.0f}"


def _short(count: float) -> str:
    for size, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {name}"
    return f"{count:.0f}"


def _size(count: float) -> str:
    return f"{_short(count)}B"


def _json(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def page(made: str) -> str:
    """The handbook's page with these tables."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- scale: begin -->\n")
    return f"{before}<!-- scale: begin -->\n{made}\n<!-- scale: end -->{rest.partition('<!-- scale: end -->')[2]}"


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, action="append", help="positions in a second of one GPU; may be repeated")
    parser.add_argument("--dimension", type=int, action="append", help="numbers in a vector; may be repeated")
    parser.add_argument("--tokens", type=int, default=Library.tokens, help="in a passage")
    parser.add_argument("--sentences", type=int, default=Library.sentences, help="in a passage")
    parser.add_argument("--in-document", type=int, default=Library.in_document, help="passages in a document")
    parser.add_argument("--write", action="store_true", help="into docs/scale.md, with the usual assumptions")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(page(tables(Library(1), RATES, DIMENSIONS)), encoding="utf-8")
        return
    library = Library(1, options.tokens, options.in_document, options.sentences)
    made = tables(library, tuple(options.rate or RATES), tuple(options.dimension or DIMENSIONS))
    sys.stdout.write(f"{made}\n")


if __name__ == "__main__":
    main()
