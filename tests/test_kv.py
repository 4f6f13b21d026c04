"""KV re-routing: neutral without layers or mass, exact on both kernels, and every part of it noticed when wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import families
from tests.comparison import TEXTS, embedder, gap
from tests.selection import each_once, mostly_slow, slow

from eddy_embed import Embedder, methods
from eddy_embed.encoding import calibration
from eddy_embed.errors import InterventionDidNotRun, InvalidParameter
from eddy_embed.methods.kv import propose
from eddy_embed.model import attention
from eddy_embed.model.backbone import Backbone
from eddy_embed.parts.attention import ExtraKeyValues
from eddy_embed.text.calibration import calibration_text
from eddy_embed.text.sentences import Segmenter

ALL = [*families.FAMILIES, *families.MORE_FAMILIES]
METHOD = "kv:layers=2-4"


@pytest.mark.parametrize("family", mostly_slow(ALL, [*families.FAMILIES, "gpt_oss"]))
def test_no_layers_and_no_mass_are_the_prompt_alone(family: str) -> None:
    alone = embedder(family, 'kv:layers=""').encode_document(TEXTS)
    massless = embedder(family, "kv:layers=1-6,bias=-inf").encode_document(TEXTS)
    assert np.abs(massless - alone).max() < 1e-6
    assert np.abs(embedder(family, METHOD).encode_document(TEXTS) - alone).max() > 1e-4


MUTATIONS = {
    "bias dropped": lambda members, traits, reroute: (members, traits, replace(reroute, bias=0.0)),
    "last but one": lambda members, traits, reroute: (replace(members, last=members.last - 1), traits, reroute),
    "one entry more": lambda members, traits, reroute: (members, traits, replace(reroute, entries=2)),
    "scale forgotten": lambda members, traits, reroute: (members, replace(traits, scale=1.0), reroute),
}


@pytest.mark.parametrize(("family", "name"), each_once(["llama", "gemma2"], MUTATIONS))
def test_a_wrong_entry_is_noticed(family: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = attention.kernels.with_entries

    def wrong(*states: object) -> object:
        *rest, members, traits, reroute = states
        return right(*rest, *MUTATIONS[name](members, traits, reroute))

    monkeypatch.setattr(attention.kernels, "with_entries", wrong)
    assert gap(embedder(family, METHOD, exactly=True), family, METHOD, TEXTS) > 1e-5


def test_a_skipped_layer_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    e = embedder("llama", METHOD)
    e._pipeline.runner._reroute = ExtraKeyValues((3, 3))
    with pytest.raises(InterventionDidNotRun, match="re-routing"):
        e.encode_document("Salt.")


def test_published_layers_and_none_for_other_models() -> None:
    # Layers 12-21, 13-19, and 10-11, 20, 26-31 of the paper, which counts them from 0.
    published = {
        Backbone("qwen3", 36, 2560, 151936, 32768): range(13, 23),
        Backbone("mistral", 32, 4096, 32000, 32768): range(14, 21),
        Backbone("llama", 32, 4096, 128256, 131072): (11, 12, 21, 27, 28, 29, 30, 31, 32),
    }
    for model, known in published.items():
        for method in ("kv", "plain+reroute"):
            assert methods.resolve(methods.parse(method), model).reroute.layers == tuple(known)
    with pytest.raises(InvalidParameter, match=r"(?s)kv:layers=auto .* about 1 s on two cores; kv:layers=13-22"):
        embedder("llama", "kv")


@pytest.mark.parametrize(
    ("asked", "found"),
    [("kv:layers=auto", "kv:layers=5"), slow("plain+reroute:layers=auto", "plain+reroute:layers=5")],
)
def test_layers_found_on_general_text_are_those_that_are_proposed(
    asked: str, found: str, tmp_path: Path, monkeypatch, caplog
) -> None:
    monkeypatch.setenv("EDDY_CACHE", str(tmp_path))
    text, segmenter = calibration_text(), Segmenter("xx")
    sentences = {s.text for passage in text.passages for s in segmenter.sentences(passage)} | set(text.questions)
    read, usual = [], calibration.last_states

    def states_of(pipeline: Any, texts: list[str], bar: Any) -> Any:
        read.append((set(texts), usual(pipeline, texts, bar)))
        return read[-1][1]

    monkeypatch.setattr(calibration, "last_states", states_of)
    with caplog.at_level("INFO", "eddy_embed"):
        made = Embedder("eddy-tiny", method=f"{asked},exit=-2" if asked.startswith("kv") else asked, check=False)
    ((texts, states),) = read
    assert texts == sentences
    assert made.method.reroute.layers == propose(calibration.dimensions_of(states)).layers == (5,)
    assert str(made.method).startswith(found) and f"method='{found}" in repr(made)
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == ["layers=auto: kv:layers=5"]
    monkeypatch.setattr(calibration, "last_states", None)  # once is enough
    again = Embedder("eddy-tiny", method=str(made.method).replace("5", "auto", 1), check=False)
    assert again.fingerprint == made.fingerprint and len(caplog.records) == 1
    (kept,) = (tmp_path / "layers").iterdir()
    kept.write_text("[")
    with pytest.raises(TypeError):  # it would be measured again
        Embedder("eddy-tiny", method=asked, check=False)


def test_bad_values_and_layers_that_never_run_are_refused() -> None:
    for bad in (
        *("layers=9-3", 'layers="5-2"', "layers=true", 'layers="a-b"', "layers=0"),
        *("n=0", "bias=nan", "bias=inf", 'verb="{x}"', 'verb=" "', "pool=most"),
    ):
        with pytest.raises(InvalidParameter):
            methods.parse(f"kv:{bad}")
    for bad, said in (("layers=5-9", "above the model"), ("layers=4-5,exit=3", "no effect")):
        with pytest.raises(InvalidParameter, match=said):
            embedder("llama", f"kv:{bad}")
