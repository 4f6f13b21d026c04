"""Processes that read files, forked off from one that has imported what readers need: each import takes a while."""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_MODULES = [
    *("bs4", "lxml.etree", "mammoth", "markdown_it", "markdownify", "openpyxl", "pptx", "pypdfium2", "yaml"),
    "eddy_demo.readers.markup",
    "eddy_demo.readers.pdf",
    "eddy_demo.readers.worker",
    "eddy_demo.web.uploads.page_worker",
]
_DIGITS = 16
"""Of each number that is told of a process: its id, and how it ended."""
_ROOT = Path(__file__).resolve().parents[2]


class ForkedReader:
    """What `ReaderProcess` uses of a `subprocess.Popen`, which a command of `worker_command` runs as."""

    def __init__(self, command: list[str], cwd: Path, **_: Any) -> None:
        module, *arguments = command[command.index("-m") + 1 :]
        asked = json.dumps([module, arguments, str(cwd)]).encode()
        (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
        self._status, theirs = socket.socketpair()
        control, lock = _server()
        with lock:  # which the other side has read once it names the process
            socket.send_fds(control, [asked], [read_in, write_out, theirs.fileno()])
            for each in (read_in, write_out):
                os.close(each)
            theirs.close()
            self.pid = int(self._status.recv(_DIGITS, socket.MSG_WAITALL))
        self.stdin, self.stdout = os.fdopen(write_in, "wb"), os.fdopen(read_out, "rb")
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None and not self._ended(0):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._ended(timeout):
                raise subprocess.TimeoutExpired([], timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int(self._status.recv(_DIGITS, socket.MSG_WAITALL)))
            self._status.close()
        return self.returncode

    def _ended(self, timeout: float | None) -> bool:
        self._status.settimeout(timeout)
        try:
            return bool(self._status.recv(1, socket.MSG_PEEK))
        except (BlockingIOError, TimeoutError):
            return False


def _run(command: list[str], input: bytes, cwd: Path, timeout: float, **_: Any) -> subprocess.CompletedProcess[bytes]:
    child = ForkedReader(command, cwd)
    with child.stdin, child.stdout:
        child.stdin.write(input)
        child.stdin.close()
        return subprocess.CompletedProcess(command, stdout=child.stdout.read(), returncode=child.wait(timeout))


SUBPROCESS = SimpleNamespace(
    Popen=ForkedReader,
    run=_run,
    PIPE=subprocess.PIPE,
    DEVNULL=subprocess.DEVNULL,
    TimeoutExpired=subprocess.TimeoutExpired,
)
"""In place of the module `subprocess` where such processes are started."""


@functools.cache
def _server() -> tuple[socket.socket, threading.Lock]:
    """Start the process that forks; it ends with this one, which holds the other end of its socket."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.demo.forked_readers", str(theirs.fileno())]
    subprocess.Popen(command, cwd=_ROOT, pass_fds=[theirs.fileno()], start_new_session=True)
    theirs.close()
    return ours, threading.Lock()


def _serve(control: socket.socket) -> None:
    for module in _MODULES:
        importlib.import_module(module)
    while True:
        asked, fds, *_ = socket.recv_fds(control, 2**16, 3)
        if not asked:
            return
        if os.fork() == 0:
            control.close()
            _watch(*json.loads(asked), *fds)
        for each in fds:
            os.close(each)
        with suppress(ChildProcessError):  # those that have ended
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _watch(module: str, arguments: list[str], folder: str, stdin: int, stdout: int, status: int) -> None:
    """Run a worker in a process whose parent is this one, which tells how it ended."""
    if child := os.fork():
        for each in (stdin, stdout):
            os.close(each)
        os.write(status, b"%*d" % (_DIGITS, child))
        ended = os.waitpid(child, 0)[1]
        os.write(status, b"%*d" % (_DIGITS, ended))
        os._exit(0)
    os.close(status)
    os.setsid()
    os.chdir(folder)
    for number, own in enumerate((stdin, stdout, os.open(os.devnull, os.O_WRONLY))):
        os.dup2(own, number)
        os.close(own)
    sys.argv = [module, *arguments]
    importlib.import_module(module).main()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
