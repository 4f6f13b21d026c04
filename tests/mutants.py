"""Which tests of the engine catch which of the faults of `test_mutations`; the list is tests/caught.json.

python -m tests.mutants NOW.json      # makes a new list; fails if nothing catches a fault, names what no longer does
python -m tests.mutants               # goes on with the list itself, if it has not all faults yet

Each fault is put into a fork of one process, which has run every test once, so that what they build is there. A test of
the tests, in a quarter of an hour: for whoever takes tests out.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from _pytest.runner import runtestprotocol
from tests import comparison
from tests.test_mutations import INSTRUCTION, METHODS, MUTATIONS, Mutation, fails

from eddy_embed.model.host import ModelView

FILE = Path(__file__).parent / "caught.json"
OWN = "test_mutations.py::test_mutation_is_noticed"
TESTS = ("methods", "layout", "readout", "equalities", "windows")
SECONDS = 600
"""Most that the tests may take with one fault."""


def tolerated_at_load(mutation: Mutation) -> None:
    """Put the fault in, but not while a model is loaded: the check there would fail every test alike."""
    patch, make = pytest.MonkeyPatch(), ModelView.__init__

    def unharmed(*args: Any, **named: Any) -> None:
        patch.undo()
        make(*args, **named)
        mutation.apply(patch)

    ModelView.__init__ = unharmed  # type: ignore[method-assign]
    mutation.apply(patch)


def outcomes(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, list[pytest.TestReport]]]:
    """Each test with what failed of it."""
    for item, after in zip(items, [*items[1:], items[0]], strict=True):
        yield item, [report for report in runtestprotocol(item, log=False, nextitem=after) if report.failed]


def caught(session: pytest.Session, name: str) -> dict[str, int]:
    """The tests that fail with a fault, and in how many cases; changes this process for good."""
    mutation = MUTATIONS[name]
    method = [method for method in METHODS if mutation.concerns(method)][-1]
    if mutation.loads:
        mutation.apply(pytest.MonkeyPatch())
        comparison._hosts.clear()
    else:
        tolerated_at_load(mutation)
    e = comparison.embedder(mutation.family, method, exactly=True, query_instruction=INSTRUCTION)
    found = Counter({OWN: 1} if fails(e, mutation.family, method) else {})
    concerned = [
        item for item in session.items if "test_methods" not in item.nodeid or item.nodeid.endswith(f"-{method}]")
    ]
    for item, failed in outcomes(concerned):
        found[item.nodeid.partition("[")[0].removeprefix("tests/")] += bool(failed)
    return {test: count for test, count in sorted(found.items()) if count}


class Mutants:
    """Plugin that runs the collected tests once as they are, then in a fork for each fault that the file lacks."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lists: dict[str, dict[str, int]] = json.loads(file.read_text("utf-8")) if file.exists() else {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for _, failed in outcomes(session.items):
            assert not failed, failed[0].longreprtext
        for name in (name for name in MUTATIONS if name not in self.lists):
            here, there = multiprocessing.Pipe(duplex=False)
            send = lambda name=name, there=there: there.send(caught(session, name))  # noqa: E731
            process = multiprocessing.get_context("fork").Process(target=send)
            process.start()
            if not here.poll(SECONDS):
                process.kill()
                raise TimeoutError(f"{name}: no answer within {SECONDS} s")
            self.lists[name] = here.recv()
            process.join()
            self.file.write_text(json.dumps(self.lists, indent=1) + "\n", "utf-8")
            sys.stderr.write(f"{name}: {sum(self.lists[name].values())}\n")
        return True


def main() -> None:
    """Make a list, and compare it with the old one."""
    mutants = Mutants(Path(sys.argv[1]) if sys.argv[1:] else FILE)
    os.environ["OMP_NUM_THREADS"] = "1"  # threads do not survive a fork
    torch.set_num_threads(1)
    files = [str(FILE.with_name(f"test_{name}.py")) for name in TESTS]
    status = pytest.main(["-q", "-p", "no:cacheprovider", *files], plugins=[mutants])
    old = json.loads(FILE.read_text("utf-8"))
    for name in old:
        for test in old[name].keys() - mutants.lists[name].keys():
            sys.stderr.write(f"{name}: no longer caught by {test}\n")
    wrong = [name for name in MUTATIONS if bool(mutants.lists.get(name)) is name.startswith("none")]
    sys.exit("\n".join(wrong) or status)


if __name__ == "__main__":
    main()
