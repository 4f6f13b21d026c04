"""Summarise what was measured, as numbers and as a page's tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from endpoint.servers import PEER


def levels(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each system at each concurrency: requests a second and latencies, over the peer's in the same round."""
    speeds: dict[tuple[str, int], list[float]] = {}
    spent: dict[tuple[str, int], list[float]] = {}
    for row in rounds:
        key = (row["system"], row["concurrency"])
        if not row["latencies"]:
            raise SystemExit(f"{key[0]} answered nothing in {row['seconds']} s at concurrency {key[1]}")
        speeds.setdefault(key, []).append(len(row["latencies"]) / row["seconds"])
        spent.setdefault(key, []).extend(row["latencies"])
    found = []
    for (system, concurrency), each in speeds.items():
        ratios = np.array(each) / np.array(speeds[PEER, concurrency])
        p50, p95, p99 = (
            round(float(value) * 1000, 2) for value in np.percentile(spent[system, concurrency], [50, 95, 99])
        )
        found.append(
            {
                "system": system,
                "concurrency": concurrency,
                "requests": len(spent[system, concurrency]),
                "per_second": round(float(np.median(each)), 1),
                "p50": p50,
                "p95": p95,
                "p99": p99,
                "ratio": [round(float(value), 2) for value in (np.median(ratios), ratios.min(), ratios.max())],
            }
        )
    return found


def page(found: dict[str, Any]) -> str:
    """The tables."""
    size, overload, endurance = found["size"], found["overload"], found["endurance"]
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    lines = [
        f"{found['machine']}, {found['processors']} cores; {versions}. {size['rounds']} rounds of "
        f"{size['seconds']:g} s per line.",
        "",
        "| clients | server | requests/s | p50 ms | p95 ms | p99 ms | requests/s ÷ sentence-transformers |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(found["levels"], key=lambda each: each["concurrency"]):
        median, low, high = row["ratio"]
        ratio = "" if row["system"] == PEER else f"{median:.2f} [{low:.2f}, {high:.2f}]"
        cells = (row["concurrency"], row["system"], row["per_second"], row["p50"], row["p95"], row["p99"], ratio)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    misdeeds = ", ".join(f"{count} {name}" for name, count in endurance["misdeeds"].items())
    memory = {int(number): value for number, value in endurance["memory"].items()}
    lines += [
        "",
        f"*Overload.* {overload['clients']} clients for {overload['seconds']:g} s: {overload['answered']:,} requests "
        f"answered, {overload['refused']:,} refused with 429 and `Retry-After`. The answered ones had a p99 of "
        f"{overload['p99']:g} ms; the slowest `/health` took {overload['health']:g} ms. A single request took "
        f"{overload['before']:g} ms before and {overload['after']:g} ms after.",
        "",
        f"*Endurance.* {endurance['requests']:,} requests of {size['clients']} clients in {endurance['seconds']:g} s, "
        f"beside {misdeeds} clients. Open files {endurance['files'][0]} before, {endurance['files'][1]} after. "
        "Resident memory, after warming up with forward passes of every number of tokens:",
        "",
        f"| requests | {' | '.join(f'{number:,}' for number in memory)} |",
        "|---" * (len(memory) + 1) + "|",
        f"| MiB | {' | '.join(map(str, memory.values()))} |",
        "",
        "Every server answered every text with that text's own vector.",
    ]
    return "\n".join(lines)
