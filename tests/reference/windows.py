"""Long texts: overlapping windows, every token counted once; vectors of spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .methods import Params, Run, run
from .readout import POOLINGS, unit

Span = tuple[int, int]


@dataclass
class Window:
    """One window's pass.

    Attributes:
        done: The pass.
        spans: Characters of each text token in the whole text, without the blanks that it brings along: what is
            " next" in one window may be "next", as the first word, in another.
        counted: Indices into `spans` of the tokens that count here.
    """

    done: Run
    spans: list[Span]
    counted: list[int]

    def state(self) -> np.ndarray:
        """What the pass pools, without the tokens of the text that count elsewhere."""
        text = self.done.layout.text
        kept = {text[index] for index in self.counted}
        return POOLINGS[self.done.pool](self.done.h, [at for at in self.done.pooled if at in kept or at not in text])


def _bare(text: str, start: int, end: int) -> Span:
    return next((c for c in range(start, end) if not text[c].isspace()), start), end


def _distance(token: Span, spans: Sequence[Span], window: Span, length: int) -> float:
    """Tokens between a token and the nearer border of a window; the text's own ends are no borders."""
    before = sum(1 for start, end in spans if end <= token[0])
    after = sum(1 for start, end in spans if start >= token[1])
    left = float("inf") if window[0] == 0 else before
    right = float("inf") if window[1] == length else after
    return min(left, right)


def passes(
    method: str,
    params: Params,
    model: Any,
    tokenizer: Any,
    text: str,
    windows: Sequence[Span],
    *,
    sentences: Sequence[Span],
    **options: Any,
) -> list[Window]:
    """Runs every window (start, end) of characters as a text of its own; a tie goes to the earlier window."""
    result = []
    for start, end in windows:
        inside = [(a - start, b - start) for a, b in sentences if start <= a and b <= end]
        done = run(method, params, model, tokenizer, text[start:end], sentences=inside, **options)
        result.append(Window(done, [_bare(text, a + start, b + start) for a, b in done.layout.spans], []))
    for own, window in enumerate(result):
        for index, token in enumerate(window.spans):
            holders = [w for w, (start, end) in enumerate(windows) if start <= token[0] and token[1] <= end]
            far = {w: _distance(token, result[w].spans, windows[w], len(text)) for w in holders}
            if max(holders, key=lambda w: (far[w], -w)) == own:
                window.counted.append(index)
    return result


def document_vector(windows: Sequence[Window]) -> np.ndarray:
    """Mean of the windows' raw pooled states, weighted by the tokens that count there, then normalised.

    Pooling mean, last and hybrid: what `weighted` and HTP's `all` do over windows is not defined.
    """
    total, tokens = 0, 0
    for window in windows:
        if not window.counted:
            continue
        total = total + len(window.counted) * window.state()
        tokens += len(window.counted)
    return unit(total / tokens)


def span_vector(windows: Sequence[Window], span: Span) -> np.ndarray:
    """Mean over the counted tokens that belong to characters start..end, normalised."""
    states = []
    for window in windows:
        for index in window.counted:
            if span[0] <= window.spans[index][0] < span[1]:
                states.append(window.done.h[window.done.layout.text[index]])
    return unit(np.mean(states, axis=0))
