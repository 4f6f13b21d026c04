"""The same embedder with something else about it; the loaded model is shared."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from eddy_embed import methods
from eddy_embed.described import Described
from eddy_embed.encoding.build import finish_for
from eddy_embed.encoding.pipeline import Counts
from eddy_embed.encoding.validation import check_kind, check_options
from eddy_embed.parts.postprocess import Fitted

if TYPE_CHECKING:
    from eddy_embed.parts.layout import TextRole

_E = TypeVar("_E", bound="Varied")


class Varied(Described):
    """The base of `Embedder`."""

    def with_post(self: _E, fitted: Fitted | None) -> _E:
        """The same embedder with other post-processing, or with none; it shares the loaded model.

        Args:
            fitted: What was learned, None for no post-processing.

        Raises:
            InvalidParameter: It is something else.
            FingerprintMismatch: It was learned with another model, method or setting.
        """
        check_kind("fitted", fitted, Fitted | None, "what fit() returned, or None; Fitted.load reads it from a file")
        if fitted is not None:
            fitted.check_maker(self.maker)
        other = copy.copy(self)
        other.method = methods.with_post(self.method, None if fitted is None else fitted.post)
        finish = finish_for(other.method, self.width, fitted, self.normalize, self._pipeline.finish.head)
        other._pipeline = replace(self._pipeline, finish=finish, counts=Counts())
        other._settings = None
        return other

    def with_instructions(self: _E, *, query: str | None = None, text: str | None = None) -> _E:
        """The same embedder with other instructions; it shares the loaded model.

        Args:
            query: In front of queries; "" for none, None for the one that is there.
            text: In front of documents; likewise.

        Raises:
            InvalidParameter: One is no string.
            FingerprintMismatch: There is post-processing, which was learned with the old ones.
        """
        check_options({"query_instruction": query, "text_instruction": text})
        given: dict[TextRole, str] = {}
        given |= {} if query is None else {"query": query}
        given |= {} if text is None else {"document": text}
        planner = self._pipeline.planner
        other = copy.copy(self)
        planner = replace(
            planner, instructions={**planner.instructions, **given}, attached=planner.attached - given.keys()
        )
        other._pipeline = replace(self._pipeline, planner=planner, counts=Counts())
        other._settings = None
        if other.post is not None:
            other.post.check_maker(other.maker)
        return other
