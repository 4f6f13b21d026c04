"""Add the journal to the results of its machines, and make the table of speed from all results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from output import RESULTS, put, say


def write(rows: list[dict[str, Any]], results: Path) -> None:
    """Add rows to each machine's results, and write the tables of `results/README.md`.

    Raises:
        SystemExit: The journal holds runs of a trial.
    """
    odd = [row["key"] for row in rows if "--trial" in row["command"]]
    if odd:
        raise SystemExit(f"not for a table: {odd}")
    for machine in dict.fromkeys(row["machine"] for row in rows):
        name = re.sub(r"\W+", "-", machine.split("(")[0].strip().lower()).strip("-")
        target = results / f"speed-{name}.json"
        known = json.loads(target.read_text(encoding="utf-8"))["rows"] if target.exists() else []
        found = {row["key"]: row for row in (*known, *rows) if row["machine"] == machine}
        told = {"machine": machine, "rows": list(found.values())}
        target.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        say(f"written: {target}")
    files = sorted(results.glob("speed-*.json"))
    kept = [row for path in files for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
    put(RESULTS / "README.md", "peers", "\n\n".join(peers(kept)))


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


SORTS = ("mixed", "uniform", "long", "one query")


def peers(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table for each model: of the run on the most threads."""
    scores = {
        (row["machine"], row["shape"], row["peer"]): f"{row['found']['spearman']:.3f}"
        for row in rows
        if row["part"] == "quality"
    }
    runs: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["part"] == "peers":
            runs.setdefault((row["shape"], row["threads"], row["machine"]), []).append(row)
    tables = {run[0]: (run[2], found) for run, found in sorted(runs.items())}
    for shape, (machine, found) in tables.items():
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
