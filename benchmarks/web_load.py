"""How fast the page answers a health check while fifty ask and documents are written.

python benchmarks/web_load.py [--askers 50] [--rounds 4] [--characters 300000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import uvicorn

from eddy_demo.web.app import create_app
from eddy_demo.web.library_reader import LibraryOptions
from eddy_demo.web.server import bind

QUESTION = "What happens to a document that is longer than the model's window? ({number})"


async def ask(client: httpx.AsyncClient, number: int, rounds: int) -> list[float]:
    """Seconds of each answer."""
    took = []
    for turn in range(rounds):
        began = time.perf_counter()
        answer = await client.get("/api/ask", params={"q": QUESTION.format(number=(number, turn))})
        answer.raise_for_status()
        assert "event: done" in answer.text, answer.text
        took.append(time.perf_counter() - began)
    return took


async def check(client: httpx.AsyncClient, ended: asyncio.Event) -> list[float]:
    """Seconds of each health check, ten in a second."""
    took = []
    while not ended.is_set():
        began = time.perf_counter()
        (await client.get("/api/health")).raise_for_status()
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.1)
    return took


async def measure(url: str, askers: int, rounds: int, characters: int) -> dict[str, float]:
    """The load and what it does."""
    limits = httpx.Limits(max_connections=askers + 4)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        page = (await client.get("/library")).text
        client.headers["x-eddy-token"] = page.split('name="token" content="')[1].split('"')[0]
        await client.post("/api/handbook")
        while (await progress(client))["jobs"][-1]["state"] != "done":
            await asyncio.sleep(0.2)
        idle, ended = asyncio.Event(), asyncio.Event()
        alone = asyncio.create_task(check(client, idle))
        await asyncio.sleep(3)
        idle.set()
        text = "".join(f"Note {n} says that the lantern of house {n * 7} was lit. " for n in range(characters // 50))
        (await client.post("/api/uploads?name=long.txt", content=text.encode())).raise_for_status()
        checks = asyncio.create_task(check(client, ended))
        asked = await asyncio.gather(*(ask(client, number, rounds) for number in range(askers)))
        writing = (await progress(client))["jobs"][-1]["state"]
        ended.set()
        answers = [seconds for each in asked for seconds in each]
        return {
            "answers": len(answers),
            "answer_p50": float(np.median(answers)),
            "answer_p95": float(np.quantile(answers, 0.95)),
            "health_p95_idle": float(np.quantile(await alone, 0.95)),
            "health_p50": float(np.median(await checks)),
            "health_p95": float(np.quantile(await checks, 0.95)),
            "health_max": float(np.max(await checks)),
            "still_writing_at_the_end": float(writing not in ("done", "failed")),
        }


async def progress(client: httpx.AsyncClient) -> dict:
    """What the server tells of its work now."""
    async with client.stream("GET", "/api/events") as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))
    raise RuntimeError("the server ended the stream")


def main() -> None:
    """Serve a new library in a thread, load it, print what was measured as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--askers", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--characters", type=int, default=300_000)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        listener = bind("127.0.0.1", 0)
        app = create_app(LibraryOptions(Path(folder) / "library"), stopping=lambda: server.should_exit)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            time.sleep(0.05)
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            found = asyncio.run(measure(url, told.askers, told.rounds, told.characters))
        finally:
            server.should_exit = True
            thread.join()
    print(json.dumps({name: round(value, 4) for name, value in found.items()}, indent=2))  # noqa: T201


if __name__ == "__main__":
    main()
