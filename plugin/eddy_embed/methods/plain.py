"""The text as it is, the baseline of every paper; and parts to join to other methods: readout, weights, start token."""

from __future__ import annotations

from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Method
from eddy_embed.methods.registry import build, layer_numbers, register
from eddy_embed.parts.layout import Layout
from eddy_embed.parts.readout import LayerMean, Pool, Readout, TokenWeights
from eddy_embed.utils.checks import check_choice

INSTRUCTED = {"bare": "{instruction} {prompt}", "htp": "{instruction} Text: {prompt}"}


@register
def plain(pool: Pool | None = None, exit: int | None = -1, preset: str = "bare") -> Method:
    """The text as it is, pooled.

    Args:
        pool: "mean", "last", "hybrid", "weighted" (SGPT, Muennighoff 2022) or, for encoders, "cls". None: the pooling
            of an embedding model, else the mean.
        exit: Layer read, counted over h[0] .. h[L].
        preset: What separates an instruction from the text: a blank, "bare", or " Text: ", as the HTP paper runs its
            models, "htp".

    Raises:
        InvalidParameter: The pooling or the preset is unknown.
    """
    parameters = dict(locals())
    check_choice("plain: preset", preset, INSTRUCTED)
    layout = Layout(instructed=INSTRUCTED[preset])
    return build(plain, parameters, layout=layout, readout=Readout(exit=exit, pool=pool))


@register
def start(token: str | None = "auto") -> Method:
    """The token ahead of every sequence, once and in no mean; join it to a method.

    Args:
        token: "auto": where the tokenizer puts nothing there, <|endoftext|>, else the model's start token, else its end
            token. None: only what the tokenizer puts there, as the papers run their methods. Or a token of the
            vocabulary, also instead of the tokenizer's own.
    """
    return build(start, {"token": token}, layout=Layout(start=token))


@register
def sif(a: float = 3e-5) -> Method:
    """Rare tokens weigh more in a mean: a / (a + frequency) (Arora et al. 2017); join it to a method that averages.

    The frequency of a token follows from its place in the vocabulary, which is sorted by it, and Zipf's law.

    Args:
        a: Frequency at which a token weighs half. The paper's 1e-3 is for words; 3e-5 measured best for tokens, on
            Cranfield, with SmolLM2 and Gemma 3 alike.

    Raises:
        InvalidParameter: `a` is not above 0.
    """
    return build(sif, {"a": a}, weights=TokenWeights(a))


@register
def last2avg() -> Method:
    """The mean of the exit layer and the one below it, before pooling; join it to a method that has a readout.

    The comparison row that needs no training of BERT-flow (Li et al. 2020).
    """
    return build(last2avg, {}, average=LayerMean(2))


@register
def layeravg(layers: tuple[int, int] | int | str | None = 0) -> Method:
    """The mean of vectors pooled from several layers and the exit layer, each by itself; join it to a method.

    Each has length 1 before they are averaged: states of an upper layer are many times as long as those of a lower one.
    Layer 0 alone, the token embeddings, gives avg_first_last (Gao et al. 2021).

    Args:
        layers: Below the exit: one, or a list such as "0,4-6", counted over h[0] .. h[L].

    Raises:
        InvalidParameter: They are no layers.
    """
    if not (below := layer_numbers("layeravg", layers)):
        raise InvalidParameter(f"layeravg: layers={layers!r} must name a layer below the exit, such as 0")
    return build(layeravg, {"layers": layers}, average=LayerMean(below=below))


@register
def readout(
    pool: Pool | None = None,
    exit: int | None = -1,
    placeholders: bool = False,
    prompt: bool = False,
    specials: bool = False,
) -> Method:
    """The readout of vectors, instead of that of the methods joined to it.

    Args:
        pool: "mean", "last", "hybrid", "weighted" (SGPT, Muennighoff 2022) or, for encoders, "cls". None: the pooling
            of an embedding model, else the mean.
        exit: Layer read, counted over h[0] .. h[L]. None: the published one for the methods and the backbone, else -2.
        placeholders: Whether the mean also covers placeholders.
        prompt: Whether the mean also covers the prompt around the text, an instruction included.
        specials: Whether the mean also covers the tokenizer's specials, such as BOS, or [CLS] and [SEP]; those before
            a prompt only with the prompt.

    Raises:
        InvalidParameter: It is set what a mean covers, and the pooling takes none.
    """
    covered = {"placeholders": placeholders, "prompt": prompt, "specials": specials}
    if pool in ("last", "cls") and any(covered.values()):
        name = next(name for name, asked in covered.items() if asked)
        raise InvalidParameter(
            f"readout: {name}=true has no effect with pool={pool}, which reads one token; leave it out"
        )
    return build(readout, {"pool": pool, "exit": exit, **covered}, readout=Readout(exit, pool, **covered), decides=True)
