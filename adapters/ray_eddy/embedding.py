"""`EddyEmbed`: what `Dataset.map_batches` runs in a pool of actors, the model loaded once in each."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from eddy_embed import Embedder
from eddy_embed.document import Part
from eddy_embed.engines import ENGINE_SETTINGS
from eddy_embed.errors import EddyError, InvalidParameter, InvalidText, NotFinite, NotFitted, TextTooLong
from eddy_embed.inputs import check_one, check_options, check_parts
from eddy_embed.parameters import plain, refuse_unknown
from eddy_embed.postprocess import Fitted
from ray_eddy.arrow_tables import MADE, as_table, flat

if TYPE_CHECKING:
    import pyarrow as pa

    from eddy_embed import LongDocument

Errors = Literal["raise", "column"]
T = TypeVar("T")
DOCUMENT: tuple[Part, ...] = ("document",)
_OF_A_TEXT = (InvalidText, TextTooLong, NotFinite)
"""Errors that one text causes, and that leave the others as they are."""


class EddyEmbed:
    """Embeds batches of documents, each whole.

    For `Dataset.map_batches`, as a class, so that each actor of the pool loads the model once:
    `ds.map_batches(EddyEmbed, fn_constructor_kwargs={"model_name": ..., "method": ...}, batch_format="pyarrow",
    batch_size=64, concurrency=4, num_gpus=1)`. A row of the result is a part of a document: all columns of the
    document, its own characters in the column of texts, and `part`, `index`, `start`, `end`, `n_tokens`, `n_windows`,
    `n_truncated`, `headings` and `vector`, an Arrow list of fixed size. Rows come in the order of their batch.

    Args:
        model_name: "eddy-tiny" (bundled), a Hugging Face id, or a path that every machine has.
        method: How a text becomes a vector, such as "htp".
        parts: Which vectors: "document", "passages", "sentences", all out of one pass.
        passage_size: Most tokens in a passage of several sentences.
        late: Whether parts are read out of the pass over their whole document; None: where the method allows it.
        text_column: Where they are.
        id_column: What names a row in messages, where there is such a column.
        errors: What a text that cannot be embedded does: "raise" ends the run and names it; "column" gives a row with
            no vector, and the reason in the column `error`, which is null in all others.
        **settings: The other arguments of `eddy_embed.Embedder`. `post` is what its `fit` gave, or a file that every
            machine has.

    Raises:
        InvalidParameter: An unknown parameter, or one outside its range.
        NotFitted: The method has post-processing, and no `post` is given.
    """

    def __init__(
        self,
        model_name: str | os.PathLike[str] | None = None,
        *,
        method: str | None = None,
        parts: Collection[Part] = DOCUMENT,
        passage_size: int = 256,
        late: bool | None = None,
        text_column: str = "text",
        id_column: str = "id",
        errors: Errors = "raise",
        **settings: Any,
    ) -> None:
        check_parts(parts)
        check_options({"passage_size": passage_size})
        if errors not in ("raise", "column"):
            raise InvalidParameter(f"errors={errors!r} is unknown; choose one of raise, column")
        self.embedder = load(model_name, {**settings, "method": method})
        post = self.embedder.method.post
        if post is not None and post.learns and self.embedder.post is None:
            raise NotFitted(
                f"method {method!r} has post-processing, which learns from a library: give post=, what "
                "Embedder(...).fit(texts) returned, or the file that its save(path) wrote"
            )
        self._parts = tuple(parts)
        self._size, self._late = passage_size, self.embedder.reads_spans if late is None else late
        self._text, self._id, self._errors = text_column, id_column, errors

    def __call__(self, batch: Any) -> pa.Table:
        """A row for each part.

        Args:
            batch: Rows of documents.

        Raises:
            InvalidParameter: There is no column of texts, or one that the result needs.
            EddyError: A text cannot be embedded, and `errors` is "raise".
        """
        table = as_table(batch)
        if self._text not in table.column_names:
            raise InvalidParameter(f"no column {self._text!r} among {table.column_names}; name it with text_column=")
        taken = [name for name in MADE if name in table.column_names]
        if taken:
            raise InvalidParameter(f"the batch has the columns {', '.join(taken)}, which the result needs; rename them")
        results = told(self._encode, table.column(self._text).to_pylist(), unread(table))
        if self._errors == "raise":
            self._raise_first(table, results)
        reasons = [str(each) if isinstance(each, EddyError) else each for each in results]
        with_errors = self._errors == "column"
        return flat(table, reasons, self._parts, self.embedder.dimension, self._text, errors=with_errors)

    def _encode(self, texts: list[str]) -> list[LongDocument]:
        return self.embedder.encode_long(texts, passage_size=self._size, late=self._late, parts=self._parts)

    def _raise_first(self, table: pa.Table, results: Sequence[Any]) -> None:
        at = next((at for at, each in enumerate(results) if isinstance(each, EddyError)), None)
        if at is None:
            return
        name = repr(table.column(self._id)[at].as_py()) if self._id in table.column_names else f"{at} of its batch"
        raise type(results[at])(
            f"row {name}: {results[at]}; or give errors='column', to go on with the others"
        ) from None


def load(model_name: Any, settings: Mapping[str, Any]) -> Embedder:
    """An embedder for an actor.

    Args:
        model_name: As in `EddyEmbed`.
        settings: Arguments of `Embedder`.

    Raises:
        InvalidParameter: An unknown argument, or one outside its range.
    """
    refuse_unknown("EddyEmbed", {"model_name": model_name, **settings}, ("model_name", *ENGINE_SETTINGS))
    post = settings.get("post")
    live = {"post": post} if isinstance(post, Fitted) else {}
    given = {name: value for name, value in settings.items() if value is not None and name not in live}
    values = plain("EddyEmbed", {"model_name": model_name, **given})
    values = {name: value for name, value in {**values, **live}.items() if value is not None}
    return Embedder(values.pop("model_name"), **values)


def raw(embedder: Embedder) -> Embedder:
    """The embedder without post-processing that learns."""
    post = embedder.method.post
    return embedder if post is None or not post.learns else embedder.with_post(None)


def unread(table: pa.Table) -> list[str | None]:
    """Why rows have no text, as `read_documents` tells it; None for those that have one."""
    if "error" not in table.column_names:
        return [None] * table.num_rows
    found: list[str | None] = table.column("error").to_pylist()
    return found


def told(
    encode: Callable[[list[str]], Sequence[T]], texts: Sequence[Any], reasons: Sequence[str | None]
) -> list[T | EddyError]:
    """For each text what is made of it, or why nothing is.

    Args:
        encode: Makes something of texts, or raises an error that one of them causes.
        texts: The texts.
        reasons: Why there is none, where that is known already.
    """
    found: list[Any] = [
        _unusable(text) if reason is None else InvalidText(reason) for text, reason in zip(texts, reasons, strict=True)
    ]
    good = [at for at, error in enumerate(found) if error is None]
    for at, result in zip(good, _isolated(encode, [texts[at] for at in good]), strict=True):
        found[at] = result
    return found


def _unusable(text: Any) -> EddyError | None:
    try:
        check_one(text)
    except InvalidText as error:
        return error
    return InvalidText(f"the text is {'blank' if text else 'empty'}; drop it first") if not text.strip() else None


def _isolated(encode: Callable[[list[str]], Sequence[T]], texts: list[str]) -> list[T | EddyError]:
    if not texts:
        return []
    try:
        return list(encode(texts))
    except _OF_A_TEXT as error:
        if len(texts) == 1:
            return [type(error)(str(error).replace("text 0", "the text", 1))]
    half = len(texts) // 2
    return _isolated(encode, texts[:half]) + _isolated(encode, texts[half:])
