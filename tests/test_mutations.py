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
from tests.comparison import INSTRUCTION, METHODS, TEXTS, embedder, gap
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
LAST = {"prompteol", "cot", "knowledge", "metaeol"}
"""Prompts whose last token is read."""
Patch = pytest.MonkeyPatch


def _parameters(method: str) -> dict[str, object]:
    return METHODS[method][1]


def _pool(method: str) -> str:
    name, parameters = METHODS[method]
    if "read" in parameters:
        return str(parameters["read"][0])  # type: ignore[index]
    if {name, parameters.get("prompt")} & LAST or "{text}" in str(parameters.get("prompt")):
        return "last"
    if name == "reba":
        half = "variant" in parameters and "pool" in parameters
        return "half" if half else str(parameters.get("pool", "last"))
    return str(parameters.get("pool", "mean"))


def _exit(method: str) -> int:
    default = -2 if METHODS[method][0] in ("tp", "htp") else -1
    return range(LAYERS + 1)[_parameters(method).get("exit", default)]


def everything(method: str) -> bool:
    return True


def a_few(method: str) -> bool:
    return method in ("plain", "plain+tempscale", "kv:layers=2-4", "reba")


def attends(method: str) -> bool:
    return _exit(method) > 0


def copies(method: str) -> bool:
    return METHODS[method][0] in ("tp", "htp")


def tells_placeholders_apart(method: str) -> bool:
    """The two kinds have vectors of their own."""
    return copies(method) and _parameters(method).get("init") not in ("zeros", "ones", "space")


def pools_placeholders(method: str) -> bool:
    return _pool(method) == "all"


def divides_tokens(method: str) -> bool:
    return _parameters(method).get("every") is not None


def averages_layers(method: str) -> bool:
    return _parameters(method).get("averaged", 1) != 1 or averages_pooled_layers(method)


def averages_pooled_layers(method: str) -> bool:
    return "apart" in _parameters(method)


def standardises(method: str) -> bool:
    return "standardise" in _parameters(method)


def has_a_source(method: str) -> bool:
    return "source" in _parameters(method)


def ends_inside(method: str) -> bool:
    """The range ends below the exit, so that one layer more can be copied."""
    return copies(method) and (_parameters(method).get("range") or (1, 2))[1] < _exit(method)


def starts(method: str) -> bool:
    """A start token stands ahead where the tokenizer puts none."""
    p = _parameters(method)
    released = p.get("released_text") or "released" in (p.get("preset"), p.get("variant"))
    return not released and p.get("start", True) is True


def attends_to_a_start(method: str) -> bool:
    return attends(method) and starts(method)


def copies_behind_a_start(method: str) -> bool:
    return copies(method) and starts(method)


def averages_behind_a_start(method: str) -> bool:
    return averages(method) and starts(method)


def averages(method: str) -> bool:
    return _pool(method) not in ("last", "half")


def averages_the_text(method: str) -> bool:
    """Not the prompt as well."""
    named = _parameters(method).get("read")
    return averages(method) and not (named[1] if named else METHODS[method][0] == "kv")  # type: ignore[index]


def reads_last(method: str) -> bool:
    return _pool(method) in ("last", "hybrid")


def weighs(method: str) -> bool:
    return _pool(method) == "weighted"


def reads_top(method: str) -> bool:
    return _exit(method) == LAYERS


# --- what is broken, and how


def _packed(patch: Patch, change: Callable[[Packed], Packed]) -> None:
    pack = runner.pack
    patch.setattr(runner, "pack", lambda sequences: change(pack(sequences)))


def _edges(patch: Patch, destination: int, source: int) -> None:
    moved = np.array([destination, source])
    _packed(patch, lambda packed: replace(packed, edges=np.clip(packed.edges + moved, 0, packed.offsets[-1] - 1)))


def _rewired(patch: Patch, change: Callable[[range], range]) -> None:
    run = host.ModelView.run
    patch.setattr(
        host.ModelView,
        "run",
        lambda self, packed, rewired, *more, **named: run(self, packed, change(rewired), *more, **named),
    )


def _longer_blocks(patch: Patch) -> None:
    settled = Blocks.settled

    def mutated(self: Blocks, tokens: int, sentences: int) -> Blocks:
        blocks = settled(self, tokens, sentences)
        return replace(blocks, every=int(blocks.every or 0) + 1)

    patch.setattr(Blocks, "settled", mutated)


def _usual_source(patch: Patch) -> None:
    inserts, placeholders = Blocks.inserts, Layout._placeholders
    patch.setattr(Blocks, "inserts", lambda self, *more: inserts(replace(self, source="end"), *more))
    patch.setattr(Layout, "_placeholders", lambda self, *more: placeholders(replace(self, source="last"), *more))


def _exit_off(patch: Patch) -> None:
    layer = Readout.layer
    patch.setattr(Readout, "layer", lambda self, layers: abs(layer(self, layers) - 1))


def _counted(patch: Patch, change: Callable[..., np.ndarray]) -> None:
    weights = Readout.weights
    patch.setattr(
        Readout, "weights", lambda self, sequence, counted: weights(self, sequence, change(sequence, counted))
    )


def _with_bos(patch: Patch) -> None:
    _counted(patch, lambda sequence, counted: np.append(np.flatnonzero(sequence.roles == Role.SPECIAL), counted))


def _started(patch: Patch, change: Callable[[Tokenizer, np.ndarray], np.ndarray]) -> None:
    starting = Tokenizer.starting
    patch.setattr(Tokenizer, "starting", lambda self, start, auto: change(self, starting(self, start, auto)))


def _start_behind_a_placeholder(patch: Patch) -> None:
    arrange = Layout.arrange

    def mutated(*given: object) -> TokenSequence:
        laid = arrange(*given)
        place = int(np.flatnonzero(laid.ids == PLACEHOLDER_ID)[0])
        order = np.r_[1 : place + 1, 0, place + 1 : len(laid)]
        moved = {name: getattr(laid, name)[order] for name in ("ids", "roles", "starts", "ends", "copies")}
        return replace(laid, **moved, edges=np.argsort(order)[laid.edges])

    patch.setattr(Layout, "arrange", mutated)


def _with_prompt(patch: Patch) -> None:
    _counted(patch, lambda sequence, counted: np.union1d(np.flatnonzero(sequence.roles == Role.PROMPT), counted))


def _without_first(patch: Patch) -> None:
    _counted(patch, lambda sequence, counted: counted[1:])


def _last_but_one(patch: Patch) -> None:
    weights = Readout.weights

    def mutated(self: Readout, sequence: object, counted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index, weight = weights(self, sequence, counted)
        return np.append(index[:-1], index[-1] - 1), weight

    patch.setattr(Readout, "weights", mutated)


def _weights_reversed(patch: Patch) -> None:
    weights = Readout.weights

    def mutated(self: Readout, sequence: object, counted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index, weight = weights(self, sequence, counted)
        return index, weight[::-1].copy()

    patch.setattr(Readout, "weights", mutated)


def _not_replaced(patch: Patch) -> None:
    embed = hooks._embed

    def mutated(module: object, inputs: object, output: object) -> object:
        embed(module, inputs, output)
        return output

    patch.setattr(hooks, "_embed", mutated)


def _values_swapped(patch: Patch) -> None:
    def swap(packed: Packed) -> Packed:
        return replace(packed, placeholders=np.abs(packed.placeholders - np.array([0, 1])))

    _packed(patch, swap)


def _no_instruction(patch: Patch) -> None:
    fill = Layout.fill
    patch.setattr(Layout, "fill", lambda self, text, role, instruction, *more: fill(self, text, role, None, *more))


def _positions_run_on(patch: Patch) -> None:
    _packed(patch, lambda packed: replace(packed, positions=np.arange(packed.offsets[-1])))


def _positions_from_one(patch: Patch) -> None:
    _packed(patch, lambda packed: replace(packed, positions=packed.positions + 1))


def _one_sequence(patch: Patch) -> None:
    group = attention.blocked.group
    for place in (host, attention.kernels):
        patch.setattr(
            place, "group", lambda offsets, factors=None, *_: group(offsets[[0, -1]], factors and factors[:1])
        )


def _traits(patch: Patch, **changes: Callable[[object], object]) -> None:
    attend = hooks.attend

    def mutated(query: object, key: object, value: object, groups: object, traits: Any, *more: object) -> object:
        changed = {name: change(getattr(traits, name)) for name, change in changes.items()}
        return attend(query, key, value, groups, replace(traits, **changed), *more)

    patch.setattr(hooks, "attend", mutated)


def _sinks(patch: Patch, change: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
    attend = hooks.attend
    patch.setattr(hooks, "attend", lambda *given: attend(*given[:-1], change(given[-1])))


def _norm_left_out(patch: Patch) -> None:
    forward = host.ModelView._forward

    def mutated(self: host.ModelView, packed: Packed, call: hooks.PassState, counted: bool = True) -> object:
        patch.setattr(self, "layers", LAYERS + 1)
        return forward(self, packed, call, counted)

    patch.setattr(host.ModelView, "_forward", mutated)


def _applied(patch: Patch, change: Callable[[Fitted, str], tuple[Fitted, str]]) -> None:
    apply = Fitted.apply

    def mutated(self: Fitted, vectors: np.ndarray, role: str = "document") -> np.ndarray:
        fitted, as_role = change(self, role)
        return apply(fitted, vectors, as_role)

    patch.setattr(Fitted, "apply", mutated)


def _layers_side_by_side(patch: Patch) -> None:
    """One length for all layers of a vector together, ahead of what is fitted."""
    patch.setattr(
        VectorFinalizer, "for_post", lambda self, states: encoder.unit(states.reshape(*states.shape[:-2], -1))
    )


@dataclass(frozen=True)
class Mutation:
    """A fault of the engine.

    Attributes:
        apply: Puts it in.
        concerns: Whether a method can show it.
        family: A family that shows it.
        loads: Whether it can be there when a model is loaded; the check at load finds the others by itself.
    """

    apply: Callable[[Patch], None]
    concerns: Callable[[str], bool]
    family: str = "llama"
    loads: bool = True


MUTATIONS = {
    "none": Mutation(lambda patch: None, everything),
    "none, learned positions": Mutation(lambda patch: None, everything, "gpt2"),
    "none, caps and windows": Mutation(lambda patch: None, everything, "gemma2"),
    "none, sinks": Mutation(lambda patch: None, a_few, "gpt_oss"),
    "edge source before": Mutation(lambda patch: _edges(patch, 0, -1), copies),
    "edge destination before": Mutation(lambda patch: _edges(patch, -1, 0), copies),
    "edge destination behind": Mutation(lambda patch: _edges(patch, 1, 0), copies),
    "blocks a token longer": Mutation(_longer_blocks, divides_tokens),
    "source as usual": Mutation(_usual_source, has_a_source),
    "exit read alone": Mutation(
        lambda patch: patch.setattr(LayerMean, "layers", lambda self, layer: (layer,) * max(self.count, self.apart)),
        averages_layers,
    ),
    "lengths of layers kept": Mutation(
        lambda patch: patch.setattr(encoder, "_averaged", lambda states: states.mean(-2)), averages_pooled_layers
    ),
    "one length for layers side by side": Mutation(
        _layers_side_by_side, lambda method: averages_pooled_layers(method) and standardises(method)
    ),
    "passages' mean for questions": Mutation(
        lambda patch: _applied(patch, lambda fitted, _: (fitted, "document")), standardises
    ),
    "questions' mean for itself": Mutation(
        lambda patch: patch.setattr(postprocess, "_query_mean", lambda queries, _: queries.mean), standardises
    ),
    "deviation not applied": Mutation(
        lambda patch: _applied(patch, lambda fitted, role: (replace(fitted, matrix=None), role)), standardises
    ),
    "variance for deviation": Mutation(
        lambda patch: _applied(patch, lambda fitted, role: (replace(fitted, matrix=fitted.matrix**2), role)),
        standardises,
    ),
    "range empty": Mutation(lambda patch: _rewired(patch, lambda r: range(0)), copies, loads=False),
    "range too long": Mutation(
        lambda patch: _rewired(patch, lambda r: range(r.start, r.stop + 1)), ends_inside, loads=False
    ),
    "range too short": Mutation(lambda patch: _rewired(patch, lambda r: r[:-1]), copies, loads=False),
    "range begins late": Mutation(lambda patch: _rewired(patch, lambda r: r[1:]), copies, loads=False),
    "range begins early": Mutation(
        lambda patch: _rewired(patch, lambda r: range(r.start - 1, r.stop)), copies, loads=False
    ),
    "no copy at the exit": Mutation(
        lambda patch: patch.setattr(runner, "copy_states", lambda hidden, edges: hidden), pools_placeholders
    ),
    "exit off by one": Mutation(_exit_off, everything),
    "final norm left out": Mutation(_norm_left_out, reads_top, loads=False),
    "begin token pooled": Mutation(_with_bos, averages),
    "start token pooled": Mutation(_with_bos, averages_behind_a_start, "qwen3"),
    "start token left out": Mutation(lambda patch: _started(patch, lambda own, _: own.prefix), starts, "gpt2"),
    "start token twice": Mutation(lambda patch: _started(patch, lambda _, ids: np.tile(ids, 2)), starts, "gpt2"),
    "another start token": Mutation(lambda patch: _started(patch, lambda _, ids: ids + 7), attends_to_a_start, "qwen3"),
    "start token behind a placeholder": Mutation(_start_behind_a_placeholder, copies_behind_a_start, "qwen3"),
    "instruction pooled": Mutation(_with_prompt, averages_the_text),
    "first token not pooled": Mutation(_without_first, averages),
    "last but one": Mutation(_last_but_one, reads_last),
    "weights reversed": Mutation(_weights_reversed, weighs),
    "placeholders not replaced": Mutation(_not_replaced, copies),
    "placeholder values swapped": Mutation(_values_swapped, tells_placeholders_apart),
    "instruction dropped": Mutation(_no_instruction, attends),
    "positions run on": Mutation(_positions_run_on, everything, "gpt2"),
    "positions from one": Mutation(_positions_from_one, everything, "gpt2"),
    "neighbours attended": Mutation(_one_sequence, attends, loads=False),
    "scale wrong": Mutation(lambda patch: _traits(patch, scale=lambda s: 1.01 * s), attends, loads=False),
    "soft cap dropped": Mutation(lambda patch: _traits(patch, cap=lambda c: None), attends, "gemma2", loads=False),
    "soft cap a little wide": Mutation(
        lambda patch: _traits(patch, cap=lambda c: c and 1.01 * c), a_few, "gemma2", loads=False
    ),
    "window wide": Mutation(lambda patch: _traits(patch, window=lambda w: w and w + 1), attends, "gemma2", loads=False),
    "window narrow": Mutation(
        lambda patch: _traits(patch, window=lambda w: w and w - 1), attends, "gemma2", loads=False
    ),
    "sinks dropped": Mutation(lambda patch: _sinks(patch, lambda s: None), a_few, "gpt_oss", loads=False),
    "sinks of other heads": Mutation(lambda patch: _sinks(patch, lambda s: s.flip(0)), a_few, "gpt_oss", loads=False),
}


def cases(name: str, mutation: Mutation) -> list[Any]:
    """The methods that a mutation concerns; all but the last are slow."""
    pairs = [(name, method) for method in METHODS if mutation.concerns(method)]
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
