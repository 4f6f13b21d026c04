"""What the engine's tests share: methods with the parameters of their references, texts, and the comparison itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests import families
from tests.reference import methods as reference
from tests.reference.double import AllDouble, double

from eddy_embed import Embedder, Segmenter
from eddy_embed.encoding import build
from eddy_embed.encoding.build import LoadedModel, host_for
from eddy_embed.methods import prompts
from eddy_embed.model.host import ModelView

WORDINGS = (
    '{placeholder}This sentence : "{text}" means in one word:"',
    'This sentence : "{placeholder}{text}" means in one word:"',
    'This sentence : "{text}"{placeholder} means in one word:"',
    'After thinking step by step ,{placeholder} this sentence : "{text}" means in one word:"',
    "Note {placeholder}{text} in one word",
)
"""Token Prepending's placements (table 3 of the paper), and one after a blank."""
CALIBRATION = (
    (
        *("The tide rises twice a day.", "Bread needs flour, water and salt.", "Nobody counted the oars in spring."),
        *("He sold maps: old ones.", "Copper became dearer after 1971", "x = [n for n in values if n]"),
        *("The council will vote on bridges, tolls and ferries again!", "Snow fell on the pass", "A bell rang."),
    ),
    ("When does the ferry leave?", "who wrote it", "How much salt is in bread?", "Which maps are old", "why copper?"),
)
"""Passages and questions, each a sentence, that the embedders here fit post-processing on."""


def case(name: str, **parameters: Any) -> tuple[str, dict[str, Any]]:
    """A method of the reference, and its parameters."""
    return name, parameters


TWO_PROMPTS = ("A: {text} is", "{text} means:")
METAEOL = 'metaeol:prompts="A: {text} is\\n{text} means:"'
METHODS = {
    "plain": case("plain"),
    "plain:pool=last": case("plain", pool="last"),
    "plain:pool=weighted,exit=-2": case("plain", pool="weighted", exit=-2),
    "plain:pool=hybrid,exit=3": case("plain", pool="hybrid", exit=3),
    "plain:exit=0": case("plain", exit=0),
    "prompteol": case("prompteol"),
    "prompteol:exit=-3": case("prompteol", exit=-3),
    "tp": case("tp"),
    "tp:range=1-4,placeholders=2": case("tp", range=(1, 4), placeholders=2),
    "tp:prompt=prompteol,range=2-5,exit=-1": case("tp", prompt="prompteol", range=(2, 5), exit=-1),
    "cot": case("cot"),
    "knowledge": case("knowledge"),
    "metaeol": case("metaeol", prompts=prompts.TASKS),
    f"{METAEOL},exit=-2": case("metaeol", prompts=TWO_PROMPTS, exit=-2),
    "echo": case("echo"),
    "echo:preset=released": case("echo", preset="released"),
    "echo:preset=htp,exit=-2": case("echo", preset="htp", exit=-2),
    "echo:preset=bare": case("echo", preset="bare"),
    "echo:k=3": case("echo", k=3),
    "tp:prompt=cot,exit=-1": case("tp", prompt="cot", exit=-1),
    "tp:prompt=cot,range=1-4,exit=-1,source=text": case("tp", prompt="cot", range=(1, 4), exit=-1, source="text"),
    **{
        f"tp:prompt={json.dumps(wording)},range=1-4,exit=-1": case("tp", prompt=wording, range=(1, 4), exit=-1)
        for wording in WORDINGS
    },
    **{
        f"tp:range=1-3,exit=-1,init={init}": case("tp", range=(1, 3), exit=-1, init=init)
        for init in ("gaussian", "uniform", "zeros", "ones", "space")
    },
    "tp:prompt=echo,range=1-3,exit=-1": case("tp", prompt="echo", range=(1, 3), exit=-1),
    "plain+tempscale": case("plain", tau=0.8),
    "plain:pool=last+tempscale:tau=0.9,query_tau=0.5": case("plain", pool="last", tau=0.9, query_tau=0.5),
    "prompteol+tempscale:rule=log": case("prompteol", rule="log"),
    "prompteol+tempscale:rule=log,tau=0.8": case("prompteol", rule="log", tau=0.8),
    "plain+tempscale:rule=rate,rate=0.1": case("plain", rule="rate", rate=0.1),
    'plain+tempscale:lengths="1:1,20:0.7,40:0.5"': case("plain", lengths=((1, 1.0), (20, 0.7), (40, 0.5))),
    "htp:range=1-3,exit=-1+tempscale:tau=0.6": case("htp", range=(1, 3), exit=-1, tau=0.6),
    f"{METAEOL}+tempscale:tau=0.5": case("metaeol", prompts=TWO_PROMPTS, tau=0.5),
    "plain+last2avg": case("plain", averaged=2),
    "htp:range=1-4,exit=-1+layeravg": case("htp", range=(1, 4), exit=-1, apart=(0,)),
    "prompteol+layeravg+filter:drop=3": case("prompteol", apart=(0,), filter=3),
    f"{METAEOL}+layeravg": case("metaeol", prompts=TWO_PROMPTS, apart=(0,)),
    "plain:pool=last+standardise": case("plain", pool="last", standardise=CALIBRATION),
    "plain:exit=-1+sif:a=0.01+layeravg:layers=1-2+standardise": case(
        "plain", exit=-1, sif=1e-2, apart=(1, 2), standardise=CALIBRATION
    ),
    "plain:exit=0+sif:a=0.01": case("plain", exit=0, sif=1e-2),
    "htp:range=1-4,exit=-1+sif:a=0.01": case("htp", range=(1, 4), exit=-1, sif=1e-2),
    "echo+sif:a=0.01": case("echo", sif=1e-2),
    "plain:exit=0+sif:a=0.01+filter:drop=3": case("plain", exit=0, sif=1e-2, filter=3),
    "htp:range=1-4,exit=-1+filter:drop=5": case("htp", range=(1, 4), exit=-1, filter=5),
    "htp:k=2,range=1-4,exit=4,pool=all+last2avg": case("htp", k=2, range=(1, 4), exit=4, pool="all", averaged=2),
    "kv:layers=2-4": case("kv", layers=(2, 3, 4)),
    'kv:layers="1,3,5-6",bias=-0.5,n=3,verb="Extract key concept",pool=mean': case(
        "kv", layers=(1, 3, 5, 6), bias=-0.5, n=3, verb="Extract key concept", pool="mean"
    ),
    "kv:layers=3-6,bias=2,verb=Summarize,pool=last,exit=-2+tempscale:tau=0.7": case(
        "kv", layers=(3, 4, 5, 6), bias=2.0, verb="Summarize", pool="last", exit=-2, tau=0.7
    ),
    "reba": case("reba"),
    "reba:k=3,pool=mean,exit=4": case("reba", k=3, pool="mean", exit=4),
    'reba:pool=mean,joiner=" "': case("reba", pool="mean", joiner=" "),
    "reba:pool=mean,piece=7+tempscale:tau=0.6": case("reba", pool="mean", piece=7, tau=0.6),
    "reba:k=3,piece=5,exit=-2+last2avg": case("reba", k=3, piece=5, exit=-2, averaged=2),
    "reba:last_layer_only=true": case("reba", last_layer_only=True),
    "reba:pool=mean,piece=7,exit=4,last_layer_only=true": case(
        "reba", pool="mean", piece=7, exit=4, last_layer_only=True
    ),
    "reba:variant=released": case("reba", variant="released"),
    "reba:pool=mean,variant=released+tempscale:tau=0.7": case("reba", pool="mean", variant="released", tau=0.7),
    "kv:layers=2-4+tp:range=1-3+tempscale:tau=0.7+readout:pool=hybrid,prompt=true": case(
        "tp", prompt="kv", layers=(2, 3, 4), range=(1, 3), tau=0.7, exit=-1, read=("hybrid", True)
    ),
    "htp:k=2,range=1-4+kv:layers=3-5,bias=0.5+readout:exit=-2": case(
        "htp", k=2, range=(1, 4), prompt="kv", layers=(3, 4, 5), bias=0.5, exit=-2, read=("mean", False)
    ),
    "htp:range=1-3,exit=-1+reroute:layers=2-5,n=2": case("htp", range=(1, 3), exit=-1, layers=(2, 3, 4, 5), n=2),
    f"readout:pool=last+{METAEOL}+tp:range=1-3": case(
        "tp", prompt="metaeol", prompts=TWO_PROMPTS, range=(1, 3), exit=-1, read=("last", False)
    ),
    "plain:exit=-2+start:token=none": case("plain", exit=-2, start=False),
    "htp:range=1-3,exit=-1+start:token=none": case("htp", range=(1, 3), exit=-1, start=False),
    "htp": case("htp"),
    "htp:range=1-4,exit=-1": case("htp", range=(1, 4), exit=-1),
    "htp:k=2,range=1-5,exit=4,pool=all": case("htp", k=2, range=(1, 5), exit=4, pool="all"),
    "htp:range=1-3,local_only=true": case("htp", range=(1, 3), local_only=True),
    "htp:range=1-4,exit=-1,every=auto": case("htp", range=(1, 4), exit=-1, every="auto"),
    "htp:range=1-3,local_only=true,every=4": case("htp", range=(1, 3), local_only=True, every=4),
    "htp:range=1-4,exit=-1,source=released": case("htp", range=(1, 4), exit=-1, source="released"),
    "prompteol+htp:range=1-3,exit=-1,source=released+readout:pool=mean": case(
        "htp", prompt="prompteol", range=(1, 3), exit=-1, source="released", read=("mean", False)
    ),
    "htp:range=1-3,exit=-1,released_text=true": case("htp", range=(1, 3), exit=-1, released_text=True),
    "tp:prompt=prompteol,range=1-3,released_text=true": case(
        "tp", prompt="prompteol", range=(1, 3), released_text=True
    ),
    "cot:released_text=true": case("cot", released_text=True),
    "htp:range=1-3,global_only=true": case("htp", range=(1, 3), global_only=True),
    "plain+readout:prompt=true,specials=true": case("plain", read=("mean", True), specials=True),
}
ONLY_ENCODERS = {
    "plain:pool=cls": case("plain", pool="cls"),
    "plain+readout:specials=true": case("plain", read=("mean", False), specials=True),
}
"""Text form -> name and parameters for the reference."""

CORE = (
    "plain:pool=weighted,exit=-2",
    "prompteol",
    'metaeol:prompts="A: {text} is\\n{text} means:",exit=-2',
    "echo",
    "tp:prompt=prompteol,range=2-5,exit=-1",
    "plain+tempscale",
    'kv:layers="1,3,5-6",bias=-0.5,n=3,verb="Extract key concept",pool=mean',
    "reba:k=3,pool=mean,exit=4",
    "reba:pool=mean,piece=7+tempscale:tau=0.6",
    "kv:layers=2-4+tp:range=1-3+tempscale:tau=0.7+readout:pool=hybrid,prompt=true",
    "htp:k=2,range=1-4,exit=4,pool=all+last2avg",
    "htp:range=1-4,exit=-1",
    "htp:range=1-4,exit=-1+sif:a=0.01",
    "plain:exit=-1+sif:a=0.01+layeravg:layers=1-2+standardise",
)
"""Methods that between them touch every moment of a pass, for what is tried on every family."""
TEXTS = [
    "The river rose at night. By morning the bridge was gone! Who would carry the letters now?",
    "Salt.",
    "An eddy is a current that runs back: water or smoke.\n\nIt forms behind a stone. Trout rest there.",
    '"Fetch the lamp," he said, and "quickly".',
]
INSTRUCTION = "Given a question, find the passage that answers it"


@cache
def loaded(family: str, exactly: bool = False) -> tuple[Any, Any]:
    """A family's model, in float64 if `exactly`, and its tokenizer."""
    model, tokenizer = families.build(family)
    return (double(model) if exactly else model), tokenizer


@cache
def sentences_of(text: str) -> tuple[tuple[int, int], ...]:
    return tuple((sentence.start, sentence.end) for sentence in Segmenter("en").sentences(text))


@cache
def expected(family: str, method: str, text: str, instruction: str | None = None, role: str = "query") -> np.ndarray:
    """The reference's vector."""
    name, parameters = (METHODS | ONLY_ENCODERS)[method]
    model, tokenizer = loaded(family)
    sentences = sentences_of(text)
    return reference.embed(
        name, parameters, model, tokenizer, text, sentences=sentences, instruction=instruction, role=role
    )


shares_hosts = False
"""Whether `embedder` takes the host that it made before for a model and an exit: trying a model takes 8 passes.

Set for every test; false where it may change what a host is made by."""
_hosts: dict[tuple[int, int], ModelView] = {}


def embedder(family: str, method: str, *, exactly: bool = False, **options: Any) -> Embedder:
    """An embedder of a tiny model, in float64 if `exactly`; its post-processing, if any, fitted on `CALIBRATION`."""
    model, tokenizer = loaded(family, exactly)
    with pytest.MonkeyPatch.context() as patch:
        if shares_hosts:
            patch.setattr(build, "host_for", _shared)
        made = Embedder(model, tokenizer=tokenizer, method=method, **options)
    if made.method.post is not None and made.method.post.learns and not made.is_fitted:
        with AllDouble() if exactly else nullcontext():
            made.fit(*CALIBRATION)
    return made


def _shared(opened: LoadedModel) -> ModelView:
    key = (id(opened.model), opened.method.exit_layer)
    if key not in _hosts:
        _hosts[key] = host_for(opened)
    return _hosts[key]


def exact(e: Embedder, texts: list[str], role: str = "document") -> np.ndarray:
    """Vectors in float64, also where transformers would compute in float32; shape (texts, dimension)."""
    with AllDouble():
        return np.stack([vector for _, vector in e._pipeline.vectors(texts, role)])


def gap(e: Embedder, family: str, method: str, texts: Sequence[str], instruction: str | None = None) -> float:
    """Largest difference from the reference, for texts that share their passes; `e` is a float64 embedder."""
    vectors = exact(e, list(texts), "query")
    references = np.stack([expected(family, method, text, instruction) for text in texts])
    return float(np.abs(vectors - references).max())


def change_arguments(patch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[..., tuple[Any, ...]]) -> None:
    """Break a function: call it with what `change` makes of its positional arguments."""
    right = getattr(owner, name)
    patch.setattr(owner, name, lambda *given, **named: right(*change(*given), **named))


def change_result(patch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Break a function: give what `change` makes of its result, beside which it sees the arguments."""
    right = getattr(owner, name)
    patch.setattr(owner, name, lambda *given, **named: change(right(*given, **named), *given, **named))
