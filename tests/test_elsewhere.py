"""Everything on a device that is not the processor: nothing is left behind there or here, and vectors are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests import families, processes
from tests import test_matrix as matrix
from tests.selection import mostly_slow
from tests.test_contract import EVERY

from eddy_embed.errors import UnsupportedModel

SAME = 5e-6
"""Attention runs by other kernels there, which round otherwise."""
MOST = ["kv:layers=2-4+htp:range=1-3+tempscale:tau=0.6+readout", "reba:pool=mean"]
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Asks a process in which torch knows the device."""
    from tests.elsewhere import answer, register

    with ProcessPoolExecutor(1, processes.context(), register) as process:
        yield lambda *asked, **named: process.submit(answer, *asked, **named).result()


def held(found: dict[str, Any]) -> None:
    """In half precision, as far apart as it is from float32 on the processor."""
    assert found["device"] == "elsewhere:0" and "embedding" in found["ran"]
    assert found["apart"] <= max(SAME, 1.5 * found["rounding"])


@pytest.mark.slow  # the first of them by a family of `test_every_family`
@pytest.mark.parametrize("method", dict.fromkeys([*MOST, *EVERY, "plain", "kv:layers=2-4,rebase=true"]))
def test_every_method(method: str, ask: Ask) -> None:
    held(ask("llama", method))


@pytest.mark.parametrize("family", mostly_slow(matrix.ROWS, ["gpt_oss", "bert"]))
def test_every_family(family: str, ask: Ask) -> None:
    own = family in families.OWN_ATTENTION or family in families.ENCODERS
    held(ask(family, "plain+tempscale:tau=0.7+last2avg" if own else MOST[0]))


@pytest.mark.parametrize("dtype", mostly_slow(["float32", "bfloat16"], ["bfloat16"]))
def test_a_model_opened_by_its_name(dtype: str, tmp_path: Path, ask: Ask) -> None:
    for part in families.build("qwen3"):
        part.save_pretrained(tmp_path)
    held(ask("qwen3", "kv:layers=2-4", dtype, str(tmp_path)))


def test_what_is_left_behind_is_refused(ask: Ask) -> None:
    """The device forgives nothing: with one index on the processor, it says so."""
    with pytest.raises(UnsupportedModel, match="two devices"):
        ask("llama", "kv:layers=2-4", forgotten="to")
