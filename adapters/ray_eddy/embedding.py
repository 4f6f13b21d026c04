"""`EddyEmbed`, a callable class for `Dataset.map_batches`: each actor of the pool loads the model once."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar

import pyarrow as pa

from eddy_embed import Embedder, LongDocument
from eddy_embed.errors import EddyError, InvalidParameter, InvalidText, NotFinite, TextTooLong, ZeroVector
from eddy_embed.integrations import (
    Fitted,
    Part,
    check_one,
    check_options,
    check_parts,
    raise_if_unfitted,
    refuse_unknown,
)
from eddy_embed.integrations.settings import ENGINE_SETTINGS, to_plain_values
from ray_eddy.arrow_tables import NEW_COLUMNS, flat_table, to_table

Errors = Literal["raise", "column"]
T = TypeVar("T")
DOCUMENT: tuple[Part, ...] = ("document",)
_TEXT_ERRORS = (InvalidText, TextTooLong, NotFinite, ZeroVector)
"""Errors caused by a single text; other texts of the batch can still be embedded."""


class EddyEmbed:
    """Embeds batches of whole documents in `Dataset.map_batches`.

    `ds.map_batches(EddyEmbed, fn_constructor_kwargs={"model_name": ..., "method": ...}, batch_format="pyarrow",
    batch_size=64, concurrency=4, num_gpus=1)`. The result has a row for each part of a document: all columns of the
    document, the part's own text in the column of texts, and `part`, `index`, `start`, `end`, `n_tokens`, `n_windows`,
    `n_truncated`, `headings` and `vector`, an Arrow list of fixed size. Rows keep the order of the batch.

    Args:
        model_name: "eddy-tiny" (bundled), a Hugging Face id, or a path or another name that every machine has a model
            for, such as "smollm2".
        method: How a text becomes a vector, such as "htp"; if left out, as is recommended for the model.
        parts: What gets vectors: "document", "passages", "sentences", all from one forward pass.
        passage_size: Maximum number of tokens in a passage of several sentences.
        late: Whether to pool parts from the pass over their whole document; None: wherever the method allows it.
        text_column: Column of the texts.
        id_column: Column that names a row in messages; it need not exist.
        errors: "raise" to end the run at a text that cannot be embedded; "column" to give it a row without a vector
            and the reason in the column `error`, which is null in all other rows.
        **settings: The other arguments of `eddy_embed.Embedder`. `post` is the result of its `fit`, or a file that
            every machine has.

    Raises:
        InvalidParameter: A parameter is unknown or outside its range.
        NotFitted: The method has post-processing, and there is no `post`.
    """

    def __init__(
        self,
        model_name: str | os.PathLike[str] | None = None,
        *,
        method: str = "recommended",
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
        self.embedder = load_embedder(model_name, {**settings, "method": method})
        raise_if_unfitted(self.embedder)
        self._parts = tuple(parts)
        self._size, self._late = passage_size, self.embedder.can_embed_spans if late is None else late
        self._text, self._id, self._errors = text_column, id_column, errors

    def __call__(self, batch: Any) -> pa.Table:
        """Embed a batch, and give a row for each part.

        Args:
            batch: Rows of documents.

        Raises:
            InvalidParameter: The column of texts is missing, or a column has a name that the result needs.
            EddyError: A text cannot be embedded, and `errors` is "raise".
        """
        table = to_table(batch)
        if self._text not in table.column_names:
            raise InvalidParameter(f"no column {self._text!r} among {table.column_names}; name it with text_column=")
        taken = [name for name in NEW_COLUMNS if name in table.column_names]
        if taken:
            raise InvalidParameter(f"the batch has the columns {', '.join(taken)}, which the result needs; rename them")
        results = encode_or_errors(self._encode, table.column(self._text).to_pylist(), read_errors(table))
        if self._errors == "raise":
            self._raise_first(table, results)
        reasons = [str(each) if isinstance(each, EddyError) else each for each in results]
        with_errors = self._errors == "column"
        return flat_table(table, reasons, self._parts, self.embedder.dimension, self._text, errors=with_errors)

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


def load_embedder(model_name: Any, settings: Mapping[str, Any]) -> Embedder:
    """Load an embedder; None stands for an argument's default."""
    refuse_unknown("EddyEmbed", {"model_name": model_name, **settings}, ("model_name", *ENGINE_SETTINGS))
    post = settings.get("fitted")
    live = {"fitted": post} if isinstance(post, Fitted) else {}
    given = {name: value for name, value in settings.items() if value is not None and name not in live}
    values = to_plain_values("EddyEmbed", {"model_name": model_name, **given})
    values = {name: value for name, value in {**values, **live}.items() if value is not None}
    return Embedder(values.pop("model_name"), **values)


def without_fitted_post(embedder: Embedder) -> Embedder:
    """The embedder without post-processing that is fitted."""
    post = embedder.method.post
    return embedder if post is None or not post.learns else embedder.with_post(None)


def read_errors(table: pa.Table) -> list[str | None]:
    """The reason of `read_documents` for each row without a text; None for the others."""
    return table.column("error").to_pylist() if "error" in table.column_names else [None] * table.num_rows


def encode_or_errors(
    encode: Callable[[list[str]], Sequence[T]], texts: Sequence[Any], reasons: Sequence[str | None]
) -> list[T | EddyError]:
    """Encode texts; a text that cannot be encoded, or has a known reason not to be, gets an error."""
    results: list[Any] = [
        _text_error(text) if reason is None else InvalidText(reason)
        for text, reason in zip(texts, reasons, strict=True)
    ]
    good = [at for at, error in enumerate(results) if error is None]
    for at, result in zip(good, _isolate_failures(encode, [texts[at] for at in good]), strict=True):
        results[at] = result
    return results


def _text_error(text: Any) -> EddyError | None:
    try:
        check_one(text)
    except InvalidText as error:
        return error
    return InvalidText(f"the text is {'blank' if text else 'empty'}; drop it first") if not text.strip() else None


def _isolate_failures(encode: Callable[[list[str]], Sequence[T]], texts: list[str]) -> list[T | EddyError]:
    if not texts:
        return []
    try:
        return list(encode(texts))
    except _TEXT_ERRORS as error:
        if len(texts) == 1:
            return [type(error)(str(error).replace("text 0", "the text", 1))]
    half = len(texts) // 2
    return _isolate_failures(encode, texts[:half]) + _isolate_failures(encode, texts[half:])
