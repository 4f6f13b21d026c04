"""Files and folders as a dataset of documents: each row with a key by which order is restored."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from eddy_embed.errors import InvalidParameter

if TYPE_CHECKING:
    import ray.data

TEXTS, ROWS = (".txt", ".md", ".markdown"), (".jsonl", ".jsonl.gz", ".parquet")
SUFFIXES = (*TEXTS, *ROWS)
KEY = ("file", "row")
"""Columns that say which document of which file it is."""
SCHEMA = pa.schema(
    [
        ("file", pa.int32()),
        ("row", pa.int64()),
        ("id", pa.string()),
        ("text", pa.string()),
        ("metadata", pa.string()),
        ("error", pa.string()),
    ]
)
BATCH = 1_000
"""Rows of a file that are handed on at a time."""


def read_documents(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    text_column: str = "text",
    id_column: str = "id",
) -> ray.data.Dataset:
    """Documents of files and folders, read by Ray's tasks; every machine must see the paths.

    A file of `.txt`, `.md` or `.markdown` is a document, called by its path below the folder given. A row of `.jsonl`,
    `.jsonl.gz` or `.parquet` is one, called by its id, or by file and number where it has none; what else the row has
    is its metadata.

    Args:
        paths: Files and folders; what Arrow's file systems open, such as s3://bucket/folder, too.
        text_column: The field of the text, in rows.
        id_column: The field of the id.

    Returns:
        A dataset with the columns `file` and `row`, which give the order; `id`, `text`; `metadata`, a JSON object; and
        `error`, why there is no text, null where there is one.

    Raises:
        InvalidParameter: A path does not exist, is of a type that is not read, or there is nothing to read.
    """
    import ray.data

    pieces = tasks(paths)
    told = {"text_column": text_column, "id_column": id_column}
    items = ray.data.from_items(pieces, override_num_blocks=len(pieces))
    return items.map_batches(read, batch_size=1, batch_format="pyarrow", fn_kwargs=told)


def tasks(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
    """What is read by itself: a file, or a group of a Parquet file's rows.

    Raises:
        InvalidParameter: As in `read_documents`.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found = [each for path in given for each in files(os.fspath(path))]
    if not found:
        raise InvalidParameter(f"no file to read in {', '.join(map(str, given))}; readable are {' '.join(SUFFIXES)}")
    return [
        {"file": at, "path": path, "name": name, "first": first, "group": group}
        for at, (path, name) in enumerate(found)
        for first, group in _pieces(path)
    ]


def in_order(dataset: ray.data.Dataset) -> ray.data.Dataset:
    """Rows in the order of the files and their rows, and in each document in that of its parts.

    Args:
        dataset: Of `read_documents`, embedded by `EddyEmbed`.
    """
    return dataset.sort([*KEY, "part", "index"])


def files(path: str) -> list[tuple[str, str]]:
    """Files that are read at a path, with the names that their documents get.

    Raises:
        InvalidParameter: It does not exist, or is a file of a type that is not read.
    """
    system, inside = opened(path)
    about = system.get_file_info(inside)
    if about.type == pa_fs.FileType.NotFound:
        raise InvalidParameter(f"{path} does not exist; give a file or a folder that does")
    if about.type == pa_fs.FileType.File:
        if not inside.lower().endswith(SUFFIXES):
            raise InvalidParameter(f"{path} is of a type that is not read; convert it to one of {' '.join(SUFFIXES)}")
        return [(path, PurePosixPath(inside).name)]
    below = system.get_file_info(pa_fs.FileSelector(inside, recursive=True))
    names = [each.path[len(inside) :].lstrip("/") for each in below if each.type == pa_fs.FileType.File]
    own = [name for name in names if name.lower().endswith(SUFFIXES) and not _is_hidden(name)]
    return [(f"{path.rstrip('/')}/{name}", name) for name in sorted(own)]


def opened(path: str) -> tuple[pa_fs.FileSystem, str]:
    """The file system of a path, and the path in it."""
    if "://" in path:
        found: tuple[pa_fs.FileSystem, str] = pa_fs.FileSystem.from_uri(path)
        return found
    return pa_fs.LocalFileSystem(), os.path.abspath(path)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _pieces(path: str) -> list[tuple[int, int]]:
    """First row and number of each piece of a file that is read by itself."""
    if not path.lower().endswith(".parquet"):
        return [(0, 0)]
    system, inside = opened(path)
    with system.open_input_file(inside) as file:
        about = pq.read_metadata(file)
    sizes = [about.row_group(at).num_rows for at in range(about.num_row_groups)]
    return [(sum(sizes[:at]), at) for at in range(len(sizes))]


def read(task: pa.Table, text_column: str = "text", id_column: str = "id") -> Iterator[pa.Table]:
    """Documents of one of the `tasks`, some at a time.

    Args:
        task: Of one row.
        text_column: As in `read_documents`.
        id_column: Likewise.
    """
    (told,) = task.to_pylist()
    path, name = told["path"], told["name"]
    rows = list[dict[str, Any]]()
    for number, row in _rows(path, name, told["first"], told["group"]):
        rows.append({"file": told["file"], "row": number, **_document(row, name, number, text_column, id_column)})
        if len(rows) == BATCH:
            yield pa.Table.from_pylist(rows, SCHEMA)
            rows = []
    yield pa.Table.from_pylist(rows, SCHEMA)


def _document(row: Any, name: str, number: int, text_column: str, id_column: str) -> dict[str, Any]:
    called = f"{name}#{number}"
    if isinstance(row, _Whole):
        return {"id": name, "text": row.text, "error": row.error}
    if isinstance(row, str):
        return {"id": called, "error": row}
    if not isinstance(row, dict) or not isinstance(row.get(text_column), str):
        return {"id": called, "error": f"no text in the field {text_column!r}; name the field with text_column="}
    own = called if row.get(id_column) is None else str(row[id_column])
    others = {key: value for key, value in row.items() if key not in (text_column, id_column) and value is not None}
    try:
        return {"id": own, "text": row[text_column], "metadata": json.dumps(others) if others else None}
    except TypeError as error:
        return {"id": own, "error": f"its other fields are no plain values: {error}"}


class _Whole:
    """A file that is one document."""

    def __init__(self, data: bytes) -> None:
        self.text: str | None = None
        self.error: str | None = None
        try:
            self.text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.error = f"byte {error.start} is not UTF-8; convert the file first"


def _rows(path: str, name: str, first: int, group: int) -> Iterator[tuple[int, Any]]:
    """Numbers of rows, counted from 0, and what is there; a string is the reason why nothing is."""
    system, inside = opened(path)
    with system.open_input_file(inside) as file:
        if name.lower().endswith(".parquet"):
            number = first
            for batch in pq.ParquetFile(file).iter_batches(BATCH, row_groups=[group]):
                for row in batch.to_pylist():
                    yield number, row
                    number += 1
        elif name.lower().endswith(TEXTS):
            yield 0, _Whole(file.read())
        else:
            # Arrow's own files have no lines.
            with gzip.open(file) if name.lower().endswith(".gz") else io.BufferedReader(file) as lines:
                for number, line in enumerate(lines):
                    if line.strip():
                        yield number, _parsed(line)


def _parsed(line: bytes) -> Any:
    try:
        found = json.loads(line.decode("utf-8-sig"))
    except ValueError as error:
        return f"not a row of JSON: {error}"
    return [found] if isinstance(found, str) else found
