"""Without an extra's packages: each public class names the extra, and the demo still shows its help."""

from __future__ import annotations

import subprocess
import sys

ABSENT = """
import sys
from importlib.machinery import PathFinder

class Others(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in absent else super().find_spec(name, path, target)

absent = sys.argv.pop(1).split(",")
sys.meta_path = [Others if each is PathFinder else each for each in sys.meta_path]
"""
"""Code to begin with: packages are not found, as if they were not installed."""
STATEMENTS = {
    "from langchain_eddy import EddyEmbeddings": ("langchain_core", "langchain"),
    "from langchain_eddy import EddyChroma": ("langchain_core", "langchain"),
    "from llama_index.embeddings.eddy import EddyEmbedding": ("llama_index.core", "llama-index"),
    "from llama_index.node_parser.eddy import LongDocumentNodeParser": ("llama_index.core", "llama-index"),
    "from llama_index.vector_stores.eddy import EddyChromaVectorStore": ("chromadb", "llama-index"),
    "from chroma_eddy import open_index": ("chromadb", "chroma"),
    "from mteb_eddy import EddyEncoder": ("mteb", "mteb"),
    "from openai_eddy import create_app": ("fastapi", "serve"),
    "from ray_eddy import EddyEmbed": ("ray", "ray"),
    "from ray_eddy import ingest": ("ray", "chroma,ray"),
    "from readers_eddy.documents import read_documents": ("bs4", "readers"),
    "from eddy_demo.web.server import create_app": ("fastapi", "demo"),
}
HELP = """
from eddy_demo.cli import main
sys.argv[1:] = ["ask", "--help"]
main()
"""


def test_classes_name_the_extra_and_the_demo_shows_its_help() -> None:
    code = (
        f"for statement in {list(STATEMENTS)}:\n"
        "    try:\n"
        "        exec(statement)\n"
        "    except ImportError as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    absent = {package for package, _ in STATEMENTS.values()} | {"jinja2", "lxml", "mammoth", "pypdfium2", "tantivy"}
    command = [sys.executable, "-c", ABSENT + code + HELP, ",".join(absent)]
    ended = subprocess.run(command, capture_output=True, text=True)
    lines = [
        f'MissingExtra {package} is not installed; pip install "eddy-embed[{extra}]"'
        for package, extra in STATEMENTS.values()
    ]
    assert ended.stdout.splitlines()[: len(lines)] == lines, ended.stderr
    assert ended.returncode == 0 and "Usage" in ended.stdout and ended.stderr == ""
