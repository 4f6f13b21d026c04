"""Measure the page's answers: the document that they cite first, what is refused, what a model writes.

    python benchmarks/answers.py --model smollm2 --data $EDDY_EVAL_DATA

asks a library of one task its own questions, and as many of another task, which it cannot answer. With `--generate`
the same model also writes answers to the questions that it can.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from output import say

from chroma_eddy import Document, Index, open_index
from eddy_demo.library.defaults import DEFAULT_PASSAGE_SIZE
from eddy_demo.web.answers.answering import extract_sentences
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
    options = command.parse_args(given)
    if options.data is None:
        command.error("name the folder of the tasks with --data, or set EDDY_EVAL_DATA")
    tasks: dict[str, Any] = {task.name: task for task in find_tasks(options.data, [options.task, options.other])}
    task, other = tasks[options.task], tasks[options.other]
    if not (isinstance(task, Retrieval) and isinstance(other, Retrieval)):
        command.error("--task and --other must be retrieval tasks")
    with (
        tempfile.TemporaryDirectory() as folder,
        Embedder(options.model) as embedder,
        open_index(folder, "library", embedder, passage_size=DEFAULT_PASSAGE_SIZE) as index,
    ):
        index.upsert(Document(id_, text) for id_, text in zip(task.ids, task.texts, strict=True) if text.strip())
        measure(index, task, other, options)


def measure(index: Index, task: Retrieval, other: Retrieval, options: Any) -> None:
    """Ask every question, and say what came of it."""

    def sentences(question: str) -> list[dict[str, Any]]:
        hits = index.query(question, CANDIDATES, hybrid=True, sentences=True)
        found: list[dict[str, Any]] = extract_sentences(index, hits)["sentences"]
        return found

    questions = task.queries[: options.questions]
    found = [sentences(question) for question in questions]
    answered = [at for at, each in enumerate(found) if each]
    right = sum(found[at][0]["document"] in task.grades[at] for at in answered)
    about_other = [sentences(question) for question in other.queries[: options.questions]]
    say(f"{task.name}, {options.model}: {len(answered)} of {len(questions)} questions are answered")
    say(f"{right} of these cite a relevant document first")
    say(f"{about_other.count([])} of {len(about_other)} questions of {other.name} are refused")
    if not options.generate:
        return
    generator = Generator.load(options.model, None)
    shown = left_out = answers = 0
    began = time.perf_counter()
    for at in answered:
        events = list(generator.write(questions[at], found[at]))
        own = sum(name == "cite" for name, _ in events)
        shown, answers, left_out = shown + own, answers + (own > 0), left_out + events[-1][1]["left_out"]
    seconds = (time.perf_counter() - began) / max(len(answered), 1)
    say(f"{shown} of {shown + left_out} written sentences are supported, in {answers} of {len(answered)} answers")
    say(f"{seconds:.1f} s an answer")


if __name__ == "__main__":
    main()
