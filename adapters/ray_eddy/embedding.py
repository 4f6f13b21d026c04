"""`EddyEmbed`, a callable class for `Dataset.map_batches`: each actor of the pool loads the model once."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from ray.data.block import BlockAccessor

from eddy_embed import LongDocument, Span
from eddy_embed.encoding.validation import PASSAGE_SIZE
from eddy_embed.errors import EddyError, InvalidParameter
from eddy_embed.integrations.documents import isolate_failures

_COUNTS = ("index", "start", "end", "n_tokens", "n_windows", "n_truncated")
_TYPES = {"part": pa.string(), **dict.fromkeys(_COUNTS, pa.int64()), "headings": pa.list_(pa.string())}


class EddyEmbed:
    """Embeds batches of whole documents in `Dataset.map_batches`.

    The result has a row for each part of a document: all columns of the document, the part's own text in the column of
    texts, and `part`, `index`, `start`, `end`, `n_tokens`, `n_windows`, `n_truncated`, `headings` and `vector`, an
    Arrow list of fixed size. Messages name rows by their `id`, if there is such a column.

    Args:
        model_name: As for `Embedder`; every machine must have the model.
        parts: What gets vectors: "document", "passages", "sentences", all from one forward pass.
        passage_size: Maximum number of tokens in a passage of several sentences.
        late: Whether to pool parts from the pass over their whole document; None: where no layer runs.
        text_column: Column of the texts.
        errors: "raise" at a text that cannot be embedded, or "column": its row has no vector, but a reason in `error`.
        **settings: The other arguments of `Embedder`.

    Raises:
        InvalidParameter: A parameter is wrong, or a batch lacks the column of texts or has one that the result needs.
    """

    def __init__(
        self,
        model_name: str | os.PathLike[str],
        *,
        parts: Collection[str] = ("document",),
        passage_size: int = PASSAGE_SIZE,
        late: bool | None = None,
        text_column: str = "text",
        errors: Literal["raise", "column"] = "raise",
        **settings: Any,
    ) -> None:
        if errors not in ("raise", "column"):
            raise InvalidParameter(f"errors={errors!r} is unknown; choose one of raise, column")
        from eddy_embed import Embedder

        self.embedder = Embedder(model_name, **settings)
        self._encode: Any = partial(self.embedder.encode_long, passage_size=passage_size, late=late, parts=parts)
        self._encode([])  # refuses what is wrong among them
        self._parts, self._text, self._raises = parts, text_column, errors == "raise"
        self._types = {text_column: pa.string(), **_TYPES, "vector": pa.list_(pa.float32(), self.embedder.dimension)}
        self._types |= {} if self._raises else {"error": pa.string()}

    def __call__(self, batch: Any) -> pa.Table:
        """Give a row for each part of the documents of a batch, which has any of Ray's formats."""
        table = BlockAccessor.for_block(BlockAccessor.batch_to_block(batch)).to_arrow()
        if self._text not in table.column_names:
            raise InvalidParameter(f"no column {self._text!r} among {table.column_names}; name it with text_column=")
        if taken := [name for name in table.column_names if name in self._types and name != self._text]:
            raise InvalidParameter(f"the batch has the columns {', '.join(taken)}, which the result needs; rename them")
        owners, rows = list[int](), list[dict[str, Any]]()
        for at, result in enumerate(isolate_failures(self._encode, table.column(self._text).to_pylist(), EddyError)):
            rows += self._rows(result) if isinstance(result, LongDocument) else [self._refusal(table, at, result)]
            owners += [at] * (len(rows) - len(owners))
        added = pa.Table.from_pylist(rows, pa.schema(self._types))
        carried = table.drop_columns(self._text).take(pa.array(owners, pa.int64()))
        return pa.table([*carried.columns, *added.columns], [*carried.column_names, *added.column_names])

    def _rows(self, result: LongDocument) -> Iterator[dict[str, Any]]:
        whole = Span(0, len(result.text), result.n_tokens, result.vector)
        counts = {"n_windows": result.n_windows, "n_truncated": result.n_truncated}
        for part, spans in (("document", [whole]), ("passages", result.passages), ("sentences", result.sentences)):
            for index, span in enumerate(spans if part in self._parts else ()):
                text = {self._text: result.text[span.start : span.end]}
                yield {"part": part, "index": index, "headings": [], **vars(span), **counts, **text}

    def _refusal(self, table: pa.Table, at: int, error: Exception) -> dict[str, Any]:
        if self._raises:
            name = repr(table.column("id")[at].as_py()) if "id" in table.column_names else f"{at} of its batch"
            raise type(error)(f"row {name}: {reason(error)}; or give errors='column', to go on with the others")
        text = table.column(self._text)[at].as_py()
        cells = {"part": next(iter(self._parts)), "index": 0, "error": reason(error)}
        return {**cells, self._text: text if isinstance(text, str) else None}


def reason(error: Exception) -> str:
    """Return why a text that was embedded alone could not be."""
    return str(error).replace("text 0", "the text", 1)
