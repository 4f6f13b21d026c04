"""The endpoint under load and beside clients that misbehave, by the clients that measure it; what they call wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.adapters.serving import Served, serving, until

from eddy_embed import Embedder
from openai_eddy.limits import Limits

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
METHOD = "plain:exit=1"


@pytest.fixture(scope="module", autouse=True)
def reachable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        patch.setattr("endpoint.trouble.ALONE", 5)
        yield


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder("eddy-tiny", method=METHOD, dtype="float32")


@pytest.fixture(scope="module")
def known(embedder: Embedder) -> Any:
    from endpoint.clients import Known

    return Known.of(embedder, 24)


@pytest.fixture(scope="module")
def served(embedder: Embedder) -> Iterator[Served]:
    with serving({METHOD: embedder}, Limits(requests=3), names=["model"]) as found:
        yield found


def test_another_text_s_vector_is_wrong(known: Any) -> None:
    from endpoint.clients import Wrong

    known.check(3, known.vectors[3])
    for bad in (known.vectors[4], known.vectors[3][:10], np.full_like(known.vectors[3], np.nan)):
        with pytest.raises(Wrong, match="text 3"):
            known.check(3, bad)


@pytest.mark.slow
async def test_load_beyond_what_may_wait(served: Served, known: Any) -> None:
    """Each answer is a refusal with a time, or the vector of its text; `/health` answers all along."""
    from endpoint.clients import load
    from endpoint.trouble import overload

    found = await load(served.port, known, concurrency=2, seconds=0.3, warm_up=0.05)
    assert found.answered >= 2 and len(found.latencies) <= found.answered
    crowd = await overload(served.port, known, clients=12, seconds=0.5)
    assert crowd.refused > 0 and crowd.answered > 0 and crowd.health > 0


@pytest.mark.slow
async def test_nobody_notices_clients_that_misbehave(embedder: Embedder, known: Any) -> None:
    from endpoint.trouble import MISDEEDS, endure

    patient = Limits(header_seconds=300, body_seconds=300, write_seconds=300)
    with serving({METHOD: embedder}, patient, names=["model"]) as served:
        found = await endure(served.port, known, requests=150, clients=4)
        assert found.requests >= 150 and set(found.misdeeds) == set(MISDEEDS) and min(found.misdeeds.values()) > 0
        assert found.files[1] <= found.files[0] and 150 in found.memory
        await asyncio.to_thread(until, served.at_rest)


def test_ratios_are_of_one_round() -> None:
    from endpoint.report import levels
    from endpoint.servers import EDDY, PEER

    def row(system: str, answers: int) -> dict[str, Any]:
        return {"system": system, "concurrency": 1, "seconds": 2.0, "latencies": [0.01] * answers}

    both = [(EDDY, 10), (PEER, 5), (PEER, 20), (EDDY, 20), (EDDY, 9), (PEER, 3)]
    eddy, peer = levels([row(*each) for each in both])
    assert eddy["ratio"] == [2.0, 1.0, 3.0] and peer["ratio"] == [1.0, 1.0, 1.0]
    assert (eddy["per_second"], eddy["p50"], eddy["requests"]) == (5.0, 10.0, 39)


@pytest.mark.slow
def test_a_trial_of_the_whole_measurement(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "serve_load.py"), "--trial", "--json", str(tmp_path / "load.json")]
    child = subprocess.run(command, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    assert "| 2 | eddy |" in child.stderr and (tmp_path / "load.json").exists()
