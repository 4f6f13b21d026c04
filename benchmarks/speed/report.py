"""Write the journal as one file of results for each machine, and as the tables of docs/performance.md."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from output import put, say

from speed import growth

MIB = 2**20


def write(rows: list[dict[str, Any]], results: Path, page: Path, picture: Path) -> None:
    """Write each machine's results, and the tables of the page between their markers.

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
    for row in rows:
        row["shape"] += f", {row['layers']} layers" if row.get("layers") else ""
    for part, table in TABLES.items():
        chosen = [row for row in rows if row["part"] == part]
        if len({row["threads"] for row in chosen}) > 1:
            raise SystemExit(f"{part} was measured with different numbers of threads, which cannot be compared")
        if chosen:
            each = [[_about(found[0]), "", *table(found)] for found in _by_machine(chosen).values()]
            put(page, part, "\n\n".join("\n".join(lines) for lines in each))
    peers = [row for row in rows if row["part"] == "peers"]
    if peers:
        machines = [f"- {_named(found)}: {_about(found[0])}" for found in _by_machine(peers).values()]
        put(page, "speed", "\n".join([*beside(peers), "", *machines]))
    put(page, "goals", "\n".join(goals(rows)))
    grown = {f"{row['shape']}, {row['dtype']}": row["found"] for row in rows if row["part"] == "growth"}
    if grown:
        growth.draw(picture, grown)
    say(f"written: {page}")


def _by_machine(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group rows by machine: rows of two machines cannot stand in one table."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["machine"], []).append(row)
    return found


def _named(rows: list[dict[str, Any]]) -> str:
    return ", ".join(dict.fromkeys(row["shape"] for row in rows))


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


def _peers(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        [row["shape"], each["dtype"], each["texts"], each["peer"], *_compared(each)]
        for row in rows
        for each in row["found"]
    ]
    return _table(("model", "dtype", "texts", "library", "batch size", "its time ÷ Eddy's"), lines)


def _compared(each: dict[str, Any]) -> tuple[str, str]:
    """Return a peer's batch size and time, or the reason why it has none."""
    if each["time"]:
        return f"{each['batch_size']} ({each['which']})", _spread(each["time"])
    gap = each["gap"]
    return "–", f"different vectors: {'NaN' if gap is None else f'components differ by {gap:.2f}'}"


def beside(rows: list[dict[str, Any]]) -> list[str]:
    """Summarise the peers: one line per model, dtype and sort of texts, one column per peer."""
    names = {name: shown for each in (row["found"] for row in rows) for name, shown in map(_peer, each)}
    cells: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for row in rows:
        for each in row["found"]:
            line = cells.setdefault((row["shape"], each["dtype"], each["texts"]), {})
            if each["time"]:
                line.setdefault(each["peer"], []).append(f"{each['time']['median']:.2f}")
    lines = [[*place, *(_both(line.get(name, [])) for name in names)] for place, line in cells.items()]
    return _table(("model", "dtype", "texts", *names.values()), lines)


def _both(times: list[str]) -> str:
    """Show the time at the default batch size and at the best one, which may be the same."""
    return f"{times[0]} / {times[-1]}" if times else "–"


def _peer(each: dict[str, Any]) -> tuple[str, str]:
    """Return a peer's class and the common name of its library."""
    name = str(each["peer"])
    return name, {"SentenceTransformer": "sentence-transformers"}.get(name, re.sub(r".*\((.*)\)", r"\1", name))


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
    "peers": _peers,
    "limit": _limit,
    "products": _products,
    "budget": _budget,
    "memory": _memory,
    "growth": _growth,
}


def goals(rows: list[dict[str, Any]]) -> list[str]:
    """Return a table of every missed goal with its measurement, or a line that says that none was missed."""
    missed = [(row["shape"], row["dtype"], *each) for row in rows for each in _missed(row)]
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
        for each in found:
            if each["time"] and each["time"]["median"] < (goal := _times(each)):
                what = f"{each['texts']}: {each['peer']}, batch size {each['batch_size']} ({each['which']})"
                yield what, _spread(each["time"]), f"≥ {goal}"
    if row["part"] == "memory":
        peaks = {name: each["peak"] for name, each in found["reba"]["peaks"].items()}
        for name in ("reba", "reba:pool=mean"):
            share = peaks[name] / peaks["echo"]
            if share > found["reba"]["goal"]:
                yield f"peak of {name} ÷ echo's", f"{share:.2f}", f"≤ {found['reba']['goal']}"


def _times(each: dict[str, Any]) -> float:
    """Return the goal for a peer's time over Eddy's.

    On mixed texts the goal is 2 against sentence-transformers at its best batch size, and 3 against the frameworks at
    their default one.
    """
    if each["texts"] != "mixed" or each["dtype"] == "own default":
        return 1.0
    if each["peer"].startswith("SentenceTransformer"):
        return 2.0
    return 3.0 if "default" in each["which"] else 1.0


def _slow(named: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, str, object]]:
    for name, each in named:
        if each["goal"] and each["time"]["median"] > each["goal"]:
            yield name, _spread(each["time"]), f"≤ {each['goal']}"
