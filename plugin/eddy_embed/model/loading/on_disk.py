"""GGUF files that other programs keep on this machine, by the names that these programs give them."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eddy_embed.errors import ModelNotFound, UnsupportedModel

_LAYER = "application/vnd.ollama.image."
_FURTHER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


def find(program: str, name: str) -> Path:
    """Return the file of a model that a program, `ollama` or `lmstudio`, has; nothing is downloaded.

    Raises:
        ModelNotFound: The program has no model of that name, or lacks some of its files.
        UnsupportedModel: It has the model in a form that is not a GGUF file of a language model.
    """
    return PROGRAMS[program](name)


def language_models(folder: Path, pattern: str = "*") -> list[Path]:
    """Return GGUF files in a folder, without those of images, and of several parts the first."""
    files = (file for file in _listed(folder, pattern) if file.is_file() and file.suffix.lower() == ".gguf")
    return [file for file in files if "mmproj" not in file.name.lower() and not _FURTHER_PART.search(file.name)]


# --- Ollama


def ollama_manifests() -> dict[str, Path]:
    """Return the manifests of Ollama's models, by name and tag, such as `llama3.2:latest`."""
    manifests: dict[str, Path] = {}
    for root in _ollama_roots():
        for file in _listed(root / "manifests", "*/*/*/*"):
            if file.is_file() and not file.name.startswith("."):
                folder, _, tag = file.relative_to(root / "manifests").as_posix().rpartition("/")
                manifests.setdefault(_full_name(f"{folder}:{tag}"), file)
    return manifests


def ollama_weights(name: str, manifest: Path) -> Path:
    """Return the GGUF file that a manifest names.

    Raises:
        ModelNotFound: The manifest is damaged, or the file is gone.
        UnsupportedModel: The model is not a single GGUF file.
    """
    blobs = ollama_layers(name, manifest)
    models = blobs.get("model", [])
    if "adapter" in blobs:
        raise UnsupportedModel(
            f"Ollama's {name} is a model with an adapter on top, which Eddy does not read from there; name the "
            "adapter's Hugging Face id or folder"
        )
    if not models and "tensor" not in blobs:
        raise ModelNotFound(f"Ollama's {name} has no weights on this machine; name another of its models")
    if len(models) != 1:
        said = "in several parts" if models else "in a layout of Ollama's own"
        raise UnsupportedModel(f"Ollama has {name} {said}; name the same model's Hugging Face id or folder")
    if not models[0].is_file():
        raise ModelNotFound(f"Ollama's {name} lacks its weights, {models[0]}; `ollama pull {name}` fetches them")
    with models[0].open("rb") as file:
        start = file.read(4)
    if start != b"GGUF":
        raise ModelNotFound(
            f"Ollama's {name} is damaged: {models[0]} begins with {start!r}, not as a GGUF file does; remove it, and "
            f"fetch it again with `ollama pull {name}`"
        )
    return models[0]


def ollama_layers(name: str, manifest: Path) -> dict[str, list[Path]]:
    """Return the files that a manifest names, by their kind, such as `model` or `license`.

    Raises:
        ModelNotFound: The manifest is damaged.
    """
    blobs, files = manifest.parents[4] / "blobs", dict[str, list[Path]]()
    try:
        layers: list[dict[str, Any]] = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
        for layer in layers:
            digest = re.fullmatch(r"sha256:([0-9a-f]{64})", layer["digest"])
            if digest is None:
                raise ValueError(f"{layer['digest']!r:.80} is no digest")
            kind = layer["mediaType"].removeprefix(_LAYER)
            files.setdefault(kind, []).append(blobs / f"sha256-{digest[1]}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = f"{type(error).__name__}: {error}"
        raise ModelNotFound(
            f"{manifest}, Ollama's manifest of {name}, cannot be read ({said}); `ollama pull {name}` fetches it again"
        ) from None
    return files


def _ollama(name: str) -> Path:
    there = ollama_manifests()
    wanted = _full_name(name)
    for known, manifest in there.items():
        if known.casefold() == wanted.casefold():
            return ollama_weights(known, manifest)
    remedy = f"`ollama pull {name or 'llama3.2'}` fetches it"
    for root in _ollama_roots():
        if _refused(root / "manifests"):
            remedy += f"; {root} may not be read by this user: join the group that owns it, or set OLLAMA_MODELS"
    raise _absent("Ollama", name, there, _ollama_roots(), remedy)


def _full_name(text: str) -> str:
    """Return a name as Ollama shows it: without what it takes for granted, and with a tag."""
    folder, slash, last = text.rpartition("/")
    model, _, tag = last.partition(":")
    name = f"{folder}{slash}{model}".removeprefix("registry.ollama.ai/").removeprefix("library/")
    return f"{name}:{tag or 'latest'}"


def _ollama_roots() -> list[Path]:
    if named := os.environ.get("OLLAMA_MODELS"):
        return [Path(named).expanduser()]
    return [Path("~/.ollama/models").expanduser(), Path("/usr/share/ollama/.ollama/models")]


# --- LM Studio


def lm_studio_files() -> dict[str, Path]:
    """Return LM Studio's GGUF files, by name, `publisher/model/file.gguf`."""
    files: dict[str, Path] = {}
    for root in _lm_studio_roots():
        for file in language_models(root, "*/*/*"):
            files.setdefault(file.relative_to(root).as_posix(), file)
    return files


def _lm_studio(name: str) -> Path:
    there, wanted = lm_studio_files(), name.casefold()
    names = [known for known in there if wanted in (known.casefold(), known.rpartition("/")[0].casefold())]
    if len(names) == 1:
        return there[names[0]]
    if names:
        shown = ", ".join(f"lmstudio:{known}" for known in names)
        raise ModelNotFound(f"LM Studio has {len(names)} files of {name}; name one of them: {shown}")
    raise _absent("LM Studio", name, there, _lm_studio_roots(), "`lms get` fetches one")


def _lm_studio_roots() -> list[Path]:
    return [Path(folder).expanduser() for folder in ("~/.lmstudio/models", "~/.cache/lm-studio/models")]


# --- llama.cpp


def llama_cpp_files() -> list[Path]:
    """Return the GGUF files in llama.cpp's cache."""
    if named := os.environ.get("LLAMA_CACHE"):
        return language_models(Path(named).expanduser())
    if sys.platform == "darwin":
        caches = "~/Library/Caches"
    elif sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return language_models(Path(caches).expanduser() / "llama.cpp")


# --- Hugging Face's cache


def hub_snapshots() -> Iterator[tuple[str, Path, list[Path]]]:
    """Yield each model in Hugging Face's cache: its id, the folder of its current revision, and the files there."""
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    try:
        repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except (CacheNotFound, ValueError, OSError):  # ValueError: the cache's place is a file; OSError: it may not be read
        return
    for repository in sorted(repositories, key=lambda each: each.repo_id):
        if repository.repo_type == "model" and repository.revisions:
            current = max(repository.revisions, key=lambda each: ("main" in each.refs, each.last_modified))
            yield repository.repo_id, current.snapshot_path, sorted(each.file_path for each in current.files)


PROGRAMS = {"ollama": _ollama, "lmstudio": _lm_studio}
"""Programs that give their models names, and what finds one of a name."""


def _absent(program: str, name: str, there: dict[str, Path], roots: list[Path], remedy: str) -> ModelNotFound:
    listed = ", ".join(there) if there else f"none, in {' or '.join(map(str, roots))}"
    return ModelNotFound(f"{program} has no model {name!r} on this machine ({remedy}); there are: {listed}")


def _listed(folder: Path, pattern: str) -> list[Path]:
    """Return the paths in a folder that fit a pattern; none if the folder may not be read."""
    try:
        return sorted(folder.glob(pattern))
    except PermissionError:
        return []


def _refused(folder: Path) -> bool:
    try:
        os.listdir(folder)
    except PermissionError:
        return True
    except OSError:
        return False
    return False
