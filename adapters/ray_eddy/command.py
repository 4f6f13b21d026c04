"""`eddy embed --ray`: whole documents of files and folders, on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from eddy_embed.cli.options import Device, Dtype, Instruction, MaxLength, MethodText, ModelOption, method_in_full
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations import atomic_write, check_installed

if TYPE_CHECKING:
    import ray.data

Address = Annotated[
    str, typer.Option("--ray", help="Address of a cluster, auto for this machine's, or local to start one here.")
]
Concurrency = Annotated[
    int | None,
    typer.Option(min=1, help="Embedders, each with a model of its own. Default: as many as fit on the cluster."),
]
Cpus = Annotated[float | None, typer.Option(min=0, help="CPUs for each embedder. Default: 1.")]
Gpus = Annotated[float | None, typer.Option(min=0, help="GPUs for each embedder. Default: 0.")]


def embed(
    paths: Annotated[
        list[str],
        typer.Argument(help="Files and folders: .txt and .md are documents, rows of .jsonl and .parquet too."),
    ],
    address: Address,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", help="A .parquet file, written here; or a folder that every machine has, in parts."
        ),
    ],
    model: ModelOption = "eddy-tiny",
    method: MethodText = "recommended",
    part: Annotated[
        list[str] | None,
        typer.Option("--part", help="document, passages or sentences. Repeat for several. Default: document."),
    ] = None,
    passage_size: Annotated[int, typer.Option(min=1, help="Maximum tokens in a passage.")] = 256,
    concurrency: Concurrency = None,
    num_cpus: Cpus = None,
    num_gpus: Gpus = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Documents in a batch of an embedder.")] = 32,
    errors: Annotated[
        Literal["raise", "column"],
        typer.Option(help="For a document that cannot be embedded: end the run, or put the reason in a column."),
    ] = "raise",
    text_column: Annotated[str, typer.Option(help="Field of the text, in rows.")] = "text",
    id_column: Annotated[str, typer.Option(help="Field of the id, in rows.")] = "id",
    post: Annotated[Path | None, typer.Option(help="Fitted post-processing: a file of Embedder.fit().")] = None,
    instruction: Instruction = None,
    max_length: MaxLength = None,
    device: Device = None,
    dtype: Dtype = "auto",
) -> None:
    """Embed documents on a Ray cluster: their vectors, passages and sentences with offsets, in Parquet."""
    check_installed("ray", "ray", "pyarrow")
    from eddy_embed.integrations import Fitted, check_parts

    check_parts(part or ["document"])
    method = method_in_full(model, method)
    fitted = None if post is None else Fitted.load(post)
    _check_output(output)
    from ray_eddy import EddyEmbed, in_order, read_documents
    from ray_eddy.cluster import actor_pool, connect, max_actors

    with connect(address):
        embedded = read_documents([_absolute(path) for path in paths], text_column=text_column, id_column=id_column)
        # Repartition, so that the embedders share a large file.
        embedded = embedded.repartition(target_num_rows_per_block=batch_size).map_batches(
            EddyEmbed,
            fn_constructor_kwargs={
                "model_name": _absolute(model) if Path(model).exists() else model,
                "method": method,
                "parts": tuple(part or ["document"]),
                "passage_size": passage_size,
                "errors": errors,
                "fitted": fitted,
                "query_instruction": instruction,
                "text_instruction": instruction,
                "max_length": max_length,
                "device": device,
                "dtype": dtype,
            },
            batch_format="pyarrow",
            batch_size=batch_size,
            compute=actor_pool(concurrency or max_actors(num_cpus, num_gpus)),
            num_cpus=num_cpus,
            num_gpus=num_gpus,
        )
        failed = _write(in_order(embedded), output)
    if failed:
        typer.echo(f"documents without a vector: {failed}; the column error says why", err=True)
        raise typer.Exit(1)


def _write(dataset: ray.data.Dataset, output: str) -> int:
    """Write the rows in order, and return the number of rows without a vector."""
    import pyarrow.parquet as pq

    failed = 0
    if not output.endswith(".parquet"):
        rows = dataset.materialize()
        if "error" in rows.schema().names:
            failed = sum(t.num_rows - t.column("error").null_count for t in rows.iter_batches(batch_format="pyarrow"))
        rows.write_parquet(output)
        return failed
    with atomic_write(output) as sink:
        writer = None
        for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
            if writer is None:
                writer = pq.ParquetWriter(sink, table.schema)
            writer.write_table(table)
            if "error" in table.column_names:
                failed += table.num_rows - table.column("error").null_count
        if writer is not None:
            writer.close()
    return failed


def _check_output(output: str) -> None:
    folder = Path(output)
    if "://" in output or output.endswith(".parquet"):
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidParameter(f"{output} is there already; name an empty or new folder, or a .parquet file")


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).resolve())
