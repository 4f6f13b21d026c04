"""A real server of the page in a thread of the test's process, and what a page's script would ask of it."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.readers.pdf_builder import pdf

from eddy_demo.library.library import lock_library
from eddy_demo.web import follower
from eddy_demo.web.http import ChangeSignal, Limits
from eddy_demo.web.library_reader import LibraryOptions
from eddy_demo.web.server import PageServer, bind, create_app
from eddy_embed.encoding import build

PATIENCE = 120.0
"""Seconds after which a test gives up: a crowded machine is slow."""


GUIDE = """# The harbour guide

The harbour lies in the north of the bay. Its oldest houses stand behind the pier, where the fishermen used to live.

## The ferry

The ferry to the northern island leaves at noon and comes back before dark. Tickets are sold in the white house on the
pier. A bicycle needs a ticket of its own, which costs half of the fare. In a storm the ferry stays in the harbour.

## The lighthouse

The lighthouse was built in 1871 on the eastern cliff. Its keeper lights the lamp at dusk and winds the clockwork that
turns the lens. Visitors climb the stairs on Sundays. From the gallery one sees the whole coast.

## The market

The market opens at six in the morning on the square before the church. Fishermen sell herring and mackerel from their
boats. Farmers bring apples, honey and cheese. What is not sold by noon goes to the poorhouse.
"""


class Site:
    """One running server."""

    def __init__(
        self, folder: Path, limits: Limits | None = None, port: int = 0, paused: bool = False, **choice: Any
    ) -> None:
        listener = bind("127.0.0.1", port)
        self.folder = folder
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        changes = ChangeSignal()
        choice.setdefault("method", "plain:exit=0")
        guard = create_app(LibraryOptions(folder, **choice), limits, changes=changes)
        self.state = guard.app.state.eddy  # type: ignore[attr-defined]
        self.resume = self.pause() if paused else lambda: None
        self.server = PageServer(guard, changes, log_level="error", timeout_graceful_shutdown=2)
        self.thread = threading.Thread(target=self.server.run, args=([listener],), daemon=True)
        self.thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)
        wait(lambda: self.server.started)
        self.client.headers["x-eddy-token"] = self.token()

    def token(self) -> str:
        found = re.search(r'name="token" content="([^"]+)"', self.client.get("/library").text)
        assert found
        return found[1]

    def upload(self, name: str, data: bytes | str) -> httpx.Response:
        return self.client.post(f"/api/uploads?name={quote(name)}", content=data)

    def watch(self, folder: Path | str) -> httpx.Response:
        return self.client.post("/api/folders", params={"path": str(folder)})

    def watched(self, met: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """What is told of the only watched folder, once that meets a condition."""
        told: dict[str, Any] = self.until(lambda p: p["folders"] and met(p["folders"][0]))["folders"][0]
        return told

    def progress(self) -> Iterator[dict[str, Any]]:
        until = time.monotonic() + 5 * PATIENCE
        with self.client.stream("GET", "/api/events") as response:
            for line in response.iter_lines():  # the server also says that there is nothing new
                assert time.monotonic() < until, "nothing happened"
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    def until(self, met: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The first progress told that meets a condition."""
        for progress in self.progress():
            if met(progress):
                return progress
        raise AssertionError("the server ended the stream")

    def settled(self) -> list[dict[str, Any]]:
        """The jobs, once none is under way."""
        ends = ("done", "failed")
        told = self.until(lambda p: p["ready"] and all(job["state"] in ends for job in p["jobs"]))
        return list(told["jobs"])

    def pause(self) -> Callable[[], None]:
        """Hold the next document in the midst of being embedded; gives the function that lets it go on.

        It can still be cancelled, and the server stopped.
        """
        writer, go = self.state.follower, threading.Event()
        check = writer.check

        def held() -> None:
            check()
            while any(0 < job["done"] < 1 for job in writer.snapshot()["jobs"]) and not go.wait(0.02):
                check()

        writer.check = held
        return go.set

    def halfway(self) -> dict[str, Any]:
        """The progress of a document that is held."""
        return self.until(lambda p: any(0 < job["done"] < 1 for job in p["jobs"]))

    def documents(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.client.get("/api/documents").json()["documents"]
        return rows

    def names(self) -> list[str]:
        return [row["name"] for row in self.documents()]

    def ask(self, question: str, k: int = 8, **more: str) -> list[tuple[str, dict[str, Any]]]:
        return read_events(self.client.get("/api/ask", params={"q": question, "k": k, **more}))

    def stop(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


def hold_rebuild(patch: pytest.MonkeyPatch, after: int = 0) -> Callable[[], None]:
    """Hold rebuilds once so many documents are written; gives the function that lets them go on.

    What comes before a rebuild still interrupts it.
    """
    rebuild, go = follower.rebuild_library, threading.Event()

    def held(folder: Path, settings: Any, embedder: Any, report: Callable[[Any], None]) -> Any:
        def reported(progress: Any) -> None:
            report(progress)
            while progress.written >= after and progress.done < 1 and not go.wait(0.02):
                report(progress)

        return rebuild(folder, settings, embedder, reported)

    patch.setattr(follower, "rebuild_library", held)
    return go.set


def read_events(response: httpx.Response) -> list[tuple[str, dict[str, Any]]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return [(name, json.loads(data)) for name, data in re.findall(r"event: (.*)\ndata: (.*)\n\n", response.text)]


@contextmanager
def serving(folder: Path, limits: Limits | None = None, changed: bool = True, **options: Any) -> Iterator[Site]:
    """A server whose model takes few tokens at a time, so that there is progress to be seen on any machine.

    It looks for what others have written more often than a user needs. One whose library stays as it is (`changed`)
    needs neither, and may stay open beside tests of the engine.
    """
    with pytest.MonkeyPatch.context() as patch:
        if changed:
            patch.setattr(build, "ON_PROCESSOR", 512)
            patch.setattr(follower, "_BUSY_SECONDS", 0.1)
            patch.setattr(follower, "lock_library", partial(lock_library, seconds=0.1))
        site = Site(folder, limits, **options)
        try:
            yield site
        finally:
            site.stop()


def wait(met: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.02)


def long_text(sentences: int, seed: int = 0) -> str:
    """Prose that takes a while to embed, no two sentences alike."""
    things = ("river", "harbour", "lantern", "orchard", "bridge", "violin", "glacier", "market")
    ends = ("in the early morning", "after the long rain", "beside the old mill", "under a pale moon")
    lines = [
        f"The {things[(n + seed) % 8]} number {n + seed * 1000} was quiet {ends[n % 4]}, and nobody counted it twice."
        for n in range(sentences)
    ]
    return "\n\n".join(" ".join(lines[at : at + 5]) for at in range(0, sentences, 5))


def two_pages(second: str = "The ferry to the southern island leaves at one.") -> bytes:
    """A PDF file of two pages with one sentence each."""
    return pdf(["Dogs travel for free on every boat of the line."], [second])
