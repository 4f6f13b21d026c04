"""Does it help a window to know what stood in the windows before it? Block summaries carried over, against none.

    python benchmarks/long_carry.py --data $EDDY_EVAL_DATA

`htp` puts summaries of a window's blocks ahead of it. Here those of the last blocks of earlier windows stand there
too, as further B-PST entries, and get the states of these blocks' ends between the layers, as the window's own do. All
windows of a document share a pass, so that what is carried is an edge from one sequence to another; a window has what
it would have if they were run one after another.

Compared are: nothing carried; summaries carried; as many placeholders that carry nothing, which take the same room and
move the same positions. Measured is what `long_retrieval.py` measures: finding abstracts in joined documents, whose
windows have little to do with each other, and stories, whose windows have. Outcomes are kept in a journal: interrupted,
the same command goes on. They go to `benchmarks/results/MODEL-carry.json` and, as a table, to `docs/long-documents.md`;
with `--limit 3` nowhere.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from long_retrieval import PASSAGES, POSTS, STORIES, Library, joined, outcomes_of, rounded, shown, whole
from numpy.typing import NDArray
from output import RESULTS, ROOT, put, say

from eddy_embed import Embedder, LongDocument, __version__, methods
from eddy_embed.analysis.evaluate.results import Cost, ResultStore, TaskResult
from eddy_embed.analysis.evaluate.systems import System
from eddy_embed.analysis.evaluate.tasks import Retrieval, find_tasks
from eddy_embed.encoding.runner import Runner
from eddy_embed.text.sequence import PLACEHOLDER_ID, Packed, Role, Sequence, Window, pack

Ints = NDArray[np.int64]

RUNS = (("cranfield", -7, 512, 32), ("cranfield", -7, 2048, 256), ("squality", -7, 2048, 256))
"""Task, exit, tokens of a window, and the most summaries that are carried into one."""
WAYS = ("nothing", "carried", "empty")


def main() -> None:
    """Measure, compare, write."""
    options = _arguments()
    tasks = {task.name: task for task in find_tasks(options.data, ["cranfield", "squality"])}
    libraries = {
        name: joined(task, options.limit) if name == "cranfield" else whole(task, options.limit or STORIES)
        for name, task in tasks.items()
        if isinstance(task, Retrieval)
    }
    journal = ResultStore(options.journal, fresh=options.fresh)
    rows = []
    for name, exit_layer, window, most in RUNS:
        found = [measured(libraries[name], exit_layer, window, most, way, options, journal) for way in WAYS]
        rows += [_row(libraries[name].name, window, most, *three) for three in zip(*found, strict=True)]
    say(f"\n{_table(rows)}")
    if options.limit is not None:
        return
    about = {
        "model": options.model,
        "version": __version__,
        "passage_size": options.passage_size,
        "command": " ".join(["python", "benchmarks/long_carry.py", *sys.argv[1:]]),
        "rows": rows,
    }
    target = RESULTS / f"{Path(options.model).name}-carry.json"
    target.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    put(ROOT / "docs" / "long-documents.md", "long-carry", _table(rows))
    say(f"written: {target}, docs/long-documents.md")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("EDDY_EVAL_DATA"), help="default: $EDDY_EVAL_DATA")
    parser.add_argument("--model", default="eddy-tiny")
    parser.add_argument("--passage-size", type=int, default=128, help="tokens (default: 128)")
    parser.add_argument("--limit", type=int, help="documents, to try it")
    parser.add_argument("--journal", type=Path, default=ROOT / "runs" / "carry.jsonl")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    found = parser.parse_args()
    if found.data is None:
        parser.error("name the folder of the tasks with --data, or set EDDY_EVAL_DATA")
    return found


def measured(
    library: Library,
    exit_layer: int,
    window: int,
    most: int,
    way: str,
    options: argparse.Namespace,
    journal: ResultStore,
) -> list[TaskResult]:
    """A library in windows that get summaries in one of the ways, with each post-processing."""
    method = str(methods.parse(f"htp:exit={exit_layer}"))
    name = f"{library.name}, windows of {window}, {way}"
    room = window if way == "nothing" else window - most
    with Embedder(options.model, method=method, max_length=room, dtype="float32") as embedder:
        identity = {
            "version": __version__,
            "fingerprint": embedder.fingerprint,
            "data": library.data,
            "passage_size": options.passage_size,
            "most": 0 if way == "nothing" else most,
        }
        systems = [System.named(f"{method}{post}") for post in POSTS]
        held = [journal.find(system, name, identity) for system in systems]
        if all(held):
            return [outcome for outcome in held if outcome is not None]
        started = time.perf_counter()
        documents = read(embedder, library.texts, options.passage_size, 0 if way == "nothing" else most, way != "empty")
        asked = embedder.encode_query(library.queries)
        seconds, counts = time.perf_counter() - started, embedder.counts
    found = outcomes_of(
        library, name, documents, asked, systems, Cost(seconds, counts.tokens, counts.positions), identity
    )
    for outcome in found:
        journal.add(outcome)
        say(f"{name}: {outcome.system.text}: ndcg@10 {outcome.score():.4f}, {seconds:.0f} s")
    return found


def read(embedder: Embedder, texts: list[str], passage_size: int, most: int, filled: bool) -> list[LongDocument]:
    """Documents with their passages, each window knowing of the ones before it.

    Args:
        embedder: Of `htp`; its windows leave room for what is carried.
        texts: The documents.
        passage_size: Most tokens in a passage.
        most: Most entries ahead of a window.
        filled: Whether the entries carry anything.
    """
    pipeline = embedder._pipeline
    carrying = Carrying.of(pipeline.open_runner, most, filled)
    return list(replace(pipeline, runner=carrying).documents(texts, passage_size, True, None, PASSAGES))


class Carrying(Runner):
    """Runs all windows of a document in one pass, with copies from one to the next."""

    @classmethod
    def of(cls, runner: Runner, most: int, filled: bool) -> Carrying:
        """The same runner, with at most so many entries ahead of a window."""
        found = cls.__new__(cls)
        found.__dict__.update(runner.__dict__)
        found.batch_tokens, found._most, found._filled = sys.maxsize, most, filled
        return found

    def run(self, planned: Any, divisions: Any, bar: Any, role: Any = "document") -> Any:
        """Run texts one after another."""
        pairs = zip(planned, divisions, strict=True)
        return [super(Carrying, self).run([plan], [spans], bar, role)[0] for plan, spans in pairs]

    def _pass(self, jobs: Any, divisions: Any, role: Any) -> Any:
        order = sorted(range(len(jobs)), key=lambda at: int(jobs[at].sequence.starts[jobs[at].counted[0]]))
        moved, self._carried = carried([jobs[at] for at in order], self._most, self._filled)
        results = super()._pass(moved, [divisions[at] for at in order], role)
        return [results[order.index(at)] for at in range(len(jobs))]

    def hidden(self, sequences: Any, *_: Any, **__: Any) -> tuple[Any, Packed]:
        """States of all tokens, those of carried entries copied across windows."""
        packed = pack(sequences)
        edges = [(packed.offsets[a] + b, packed.offsets[c] + d) for a, b, c, d in self._carried]
        both = np.concatenate([packed.edges, np.array(edges, np.int64).reshape(-1, 2)])
        packed = replace(packed, edges=both)
        return self.host.run(packed, self._rewired, self._values, layers=self._layers), packed


def carried(jobs: Seq[Window], most: int, filled: bool) -> tuple[list[Window], list[tuple[int, int, int, int]]]:
    """Put entries ahead of each window for the last blocks that end before its text begins.

    Args:
        jobs: The windows of a document, in order.
        most: Most entries ahead of a window.
        filled: Whether they carry anything.

    Returns:
        The windows, and the copies: window and position of the entry, window and position of its block's end.
    """
    moved: list[Window] = []
    copies: list[tuple[int, int, int, int]] = []
    ends: list[tuple[int, int, int]] = []  # of blocks: the character, window and position
    for number, job in enumerate(jobs):
        sequence = job.sequence
        begins = int(sequence.starts[sequence.text[0]])
        known = [(window, position) for character, window, position in ends if character <= begins]
        known = known[max(len(known) - most, 0) :]
        at = int(np.flatnonzero(sequence.roles == Role.BPST)[0])
        moved.append(Window(_with_entries(sequence, at, len(known)), job.counted + len(known), job.share))
        if filled:
            copies += [(number, at + entry, *source) for entry, source in enumerate(known)]
        sequence = moved[-1].sequence
        into, sources = sequence.edges.T
        for position in sources[sequence.roles[into] == Role.PST].tolist():
            # Where windows overlap, a block counts as the later one reads it.
            ends = [end for end in ends if end[0] != sequence.ends[position]]
            ends.append((int(sequence.ends[position]), number, position))
    return moved, copies


def _with_entries(sequence: Sequence, at: int, count: int) -> Sequence:
    def put_in(values: Ints, value: int) -> Ints:
        return np.insert(values, at, np.full(count, value, np.int64))

    return replace(
        sequence,
        ids=put_in(sequence.ids, PLACEHOLDER_ID),
        roles=put_in(sequence.roles, int(Role.BPST)),
        starts=put_in(sequence.starts, -1),
        ends=put_in(sequence.ends, -1),
        copies=put_in(sequence.copies, -1),
        edges=sequence.edges + count * (sequence.edges >= at),
    )


def _row(task: str, window: int, most: int, nothing: TaskResult, full: TaskResult, empty: TaskResult) -> dict[str, Any]:
    scores = {way: rounded(each.interval()) for way, each in zip(WAYS, (nothing, full, empty), strict=True)}
    return {
        "task": task,
        "method": nothing.system.text,
        "window": window,
        "carried": most,
        "queries": len(nothing.metrics["ndcg@10"]),
        "ndcg@10": scores,
        "over_nothing": rounded(full.difference(nothing)),
        "over_empty": rounded(full.difference(empty)),
    }


def _table(rows: list[dict[str, Any]]) -> str:
    return "\n".join(
        [
            "| task | method | window | summaries | nDCG@10 without | gain over none | gain over empty placeholders |",
            "|---|---|---|---|---|---|---|",
            *(
                f"| {row['task']} | `{row['method']}` | {row['window']:,} | {row['carried']} | "
                f"{row['ndcg@10']['nothing'][0]:.3f} | {shown(row['over_nothing'])} | {shown(row['over_empty'])} |"
                for row in rows
            ),
        ]
    )


if __name__ == "__main__":
    main()
