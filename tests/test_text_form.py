"""The text form of methods: parsing and printing are inverse, errors name the place, no parameter is ignored."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.comparison import TEXTS, embedder

from eddy_embed import methods
from eddy_embed.errors import EddyError, InvalidParameter, UnknownMethod
from eddy_embed.methods.method import Method
from eddy_embed.model.backbone import Backbone
from eddy_embed.parts.layout import Blocks, Layout

RANGES = st.tuples(st.integers(1, 90), st.integers(0, 90)).map(lambda pair: (pair[0], pair[0] + pair[1]))
BY_ANNOTATION: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(1, 10**6),
    "int | None": st.one_of(st.none(), st.integers(1, 500)),
    "bool": st.booleans(),
    "Pool": st.sampled_from(["mean", "last", "hybrid", "weighted", "cls"]),
    "Pool | None": st.sampled_from([None, "mean", "last", "hybrid", "weighted", "cls"]),
    "tuple[int, int] | None": st.one_of(st.none(), RANGES),
}
FRACTION = st.floats(0, 1, exclude_min=True)
ONE_OF: dict[str, list[Any]] = {
    "recommended.use": ["retrieval", "fast", "similarity"],
    "tp.prompt": ["plain", "prompteol", "cot", "knowledge", "metaeol", "echo", '"{text}"{placeholder} is'],
    "tp.init": ["scaled", "gaussian", "uniform", "zeros", "ones", "space"],
    "tp.source": ["last", "text"],
    "htp.source": ["end", "released"],
    "htp.pool": [None, "mean", "all"],
    "plain.preset": ["bare", "htp"],
    "echo.preset": ["rewrite", "released", "htp", "bare"],
    "kv.verb": ["Compress", "Summarize", "Sum up, briefly,"],
    "reroute.layers": [None, 7, (2, 5), "2,4-6", ""],
    "layeravg.layers": [0, 7, (2, 5), "2,4-6"],
    "start.token": [None, "auto", "<s>", "none", "a b", "+", ""],
    "tempscale.lengths": [None, "1:1,512:0.9,2048:0.8", "1:0.5"],
    "tempscale.rule": ["fixed", "log", "rate"],
    "reba.pool": ["last", "mean"],
    "reba.joiner": [None, "", " ", "\n", " {and} "],
    "reba.variant": ["paper", "released"],
}
BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.sampled_from(values) for name, values in ONE_OF.items()},
    **dict.fromkeys(("sif.a", "whiten.power"), FRACTION),
    **dict.fromkeys(("tempscale.tau", "tempscale.query_tau"), st.one_of(st.none(), FRACTION)),
    "bias": st.floats(allow_nan=False, max_value=100),
    "exit": st.one_of(st.none(), st.integers(-500, 500)),
    "seed": st.integers(0, 2**40),
    "metaeol.prompts": st.one_of(
        st.none(),
        st.lists(st.sampled_from(['"{text}" is', "A, b + c: {text}", "{text} = ü"]), min_size=1).map("\n".join),
    ),
    "kv.layers": st.one_of(st.none(), st.integers(1, 90), RANGES, st.just("2,4-6"), st.just("")),
    "kv.n": st.integers(1, 99),
    "filter.drop": st.integers(1, 300),
    "tempscale.rate": st.floats(0, 10),
    "htp.every": st.one_of(st.none(), st.just("auto"), st.integers(1, 500)),
}


def parameters_of(name: str) -> dict[str, st.SearchStrategy[Any]]:
    """Values of every parameter; a parameter of a new kind fails here until it is given some."""
    found = {}
    for key, parameter in inspect.signature(getattr(methods, name)).parameters.items():
        named = BY_NAME.get(f"{name}.{key}", BY_NAME.get(key))
        found[key] = BY_ANNOTATION[str(parameter.annotation)] if named is None else named
    return found


CLASHES: list[tuple[Callable[[dict[str, Any]], bool], tuple[str, ...]]] = [
    (lambda of: of.get("local_only", False), ("global_only",)),
    (lambda of: of.get("init") in ("zeros", "ones", "space"), ("seed",)),
    (lambda of: of.get("every") is not None, ("k",)),
    (lambda of: of.get("pool") in ("last", "cls"), ("placeholders", "prompt", "specials")),
    (lambda of: of.get("joiner") is not None or of.get("variant") == "released", ("piece",)),
    (lambda of: of.get("rule") == "rate", ("tau", "query_tau", "lengths")),
    (lambda of: of.get("rule") != "rate", ("rate",)),
    (lambda of: of.get("lengths") is not None, ("tau",)),
]
"""Which parameters exclude which others."""


@st.composite
def built(draw: st.DrawFn) -> Method:
    name = draw(st.sampled_from(methods.names()))
    given_ = draw(st.fixed_dictionaries({}, optional=parameters_of(name)))
    if name == "echo" and given_.get("k") == 1:
        given_.pop("k")
    for clash, without in CLASHES:
        if clash(given_):
            given_ = {key: value for key, value in given_.items() if key not in without}
    return getattr(methods, name)(**given_)


@given(built())
@settings(max_examples=60)
def test_parsing_undoes_printing(method: Method) -> None:
    text = str(method)
    again = methods.parse(text)
    assert again == method and str(again) == text and "None" not in text


@given(st.text(max_size=30))
@settings(max_examples=60)
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        assert isinstance(methods.parse(text), Method)
    except EddyError as error:
        assert str(error)


def test_a_bare_name_has_the_defaults() -> None:
    for name in methods.names():
        method = getattr(methods, name)()
        assert methods.parse(name) == method and str(method) == name
        summary, defaults = methods.describe(name)
        assert summary.endswith(".") and set(defaults) == set(parameters_of(name)), name


def test_texts_are_printed_in_one_way() -> None:
    for text, expected in {
        " htp ": "htp",
        "htp:exit=-2,range=1-7": "htp:range=1-7,exit=-2",
        "htp:k=1,pool=mean,local_only=false": "htp:pool=mean",
        'tp:prompt="prompteol"': "tp:prompt=prompteol",
        "plain:exit=0": "plain:exit=0",
        "plain:exit=none": "plain:exit=none",
        "htp:exit=none,range=none": "htp",
        "tp:exit=007": "tp:exit=7",
    }.items():
        assert str(methods.parse(text)) == expected


MALFORMED = {
    "": "expected a method's name at character 0",
    "htp:": "expected a parameter's name at character 4",
    "htp:k": "expected '=' and a value at character 5",
    "htp:k=": "expected a value at character 6",
    "htp:k=2 ,exit=1": "expected ',' or '\\+' at character 7",
    "htp:k=1,k=2": "'k' is given twice",
    'htp:pool="mean': "unfinished quotation at character 9",
    "htp:kk=2": "htp has no parameter 'kk'; it takes k, range",
    # A value of each kind.
    "htp:k=two": "htp: k='two' must be a whole number",
    "htp:k=0": "k=0 must be at least 1",
    "htp:every=often": "every='often' is unknown; choose one of auto",
    "htp:every=1.5": "every=1.5 must be a whole number, or a name",
    "htp:seed=-1": "seed=-1 must be at least 0",
    "htp:range=7": "range=7 must be a range such as 1-7",
    "htp:range=7-1": "range=7-1 must satisfy 1 <= start <= end",
    "htp:pool=median": "pool='median' is unknown; choose one of mean, all",
    "htp:local_only=1": "local_only=1 must be true or false",
    "tp:prompt=cot2": "prompt='cot2' is unknown; choose one of plain",
    'tp:prompt="{txt}"': "template '{txt}' needs {text} and no other field",
    'tp:prompt="{placeholder}{text}{placeholder}"': "may have one {placeholder}",
    'metaeol:prompts="{placeholder}{text}"': "and only as prompt= of tp",
    'metaeol:prompts=""': "prompts='' holds no wording",
    'metaeol:prompts="{text}\\nno slot"': "template 'no slot' needs {text}",
    "tempscale:tau=0": "tau=0 must be above 0 and at most 1",
    'tempscale:lengths="2:1"': "must rise, from 1 on",
    'tempscale:lengths="1:1,9:1.5"': "lengths, from 9=1.5 must be above 0",
    'tempscale:lengths="1,9"': "must be pairs of a number of tokens and a temperature",
    "echo:k=1": "k=1 must be at least 2",
    # What does not go together.
    "htp:every=4,k=2": "k=2 and every=4: blocks are of sentences or of tokens",
    "htp:local_only=true,global_only=true": "local_only and global_only exclude each other",
    "tp:init=zeros,seed=1": "seed=1 has no effect with init=zeros",
    "tempscale:rule=rate,rate=1,query_tau=0.5": "query_tau=0.5 has no effect with rule=rate",
    'tempscale:rule=rate,lengths="1:1"': "lengths=.* has no effect with rule=rate",
    'tempscale:tau=0.8,lengths="1:1"': "tau=0.8 has no effect with lengths",
    "plain+readout:pool=last,prompt=true": "prompt=true has no effect with pool=last",
    "htp+readout:pool=last,placeholders=true": "placeholders=true has no effect",
    'reba:piece=8,joiner=" "': "piece=8 repeats the ids of a piece, which joiner=' '",
    "reba:piece=8,variant=released": "piece=8 is not in the released code",
}


def test_malformed_texts_name_what_is_wrong() -> None:
    for text, message in MALFORMED.items():
        with pytest.raises(InvalidParameter, match=message):
            methods.parse(text)
    with pytest.raises(UnknownMethod, match="unknown method 'hpt'; choose one of recommended, best, fast, plain"):
        methods.parse("hpt")


def test_templates_need_their_slot_and_layouts_one_kind_of_placeholder() -> None:
    for template in ("", "no slot", "{text} {other}", "{text", "text}", "{}", "{0}", "{text!r}", "{text:>9}"):
        with pytest.raises(InvalidParameter, match="template"):
            Layout(template)
    with pytest.raises(InvalidParameter, match="one kind of placeholder"):
        Layout(placeholders=1, blocks=Blocks())
    with pytest.raises(InvalidParameter, match="placeholders=-1 must be at least 0"):
        Layout(placeholders=-1)
    with pytest.raises(InvalidParameter, match="once each"):
        Layout(instructed="{prompt}")


# --- resolving against a model


def backbone(layers: int, architecture: str = "other", vocabulary: int = 1000) -> Backbone:
    return Backbone(architecture, layers, 64, vocabulary, 1024)


@pytest.mark.parametrize(
    ("text", "model", "span", "exit_layer"),
    [
        ("htp", backbone(6), (1, 2), 5),  # [1, max(2, 6 // 4)], h[-2] of h[0] .. h[6]
        ("tp", backbone(28), (1, 7), 27),
        ("tp", backbone(80), (1, 7), 79),  # at most 7
        ("tp:prompt=prompteol", backbone(32, "llama", 32000), (1, 7), 27),  # Llama-2 7B, released: h[27] = -6
        ("tp:prompt=knowledge", backbone(32, "llama", 32000), (1, 7), 31),
        ("tp", backbone(32, "llama", 32000), (1, 7), 31),
        ("tp:prompt=cot", backbone(40, "llama", 32000), (1, 7), 39),  # Llama-2 13B
        ("tp", backbone(32, "llama", 128256), (1, 3), 31),  # Llama 3 8B
        ("htp", backbone(32, "llama", 128256), (1, 3), 31),  # as TP, where HTP has no entry of its own
        ("htp", backbone(32, "mistral", 32768), (1, 7), 30),  # table 9: -3
        ("htp", backbone(42, "gemma2", 256000), (1, 6), 41),
        ("htp", backbone(28, "qwen2", 151936), (1, 7), 27),  # Qwen2.5 1.5B
        ("cot+tp+readout:pool=last,exit=none", backbone(32, "llama", 32000), (1, 7), 27),
        ("htp:range=2-4,exit=-1", backbone(42, "gemma2", 256000), (2, 4), 42),
        ("htp:range=3-3,exit=0", backbone(6), (3, 3), 0),
        ("htp:range=2-4,exit=2,pool=all", backbone(6), (2, 4), 2),  # the copy at the exit alone
        ("htp:range=2-6,exit=3", backbone(6), (2, 6), 3),
    ],
)
def test_defaults_are_those_published(text: str, model: Backbone, span: tuple[int, int], exit_layer: int) -> None:
    resolved = methods.resolve(methods.parse(text), model)
    assert resolved.rewire is not None and resolved.rewire.span == span
    assert resolved.readout is not None and resolved.readout.exit == exit_layer
    assert methods.resolve(resolved, model) == resolved
    assert str(resolved) == text


def test_parts_without_a_readout_are_joined_to_plain() -> None:
    for text in (
        "sif filter sif+filter last2avg layeravg centre standardise abtt whiten truncate:dims=8 start tempscale "
        "tempscale+whiten reroute:layers=2"
    ).split():
        resolved = methods.resolve(methods.parse(text), backbone(6))
        assert str(resolved) == f"plain+{text}"
        assert resolved == methods.resolve(methods.parse(f"plain+{text}"), backbone(6))


def test_what_a_model_does_not_have_is_refused() -> None:
    for text, message in {
        "plain:exit=7": r"exit=7 is outside a model of 6 layers; choose -7 \.\. 6",
        "plain:exit=-8": "exit=-8 is outside",
        "htp:range=1-7": "range=1-7 ends above the model's 6 layers",
        "htp:range=3-5,exit=3": "ends at layer 3, below layer 4 where the copies begin",
        "htp:range=3-5,exit=2,pool=all": "they would have no effect",
        "tp:exit=0": "choose a later exit or an earlier range",
        "plain:exit=0+last2avg": "mean of 2 layers needs 1 below the exit, which is layer 0",
        "plain:exit=0+layeravg": "choose a later exit",
        "prompteol+readout:placeholders=true": "no placeholders to be averaged",
    }.items():
        with pytest.raises(InvalidParameter, match=message):
            methods.resolve(methods.parse(text), backbone(6))


# --- every parameter changes vectors and the fingerprint

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
