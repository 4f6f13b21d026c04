"""What is measured: a method with its post-processing, or a count of words, and what it is compared with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from eddy_embed import methods
from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Method
from eddy_embed.methods.published import read_as_plain

WORDS = ("bm25", "overlap")
"""Systems without a language model."""
WITHOUT_LAYERS = (*WORDS, "plain:exit=0")
"""Stand beside every other and run no layer: words, and the mean of raw token embeddings."""


@dataclass(frozen=True)
class System:
    """One row of a table: a method's text form, or one of `WORDS`.

    `fit_on` is the number of the library's vectors that post-processing is fitted on, or "all"; None for the model's
    calibration on general text. `judged` is the number of a query's first passages that the model re-ranks.
    """

    text: str
    fit_on: int | Literal["all"] | None = None
    judged: int = 0

    @classmethod
    def named(cls, text: str) -> System:
        """A system by its name, methods in the form that they print."""
        if text in WORDS:
            return cls(text)
        method = read_as_plain(methods.parse(text))
        if method.recommended is not None:
            raise InvalidParameter(f"{method} depends on the model; name the method that it stands for there")
        return cls(str(method))

    @property
    def label(self) -> str:
        """Name in tables."""
        fitted = "" if self.fit_on is None else f" (fitted on {self.fit_on})"
        return f"{self.text}{fitted}{f', first {self.judged} judged' if self.judged else ''}"

    @property
    def method(self) -> Method:
        """The method, post-processing included."""
        return methods.parse(self.text)

    @property
    def learns(self) -> bool:
        """Whether it has post-processing that is fitted."""
        return self.text not in WORDS and self.method.post is not None and self.method.post.learns

    @property
    def family(self) -> str:
        """Equal for systems whose vectors come out of the same passes, at one layer or another."""
        method = methods.with_post(self.method, None)
        # Placeholders that are pooled are copied once more at the exit, and attention is watched up to it: every exit
        # has a pass of its own.
        if method.readout is not None and not method.readout.placeholders and method.watch is None:
            method = replace(method, readout=replace(method.readout, exit=None))
        return json.dumps([[term.name for term in method.terms], method.settings])

    def reference(self, baseline: str) -> System:
        """What it is compared with: the baseline with the same post-processing, unless that has one of its own.

        Re-ranked, it is compared with itself as it was.
        """
        if self.judged:
            return replace(self, judged=0)
        if self.text in WORDS or baseline in WORDS or methods.parse(baseline).post is not None:
            return System(baseline)
        return replace(self, text=str(methods.with_post(methods.parse(baseline), self.method.post)))


def with_baseline(texts: Iterable[str], baseline: str, judged: int = 0) -> list[System]:
    """The systems that a table shows: `WITHOUT_LAYERS`, those asked for, and those that they are compared with.

    With `judged`, those asked for stand there once more, with so many passages re-ranked.
    """
    found = [System.named(text) for text in (*WITHOUT_LAYERS, baseline, *texts)]
    reference = System.named(baseline).text
    # The reference stands above the first that is compared with it.
    shown = [each for system in found for each in (system.reference(reference), system)]
    shown += [replace(System.named(text), judged=judged) for text in texts if judged and text not in WORDS]
    return list(dict.fromkeys([*(System.named(text) for text in WITHOUT_LAYERS), *shown]))
