"""Quick tests under each Python, with the oldest and the newest packages that pyproject.toml admits there.

python -m tests.versions --python 3.12 --bounds oldest     # default: all eight

uv makes an environment for each in `.versions`, and fetches interpreters that are missing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".versions"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
BOUNDS = {"oldest": "lowest-direct", "newest": "highest"}
"""What is taken of each range -> how uv calls it."""
TOOLS = ("hypothesis", "langchain-tests", "pytest", "pytest-asyncio", "pytest-xdist")
"""What the tests need beside the package; as in constraints.txt, since tools are not what is tried here."""
QUICK = (
    *("tests/test_kernels.py", "tests/test_matrix.py", "tests/test_host.py", "tests/test_encoders.py"),
    *("tests/test_segment.py", "tests/test_command_line.py", "tests/adapters/test_chroma_function.py"),
    *("tests/adapters/test_langchain_texts.py", "tests/adapters/test_llama_index_embedding.py"),
    "tests/adapters/test_embeddings.py",
)


def uv(*arguments: str) -> None:
    """Run uv."""
    subprocess.run([sys.executable, "-m", "uv", "--quiet", *arguments], check=True)


def run(python: str, bounds: str) -> bool:
    """Make an environment of packages that come as wheels, and say whether the tests pass in it."""
    folder = ENVIRONMENTS / f"{python}-{bounds}"
    interpreter = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    tools, packages = folder / "tools.txt", folder / "packages.txt"
    here, wheels = ("--python", str(interpreter)), ("--only-binary", ":all:")
    uv("venv", "--clear", "--python", python, str(folder))
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tools.write_text("\n".join(pin for pin in pins if re.split("[=; ]", pin)[0] in TOOLS), encoding="utf-8")
    wanted = ("--resolution", BOUNDS[bounds], "--extra", "all", str(ROOT / "pyproject.toml"), str(tools))
    uv("pip", "compile", *here, *wheels, *wanted, "--output-file", str(packages))
    uv("pip", "install", *here, *wheels, "--requirements", str(packages))
    uv("pip", "install", *here, "--no-deps", "--editable", str(ROOT))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    pytest = [interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider", *QUICK]
    return subprocess.run(pytest, cwd=ROOT, env=environment).returncode == 0


def main() -> None:
    """Run what is asked for, and fail unless everything passes."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", choices=PYTHONS, help="may be repeated; default: all")
    parser.add_argument("--bounds", action="append", choices=BOUNDS, help="may be repeated; default: both")
    asked = parser.parse_args()
    cells = [(python, bounds) for python in asked.python or PYTHONS for bounds in asked.bounds or BOUNDS]
    failed = [f"Python {python}, {bounds} packages" for python, bounds in cells if not run(python, bounds)]
    sys.exit(f"not passed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
