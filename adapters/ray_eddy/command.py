"""`eddy embed --ray`: whole documents of files and folders, on a cluster."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import Annotated, Literal

import typer

from eddy_embed.cli.options import Dtype, Instruction, MethodText, ModelOption, method_in_full
from eddy_embed.errors import EddyError
from eddy_embed.integrations import PASSAGE_SIZE, check_installed

SUFFIXES = {"text": ["txt", "md", "markdown"], "json": ["jsonl", "jsonl.gz"], "parquet": ["parquet"]}


def embed(
    paths: Annotated[list[str], typer.Argument(help="Files and folders that every machine has.")],
    address: Annotated[str, typer.Option("--ray", help="Of a cluster; auto: this machine's; local: start one here.")],
    output: Annotated[str, typer.Option("--output", "-o", help="A new folder for Parquet, which every machine has.")],
    kind: Annotated[Literal["text", "json", "parquet"], typer.Option("--format", help="Of the files.")] = "text",
    text_column: Annotated[str, typer.Option(help="Field of the text, in rows.")] = "text",
    model: ModelOption = "eddy-tiny",
    method: MethodText = "recommended",
    part: Annotated[list[str] | None, typer.Option(help="document, passages or sentences; repeat for several.")] = None,
    passage_size: Annotated[int, typer.Option(min=1, help="Maximum tokens in a passage.")] = PASSAGE_SIZE,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Embedders. Default: as many as fit.")] = None,
    num_gpus: Annotated[float | None, typer.Option(min=0, help="GPUs for each embedder.")] = None,
    errors: Annotated[Literal["raise", "column"], typer.Option(help="What a bad document does.")] = "raise",
    instruction: Instruction = None,
    dtype: Dtype = "auto",
) -> None:
    """Embed documents on a Ray cluster: their vectors, passages and sentences with offsets, in Parquet.

    They are .txt and .md files, or rows of .jsonl or .parquet files; --errors column keeps the reasons of bad ones.
    """
    check_installed("ray", "ray", "pyarrow")
    import ray.data

    from ray_eddy.embedding import EddyEmbed

    local = str(Path(model).resolve()) if Path(model).exists() else model  # an embedder runs in another folder
    settings = {"model_name": local, "method": method_in_full(model, method), "passage_size": passage_size}
    settings |= {"query_instruction": instruction, "text_instruction": instruction, "dtype": dtype}
    settings |= {"parts": part or ["document"], "text_column": text_column, "errors": errors}
    files = [path if "://" in path else str(Path(path).resolve(strict=True)) for path in paths]
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    host, _, port = address.rpartition(":")
    try:
        if port.isdigit():  # where nobody listens, Ray would wait for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, ignore_reinit_error=True)
        ray.data.DataContext.get_current().raise_original_map_exception = True
        read = {"text": ray.data.read_binary_files, "json": ray.data.read_json, "parquet": ray.data.read_parquet}[kind]
        documents = read(files, include_paths=True, file_extensions=SUFFIXES[kind])
        if kind == "text":
            documents = documents.rename_columns({"bytes": text_column})
        embedded = documents.repartition(target_num_rows_per_block=32).map_batches(
            EddyEmbed,
            fn_constructor_kwargs=settings,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=concurrency),
            num_gpus=num_gpus,
        )
        embedded.write_parquet(output if "://" in output else os.path.abspath(output), mode=ray.data.SaveMode.ERROR)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = str(getattr(error, "cause", None) or error).partition("\nFailed to apply UDF")[0]
        raise EddyError(f"Ray at {address!r} failed: {reason.rpartition('eddy_embed.errors.')[2]}") from None
