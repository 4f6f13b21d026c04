"""The text inside a prompt: PromptEOL and its kin ask for it in one word; Echo (Springer et al. 2024) repeats it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Method
from eddy_embed.methods.registry import build, register
from eddy_embed.parts.layout import Layout
from eddy_embed.parts.readout import Readout
from eddy_embed.utils.checks import check_choice, check_count

EOL = 'This sentence : "{text}" means in one word:"'
COT = 'After thinking step by step , this sentence : "{text}" means in one word:"'
KNOWLEDGE = (
    "The essence of a sentence is often captured by its main subjects and actions, while descriptive terms provide "
    'additional but less central details. With this in mind , this sentence : "{text}" means in one word:"'
)
TASKS = (
    'The subject that this text would be filed under : "{text}" is in one word:"',
    'The kind of text that this is : "{text}" is in one word:"',
    'The feeling that speaks from this text : "{text}" is in one word:"',
    'The writer\'s opinion in this text : "{text}" is in one word:"',
    'The meaning that this text shares with others like it : "{text}" is in one word:"',
    'What sets this text apart from others : "{text}" is in one word:"',
    'The most important thing named in this text : "{text}" is in one word:"',
    'The main event told in this text : "{text}" is in one word:"',
)
"""Eight tasks, two each of classification, sentiment, similarity and extraction."""
ECHOES = {
    "rewrite": Layout("Rewrite the sentence: {text}, rewritten sentence: {text}"),
    "released": Layout(
        "Document:{text}\nDocument again:{text}", "Query:{text}\nQuery again:{text}", end=True, start=None
    ),
    "htp": Layout("{text}{text}", "Query: {text} Query again: {text}"),
    "bare": Layout("{text} {text}"),
}


@register
def prompteol(exit: int | None = -1, released_text: bool = False) -> Method:
    """The text inside a prompt that asks for one word, last token read (PromptEOL, Jiang et al. 2023).

    Args:
        exit: Layer read, counted over h[0] .. h[L].
        released_text: Whether the text is rewritten as in Token Prepending's code.
    """
    return _last(prompteol, dict(locals()), Layout(EOL))


@register
def cot(exit: int | None = -1, released_text: bool = False) -> Method:
    """PromptEOL that thinks step by step first (Pretended CoT, Zhang et al. 2024).

    Args:
        exit: Layer read, counted over h[0] .. h[L].
        released_text: Whether the text is rewritten as in Token Prepending's code.
    """
    return _last(cot, dict(locals()), Layout(COT))


@register
def knowledge(exit: int | None = -1, released_text: bool = False) -> Method:
    """PromptEOL that first says what matters in a sentence (Knowledge Enhancement, Zhang et al. 2024).

    Args:
        exit: Layer read, counted over h[0] .. h[L].
        released_text: Whether the text is rewritten as in Token Prepending's code.
    """
    return _last(knowledge, dict(locals()), Layout(KNOWLEDGE))


@register
def metaeol(prompts: str | None = None, exit: int | None = -1, released_text: bool = False) -> Method:
    """Mean over the last states of several task prompts (MetaEOL, Lei et al. 2024); the wordings are ours.

    Args:
        prompts: Wordings to use instead, one a line, each with `{text}`.
        exit: Layer read, counted over h[0] .. h[L].
        released_text: Whether the text is rewritten as in Token Prepending's code.

    Raises:
        InvalidParameter: There is no wording, or one without `{text}`.
    """
    given = dict(locals())
    wordings = TASKS if prompts is None else [line for line in prompts.split("\n") if line.strip()]
    if not wordings:
        raise InvalidParameter(f"metaeol: prompts={prompts!r} holds no wording; give one or more, one a line")
    first, *others = wordings
    return _last(metaeol, given, Layout(first, others=tuple(others)))


@register
def echo(preset: str = "rewrite", exit: int | None = -1, k: int = 2) -> Method:
    """The text twice, mean over the second copy, whose tokens have seen the whole text.

    A model that was trained to be read at its last token is read there instead.

    Args:
        preset: Wording: "rewrite" (the paper's), "released" (its code's, which also pools the end token), "htp" (as
            the HTP paper runs it), "bare" (nothing but the text, a space, the text).
        exit: Layer read, counted over h[0] .. h[L].
        k: Number of copies, of which the last is read; the wording between two is repeated.

    Raises:
        InvalidParameter: The preset is unknown, or there are fewer than two copies.
    """
    check_choice("echo: preset", preset, ECHOES)
    check_count("echo: k", k, least=2)
    layout = ECHOES[preset]
    query = layout.query_template and _repeated(layout.query_template, k)
    layout = replace(layout, template=_repeated(layout.template, k), query_template=query)
    readout = Readout(exit=exit, pool=None, end=layout.end)
    return build(echo, {"preset": preset, "exit": exit, "k": k}, layout=layout, readout=readout)


def _repeated(template: str, k: int) -> str:
    """Return a wording of two copies with k copies."""
    before, between, after = template.split("{text}")
    return before + "{text}" + f"{between}{{text}}" * (k - 1) + after


def _last(function: Callable[..., Method], given: dict[str, Any], layout: Layout) -> Method:
    if given["released_text"]:
        layout = replace(layout, revision="quoted", start=None)
    return build(function, given, layout=layout, readout=Readout(exit=given["exit"], pool="last"))
