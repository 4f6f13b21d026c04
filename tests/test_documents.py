"""The documents: examples run and print what the page shows, commands and options exist, links lead somewhere."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from eddy_embed.methods import registry
from eddy_embed.model.loading.catalog import CATALOG

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "tests/README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
SCORE = re.compile(r"-?\d+\.\d\d(?!\d)")

STORM = [
    "When waves are higher than two metres, the captain stays in the harbour,",
    "and passengers get their money back.",
]


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(path: str, language: str) -> list[str]:
    """Fenced blocks of a language, in order; ```` ```python skip ```` needs a model or a server and is not run."""
    return [m["body"] for m in FENCE.finditer(read(path)) if m["info"].split() == [language]]


@pytest.fixture(scope="module")
def smollm2_is_here(smollm2: Path, fetched_smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """SmolLM2 as `eddy models get` puts it there, and as Ollama would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDDY_CACHE", str(fetched_smollm2))
        patch.setenv("OLLAMA_MODELS", str(tmp_path_factory.mktemp("ollama")))
        put_into_ollama(smollm2, Path(os.environ["OLLAMA_MODELS"]))
        yield


def put_into_ollama(file: Path, folder: Path) -> None:
    """Put a model where Ollama does, as `llama3.2`."""
    digest = CATALOG["smollm2"].sha256
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": 0}
    manifest = folder / "manifests/registry.ollama.ai/library/llama3.2/latest"
    for parent in (manifest.parent, folder / "blobs"):
        parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": [layer]}), encoding="utf-8")
    (folder / "blobs" / f"sha256-{digest}").symlink_to(file)


def write_pdf(path: Path) -> None:
    """Write the file of two pages that the recipes read."""
    path.parent.mkdir()
    canvas = Canvas(str(path), pagesize=(900, 300))
    for lines in (["The ferry leaves the north pier every morning at half past eight."], STORM):
        for at, line in enumerate(lines):
            canvas.drawString(50, 250 - 14 * at, line)
        canvas.showPage()
    canvas.save()


@pytest.mark.parametrize("document", [document for document in DOCUMENTS if blocks(document, "python")])
def test_examples_print_what_the_page_shows(
    document: str, smollm2_is_here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of one document run in order and in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    write_pdf(tmp_path / "reports" / "guide.pdf")
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    page, namespace = read(document), {"__name__": "__main__"}
    fences = list(FENCE.finditer(page))
    for fence, following in pairwise([*fences, None]):
        if fence["info"].split() != ["python"]:
            continue
        code = "\n" * page[: fence.start("body")].count("\n") + fence["body"]
        with redirect_stdout(io.StringIO()) as out:
            exec(compile(code, str(ROOT / document), "exec"), namespace)
        is_output = following and following["info"] == "text" and not page[fence.end() : following.start()].strip()
        shown, printed = following["body"] if is_output else "", out.getvalue()
        assert SCORE.sub("0.00", printed) == SCORE.sub("0.00", shown), printed
        scores = [[float(score) for score in SCORE.findall(text)] for text in (printed, shown)]
        assert scores[0] == pytest.approx(scores[1], abs=0.011), printed


def shell_lines(document: str) -> list[str]:
    """Commands of the ```bash and ```console blocks, prompts and continuation lines resolved."""
    lines: list[str] = []
    for language in ("bash", "console", "sh"):
        for body in blocks(document, language):
            joined = body.replace("\\\n", " ")
            lines += [line.removeprefix("$ ").split(" #")[0].strip() for line in joined.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def test_documented_commands_exist() -> None:
    """Every `eddy` and `eddy-demo` line names an existing command and existing options, every `make` line a target."""
    targets = set(re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE))
    for document, line in ((each, line) for each in DOCUMENTS for line in shell_lines(each)):
        words = line.split()
        program = Path(words[0]).name
        if program == "make":
            assert {w for w in words[1:] if "=" not in w} <= targets, f"{document}: {line}"
        elif program in ("eddy", "eddy-demo") and len(words) > 1 and not words[1].startswith("-"):
            command = words[1:3] if words[1] in GROUPS else words[1:2]
            text = help_of(program, *command)
            for option in re.findall(r"(?<!\S)--[a-z-]+", line):
                assert option in text, f"{document}: {line}: {program} {' '.join(command)} has no {option}"


GROUPS = ("library", "models", "mteb")
"""Commands that have commands of their own."""


@cache
def help_of(program: str, *command: str) -> str:
    main = importlib.import_module({"eddy": "eddy_embed.cli", "eddy-demo": "eddy_demo.cli"}[program]).main
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", [program, *command, "--help"])
        for name, value in {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code, f"`{program} {' '.join(command)}` does not exist: {err.getvalue()}"
    return out.getvalue()


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_links_between_documents_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?://)([^)\s]+)", read(document)):
            file, _, anchor = target.partition("#")
            path = (ROOT / document).parent / file if file else ROOT / document
            assert path.exists(), f"{document} links to {target}"
            assert not anchor or anchor in anchors(path), f"{document} links to {target}, and there is no such heading"


def test_every_file_of_tests_stands_beside_its_promise() -> None:
    named = re.findall(r"`([\w/]*test_[\w*]+)`", read("tests/README.md").partition("| promise |")[2])
    left = set(named)
    for path in (ROOT / "tests").rglob("test_*.py"):
        matching = {name for name in named if path.match(f"{name}.py")}
        assert matching, f"{path.name} stands beside no promise in tests/README.md"
        left -= matching
    assert not left, f"no such tests: {sorted(left)}"
