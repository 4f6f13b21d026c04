"""Measure the page's answers: the document that they cite first, what is refused, what a model writes.

    python benchmarks/answers.py --model smollm2 --data $EDDY_EVAL_DATA

asks a library of one task its own questions, and as many of another task, which it cannot answer. With `--generate`
the same model also writes answers to the questions that it can. With `--follow-ups` it asks the handbook questions
that cannot stand alone (`follow_ups.py`), without and with the one before.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from follow_ups import PAIRS
from output import say

from chroma_eddy import Document, Index, open_index
from eddy_demo import handbook
from eddy_demo.library.defaults import DEFAULT_PASSAGE_SIZE
from eddy_demo.web.answers.answering import extract_sentences
from eddy_demo.web.answers.follow_up import is_follow_up
from eddy_demo.web.answers.generation import Generator
from eddy_demo.web.answers.support import CANDIDATES
from eddy_embed import Embedder
from eddy_embed.analysis.evaluate.tasks import Retrieval, find_tasks


def main(given: list[str] | None = None) -> None:
    """Measure, and print a line for each number."""
    command = argparse.ArgumentParser(description="Measure the page's answers.")
    command.add_argument("--data", type=Path, default=os.environ.get("EDDY_EVAL_DATA"), help="default: $EDDY_EVAL_DATA")
    command.add_argument("--model", default="smollm2")
    command.add_argument("--task", default="cranfield", help="the library, and the questions that it answers")
    command.add_argument("--other", default="squality", help="the questions that it does not answer")
    command.add_argument("--questions", type=int, default=100, help="of each; default: 100")
    command.add_argument("--generate", action="store_true", help="let the model write answers too")
    command.add_argument("--follow-ups", action="store_true", help="only ask the handbook follow-up questions")
    options = command.parse_args(given)
    if options.follow_ups:
        with tempfile.TemporaryDirectory() as folder, library(folder, options.model) as index:
            pages = sorted(handbook.folder().glob("*.md"))
            index.upsert(Document(page.name, page.read_text(encoding="utf-8")) for page in pages)
            follow_up(index, options.model)
        return
    if options.data is None:
        command.error("name the folder of the tasks with --data, or set EDDY_EVAL_DATA")
    tasks: dict[str, Any] = {task.name: task for task in find_tasks(options.data, [options.task, options.other])}
    task, other = tasks[options.task], tasks[options.other]
    if not (isinstance(task, Retrieval) and isinstance(other, Retrieval)):
        command.error("--task and --other must be retrieval tasks")
    with tempfile.TemporaryDirectory() as folder, library(folder, options.model) as index:
        index.upsert(Document(id_, text) for id_, text in zip(task.ids, task.texts, strict=True) if text.strip())
        measure(index, task, other, options)


@contextmanager
def library(folder: str, model: str) -> Iterator[Index]:
    """An empty library as the demo makes it."""
    with (
        Embedder(model) as embedder,
        open_index(folder, "library", embedder, passage_size=DEFAULT_PASSAGE_SIZE) as index,
    ):
        yield index


def sentences(index: Index, question: str) -> list[dict[str, Any]]:
    """The sentences that answer a question."""
    hits = index.query(question, CANDIDATES, hybrid=True, sentences=True)
    found: list[dict[str, Any]] = extract_sentences(index, hits)["sentences"]
    return found


def follow_up(index: Index, model: str) -> None:
    """Ask the second question of each pair alone, as the page does, and always after the first one."""

    def right(question: str, page: str) -> bool:
        found = sentences(index, question)
        return bool(found) and found[0]["document"] == page

    alone = [right(then, page) for _, then, page in PAIRS]
    joined = [right(f"{first} {then}", page) for first, then, page in PAIRS]
    known = [is_follow_up(then) for _, then, _ in PAIRS]
    shown = sum(pair[chosen] for *pair, chosen in zip(alone, joined, known, strict=True))
    say(f"handbook, {model}: {sum(known)} of {len(PAIRS)} follow-up questions are recognised")
    say(f"{sum(is_follow_up(first) for first, _, _ in PAIRS)} first questions are taken for one")
    say(f"cite the right page first: {sum(alone)} alone, {sum(joined)} after the first question, {shown} on the page")


def measure(index: Index, task: Retrieval, other: Retrieval, options: Any) -> None:
    """Ask every question, and say what came of it."""
    questions = task.queries[: options.questions]
    found = [sentences(index, question) for question in questions]
    answered = [at for at, each in enumerate(found) if each]
    right = sum(found[at][0]["document"] in task.grades[at] for at in answered)
    about_other = [sentences(index, question) for question in other.queries[: options.questions]]
    say(f"{task.name}, {options.model}: {len(answered)} of {len(questions)} questions are answered")
    say(f"{right} of these cite a relevant document first")
    say(f"{about_other.count([])} of {len(about_other)} questions of {other.name} are refused")
    say(f"{sum(map(is_follow_up, questions))} of {len(questions)} questions would be taken for a follow-up")
    if not options.generate:
        return
    generator = Generator.load(options.model, None)
    shown = left_out = repeated = answers = 0
    began = time.perf_counter()
    for at in answered:
        events = list(generator.write(questions[at], found[at]))
        own = sum(name == "cite" for name, _ in events)
        shown, answers = shown + own, answers + (own > 0)
        left_out, repeated = left_out + events[-1][1]["left_out"], repeated + events[-1][1]["repeated"]
    seconds = (time.perf_counter() - began) / max(len(answered), 1)
    say(f"of {shown + left_out + repeated} written sentences {repeated} repeat a quote and {left_out} have no support")
    say(f"the other {shown} are shown, in {answers} of {len(answered)} answers")
    say(f"{seconds:.1f} s an answer")


if __name__ == "__main__":
    main()
