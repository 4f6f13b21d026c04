"""Choose the bundled model's recommended methods on the development tasks, and on nothing else.

    python benchmarks/choose.py --data $EDDY_EVAL_DATA

sweeps methods, exit layers and post-processing on stsb_dev and cranfield, writes all outcomes to
`benchmarks/results/eddy-tiny-dev.json`, and prints the best of each as the model's entry in
`plugin/eddy_embed/methods/recommended.py`. Interrupted, the same command goes on.

To use two processors, measure some methods beside the others, and join the journals, which are lines, before the
command above: `--measure --method metaeol --journal runs/other.jsonl`.
"""

from __future__ import annotations

from grid import CHOSEN_FROM, DEV, RAW, RESULTS, about, evaluation, parser, say, variants

from eddy_embed import Embedder, methods
from eddy_embed.analysis.evaluate import tables
from eddy_embed.analysis.evaluate.results import ResultStore, TaskResult
from eddy_embed.analysis.evaluate.systems import WORDS, System, beside
from eddy_embed.analysis.evaluate.tasks import find_tasks

EXITS = (-1, -2, -3, -4, -5, -6, -7, -8)
POSTS = ("", "+centre", "+abtt:k=2", "+whiten", "+whiten:dims=128")
SHOWN = 12


def main() -> None:
    """Sweep, choose, write, print."""
    given = parser("Choose the bundled model's recommended methods on stsb_dev and cranfield.", "eddy-tiny.jsonl")
    given.add_argument("--model", default="eddy-tiny")
    given.add_argument("--fresh", action="store_true", help="measure everything again")
    options = given.parse_args()
    if options.data is None:
        given.error("name the folder of the tasks with --data, or set EDDY_EVAL_DATA")
    wanted = variants(Embedder(options.model, method="plain"), EXITS, POSTS)
    if options.method:
        wanted = [text for text in wanted if text.startswith(tuple(options.method))]
    measuring = evaluation(options.model, ResultStore(options.journal, fresh=options.fresh))
    outcomes: list[TaskResult] = []
    for task in find_tasks(options.data, options.task or list(DEV.values())):
        suited = [text for text in wanted if task.name != DEV["retrieval"] or _passages(text)]
        systems = beside([*suited, *(f"{RAW}{post}" for post in POSTS)], "plain", query_mean=True)
        if options.measure and options.method:
            systems = [system for system in systems if system.text in wanted]
        outcomes += measuring.run(systems, [task])
    if options.measure:
        return
    held = {(outcome.system, outcome.task): outcome for outcome in outcomes}
    entry = []
    for purpose, task in DEV.items():
        ranked = sorted((o for o in outcomes if o.task == task), key=lambda outcome: -outcome.score())
        say(f"\n{purpose}: {task}, {ranked[0].metric}")
        for outcome in ranked[:SHOWN]:
            say(f"  {outcome.score():.4f}  {outcome.system.label}")
        best = next(outcome for outcome in ranked if _eligible(outcome, purpose))
        entry.append(_recommendation(purpose, best, held[best.system.reference("plain"), task]))
        say(f"chosen for {purpose}: {best.system.text}")
    command = " ".join(["python benchmarks/choose.py", *(f"--method {name}" for name in options.method or [])])
    embedder = Embedder(options.model, method="plain")
    head = {**about(options.model, embedder, command), "dev": list(DEV.values()), "candidates": len(wanted)}
    RESULTS.mkdir(exist_ok=True)
    rows = tables.summary([outcome for outcome in outcomes if outcome.system.fit_on is None], "plain")
    tables.save(CHOSEN_FROM, head, rows)
    say(f"written: {CHOSEN_FROM}\nfor plugin/eddy_embed/methods/recommended.py:")
    print("\n".join(entry))  # noqa: T201


def _recommendation(purpose: str, best: TaskResult, reference: TaskResult) -> str:
    """The code of a recommendation: the method, its score beside that of `plain`, and its post-processing."""
    method = str(methods.with_post(best.system.method, None))
    post = best.system.text.removeprefix(method).removeprefix("+")
    scores = {f"{best.task}, {best.metric}": (round(best.score(), 4), round(reference.score(), 4))}
    fitted = f", post={post!r}" if post else ""
    return f"{purpose}=Recommendation({method!r}, {scores}{fitted}),"


def _eligible(outcome: TaskResult, purpose: str) -> bool:
    """Whether it can be a default: no baseline, without sample queries, and for retrieval with vectors of passages."""
    system: System = outcome.system
    if system.text in WORDS or system.text.startswith(RAW) or system.query_mean:
        return False
    return purpose != "retrieval" or _passages(system.text)


def _passages(text: str) -> bool:
    """Whether a method gives vectors of passages; those that give none are not measured for retrieval here."""
    readout = methods.parse(text).readout
    return readout is not None and readout.spans


if __name__ == "__main__":
    main()
