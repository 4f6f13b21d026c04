"""Every parameter of every method changes vectors and the fingerprint: none is ignored, none is left out."""

from __future__ import annotations

import inspect
from functools import cache

import numpy as np
import pytest
from tests.comparison import TEXTS, embedder

from eddy_embed import methods

LIBRARY = [*TEXTS, "Snow fell.", "Two oars and a map.", "The bell rang at noon; nobody came.", "Bread needs salt."]
JOINED = ("tempscale", "centre", "standardise", "abtt", "whiten", "truncate", "start", "last2avg", "layeravg")
BASES = {
    **{name: f"plain+{name}" for name in JOINED},
    **{"tp": "tp:range=1-3,exit=-1", "htp": "htp:range=1-3,exit=4", "kv": "kv:layers=2-4"},
    **{"reroute": "plain+reroute:layers=2-4", "sif": "plain+sif:a=0.01", "filter": "plain+filter:drop=2"},
    "readout": "htp:range=1-3,exit=4+cot+readout",
}
CHANGES = {
    **{name: [] for name in ("best", "fast", "last2avg", "centre", "standardise")},
    **{name: ["exit=3", "released_text=true"] for name in ("prompteol", "cot", "knowledge")},
    "recommended": ["use=similarity"],
    "plain": ["pool=last", "exit=3", "preset=htp"],
    "metaeol": ['prompts="A: {text} is"', "exit=3", "released_text=true"],
    "echo": ["preset=bare", "exit=3", "k=3"],
    "tp": [
        *("prompt=cot", "range=1-2", "exit=4", "placeholders=2", "source=text", "released_text=true", "seed=1"),
        "init=ones",
    ],
    "htp": [
        *("k=2", "range=1-4", "exit=-1", "pool=all", "local_only=true", "global_only=true", "every=3"),
        *("source=released", "released_text=true", "seed=1"),
    ],
    "kv": ["layers=2-3", "bias=0", "n=2", "rebase=true", "verb=Summarize", "pool=mean", "exit=4"],
    "reroute": ["layers=2-3", "bias=0", "n=2", "rebase=true"],
    "reba": ["k=3", "pool=mean", 'joiner=", "', "piece=5", "variant=released", "exit=4", "last_layer_only=true"],
    "tempscale": ["tau=0.5", "query_tau=0.5", 'lengths="1:0.7"', "rule=log", "rule=rate,rate=0.2"],
    "readout": ["pool=last", "exit=4", "placeholders=true", "prompt=true", "specials=true"],
    "start": ["token=</s>"],  # none changes nothing here: the tokenizer puts <s> there
    "sif": ["a=0.1"],
    "filter": ["drop=3"],
    "layeravg": ["layers=2-3"],
    "abtt": ["k=2"],
    "whiten": ["dims=3", "power=0.5"],
    "truncate": ["dims=3"],
}


def changed(name: str, change: str) -> str:
    """The base with one parameter set anew."""
    base = BASES.get(name, name)
    key = change.partition("=")[0]
    if name == "tp" and key == "source":  # over plain, the sequence's last token is the text's
        base += ",prompt=cot"
    if key == "specials":  # ahead of a prompt they count only with it
        base += ":prompt=true"
    head, colon, given = base.rpartition("+")[2].partition(":")
    kept = [one for one in given.split(",") if colon and not one.startswith(f"{key}=")]
    return base[: len(base) - len(head + colon + given)] + f"{head}:{','.join([*kept, change])}"


@cache
def made(method: str) -> tuple[np.ndarray, str]:
    """Vectors of queries, and the fingerprint."""
    e = embedder("llama", method, query_instruction="Find it")
    if e.method.post is not None and e.method.post.learns:
        e.fit(LIBRARY)
    return e.encode_query(TEXTS), e.fingerprint


def test_no_parameter_is_left_out() -> None:
    for name in methods.names():
        parameters = set(inspect.signature(getattr(methods, name)).parameters)
        assert parameters == {"rate" if "rate=" in change else change.partition("=")[0] for change in CHANGES[name]}


@pytest.mark.parametrize(
    ("name", "change"),
    # What is recommended for a use depends on the model: test_recommended has those where the uses differ.
    [(name, change) for name, some in CHANGES.items() for change in some if name != "recommended"],
)
def test_a_parameter_changes_vectors_and_the_fingerprint(name: str, change: str) -> None:
    meant = {"source=text": ("tp", "prompt=cot"), "specials=true": ("readout", "prompt=true")}
    base = changed(*meant[change]) if change in meant else BASES.get(name, name)
    (before, print_before), (after, print_after) = made(base), made(changed(name, change))
    assert print_before != print_after
    assert before.shape != after.shape or np.abs(before - after).max() > 1e-5
