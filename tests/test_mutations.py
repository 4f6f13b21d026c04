"""Mutations of the engine: each makes the comparison with the reference fail, for every method that it concerns.

Two methods of each are tried by default, the others with the slow tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from tests import families
from tests.comparison import INSTRUCTION, METHODS, TEXTS, change_arguments, change_result, embedder, gap
from tests.selection import mostly_slow

from eddy_embed import Embedder
from eddy_embed.encoding import encoder, runner
from eddy_embed.encoding.encoder import VectorFinalizer
from eddy_embed.errors import InterventionDidNotRun
from eddy_embed.model import attention, hooks, host
from eddy_embed.parts import postprocess
from eddy_embed.parts.layout import Blocks, Layout
from eddy_embed.parts.postprocess import Fitted
from eddy_embed.parts.readout import LayerMean, Readout
from eddy_embed.text.sequence import PLACEHOLDER_ID, Packed, Role, TokenSequence
from eddy_embed.text.tokenizer import Tokenizer

PAIR = [TEXTS[0], TEXTS[3]]
LAYERS = families.LAYERS
Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]
WORDED = {"prompteol", "cot", "knowledge", "metaeol"}
"""Prompts whose last token is read."""
STARTED = "has a start token ahead where the tokenizer puts none"


def traits_of(method: str) -> set[str]:
    """What a method does that a fault may touch."""
    name, p = METHODS[method]
    copies, averaged_apart = name in ("tp", "htp"), "apart" in p
    exit_layer = range(LAYERS + 1)[p.get("exit", -2 if copies else -1)]
    named = p.get("read")  # the pool, and whether the prompt is pooled too
    if named:
        pool = named[0]
    elif {name, p.get("prompt")} & WORDED or "{text}" in str(p.get("prompt")):
        pool = "last"
    elif name == "reba":
        pool = "half" if "variant" in p and "pool" in p else p.get("pool", "last")
    else:
        pool = p.get("pool", "mean")
    averages = pool not in ("last", "half")
    released = p.get("released_text") or "released" in (p.get("preset"), p.get("variant"))
    traits = {
        "runs": True,
        "is one of a few": method in ("plain", "plain+tempscale", "kv:layers=2-4", "reba"),
        "attends": exit_layer > 0,
        "reads the top": exit_layer == LAYERS,
        "copies": copies,
        "copies, and could a layer more": copies and (p.get("range") or (1, 2))[1] < exit_layer,
        "tells placeholders apart": copies and p.get("init") not in ("zeros", "ones", "space"),
        "pools placeholders": pool == "all",
        "divides tokens": p.get("every") is not None,
        "has a source": "source" in p,
        "averages layers": p.get("averaged", 1) != 1 or averaged_apart,
        "averages pooled layers": averaged_apart,
        "standardises": "standardise" in p,
        STARTED: not released and p.get("start", True) is True,
        "averages": averages,
        "averages the text alone": averages and not (named[1] if named else name == "kv"),
        "reads the last": pool in ("last", "hybrid"),
        "weighs": pool == "weighted",
    }
    return {trait for trait, holds in traits.items() if holds}


# --- what is broken, and how


def _arguments(owner: Any, name: str, change: Callable[..., tuple[Any, ...]]) -> Fault:
    return lambda patch: change_arguments(patch, owner, name, change)


def _result(owner: Any, name: str, change: Callable[..., Any]) -> Fault:
    return lambda patch: change_result(patch, owner, name, change)


def _packed(change: Callable[[Packed], Packed]) -> Fault:
    return _result(runner, "pack", lambda packed, *_: change(packed))


def _edges(destination: int, source: int) -> Fault:
    moved = np.array([destination, source])
    return _packed(lambda packed: replace(packed, edges=np.clip(packed.edges + moved, 0, packed.offsets[-1] - 1)))


def _rewired(change: Callable[[range], range]) -> Fault:
    return _arguments(host.ModelView, "run", lambda view, packed, layers, *more: (view, packed, change(layers), *more))


def _usual_source(patch: Patch) -> None:
    for owner, name, source in ((Blocks, "inserts", "end"), (Layout, "_placeholders", "last")):
        change_arguments(patch, owner, name, lambda part, *more, source=source: (replace(part, source=source), *more))


def _counted(change: Callable[..., np.ndarray]) -> Fault:
    return _arguments(
        Readout, "weights", lambda readout, sequence, counted: (readout, sequence, change(sequence, counted))
    )


def _weighed(change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Fault:
    return _result(Readout, "weights", lambda found, *_: change(*found))


def _started(change: Callable[[Tokenizer, np.ndarray], np.ndarray]) -> Fault:
    return _result(Tokenizer, "starting", lambda ids, tokenizer, *_, **__: change(tokenizer, ids))


def _behind_a_placeholder(laid: TokenSequence, *_: object) -> TokenSequence:
    """With the start token there."""
    place = int(np.flatnonzero(laid.ids == PLACEHOLDER_ID)[0])
    order = np.r_[1 : place + 1, 0, place + 1 : len(laid)]
    parts = {name: getattr(laid, name)[order] for name in ("ids", "roles", "starts", "ends", "copies")}
    return replace(laid, **parts, edges=np.argsort(order)[laid.edges])


def _one_sequence(patch: Patch) -> None:
    for place in (host, attention.kernels):
        change_arguments(
            patch, place, "group", lambda offsets, factors=None, *_: (offsets[[0, -1]], factors and factors[:1])
        )


def _traits(**changes: Callable[[Any], object]) -> Fault:
    def changed(query: object, key: object, value: object, groups: object, traits: Any, *more: object) -> Any:
        others = {name: change(getattr(traits, name)) for name, change in changes.items()}
        return (query, key, value, groups, replace(traits, **others), *more)

    return _arguments(hooks, "attend", changed)


def _sinks(change: Callable[[torch.Tensor], torch.Tensor | None]) -> Fault:
    return _arguments(hooks, "attend", lambda *given: (*given[:-1], change(given[-1])))


def _norm_left_out(patch: Patch) -> None:
    def one_layer_more(view: host.ModelView, *more: Any) -> Any:
        patch.setattr(view, "layers", LAYERS + 1)
        return (view, *more)

    change_arguments(patch, host.ModelView, "_forward", one_layer_more)


def _applied(change: Callable[[Fitted, str], tuple[Fitted, str]]) -> Fault:
    def changed(fitted: Fitted, vectors: np.ndarray, role: str = "document") -> Any:
        other, as_role = change(fitted, role)
        return other, vectors, as_role

    return _arguments(Fitted, "apply", changed)


def _layers_side_by_side(patch: Patch) -> None:
    """One length for all layers of a vector together, ahead of what is fitted."""
    patch.setattr(
        VectorFinalizer, "for_post", lambda self, states: encoder.unit(states.reshape(*states.shape[:-2], -1))
    )


def _nothing(patch: Patch) -> None:
    pass


WITH_BOS = _counted(lambda sequence, counted: np.append(np.flatnonzero(sequence.roles == Role.SPECIAL), counted))
WITH_PROMPT = _counted(lambda sequence, counted: np.union1d(np.flatnonzero(sequence.roles == Role.PROMPT), counted))


@dataclass(frozen=True)
class Mutation:
    """A fault of the engine.

    Attributes:
        apply: Puts it in.
        concerns: The traits of a method that can show it.
        family: A family that shows it.
        loads: Whether it can be there when a model is loaded; the check at load finds the others by itself.
    """

    apply: Fault
    concerns: set[str]
    family: str = "llama"
    loads: bool = True


MUTATIONS = {
    "none": Mutation(_nothing, {"runs"}),
    "none, learned positions": Mutation(_nothing, {"runs"}, "gpt2"),
    "none, caps and windows": Mutation(_nothing, {"runs"}, "gemma2"),
    "none, sinks": Mutation(_nothing, {"is one of a few"}, "gpt_oss"),
    "edge source before": Mutation(_edges(0, -1), {"copies"}),
    "edge destination before": Mutation(_edges(-1, 0), {"copies"}),
    "edge destination behind": Mutation(_edges(1, 0), {"copies"}),
    "blocks a token longer": Mutation(
        _result(Blocks, "settled", lambda blocks, *_: replace(blocks, every=int(blocks.every or 0) + 1)),
        {"divides tokens"},
    ),
    "source as usual": Mutation(_usual_source, {"has a source"}),
    "exit read alone": Mutation(
        lambda patch: patch.setattr(LayerMean, "layers", lambda self, layer: (layer,) * max(self.count, self.apart)),
        {"averages layers"},
    ),
    "lengths of layers kept": Mutation(
        lambda patch: patch.setattr(encoder, "_averaged", lambda states: states.mean(-2)), {"averages pooled layers"}
    ),
    "one length for layers side by side": Mutation(_layers_side_by_side, {"averages pooled layers", "standardises"}),
    "passages' mean for questions": Mutation(_applied(lambda fitted, _: (fitted, "document")), {"standardises"}),
    "questions' mean for itself": Mutation(
        lambda patch: patch.setattr(postprocess, "_query_mean", lambda queries, _: queries.mean), {"standardises"}
    ),
    "deviation not applied": Mutation(
        _applied(lambda fitted, role: (replace(fitted, matrix=None), role)), {"standardises"}
    ),
    "variance for deviation": Mutation(
        _applied(lambda fitted, role: (replace(fitted, matrix=fitted.matrix**2), role)), {"standardises"}
    ),
    "range empty": Mutation(_rewired(lambda r: range(0)), {"copies"}, loads=False),
    "range too long": Mutation(
        _rewired(lambda r: range(r.start, r.stop + 1)), {"copies, and could a layer more"}, loads=False
    ),
    "range too short": Mutation(_rewired(lambda r: r[:-1]), {"copies"}, loads=False),
    "range begins late": Mutation(_rewired(lambda r: r[1:]), {"copies"}, loads=False),
    "range begins early": Mutation(_rewired(lambda r: range(r.start - 1, r.stop)), {"copies"}, loads=False),
    "no copy at the exit": Mutation(
        lambda patch: patch.setattr(runner, "copy_states", lambda hidden, edges: hidden), {"pools placeholders"}
    ),
    "exit off by one": Mutation(_result(Readout, "layer", lambda layer, *_: abs(layer - 1)), {"runs"}),
    "final norm left out": Mutation(_norm_left_out, {"reads the top"}, loads=False),
    "begin token pooled": Mutation(WITH_BOS, {"averages"}),
    "start token pooled": Mutation(WITH_BOS, {"averages", STARTED}, "qwen3"),
    "start token left out": Mutation(_started(lambda own, _: own.prefix), {STARTED}, "gpt2"),
    "start token twice": Mutation(_started(lambda _, ids: np.tile(ids, 2)), {STARTED}, "gpt2"),
    "another start token": Mutation(_started(lambda _, ids: ids + 7), {"attends", STARTED}, "qwen3"),
    "start token behind a placeholder": Mutation(
        _result(Layout, "arrange", _behind_a_placeholder), {"copies", STARTED}, "qwen3"
    ),
    "instruction pooled": Mutation(WITH_PROMPT, {"averages the text alone"}),
    "first token not pooled": Mutation(_counted(lambda _, counted: counted[1:]), {"averages"}),
    "last but one": Mutation(
        _weighed(lambda index, weight: (np.append(index[:-1], index[-1] - 1), weight)), {"reads the last"}
    ),
    "weights reversed": Mutation(_weighed(lambda index, weight: (index, weight[::-1].copy())), {"weighs"}),
    "placeholders not replaced": Mutation(
        _result(hooks, "_embed", lambda _, module, inputs, output: output), {"copies"}
    ),
    "placeholder values swapped": Mutation(
        _packed(lambda packed: replace(packed, placeholders=np.abs(packed.placeholders - np.array([0, 1])))),
        {"tells placeholders apart"},
    ),
    "instruction dropped": Mutation(
        _arguments(Layout, "fill", lambda layout, text, role, _, *more: (layout, text, role, None, *more)), {"attends"}
    ),
    "positions run on": Mutation(
        _packed(lambda packed: replace(packed, positions=np.arange(packed.offsets[-1]))), {"runs"}, "gpt2"
    ),
    "positions from one": Mutation(
        _packed(lambda packed: replace(packed, positions=packed.positions + 1)), {"runs"}, "gpt2"
    ),
    "neighbours attended": Mutation(_one_sequence, {"attends"}, loads=False),
    "scale wrong": Mutation(_traits(scale=lambda s: 1.01 * s), {"attends"}, loads=False),
    "soft cap dropped": Mutation(_traits(cap=lambda c: None), {"attends"}, "gemma2", loads=False),
    "soft cap a little wide": Mutation(
        _traits(cap=lambda c: c and 1.01 * c), {"is one of a few"}, "gemma2", loads=False
    ),
    "window wide": Mutation(_traits(window=lambda w: w and w + 1), {"attends"}, "gemma2", loads=False),
    "window narrow": Mutation(_traits(window=lambda w: w and w - 1), {"attends"}, "gemma2", loads=False),
    "sinks dropped": Mutation(_sinks(lambda s: None), {"is one of a few"}, "gpt_oss", loads=False),
    "sinks of other heads": Mutation(_sinks(lambda s: s.flip(0)), {"is one of a few"}, "gpt_oss", loads=False),
}


def cases(name: str, mutation: Mutation) -> list[Any]:
    """The methods that a mutation concerns; all but the last are slow."""
    pairs = [(name, method) for method in METHODS if mutation.concerns <= traits_of(method)]
    return mostly_slow(pairs, pairs[-1:])


CASES = [case for name, mutation in MUTATIONS.items() for case in cases(name, mutation)]


def fails(e: Embedder, family: str, method: str) -> bool:
    """Whether the engine no longer gives the reference's vectors, or notices the fault itself."""
    try:
        return gap(e, family, method, PAIR, INSTRUCTION) > 1e-5
    except (InterventionDidNotRun, IndexError):  # A learned position beyond the last is an index out of range.
        return True


@pytest.mark.parametrize(("name", "method"), CASES)
def test_mutation_is_noticed(name: str, method: str, monkeypatch: Patch) -> None:
    mutation = MUTATIONS[name]
    if mutation.loads:
        mutation.apply(monkeypatch)
    e = embedder(mutation.family, method, exactly=True, query_instruction=INSTRUCTION)
    if not mutation.loads:
        mutation.apply(monkeypatch)
    assert fails(e, mutation.family, method) is not name.startswith("none")
