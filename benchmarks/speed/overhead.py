"""What a method costs beyond the tokens that it adds: against a plain pass of the same model over as many tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from texts import story

from eddy_embed import Embedder
from speed.texts import positions, text_of
from speed.timing import ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

LENGTHS = (512, 2048)
MARGIN = 64
"""Tokens beyond a length that a text may have while one of that length is searched for."""


@dataclass(frozen=True)
class Goal:
    """What a method is measured by.

    Attributes:
        method: Text form.
        base: The method that it is measured by, over as many tokens.
        most: How many times the base's time it is meant to take at most.
    """

    method: str
    base: str
    most: float | None


GOALS = (
    Goal("tp:exit=-1", "plain:exit=-1", 1.03),
    Goal("plain:exit=-1+tempscale:tau=0.8", "plain:exit=-1", 1.03),
    Goal("htp:exit=-1", "plain:exit=-1", 1.05),
    Goal("kv:exit=-1", "plain:exit=-1", 1.05),
    Goal("reba:exit=-1", "echo:exit=-1", 1.1),
    Goal("reba:pool=mean,exit=-1", "echo:exit=-1", 1.5),
    Goal("echo:exit=-1", "plain:exit=-1", None),
)
"""All at the last layer. Echo has no goal: a repetition is a longer text."""


def rows(model: Any, tokenizer: Any, lengths: tuple[int, ...], rounds: int) -> Iterator[dict[str, Any]]:
    """Time over time, and tokens over tokens for one and the same text."""
    lengths = tuple(within(model, length) for length in lengths)
    window = max(lengths) + MARGIN
    layers = model.config.num_hidden_layers
    made = {
        method: Embedder(model, tokenizer=tokenizer, method=filled(method, layers), max_length=window)
        for goal in GOALS
        for method in (goal.method, goal.base)
    }
    for length in lengths:
        for goal in GOALS:
            one, base = made[goal.method], made[goal.base]
            sequence = text_of(one, length)
            other = text_of(base, positions(one, sequence))
            found = ratio(lambda: one.encode_document(sequence), lambda: base.encode_document(other), rounds)  # noqa: B023
            text = story(length // 2)
            yield {
                "method": str(one.method),
                "base": goal.base,
                "length": length,
                "positions": [positions(one, sequence), positions(base, other)],
                "tokens": round(positions(one, text) / positions(made[GOALS[0].base], text), 3),
                "goal": goal.most,
                "time": found.row(),
            }


def within(model: Any, length: int) -> int:
    """A length, or the longest that a model's window leaves room to search around."""
    return min(length, int(model.config.max_position_embeddings) - MARGIN)


def filled(method: str, layers: int) -> str:
    """A method with the layers that it needs to be told in a model that no table knows: the middle ones."""
    return method.replace("kv:", f"kv:layers={layers // 3}-{2 * layers // 3},")


def half_depth(model: Any, tokenizer: Any, length: int, rounds: int) -> dict[str, Any]:
    """Reading at half depth, against the whole: time, and bytes against embeddings and kept layers."""
    layers, length = model.config.num_hidden_layers, within(model, length)
    whole, half = (
        Embedder(model, tokenizer=tokenizer, method=f"plain:exit={layer}", max_length=length + MARGIN)
        for layer in (layers, layers // 2)
    )
    text = text_of(whole, length)
    found = ratio(lambda: half.encode_document(text), lambda: whole.encode_document(text), rounds)
    base = model.base_model
    above = [*base.layers[layers // 2 :], base.norm]
    unread = {id(tensor) for module in above for tensor in (*module.parameters(), *module.buffers())}
    tensors = {id(tensor): tensor for tensor in (*base.parameters(), *base.buffers())}
    kept = [tensor for key, tensor in tensors.items() if key not in unread]
    return {
        "layers": [layers // 2, layers],
        "bytes": half.explain("a").bytes,
        "expected": sum(tensor.numel() * tensor.element_size() for tensor in kept),
        "goal": 0.55,
        "time": found.row(),
    }
