"""Latency and throughput of `eddy serve` against concurrency, beside other servers; then overload and misbehaviour.

    python benchmarks/serve_load.py --infinity /path/to/infinity_emb     # ten to fifteen minutes

All serve the same model with the mean of its last states, in float32 on the processor, over loopback, in processes of
their own. `sentence-transformers` is a path of FastAPI's that hands a request's texts to `SentenceTransformer.encode`,
one request at a time; it has no batching across requests, and is run once as one process that has all threads, and
once as a process for each core with one thread. `infinity-emb` batches across requests, and is asked where its program
is named; it wants packages of its own: `pip install 'infinity-emb[server,torch]==0.0.77' 'transformers<4.49'
'optimum<2' 'click<8.2'` in another environment. Clients are closed loops: each asks again as soon as it is answered,
over a connection of its own, for one text of 8 to 64 words. At each concurrency the systems are asked in turn, in
several rounds, in a changing order; a system that is not asked idles. The clients share the machine with the server.

After that, only with Eddy: more clients than its default limits let wait, and 10,000 requests beside clients that send
nonsense, send too much, leave early or dawdle. Each vector of every part is compared with the library's for its text.
A whole run writes `benchmarks/results/eddy-tiny-serve.json` and the tables of docs/endpoint.md; `--trial` tries all
of it in half a minute, and writes only what `--json` names.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from endpoint import clients, trouble
from endpoint.report import levels, page
from endpoint.servers import EDDY, METHOD, commands, served
from output import RESULTS, ROOT, put, say
from transformers.utils import logging

from eddy_embed import Embedder

WHOLE: dict[str, Any] = {
    "concurrency": (1, 2, 4, 8, 16, 32, 64),
    "rounds": 3,
    "seconds": 4.0,
    "warm_up": 0.5,
    "texts": 512,
    "overload": (800, 15.0),
    "requests": 10_000,
    "clients": 16,
}
TRIAL = {
    **WHOLE,
    "concurrency": (2,),
    "rounds": 1,
    "seconds": 0.5,
    "texts": 32,
    "overload": (600, 1.0),
    "requests": 100,
}
MODEL = ROOT / "plugin" / "eddy_embed" / "model" / "tiny"


def main() -> None:
    """Measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infinity", type=Path, help="the program infinity_emb of another environment")
    parser.add_argument("--trial", action="store_true", help="little of everything")
    parser.add_argument("--json", type=Path, help="where the numbers go instead; the page stays as it is")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # and with it the servers
    logging.disable_progress_bar()
    size = TRIAL if options.trial else WHOLE
    embedder = Embedder(str(MODEL), method=METHOD, device="cpu", dtype="float32")
    known = clients.Known.of(embedder, size["texts"])
    try:
        found = {**about(size), **measure(known, size, options.infinity)}
    except clients.Wrong as wrong:
        raise SystemExit(f"nothing to compare: {wrong}") from None
    if options.json is not None or not options.trial:
        target = options.json or RESULTS / "eddy-tiny-serve.json"
        target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        say(f"written: {target}")
    if options.json is None and not options.trial:
        put(ROOT / "docs" / "endpoint.md", "load", page(found))
    say(page(found))


def measure(known: clients.Known, size: dict[str, Any], infinity: Path | None) -> dict[str, Any]:
    """All parts."""
    programs = commands(MODEL, infinity)
    with ExitStack() as stack:
        ports = {name: stack.enter_context(served(name, command, MODEL)) for name, command in programs.items()}
        for port in ports.values():  # what a server does once, such as preparing its kernels
            asyncio.run(clients.load(port, known, 8, size["seconds"] / 2, 0.0))
        rounds: list[dict[str, Any]] = []
        for concurrency in size["concurrency"]:
            for number in range(size["rounds"]):
                for system in turned(list(ports), number):
                    load = clients.load(ports[system], known, concurrency, size["seconds"], size["warm_up"])
                    row = {"system": system, "concurrency": concurrency, **asdict(asyncio.run(load))}
                    rounds.append(row)
                    say(f"{concurrency:3} {len(row['latencies']) / row['seconds']:8.1f}/s {system}")
    lines = levels(rounds)
    with served(EDDY, programs[EDDY], MODEL) as port:
        say("more than may wait")
        overload = asyncio.run(trouble.overload(port, known, *size["overload"]))
    with served(EDDY, programs[EDDY], MODEL) as port:
        say("beside clients that misbehave")
        endurance = asyncio.run(trouble.endure(port, known, size["requests"], size["clients"]))
    return {"levels": lines, "overload": asdict(overload), "endurance": asdict(endurance)}


def turned(systems: list[str], number: int) -> list[str]:
    """Another order in each round."""
    return systems[::-1] if number % 2 else systems


def about(size: dict[str, Any]) -> dict[str, Any]:
    """What a reader needs to know of the run."""
    from bench import machine  # and with it whatever the other benchmarks need

    names = ("torch", "transformers", "sentence-transformers", "fastapi", "uvicorn")
    return {
        "machine": machine(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in names},
        "method": METHOD,
        "size": size,
        "command": " ".join(["python", "benchmarks/serve_load.py", *sys.argv[1:]]),
    }


if __name__ == "__main__":
    main()
