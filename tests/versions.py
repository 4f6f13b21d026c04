"""The table of versions: `python -m tests.versions` runs tests under each and writes the table into docs/versions.md.

A cell is a Python and the oldest or the newest packages that the ranges in pyproject.toml admit there. It has an
environment of its own, made by uv. A cell passes when every test of it passed. Everything else is told as what it is:
tests that failed or were skipped, a crash, packages that do not go together, an interpreter that this machine lacks.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
PAGE, RESULTS = ROOT / "docs" / "versions.md", ROOT / "tests" / "versions.json"
BEGIN, END = "<!-- table: make versions -->", "<!-- end of table -->"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
BOUNDS = {"oldest": "lowest-direct", "newest": "highest"}
"""What a cell takes of each range -> how uv calls it. The packages' own dependencies are the newest that they admit."""
SHOWN = ("torch", "transformers", "tokenizers", "numpy", "spacy", "chromadb", "llama-index-core", "langchain-core")
TOOLS = ("hypothesis", "langchain-tests", "pytest", "pytest-asyncio", "pytest-xdist")
"""What `QUICK` needs beside the package; exactly as in constraints.txt, since tools are not what is tried here."""
QUICK = (
    "tests/test_kernels.py",
    "tests/test_matrix.py",
    "tests/test_host.py",
    "tests/test_encoders.py",
    "tests/test_segment.py",
    "tests/test_command_line.py",
    "tests/adapters/test_chroma_function.py",
    "tests/adapters/test_langchain_embeddings.py",
    "tests/adapters/test_llama_index_embedding.py",
)
"""Every kernel, every family under every method against the reference, the command line, each framework's classes."""


class NotRun(Exception):
    """A cell could not be made or did not end, with the reason."""


@dataclass(frozen=True)
class Cell:
    """What came of a Python and a set of packages.

    Attributes:
        python: As asked for, "3.12".
        bounds: "oldest" or "newest".
        tests: "quick" or "all".
        date: When it ran.
        interpreter: The exact Python, "3.12.1"; empty where there was none.
        versions: Those of `SHOWN`.
        passed: Tests.
        failed: Tests, errors of fixtures among them.
        skipped: Tests.
        seconds: That the tests took.
        reason: Why they did not run to their end; empty where they did.
    """

    python: str
    bounds: str
    tests: str
    date: str
    interpreter: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: int = 0
    reason: str = ""

    @property
    def passes(self) -> bool:
        """Whether all tests ran, and passed."""
        return self.passed > 0 and not (self.failed or self.skipped or self.reason)

    @property
    def outcome(self) -> str:
        """In words."""
        if self.reason:
            return f"not run: {self.reason}"
        rest = [f"{number} {word}" for number, word in ((self.failed, "failed"), (self.skipped, "skipped")) if number]
        return ", ".join([f"{self.passed} passed", *rest])


# --- the results, and the table made of them


def read() -> list[Cell]:
    """The committed results."""
    return [Cell(**row) for row in json.loads(RESULTS.read_text(encoding="utf-8"))] if RESULTS.exists() else []


def merged(cells: Iterable[Cell]) -> list[Cell]:
    """In the order of the table, the last of each kind."""
    found = {(cell.python, cell.bounds): cell for cell in cells}
    return [found[key] for key in itertools.product(PYTHONS, BOUNDS) if key in found]


def printed(cells: Iterable[Cell]) -> str:
    """The table in Markdown, with a line for each cell that has no result."""
    found = {(cell.python, cell.bounds): cell for cell in cells}
    lines = [f"| Python | packages | {' | '.join(SHOWN)} | tests | of | on |", "|---" * (len(SHOWN) + 5) + "|"]
    for python, bounds in itertools.product(PYTHONS, BOUNDS):
        cell = found.get((python, bounds), Cell(python, bounds, "", "", reason="no result yet"))
        versions = [cell.versions.get(name, "") for name in SHOWN]
        values = [cell.interpreter or cell.python, cell.bounds, *versions, cell.outcome, cell.tests, cell.date]
        lines.append(f"| {' | '.join(values)} |")
    return "\n".join(lines)


def write(cells: list[Cell]) -> None:
    """Put the results into their file, and the table into its page."""
    RESULTS.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    page = f"{before}{BEGIN}\n{printed(cells)}\n{END}{rest.partition(END)[2]}"
    PAGE.write_text(page, encoding="utf-8")


# --- one cell


def run(python: str, bounds: str, every: bool, environments: Path) -> Cell:
    """Make the environment of a cell and run the tests in it."""
    blank = Cell(python, bounds, "all" if every else "quick", datetime.date.today().isoformat())
    folder = environments / f"{python}-{bounds}"
    interpreter, versions = "", {}
    try:
        prepare(python, bounds, every, folder)
        interpreter, versions = look(folder)
        counts = tried(every, folder)
    except NotRun as error:
        return Cell(**asdict(blank) | {"interpreter": interpreter, "versions": versions, "reason": str(error)})
    return Cell(**asdict(blank) | {"interpreter": interpreter, "versions": versions, **counts})


def prepare(python: str, bounds: str, every: bool, folder: Path) -> None:
    """Make the environment: the newest or the oldest packages that come as wheels, and this tree.

    Raises:
        NotRun: There is no such interpreter, or the packages do not go together.
    """
    uv("venv", "--clear", "--python", python, str(folder))
    tools, packages = folder / "tools.txt", folder / "packages.txt"
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tools.write_text("\n".join(pin for pin in pins if re.split("[=; ]", pin)[0] in TOOLS), encoding="utf-8")
    wanted = ["--extra", "all", *(["--extra", "dev"] if every else []), str(ROOT / "pyproject.toml"), str(tools)]
    here, wheels = ("--python", str(python_of(folder))), ("--only-binary", ":all:")
    uv("pip", "compile", *here, *wheels, "--resolution", BOUNDS[bounds], *wanted, "--output-file", str(packages))
    uv("pip", "install", *here, *wheels, "--requirements", str(packages))
    uv("pip", "install", *here, "--no-deps", "--editable", str(ROOT))


def uv(*arguments: str) -> None:
    """Run uv.

    Raises:
        NotRun: It says no; with the first line of what it says.
    """
    child = subprocess.run([sys.executable, "-m", "uv", "--quiet", *arguments], stderr=subprocess.PIPE, text=True)
    if child.returncode:
        sys.stderr.write(child.stderr)
        said = [line for line in child.stderr.splitlines() if line.startswith("error:")] or ["error: uv failed"]
        raise NotRun(said[0].removeprefix("error:").strip())


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def look(folder: Path) -> tuple[str, dict[str, str]]:
    """The exact Python of an environment, and the versions in it, without what comes behind a plus sign."""
    code = (
        "import json, platform, sys; from importlib.metadata import version; "
        "print(json.dumps([platform.python_version(), {name: version(name) for name in sys.argv[1:]}]))"
    )
    child = subprocess.run([python_of(folder), "-c", code, *SHOWN], stdout=subprocess.PIPE, text=True, check=True)
    interpreter, versions = json.loads(child.stdout)
    return interpreter, {name: version.partition("+")[0] for name, version in versions.items()}


def tried(every: bool, folder: Path) -> dict[str, int]:
    """Run the tests; how many passed, failed and were skipped, and the seconds.

    Raises:
        NotRun: They did not run to their end.
    """
    report = folder / "report.xml"
    pytest = [python_of(folder), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    child = subprocess.run([*pytest, *(["tests"] if every else QUICK)], cwd=ROOT, env=env)
    if child.returncode not in (0, 1) or not report.exists():
        raise NotRun(f"pytest ended with exit status {child.returncode}")
    return counted(report.read_text(encoding="utf-8"))


def counted(report: str) -> dict[str, int]:
    """The numbers in pytest's report."""
    (suite,) = ElementTree.fromstring(report).iter("testsuite")
    number = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    failed = number["failures"] + number["errors"]
    return {
        "passed": number["tests"] - failed - number["skipped"],
        "failed": failed,
        "skipped": number["skipped"],
        "seconds": round(float(suite.attrib["time"])),
    }


def main() -> None:
    """Run the cells asked for, write what came of them, and fail unless all of them pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this Python; may be repeated")
    parser.add_argument("--bounds", action="append", choices=BOUNDS, help="only these packages; may be repeated")
    parser.add_argument("--all", action="store_true", help="every test, with the packages of the extra `dev`")
    parser.add_argument("--table", action="store_true", help="run nothing; write the table again")
    parser.add_argument("--environments", type=Path, default=ROOT / ".versions", help="where they are made")
    asked = parser.parse_args()
    bad = 0
    for python in [] if asked.table else asked.python or PYTHONS:
        for bounds in asked.bounds or BOUNDS:
            cell = run(python, bounds, asked.all, asked.environments.resolve())
            bad += not cell.passes
            sys.stderr.write(f"Python {python}, {bounds} packages: {cell.outcome}\n")
            write(merged([*read(), cell]))
    if asked.table:
        write(read())
    sys.exit(f"{bad} cells do not pass" if bad else 0)


if __name__ == "__main__":
    main()
