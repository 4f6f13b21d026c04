"""Write the journal as one file of results for each machine, and as tables of docs/performance*.md."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from output import put, say

from speed import growth

MIB = 2**20


def write(rows: list[dict[str, Any]], results: Path, docs: Path) -> None:
    """Write each machine's results, and the tables of two pages between their markers.

    Raises:
        SystemExit: The journal holds runs of a trial, or a part with several numbers of threads.
    """
    odd = [row["key"] for row in rows if "--trial" in row["command"]]
    if odd:
        raise SystemExit(f"not for a table: {odd}")
    for machine, found in _by_machine(rows).items():
        name = re.sub(r"\W+", "-", machine.split("(")[0].strip().lower()).strip("-")
        target = results / f"speed-{name}.json"
        target.write_text(json.dumps({"machine": machine, "rows": found}, indent=1) + "\n", encoding="utf-8")
        say(f"written: {target}")
    page, details = docs / "performance.md", docs / "performance-measurements.md"
    for row in rows:
        row["shape"] += f", {row['layers']} layers" if row.get("layers") else ""
    for part, table in TABLES.items():
        chosen = [row for row in rows if row["part"] == part]
        if len({row["threads"] for row in chosen}) > 1:
            raise SystemExit(f"{part} was measured with different numbers of threads, which cannot be compared")
        if chosen:
            each = [[_about(found[0]), "", *table(found)] for found in _by_machine(chosen).values()]
            put(page if part == "memory" else details, part, "\n\n".join("\n".join(lines) for lines in each))
    if any(row["part"] == "peers" for row in rows):
        put(page, "peers", "\n\n".join(peers(rows)))
    put(page, "goals", "\n".join(goals(rows)))
    grown = {f"{row['shape']}, {row['dtype']}": row["found"] for row in rows if row["part"] == "growth"}
    if grown:
        growth.draw(docs / "pictures" / "growth.svg", grown)
    say(f"written: {page}, {details}")


def _by_machine(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group rows by machine: rows of two machines cannot stand in one table."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["machine"], []).append(row)
    return found


def _about(row: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in row["versions"].items())
    return f"{row['machine']}, {_threads(row)}; {versions}."


def _threads(row: dict[str, Any]) -> str:
    return f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}"


def _spread(time: dict[str, Any]) -> str:
    return f"{time['median']:.2f} [{time['low']:.2f}, {time['high']:.2f}]"


def _table(heads: tuple[str, ...], rows: Iterable[Iterable[object]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)]


def _overhead(rows: list[dict[str, Any]]) -> list[str]:
    methods = [
        [
            *(row["shape"], row["dtype"], each["length"], f"`{each['method']}`", f"`{each['base']}`"),
            *(_spread(each["time"]), each["goal"] or "", each["tokens"]),
        ]
        for row in rows
        for each in row["found"]["methods"]
    ]
    halves = [
        [
            *(row["shape"], row["dtype"], "{} of {}".format(*half["layers"]), _spread(half["time"]), half["goal"]),
            *(f"{half['bytes']:,}", f"{half['expected']:,}"),
        ]
        for row in rows
        for half in [row["found"]["half"]]
    ]
    heads = ("model", "dtype", "tokens", "method", "baseline", "time ÷ baseline", "goal", "tokens ÷ plain, same text")
    more = ("model", "dtype", "layers", "time ÷ full depth", "goal", "bytes loaded", "embeddings and kept layers")
    return [*_table(heads, methods), "", *_table(more, halves)]


SORTS = ("mixed", "uniform", "long", "one query")


def peers(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table for each model, number of threads and machine."""
    scores = {
        (row["machine"], row["shape"], row["peer"]): f"{row['found']['spearman']:.3f}"
        for row in rows
        if row["part"] == "quality"
    }
    tables: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["part"] == "peers":
            tables.setdefault((row["shape"], row["threads"], row["machine"]), []).append(row)
    for (shape, _, machine), found in sorted(tables.items()):
        own = {each["texts"]: each for each in found[0]["found"]}
        rates = [f"{own[sort]['words'] / own[sort]['time']['base']:,.0f} words/s" for sort in SORTS]
        lines = [["**Eddy, bfloat16**", *rates, scores.get((machine, shape, "Eddy, bfloat16"), "")]]
        for row in found:
            default, best = (_batch(row["found"], which) for which in ("default", "best"))
            score = scores.get((machine, shape, row["peer"]), "")
            if default == best:
                lines.append([row["peer"], *best, score])
            else:
                lines += [
                    [f"{row['peer']}, default batch size", *default, score],
                    ["the best batch size", *best, score],
                ]
        heads = ("time ÷ Eddy's", *SORTS, "stsb_dev")
        yield f"**{shape}**, {_about(found[0])}\n\n" + "\n".join(_table(heads, lines))


def _batch(found: list[dict[str, Any]], which: str) -> list[str]:
    """Return the times of each sort of texts at the default or at the best batch size."""
    times = {each["texts"]: _spread(each["time"]) for each in found if which in each["which"]}
    return [times.get(sort, "–") for sort in SORTS]


def _limit(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        [row["shape"], row["dtype"], each["sort"], each["tokens"], _spread(each["time"]), each["goal"]]
        for row in rows
        for each in row["found"]
    ]
    return _table(("model", "dtype", "texts", "tokens", "time ÷ limit", "goal"), lines)


def _products(rows: list[dict[str, Any]]) -> list[str]:
    lines = [[row["shape"], each["sort"], each["what"], _spread(each["time"])] for row in rows for each in row["found"]]
    return _table(("model", "texts", "comparison", "time ratio"), lines)


def _budget(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        [row["shape"], row["dtype"], each["batch_tokens"], _spread(each["time"])]
        for row in rows
        for each in row["found"]
    ]
    over = rows[0]["found"][0]["over"]
    return _table(("model", "dtype", "tokens per forward pass", f"time ÷ time at {over:,}"), lines)


def _memory(rows: list[dict[str, Any]]) -> list[str]:
    parts = [
        [row["shape"], row["dtype"], each["against"], each["value"], round(each["over"] / MIB, 1)]
        for row in rows
        for each in row["found"]["rows"]
    ]
    peaks = [
        [
            *(row["shape"], row["dtype"], reba["tokens"], name, round(each["over"] / MIB, 1)),
            f"{each['peak'] / reba['peaks']['echo']['peak']:.2f}",
        ]
        for row in rows
        for reba in [row["found"]["reba"]]
        for name, each in reba["peaks"].items()
    ]
    above = "MiB above the loaded model"
    return [
        *_table(("model", "dtype", "varied", "value", above), parts),
        "",
        *_table(("model", "dtype", "tokens", "method", above, "total peak ÷ echo's"), peaks),
    ]


def _growth(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        [row["shape"], row["dtype"], name, curve["sizes"][0], curve["sizes"][-1], curve["exponent"]]
        for row in rows
        for name, curve in row["found"].items()
    ]
    return _table(("model", "dtype", "varied", "from", "to", "exponent, upper half"), lines)


TABLES: dict[str, Callable[[list[dict[str, Any]]], list[str]]] = {
    "overhead": _overhead,
    "limit": _limit,
    "products": _products,
    "budget": _budget,
    "memory": _memory,
    "growth": _growth,
}


class Goal(NamedTuple):
    """Least or most time of a peer over Eddy's, on some sorts of texts, at its default or at its best batch size."""

    peer: str
    texts: tuple[str, ...]
    batch: str
    least: float = 0.0
    most: float = math.inf


DOCUMENTS = ("mixed", "uniform", "long")
GOALS = (
    Goal("sentence-transformers, bfloat16", ("mixed",), "default", 3.0),
    Goal("sentence-transformers, bfloat16", ("uniform",), "default", 1.05),
    Goal("sentence-transformers, bfloat16", DOCUMENTS, "best", 1.1),
    Goal("sentence-transformers, bfloat16", ("one query",), "default", 1.3),
    Goal("LlamaIndex", ("mixed",), "default", 3.5),
    Goal("LangChain", ("mixed",), "default", 3.5),
    Goal("OpenVINO", ("one query",), "default", 1.0),
    Goal("llama.cpp, as shipped", DOCUMENTS, "default", 4.0),
    Goal("llama.cpp", DOCUMENTS, "default", 1.5),
    Goal("Eddy, int8", DOCUMENTS, "default", most=0.65),
)


def goals(rows: list[dict[str, Any]]) -> list[str]:
    """Return a table of every missed goal with its measurement, or a line that says that none was missed."""
    missed = [(row["shape"], row.get("dtype", ""), *each) for row in rows for each in _missed(row)]
    return _table(("model", "dtype", "measurement", "result", "goal"), missed) if missed else ["No goal was missed."]


def _missed(row: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    """Yield what was measured, the result, and the goal."""
    found = row["found"]
    if row["part"] == "overhead":
        half = found["half"]
        named = [(f"{each['length']} tokens, `{each['method']}`", each) for each in found["methods"]]
        yield from _slow([*named, ("half depth", half)])
        if half["bytes"] != half["expected"]:
            yield "half depth, bytes loaded", f"{half['bytes']:,}", f"{half['expected']:,}"
    if row["part"] == "limit":
        yield from _slow([(f"{each['sort']} texts ÷ limit", each) for each in found])
    if row["part"] == "peers":
        yield from _against_peers(row)
    if row["part"] == "memory":
        peaks = {name: each["peak"] for name, each in found["reba"]["peaks"].items()}
        for name in ("reba", "reba:pool=mean"):
            share = peaks[name] / peaks["echo"]
            if share > found["reba"]["goal"]:
                yield f"peak of {name} ÷ echo's", f"{share:.2f}", f"≤ {found['reba']['goal']}"


def _against_peers(row: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    for each, goal in product(row["found"], GOALS):
        if goal.peer in row["peer"] and each["texts"] in goal.texts and goal.batch in each["which"]:
            median, what = each["time"]["median"], f"{each['texts']}, threads: {row['threads']}: {row['peer']}"
            if not goal.least <= median <= goal.most:
                limit = f"≥ {goal.least}" if goal.least else f"≤ {goal.most}"
                size = f", batch size {each['batch_size']}" if each["batch_size"] else ""
                yield f"{what}{size}", _spread(each["time"]), limit


def _slow(named: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, str, object]]:
    for name, each in named:
        if each["goal"] and each["time"]["median"] > each["goal"]:
            yield name, _spread(each["time"]), f"≤ {each['goal']}"
