"""KV-Embedding: every token attends to the last token's keys and values."""

from __future__ import annotations

from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Method
from eddy_embed.methods.registry import build, register
from eddy_embed.parts.attention import ExtraKeyValues
from eddy_embed.parts.layout import Layout
from eddy_embed.parts.readout import Pool, Readout


@register
def kv(
    layers: tuple[int, int] | int | str | None = None,
    bias: float = 1.0,
    n: int = 1,
    rebase: bool = False,
    verb: str = "Compress",
    pool: Pool = "hybrid",
    exit: int | None = -1,
) -> Method:
    """In some layers every token also attends to the keys and values of the last one, which has seen everything.

    Section 3.2; the entry's logit is biased by b after scale, cap and temperature. Its key keeps its position, unless
    `rebase` moves it to the paper's virtual position.

    Args:
        layers: One, (first, last), or a list such as "11,12,21,27-32", counted from 1; "" for none. None: those of the
            shipped table; `eddy layers` finds them for other models.
        bias: b, added to the logits of the entries; -inf switches them off.
        n: Entries: the last n tokens.
        rebase: Whether the entry's key is moved to position -1, one before the first token (the paper counts tokens
            from 1 and says 0); with n entries the last token's to -1, that of the one before it to -2, and so on. For
            models with rotary positions.
        verb: What the prompt asks for (table 22): one word, as in "Compress the Context in one word:", or a phrase up
            to the colon, such as "Extract key concept" and "Compress to one word".
        pool: "hybrid" over the text and its prompt, as in the paper, or another.
        exit: Layer read, counted over h[0] .. h[L].

    Raises:
        InvalidParameter: A value is outside its range.
    """
    given = dict(locals())
    if not verb.strip() or "{" in verb or "}" in verb:
        raise InvalidParameter(f"kv: verb={verb!r} must be a word or a phrase")
    asked = verb if " " in verb.strip() else f"{verb} the {{kind}} in one word"
    document, query = (f'"{kind}: {{text}}" {asked.format(kind=kind)}:' for kind in ("Context", "Query"))
    return build(
        kv,
        given,
        layout=Layout(document, query),
        reroute=ExtraKeyValues(_layers(layers), float(bias), n, rebase),
        readout=Readout(exit=exit, pool=pool, prompt=True),
    )


@register
def reroute(
    layers: tuple[int, int] | int | str | None = None, bias: float = 1.0, n: int = 1, rebase: bool = False
) -> Method:
    """The entries of kv alone, without its prompt and readout: join it to a method that has them.

    Args:
        layers: As in kv.
        bias: As in kv.
        n: As in kv.
        rebase: As in kv.

    Raises:
        InvalidParameter: A value is outside its range.
    """
    return build(reroute, dict(locals()), reroute=ExtraKeyValues(_layers(layers), float(bias), n, rebase))


def _layers(layers: tuple[int, int] | int | str | None) -> tuple[int, ...] | None:
    if layers is None:
        return None
    layers = f"{layers[0]}-{layers[1]}" if isinstance(layers, tuple) else str(layers)
    numbers: set[int] = set()
    for part in layers.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if part and not (first.isdigit() and (last or first).isdigit()):
            raise InvalidParameter(f"kv: layers={layers!r} must be numbers and ranges, such as 11,12,27-32")
        if part and int(first) > int(last or first):
            raise InvalidParameter(f"kv: layers={layers!r}: {part} counts down; write the lower layer first")
        numbers.update(range(int(first), int(last or first) + 1) if part else ())
    return tuple(sorted(numbers))
