"""An answer from re-ranked passages, with the progress of re-ranking."""

from __future__ import annotations

import threading
from collections.abc import Generator
from queue import Empty, Queue

from eddy_demo.web.answers.answering import answer_question
from eddy_demo.web.http.events import Event
from eddy_demo.web.library_reader import LibraryReader

_POLL_SECONDS = 0.2


class _Left(Exception):
    """Nobody waits for the answer any more."""


def reranked_answer(
    reader: LibraryReader, question: str, k: int, document: str | None = None
) -> Generator[Event, None, None]:
    """Yield `reranking` with what is done, then the events of `answer_question` of the re-ranked passages.

    Closing this generator stops the model after the pass that is under way.
    """
    events, left = Queue[Event](), threading.Event()
    answer, failure = list[Event](), list[Exception]()

    def progress(done: int, total: int, _: str) -> None:
        if left.is_set():
            raise _Left
        events.put(("reranking", {"done": done, "total": total}))

    def rerank() -> None:
        try:
            answer.extend(answer_question(reader, question, k, document, rerank=reader.reranker(), progress=progress))
        except _Left:
            pass
        except Exception as error:
            failure.append(error)

    worker = threading.Thread(target=rerank, daemon=True)
    worker.start()
    try:
        yield "reranking", {"done": 0, "total": 0}
        while worker.is_alive() or not events.empty():
            try:
                yield events.get(timeout=_POLL_SECONDS)
            except Empty:
                continue
    finally:
        left.set()
        worker.join()
    if failure:
        raise failure[0]
    yield from answer
