"""What the name of a model stands for: a folder, a GGUF file, or a Hugging Face id."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from eddy_embed.errors import ModelNotFound

BUNDLED = {"eddy-tiny": Path(__file__).parents[1] / "tiny"}
"""Models that come with the package."""
_FILES = ("config.json", "modules.json", "adapter_config.json")
"""One of these is in every folder of a model."""
_ANSWER_SECONDS = 30.0
"""Seconds in a period, in which the hub is asked once whether it answers; a command looks for its model repeatedly."""


@contextmanager
def permitted() -> Iterator[None]:
    """Raise ModelNotFound for files that the user may not read."""
    try:
        yield
    except PermissionError as error:
        raise ModelNotFound(
            f"{error.filename or 'a file of the model'} may not be read by this user; give it the permission, for "
            "example with `chmod a+rX`, or run as the user whose file it is"
        ) from None


@permitted()
def locate(name: str | os.PathLike[str]) -> str:
    """Return the folder or GGUF file of a model, or the hub id as it is.

    A name is, in this order: a bundled model's, a path, `ollama:NAME` or `lmstudio:NAME`, one of the catalogue, a hub
    id. None of them is looked for outside this machine.

    Raises:
        ModelNotFound: The name is blank, or looks like a path and is none, a folder holds no model, or several, or what
            stands for one in Git, a program has no such model, a model of the catalogue is not here, or one may not be
            read.
        UnsupportedModel: A program has the model in a form that cannot be read.
    """
    text = os.fspath(name)
    if not text.strip():
        raise ModelNotFound(f"the model's name is {text!r}, blank; name one that `eddy models` lists, or leave it out")
    if text in BUNDLED:
        return str(BUNDLED[text])
    try:
        path = Path(text).expanduser()
        exists = path.exists()
    except PermissionError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # too long for a path, a NUL in it, or an unknown ~user
        raise ModelNotFound(f"model {text!r:.80} is no name of a model: {error!s:.80}") from None
    if path.is_dir():
        return str(_model_in(path))
    if path.is_file() and is_gguf(path):
        return str(path)
    if not exists and (known := _named(text)):
        return str(known)
    if file := next(filter(is_gguf, path.parents), None):
        raise ModelNotFound(f"no model at {text!r}: {str(file)!r} is a GGUF file, not a folder; name the file itself")
    if path.is_absolute() or text.startswith((".", "~")) or text.count("/") > 1 or exists or text.endswith(".gguf"):
        raise ModelNotFound(
            f"no model at {text!r}; name a folder that save_pretrained wrote, a .gguf file, or a hub id"
        )
    return text


def reachable(name: str, where: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a located model, with `local_files_only` if it is the hub's and the hub does not answer.

    Args:
        name: As the user wrote it.
        where: What `locate` makes of it.
        options: `revision`, `cache_dir` and `local_files_only`, for transformers.

    Raises:
        ModelNotFound: The hub does not answer or may not be asked, and its cache has no such model.
    """
    if os.path.exists(where):
        return options
    from huggingface_hub import constants, try_to_load_from_cache

    if constants.HF_HUB_OFFLINE or options.get("local_files_only"):
        reason = "the hub is not asked, as HF_HUB_OFFLINE or local_files_only says"
    elif _hub_answers(constants.ENDPOINT, int(time.monotonic() // _ANSWER_SECONDS)):
        return options
    else:
        reason = f"{constants.ENDPOINT.partition('://')[2]} does not answer"
    options_of_cache = {key: options[key] for key in ("cache_dir", "revision") if key in options}
    try:
        cached = [try_to_load_from_cache(where, file, **options_of_cache) for file in _FILES]
    except ValueError as error:  # no repository can have such an id
        raise not_opened(name, f"{error!s:.200}") from None
    if not any(isinstance(path, str) for path in cached):
        raise not_opened(name, f"it is not on this machine, and {reason}")
    return {**options, "local_files_only": True}


@lru_cache(maxsize=1)
def _hub_answers(endpoint: str, period: int) -> bool:
    """Return whether the hub answers a request, made once a period: transformers asks for over a minute."""
    from huggingface_hub import get_session

    try:
        get_session().head(endpoint, timeout=2)
    except Exception:  # of the HTTP library that this version of huggingface_hub has chosen
        return False
    return True


def not_opened(name: str | os.PathLike[str], reason: str) -> ModelNotFound:
    """Return the error for a model that cannot be opened, with the name that may be meant."""
    from eddy_embed.model.loading.catalog import CATALOG

    near = difflib.get_close_matches(os.fspath(name).casefold(), [*BUNDLED, *CATALOG], n=1)
    remedy = f"did you mean {near[0]!r}?" if near else "name one that `eddy models` lists, a folder or a .gguf file"
    return ModelNotFound(f"model {os.fspath(name)!r:.300} could not be opened: {reason.rstrip('.')}; {remedy}")


def _named(text: str) -> Path | None:
    """Return the model of a program, or of the catalogue; None if the name is of another kind."""
    # Imported here: calls with a bundled model do without.
    from eddy_embed.model.loading import catalog, on_disk

    program, colon, rest = text.partition(":")
    if colon and program.casefold() in on_disk.PROGRAMS:
        return on_disk.find(program.casefold(), rest)
    return catalog.find(catalog.CATALOG[text]) if text in catalog.CATALOG else None


def _model_in(folder: Path) -> Path:
    if not any((folder / file).is_file() for file in _FILES):
        return gguf_in(folder)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".safetensors") and path.is_file():
            check_fetched(path)
    return folder


def gguf_in(folder: Path) -> Path:
    """Return the one GGUF file of a language model in a folder.

    Raises:
        ModelNotFound: There is none, or more than one.
    """
    from eddy_embed.model.loading.on_disk import language_models

    files = language_models(folder)
    if len(files) == 1:
        return files[0]
    if files:
        names = ", ".join(file.name for file in files[:8])
        raise ModelNotFound(f"{str(folder)!r} holds {len(files)} GGUF files ({names}); name one of them")
    raise ModelNotFound(
        f"{str(folder)!r} holds no config.json and no .gguf file; name the folder that save_pretrained wrote"
    )


def check_fetched(path: Path) -> None:
    """Raise ModelNotFound for the few lines that stand for a large file in Git, until Git LFS fetches it."""
    with path.open("rb") as file:
        if file.read(23) == b"version https://git-lfs":
            raise ModelNotFound(
                f"{path} is a pointer of Git LFS, not the file itself; run `git lfs pull` in its folder"
            )


def is_gguf(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of a GGUF file: by its name, or by its first bytes, where its name says nothing."""
    path = Path(path)
    if path.suffix == ".gguf" or not path.is_file():
        return path.is_file()
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"
