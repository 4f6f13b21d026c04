"""A diagnosis as one page of HTML that needs nothing beside it."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from html import escape
from pathlib import Path

from eddy_embed.analysis.diagnose.results import Diagnosis

TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222;"
    "background:#fff}img{max-width:100%}table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .75rem;"
    "border-bottom:1px solid #ccc;text-align:right}td:is(:first-child,:last-child){text-align:left}"
    "code{background:#f2f2f2;padding:0 .25rem}p{max-width:48rem}"
)
EXPLAINED = {
    "length": (
        "Length collapse",
        "Do long texts lie nearer to each other than short ones? On the left the mean cosine of two texts of like "
        "length, on the right their distance to the centre of all texts. TempScale divides what enters each softmax by "
        "a temperature below 1, against that collapse.",
    ),
    "layers": (
        "Layer by layer",
        "The method's own vectors, read at each layer of one pass. The red point is the layer that the method reads.",
    ),
    "attention": (
        "Attention as a filter",
        "What a layer's attention does beside giving every token the same mean. Its largest singular value is σₐ: a "
        "layer lets through at most σₐ times what tells its tokens apart (TempScale, theorem 2). It is 0 for attention "
        "that is uniform in both directions; in a model that reads from left to right the first tokens see little, so "
        "attention that pays alike to all earlier tokens (dotted) is the floor there, and rises with the length.",
    ),
    "sensitivity": (
        "Which tokens count",
        "The gradient of two readouts by each token's embedding: of the mean over the text, and of the last token. "
        "Theorem 3.1 of HTP bounds the first by a whole column of the attention flow, the second by one entry of it.",
    ),
    "entries": (
        "The re-routed entry",
        "What tokens pay to the keys and values of the last token, which KV-Embedding lets all of them see.",
    ),
}
TOKENS = (
    "Tokens in the mean",
    "The share of each token's state in the norms that are averaged. An attention sink has a state of more than ten "
    "median norms, and may hide all other tokens.",
)
SPACE = {
    "uniformity": ("Uniformity", "lower is more even; 0: all equal"),
    "alignment": ("Alignment", "squared distance of texts that mean the same; 0: equal"),
    "mean_cosine": ("Mean cosine of two texts", "anisotropy; 0 for directions at random"),
    "largest_share": ("Variance along the first component", "1 over the width where all directions are alike"),
    "largest_dimension": ("Variance in one dimension", "collapsed above 0.15"),
    "nearest": ("Texts nearest to their partner", "of the pairs that mean the same; 1: all"),
    "effective_dimensions": ("Effective dimensions", "at most the width, and the number of texts less one"),
}


def page(found: Diagnosis, pictures: dict[str, Path]) -> str:
    """The page, with the pictures of `figures.draw` inside it; everything that comes from outside is escaped."""
    about = found.about
    title = f"{about['model']}: {about['method']}"
    shown = {
        "exit": f"h[{about['exit']}] of {about['layers']} layers",
        "texts": f"{about['texts']}{', cut to several lengths' * about['cut']}",
        "fingerprint": about["fingerprint"],
        "version": about["version"],
    }
    parts = [
        f"<h1>{escape(title)}</h1>",
        _table([], [(name, escape(str(value))) for name, value in shown.items()]),
        "<h2>The space of vectors</h2>",
        _table(
            ["", *(f"<code>{escape(side.method)}</code>" for side in found.sides), ""],
            [(name, *values, hint) for name, values, hint in rows_of_space(found)],
        ),
    ]
    if found.largest_token is not None:
        parts += [f"<h2>{TOKENS[0]}</h2>", f"<p>{TOKENS[1]} {escape(share_of_tokens(found))}</p>"]
        listed = [
            (escape(repr(each.piece)), str(each.count), f"{each.norm:.0f}", f"{each.share:.0%}") for each in found.sinks
        ]
        parts.append(_table(["token", "times", "norm in medians", "share of the mean"], listed) if listed else "")
    for name, path in pictures.items():
        heading, text = EXPLAINED[name]
        data = base64.b64encode(path.read_bytes()).decode()
        source = f"data:{TYPES[path.suffix]};base64,{data}"
        parts += [f"<h2>{heading}</h2>", f"<p>{text}</p>", f'<img alt="{heading}" src="{source}">']
    if found.left_out:
        reasons = [(escape(name), escape(why)) for name, why in found.left_out.items()]
        parts += ["<h2>Left out</h2>", _table([], reasons)]
    # Inside a script element nothing is markup but what would end it.
    data = json.dumps(found.settings, ensure_ascii=True).replace("<", "\\u003c")
    parts.append(f'<script type="application/json" id="diagnosis">{data}</script>')
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def rows_of_space(found: Diagnosis) -> list[tuple[str, list[str], str]]:
    """Name, value for each side, and what it means."""
    return [
        (title, [_number(side.space[name]) for side in found.sides], meaning)
        for name, (title, meaning) in SPACE.items()
        if name in found.sides[0].space
    ]


def share_of_tokens(found: Diagnosis) -> str:
    """The largest share of a token in the mean, in words."""
    return (
        f"The largest token of a text has {found.largest_token:.0%} of its mean; {len(found.sinks)} tokens are sinks."
    )


def _table(heads: list[str], rows: Iterable[tuple[str, ...]]) -> str:
    first = f"<tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>" if heads else ""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{first}{body}</table>"


def _number(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.3f}"
