"""Read files and folders into a dataset of documents, with columns that restore their order."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, cast

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import ray.data

from eddy_embed.errors import InvalidParameter

TEXTS, ROWS = (".txt", ".md", ".markdown"), (".jsonl", ".jsonl.gz", ".parquet")
SUFFIXES = (*TEXTS, *ROWS)
ORDER_COLUMNS = ("file", "row")
"""Number of the file, and of the document in it."""
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
BATCH_ROWS = 1_000
"""Rows of a file in a block."""


def read_documents(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    text_column: str = "text",
    id_column: str = "id",
) -> ray.data.Dataset:
    """Read documents of files and folders in Ray tasks; every machine must see the paths.

    A `.txt`, `.md` or `.markdown` file is a document; its id is its path below the given folder. A row of a `.jsonl`,
    `.jsonl.gz` or `.parquet` file is a document; its id is its field of that name, else file and number, and its other
    fields are metadata.

    Args:
        paths: Files and folders, also of Arrow's other file systems, such as s3://bucket/folder.
        text_column: Field of the text, in rows.
        id_column: Field of the id, in rows.

    Returns:
        A dataset with the columns `file` and `row`, which give the order; `id`; `text`; `metadata`, a JSON object; and
        `error`, the reason why there is no text, or null.

    Raises:
        InvalidParameter: A path does not exist or has an unknown type, or there is nothing to read.
    """
    import ray.data

    tasks = read_tasks(paths)
    columns = {"text_column": text_column, "id_column": id_column}
    items = ray.data.from_items(tasks, override_num_blocks=len(tasks))
    return items.map_batches(run_task, batch_size=1, batch_format="pyarrow", fn_kwargs=columns)


def read_tasks(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
    """Plan the tasks of `read_documents`, one for each file, or for each row group of a Parquet file."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    paths_and_names = [each for path in given for each in find_files(os.fspath(path))]
    if not paths_and_names:
        raise InvalidParameter(f"no file to read in {', '.join(map(str, given))}; readable are {' '.join(SUFFIXES)}")
    return [
        {"file": at, "path": path, "name": name, "first": first, "group": group}
        for at, (path, name) in enumerate(paths_and_names)
        for first, group in _row_groups(path)
    ]


def in_order(dataset: ray.data.Dataset) -> ray.data.Dataset:
    """Sort a dataset of `read_documents`, embedded by `EddyEmbed`, by file, row and part."""
    return dataset.sort([*ORDER_COLUMNS, "part", "index"])


def find_files(path: str) -> list[tuple[str, str]]:
    """Find the files at a path, with their names relative to it."""
    system, inside = filesystem_of(path)
    about = system.get_file_info(inside)
    if about.type == pa_fs.FileType.NotFound:
        raise InvalidParameter(f"{path} does not exist; give a file or a folder that does")
    if about.type == pa_fs.FileType.File:
        if not inside.lower().endswith(SUFFIXES):
            raise InvalidParameter(f"{path} is of a type that is not read; convert it to one of {' '.join(SUFFIXES)}")
        return [(path, PurePosixPath(inside).name)]
    below = system.get_file_info(pa_fs.FileSelector(inside, recursive=True))
    names = [each.path[len(inside) :].lstrip("/") for each in below if each.type == pa_fs.FileType.File]
    own = [name for name in names if name.lower().endswith(SUFFIXES) and "/." not in f"/{name}"]  # none hidden
    return [(f"{path.rstrip('/')}/{name}", name) for name in sorted(own)]


def filesystem_of(path: str) -> tuple[pa_fs.FileSystem, str]:
    """The file system of a path, and the path within it."""
    if "://" in path:
        return cast("tuple[pa_fs.FileSystem, str]", pa_fs.FileSystem.from_uri(path))
    return pa_fs.LocalFileSystem(), os.path.abspath(path)


def _row_groups(path: str) -> list[tuple[int, int]]:
    """First row and number of each row group of a Parquet file; (0, 0) for other files."""
    if not path.lower().endswith(".parquet"):
        return [(0, 0)]
    system, inside = filesystem_of(path)
    with system.open_input_file(inside) as file:
        about = pq.read_metadata(file)
    sizes = [about.row_group(at).num_rows for at in range(about.num_row_groups)]
    return [(sum(sizes[:at]), at) for at in range(len(sizes))]


def run_task(task: pa.Table, text_column: str = "text", id_column: str = "id") -> Iterator[pa.Table]:
    """Yield the documents of one of the `read_tasks`, a table of one row, in blocks."""
    (values,) = task.to_pylist()
    path, name = values["path"], values["name"]
    rows = list[dict[str, Any]]()
    if name.lower().endswith(TEXTS):
        yield pa.Table.from_pylist([{"file": values["file"], "row": 0, "id": name, **_read_text(path)}], SCHEMA)
        return
    for number, row in _rows(path, name, values["first"], values["group"]):
        rows.append({"file": values["file"], "row": number, **_document(row, name, number, text_column, id_column)})
        if len(rows) == BATCH_ROWS:
            yield pa.Table.from_pylist(rows, SCHEMA)
            rows = []
    yield pa.Table.from_pylist(rows, SCHEMA)


def _document(row: Any, name: str, number: int, text_column: str, id_column: str) -> dict[str, Any]:
    default_id = f"{name}#{number}"
    if isinstance(row, str):
        return {"id": default_id, "error": row}
    if not isinstance(row, dict) or not isinstance(row.get(text_column), str):
        return {"id": default_id, "error": f"no text in the field {text_column!r}; name the field with text_column="}
    id_ = default_id if row.get(id_column) is None else str(row[id_column])
    others = {key: value for key, value in row.items() if key not in (text_column, id_column) and value is not None}
    try:
        return {"id": id_, "text": row[text_column], "metadata": json.dumps(others) if others else None}
    except TypeError as error:
        return {"id": id_, "error": f"its other fields are no plain values: {error}"}


def _read_text(path: str) -> dict[str, str]:
    """The text of a file that is one document, or the reason why it has none."""
    system, inside = filesystem_of(path)
    with system.open_input_file(inside) as file:
        try:
            return {"text": file.read().decode("utf-8-sig")}
        except UnicodeDecodeError as error:
            return {"error": f"byte {error.start} is not UTF-8; convert the file first"}


def _rows(path: str, name: str, first: int, group: int) -> Iterator[tuple[int, Any]]:
    """Yield the number of each row, from 0, and its content; a string is the reason why it cannot be read."""
    system, inside = filesystem_of(path)
    with system.open_input_file(inside) as file:
        if name.lower().endswith(".parquet"):
            number = first
            for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS, row_groups=[group]):
                for row in batch.to_pylist():
                    yield number, row
                    number += 1
        else:
            # Arrow's file objects cannot iterate over lines.
            with gzip.open(file) if name.lower().endswith(".gz") else io.BufferedReader(file) as lines:
                for number, line in enumerate(lines):
                    if line.strip():
                        yield number, _parsed(line)


def _parsed(line: bytes) -> Any:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        return f"not a row of JSON: {error}"
    return [row] if isinstance(row, str) else row
