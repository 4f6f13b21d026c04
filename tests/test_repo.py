"""The repository itself: who imports whom, how light the import is, what the wheel holds, what the documents claim."""

from __future__ import annotations

import ast
import asyncio
import re
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import eddy_embed

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "plugin" / "eddy_embed"

# --- Who imports whom -------------------------------------------------------------------------------------------------
# Lower floors first: a package of the plugin imports from the floors below it and from itself.
FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"errors"}),
    frozenset({"utils"}),
    frozenset({"text"}),
    frozenset({"parts"}),
    frozenset({"model"}),
    frozenset({"methods"}),
    frozenset({"encoding"}),
    frozenset({"embedder", "reranker"}),
    frozenset({"integrations"}),
    frozenset({"cli"}),
)
PARTS = {"attention", "copy_edges", "layout", "postprocess", "readout"}
"""What a method sets: modules that never import each other, so that each can be read alone."""


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def imported(path: Path) -> list[tuple[str, int]]:
    """Dotted names that a file imports, with their lines; `from a import b` gives `a.b`."""
    names: list[tuple[str, int]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            front = f"{'.' * node.level}{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
            names += [(front + alias.name, node.lineno) for alias in node.names]
    return names


def floor(package: str) -> int:
    for number, packages in enumerate(FLOORS):
        if package in packages:
            return number
    raise AssertionError(f"eddy_embed.{package} has no place among the floors of tests/test_repo.py: give it one")


PLUGIN_FILES = sorted(p for p in PLUGIN.rglob("*.py") if p.name != "__init__.py" or p.parent != PLUGIN)
ADAPTER_FILES = sorted((ROOT / "adapters").rglob("*.py"))
DEMO_FILES = sorted((ROOT / "demos").rglob("*.py"))
ADAPTERS = (
    *("llama_index.embeddings.eddy", "llama_index.node_parser.eddy", "llama_index.postprocessor.eddy", "ray_eddy"),
    *("llama_index.vector_stores.eddy", "langchain_eddy", "chroma_eddy", "mteb_eddy", "openai_eddy", "readers_eddy"),
)
OVER_CHROMA = ("llama_index/vector_stores", "langchain_eddy/vector_store.py", "ray_eddy")  # ways to an index
FRAMEWORKS = (
    *("llama_index", "langchain", "langchain_core", "langchain_chroma", "chromadb"),
    *("datasets", "fastapi", "mteb", "pyarrow", "ray", "uvicorn"),
)


def package_of(path: Path) -> str:
    """First component below eddy_embed: `methods/htp.py` belongs to `methods`."""
    return path.relative_to(PLUGIN).parts[0].removesuffix(".py")


def starts_with(name: str, *prefixes: str) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def imports(paths: Iterable[Path]) -> Iterator[tuple[Path, str, str]]:
    """Each file with each name that it imports, and both in words."""
    for path in paths:
        for name, line in imported(path):
            yield path, name, f"{path.relative_to(ROOT)}:{line} imports {name}"


def test_plugin_imports_downwards() -> None:
    for path, name, where in imports(PLUGIN_FILES):
        own = package_of(path)
        assert not starts_with(name, *FRAMEWORKS, *ADAPTERS, "eddy_demo", "tiny_lm"), f"{where}: the plugin knows none"
        if not starts_with(name, "eddy_embed") or (other := name.split(".")[1]) == own:
            continue
        assert floor(other) < floor(own), f"{where}: upwards or sideways"


def test_parts_never_import_each_other() -> None:
    for path, name, where in imports(PLUGIN / "parts" / f"{part}.py" for part in PARTS):
        others = (f"eddy_embed.parts.{part}" for part in PARTS - {path.stem})
        assert not starts_with(name, *others), where


def test_only_the_model_package_names_transformers() -> None:
    for path, name, where in imports(PLUGIN_FILES):
        assert package_of(path) == "model" or not starts_with(name, "transformers"), where


def lines(folder: str) -> int:
    """Lines of a file, or of the code and Markdown files of a folder, without those of a folder named apart."""
    place = ROOT / folder
    apart = [ROOT / other for other in BUDGET if other.startswith(f"{folder}/")]
    files = [place] if place.is_file() else [f for f in place.rglob("*") if not set(apart) & set(f.parents)]
    files = [file for file in files if file.suffix in (".py", ".js", ".css", ".html", ".md")]
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


BUDGET = {
    "plugin": 15_410,
    "adapters/chroma_eddy": 4348,
    "adapters/llama_index": 1314,
    "adapters/langchain_eddy": 942,
    "adapters/openai_eddy": 700,
    "adapters/mteb_eddy": 299,
    "adapters/ray_eddy": 253,
    "adapters/readers_eddy": 4492,
    "demos": 6592,
    "tests": 26_626,
    "docs": 2706,
    "README.md": 112,
    "benchmarks": 4374,
}
"""Most lines of a folder. The numbers only fall; a rise needs a commit of its own that says who asked for it."""


@pytest.mark.parametrize("folder", BUDGET)
def test_no_folder_outgrows_its_budget(folder: str) -> None:
    assert lines(folder) <= BUDGET[folder], f"{folder} has {lines(folder)} lines: take something out first"


def test_no_circle_among_files() -> None:
    """Also where only the types of another file are named."""
    files = {module(path): path for path in (*PLUGIN_FILES, *ADAPTER_FILES, *DEMO_FILES)}
    graph = {}
    for own, path in files.items():
        named = {name if name in files else name.rpartition(".")[0] for name, _ in imported(path)}
        graph[own] = named & files.keys() - {own}
    while ends := {name for name in graph if not graph[name] or name not in set().union(*graph.values())}:
        graph = {name: others - ends for name, others in graph.items() if name not in ends}
    assert not graph, f"in circles: {sorted(graph)}"


def module(path: Path) -> str:
    """Dotted name of a file of the plugin, the adapters or the demos."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__")


def test_adapters_know_no_demo_and_no_other_framework() -> None:
    packages = ("llama_index", "langchain_eddy", "chroma_eddy", "openai_eddy", "mteb_eddy", "ray_eddy")
    frameworks = {"langchain_eddy": ("langchain", "langchain_core"), "openai_eddy": ("fastapi",), "ray_eddy": ("ray",)}
    for path, name, where in imports(ADAPTER_FILES):
        within = path.relative_to(ROOT / "adapters")
        others = {part for own in packages if own != within.parts[0] for part in (own, *frameworks.get(own, ()))}
        if within.as_posix().startswith(OVER_CHROMA):
            others.remove("chroma_eddy")
        assert not starts_with(name, "eddy_demo", "tiny_lm", *others), where


SURFACE = {
    *("embedder", "reranker", "errors", "methods", "cli.options", "encoding.build", "encoding.document"),
    *("encoding.validation", "integrations", "model.loading", "parts.layout", "parts.postprocess", "text.sentences"),
    *("utils.arrays", "utils.atomic_files", "utils.extras", "utils.interrupts", "utils.settings"),
}
"""The modules of the plugin that adapters and demos import from, with what lies below them."""


def test_adapters_and_demos_import_from_the_public_surface() -> None:
    surface = [f"eddy_embed.{name}" for name in (*SURFACE, *eddy_embed.__all__)]
    for _, name, where in imports((*ADAPTER_FILES, *DEMO_FILES)):
        if starts_with(name, "eddy_embed"):
            assert starts_with(name, *surface), f"{where}, which is not among SURFACE"


OVER_INDEX = ("adapters/llama_index", "adapters/langchain_eddy", "adapters/ray_eddy", "demos")
"""Who uses the index by its front door."""


def test_the_index_has_one_front_door() -> None:
    import chroma_eddy

    for _, name, where in imports(file for folder in OVER_INDEX for file in sorted((ROOT / folder).rglob("*.py"))):
        if starts_with(name, "chroma_eddy"):
            inside = ("database", "database.translated_errors")  # of the demo, which keeps files beside the index
            assert name.partition(".")[2] in ("", *inside, *chroma_eddy.__all__), f"{where}, which is not public"


def test_references_are_independent() -> None:
    for _, name, where in imports(sorted((ROOT / "tests" / "reference").rglob("*.py"))):
        if starts_with(name, "eddy_embed"):
            assert starts_with(name, "eddy_embed.text.sequence"), f"{where}, not TokenSequence"


DEPENDENCIES = {
    *("accelerate", "filelock", "gguf", "huggingface_hub", "numpy", "pydantic", "rich", "safetensors", "spacy"),
    *("tokenizers", "torch", "transformers", "typer"),
}
EXTRAS = {"model/loading/peft.py": {"peft"}, "model/loading/pretrained.py": {"sentence_transformers"}}


def test_plugin_needs_what_it_declares() -> None:
    for path, name, where in imports(PLUGIN_FILES):
        extra = EXTRAS.get(path.relative_to(PLUGIN).as_posix(), set())
        assert name.split(".")[0] in DEPENDENCIES | extra | sys.stdlib_module_names | {"eddy_embed"}, where


def test_dependencies_are_declared() -> None:
    block = re.search(r"^dependencies = \[(.*?)^\]", read("pyproject.toml"), re.MULTILINE | re.DOTALL)
    assert block
    assert set(re.findall(r'^ *"([\w-]+)', block[1], re.MULTILINE)) == DEPENDENCIES


APART = {"mteb", "ocr", "ray", "sentence-transformers"}
"""Extras that `all` leaves out, since they bring many packages for few users."""


def test_all_and_dev_have_every_extra() -> None:
    """`make test` installs both: an extra that neither has is missing in a fresh clone, and nowhere else."""
    section = read("pyproject.toml").partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    extras = set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE)) - {"all", "dev"}
    of_all, of_dev = (
        re.search(rf'^{name} = \[\s*"eddy-embed\[(.*?)\]"', section, re.MULTILINE) for name in ("all", "dev")
    )
    assert of_all and set(of_all[1].split(",")) == extras - APART
    assert of_dev and set(of_dev[1].split(",")) == APART


# --- The network is blocked -------------------------------------------------------------------------------------------
ELSEWHERE = "192.0.2.1"  # TEST-NET-1 of RFC 5737, assigned to nobody


def test_other_machines_are_out_of_reach() -> None:
    code = f"socket.create_connection(({ELSEWHERE!r}, 80), timeout=1)"
    for reach in (
        lambda: exec(code),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (ELSEWHERE, 53)),
        lambda: socket.getaddrinfo("example.org", 443),
        lambda: socket.gethostbyname("example.org"),
        lambda: asyncio.run(asyncio.open_connection(ELSEWHERE, 80)),
    ):
        with pytest.raises(OSError, match="is blocked: tests run without a network"):
            reach()
    child = subprocess.run([sys.executable, "-c", f"import socket; {code}"], capture_output=True, text=True)
    assert child.returncode != 0 and "is blocked" in child.stderr


# --- What an import costs ---------------------------------------------------------------------------------------------
STARTS = {
    # What starts in an instant.
    ("torch", "transformers", "chromadb", "numpy", "spacy"): [
        "import eddy_embed.errors; assert not {'typer', 'pydantic'} & set(sys.modules)",
        *(f"show_help('eddy_embed.cli', {words})" for words in ([], ["embed"], ["mteb", "run"], ["serve"])),
        *(f"show_help('eddy_demo.cli', {words})" for words in ([], ["ask"], ["serve"])),
        "show_help('eddy_demo.cli', ['ask', 'x', '-l', 'nowhere'], option='--json')",  # there is no library
    ],
    ("torch", "transformers"): [
        "from eddy_embed.cli import app; app(['models'], standalone_mode=False)",
        # mteb alone takes seconds to import.
        *("import mteb_eddy", *(f"from {name} import *" for name in ADAPTERS if name != "mteb_eddy")),
        # What they hush while Chroma is imported is heard again.
        "import warnings as w; assert not [f for f in w.filters if f[2] is Warning and not (f[1] and f[1].pattern)]",
    ],
}
SHOW_HELP = """
import contextlib, importlib, io, sys
def show_help(module, words, option="--help"):
    sys.argv = [module, *words, option]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        importlib.import_module(module).main()
"""


def test_imports_and_help_do_without_torch() -> None:
    code = [
        f"{line}\nassert not set({absent}) & set(sys.modules), {line!r}"
        for absent, lines in STARTS.items()
        for line in lines
    ]
    script = "\n".join([SHOW_HELP, *code])
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr


# --- The wheel --------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from hatchling.builders.wheel import WheelBuilder

    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"])
    return Path(built)


WEB = ROOT / "demos" / "eddy_demo" / "web"


def test_the_wheel_holds_what_a_user_needs_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tiny = "eddy_embed/model/tiny"
    packages = (*ADAPTERS, "eddy_demo.cli", "eddy_embed")
    wanted = {
        *(f"{package.replace('.', '/').removesuffix('/cli')}/py.typed" for package in packages),
        *(f"{tiny}/{name}.json" for name in ("config", "tokenizer", "tokenizer_config")),
        f"{tiny}/model.safetensors",
        *(f"{package.replace('.', '/')}/__init__.py" for package in packages),
        "eddy_embed/text/calibration_text.json",
        *(
            f"eddy_embed/encoding/calibrations/{path.name}"
            for path in (ROOT / "plugin/eddy_embed/encoding/calibrations").iterdir()
        ),
        *("mteb_eddy/instructions.json", "mteb_eddy/suites.json"),
        *(f"eddy_demo/web/{path.relative_to(WEB).as_posix()}" for path in WEB.rglob("*.*") if path.suffix != ".pyc"),
        *(f"eddy_demo/handbook/{page.name}" for page in (ROOT / "docs").glob("*.md")),
    }
    assert wanted - set(names) == set()
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {package.split(".")[0] for package in packages}
    shared = ("", *(f"/{name}" for name in ("embeddings", "node_parser", "postprocessor", "vector_stores")))
    assert not {f"llama_index{folder}/__init__.py" for folder in shared} & set(names)
    assert not [name for name in {*names} - wanted if name.endswith((".pyc", ".pt", ".npz")) or "__pycache__" in name]


def test_one_version_everywhere(wheel: Path) -> None:
    import eddy_embed

    assert wheel.name.startswith(f"eddy_embed-{eddy_embed.__version__}-")
    assert re.search(rf"^## \[({re.escape(eddy_embed.__version__)}|Unreleased)\]", read("CHANGELOG.md"), re.MULTILINE)
