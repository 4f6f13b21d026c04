"""Files written whole or not at all, on disks that are full and in folders that are closed; signals on the way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from tests.command_line import run
from tests.comparison import TEXTS
from tests.disk import files_of_at_most

from eddy_embed import Embedder
from eddy_embed.parts.postprocess import Fitted
from eddy_embed.utils.atomic_files import atomic_write
from eddy_embed.utils.interrupts import Interrupted, stoppable


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with atomic_write(target) as file:
        file.write(b"first")
        assert not target.exists()
    with atomic_write(str(target)) as file:
        file.write(b"second")
        assert target.read_bytes() == b"first"
    assert target.read_bytes() == b"second"
    for error in (KeyError, KeyboardInterrupt, Interrupted):
        with pytest.raises(error), atomic_write(target) as file:
            file.write(b"half")
            raise error
    (tmp_path / "link").symlink_to(target)
    with atomic_write(tmp_path / "link") as file:
        file.write(b"third")
    assert (tmp_path / "link").is_symlink() and target.read_bytes() == b"third"
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_errors_name_the_file_and_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before")
    with pytest.raises(IsADirectoryError) as error, atomic_write(tmp_path):
        pytest.fail("the block must not run: the place is tried first")
    assert error.value.filename == str(tmp_path)
    with pytest.raises(OSError, match="No space left on device") as error, atomic_write("/dev/full") as file:
        file.write(b"x")
    assert error.value.filename == "/dev/full"
    with pytest.raises(FileNotFoundError, match="another") as error, atomic_write(tmp_path / "file"):
        (tmp_path / "another").read_bytes()
    assert (tmp_path / "file").read_bytes() == b"before" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("suffix", [".npy", ".jsonl"])
def test_vectors_that_do_not_fit_on_the_disk(suffix: str, tmp_path: Path, capsys, monkeypatch) -> None:
    output = tmp_path / f"vectors{suffix}"
    command = ("embed", "The ferry leaves at noon.", "--method", "plain", "--output", str(output))
    with files_of_at_most(100):
        assert run(capsys, monkeypatch, *command) == (1, "", f"eddy: {output}: File too large\n")
    assert os.listdir(tmp_path) == []
    assert run(capsys, monkeypatch, *command) == (0, "", "")
    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "encode_document", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        assert run(capsys, monkeypatch, *command) == (143, "", "eddy: Stopped by SIGTERM\n")
    assert os.listdir(tmp_path) == [output.name] and output.stat().st_size > 1000


def test_a_place_that_cannot_be_written_to_is_found_before_the_work(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(Embedder, "__init__", lambda *_, **__: pytest.fail("a model was loaded"))
    (tmp_path / "file").touch()
    for place, reason in [("file/x.npy", "Not a directory"), ("absent/x.jsonl", "No such file or directory")]:
        found = run(capsys, monkeypatch, "embed", "text", "-o", str(tmp_path / place))
        assert found == (1, "", f"eddy: {tmp_path / place}: {reason}\n")
    (tmp_path / "full.npy").symlink_to("/dev/full")
    monkeypatch.undo()
    said = f"eddy: {tmp_path / 'full.npy'}: No space left on device; make room, or write to another disk\n"
    found = run(capsys, monkeypatch, "embed", "text", "--method", "plain", "-o", str(tmp_path / "full.npy"))
    assert found == (1, "", said)


def test_what_was_fitted_is_saved_whole(tmp_path: Path) -> None:
    fitted, path = Embedder("eddy-tiny", method="plain+centre").fit(TEXTS), tmp_path / "post.npz"
    fitted.save(path)
    with files_of_at_most(100), pytest.raises(OSError, match="File too large") as error:
        fitted.save(path)
    assert error.value.filename == str(path)
    assert np.array_equal(Fitted.load(path).mean, fitted.mean) and len(os.listdir(tmp_path)) == 1


def test_signals_become_one_exception_and_are_given_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    for number, said in ((signal.SIGINT, "Interrupted"), (signal.SIGHUP, "Stopped by SIGHUP")):
        with pytest.raises(Interrupted, match=said) as stop, stoppable():
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], 5)
        assert stop.value.status == 128 + number
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stoppable():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
