"""Processes of their own for tests, forked off from one that has imported what takes seconds to import."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import types
from multiprocessing.context import ForkServerContext
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PRELOADED = [
    *("torch", "transformers.models.llama.modeling_llama", "chromadb", "spacy", "tantivy", "chroma_eddy"),
    *("chroma_eddy.index", "eddy_demo.cli.work", "eddy_embed.cli"),
]

UNPRIVILEGED = """
import ctypes, sys
libc = ctypes.CDLL(None)
class Header(ctypes.Structure): _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
class Data(ctypes.Structure): _fields_ = [(n, ctypes.c_uint32) for n in ("effective", "permitted", "inheritable")]
assert libc.capset(ctypes.byref(Header(0x20080522, 0)), (Data * 2)()) == 0
"""
"""Code to begin with: permissions then hold for root too, as they do for others."""


def context() -> ForkServerContext:
    """What makes processes: what they run is imported there by name, as with any process that is spawned."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(_PRELOADED)
    return found


def run_code(code: str, *arguments: object, cwd: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
    """What `python -c CODE ARGUMENTS` does there, to its end."""
    given = [str(each) for each in arguments]
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = context().Process(target=_run, args=(code, given, cwd, {**os.environ, **environ}, out, err))
        process.start()
        process.join()
        return subprocess.CompletedProcess(given, process.exitcode or 0, out.read_text("utf-8"), err.read_text("utf-8"))


class Command:
    """What `python -c CODE ARGUMENTS` does there, until it ends or gets a signal.

    Signals have the handlers of a fresh interpreter: the server that forks gives back those it began with.
    """

    def __init__(self, code: str, *arguments: object, err: Path, **environ: str) -> None:
        """Start it; what it writes to its standard error is in the file `err`."""
        self._err = err
        err.touch()
        given = [str(each) for each in arguments]
        values = (code, given, ROOT, {**os.environ, **environ}, Path(os.devnull), err)
        self._process = context().Process(target=_run, args=values, daemon=True)  # it does not outlive the tests
        self._process.start()

    @property
    def said(self) -> str:
        return self._err.read_text("utf-8")

    @property
    def status(self) -> int | None:
        """The status it ended with, a negative one if by a signal."""
        return self._process.exitcode

    def signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait(self, seconds: float) -> int | None:
        self._process.join(seconds)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _run(code: str, arguments: list[str], cwd: Path, environ: dict[str, str], out: Path, err: Path) -> None:
    for number, file in ((1, out), (2, err)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    sys.argv = ["-c", *arguments]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(code, "<string>", "exec"), main.__dict__)
