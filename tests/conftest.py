"""What every test runs under: no network, no telemetry, one seed, and no more threads than the machine has."""

from __future__ import annotations

import os
import random
import runpy
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
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
    PYTHONPATH=os.pathsep.join(filter(None, [str(NETGUARD), os.environ.get("PYTHONPATH", "")])),
)
if "PYTEST_XDIST_WORKER" in os.environ:
    # Several workers share the cores: more threads in each only take turns.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

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


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers for every test, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  (libraries under test may use the global generator)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def eval_data() -> Iterator[Path]:
    """The folder of evaluation data that EDDY_EVAL_DATA names; tests that ask for it carry the marker `slow`."""
    folder = os.environ.get("EDDY_EVAL_DATA")
    if not folder:
        pytest.skip("EDDY_EVAL_DATA names no folder of evaluation data")
    if not Path(folder).is_dir():
        pytest.fail(f"EDDY_EVAL_DATA is {folder!r}, which is not a folder")
    yield Path(folder)
