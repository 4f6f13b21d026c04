"""Every model on this machine that Eddy may open, read from its header or its configuration alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eddy_embed.errors import EddyError
from eddy_embed.model.backbone import methods_on
from eddy_embed.model.loading import on_disk
from eddy_embed.model.loading.catalog import CATALOG
from eddy_embed.model.loading.gguf.header import GgufFile
from eddy_embed.model.loading.names import BUNDLED

_WEIGHTS = re.compile(r"(model|pytorch_model)[-.].*(safetensors|bin)")
_LICENCE = re.compile(r"^license: *['\"]?([\w.\- ]+)", re.MULTILINE)


@dataclass(frozen=True)
class FoundModel:
    """A model on this machine; None where its files do not say.

    Attributes:
        name: What to type.
        program: Who keeps it.
        path: Its folder or file.
        bytes: Size on disk.
        memory: Bytes of all weights when the model is open: packed ones as they are, others in the type that they have
            on disk, which takes twice as much on a processor that multiplies that type slowly.
        family: Model type of transformers, or GGUF's architecture.
        window: Longest sequence in tokens.
        dtype: Type or quantisation of most weights.
        licence: Identifier of its licence, or the licence's first line.
        methods: Which methods run.
        problem: Why it cannot be opened.
    """

    name: str
    program: str
    path: str
    bytes: int
    memory: int | None = None
    family: str | None = None
    window: int | None = None
    dtype: str | None = None
    licence: str | None = None
    methods: str | None = None
    problem: str | None = None


def found() -> list[FoundModel]:
    """Return all models, each once: those of the package and of other programs, and fetched ones.

    A model of the catalogue has its short name where it is the copy that this name opens.
    """
    short = {path.resolve(): model for model in CATALOG.values() for _, path in [*model.places()][:1]}
    models: dict[Path, FoundModel] = {}
    for model in _all():
        path = Path(model.path).resolve()
        if path in short:
            model = replace(model, name=short[path].name, licence=model.licence or short[path].licence)
        models.setdefault(path, model)
    return list(models.values())


def _all() -> Iterator[FoundModel]:
    for name, folder in BUNDLED.items():
        yield replace(_in_folder(name, "eddy", folder, sorted(folder.iterdir())), licence="apache-2.0")
    for model in CATALOG.values():
        yield from (_in_file(str(path), by, path, model.licence) for by, path in model.places() if path.is_file())
    yield from (_of_ollama(name, manifest) for name, manifest in on_disk.ollama_manifests().items())
    yield from (_in_file(f"lmstudio:{name}", "LM Studio", path) for name, path in on_disk.lm_studio_files().items())
    yield from (_in_file(str(path), "llama.cpp", path) for path in on_disk.llama_cpp_files())
    for hub_id, folder, files in on_disk.hub_snapshots():
        yield from _of_hub(hub_id, folder, files)


def _of_hub(hub_id: str, folder: Path, files: list[Path]) -> Iterator[FoundModel]:
    if any(_WEIGHTS.fullmatch(file.name) for file in files) and (folder / "config.json").is_file():
        yield _in_folder(hub_id, "Hugging Face", folder, files)
    for path in on_disk.language_models(folder, "**/*"):
        yield _in_file(str(path), "Hugging Face", path, _licence_of(folder))


def _of_ollama(name: str, manifest: Path) -> FoundModel:
    try:
        path = on_disk.ollama_weights(name, manifest)
        texts = on_disk.ollama_layers(name, manifest).get("license", [])
    except (EddyError, OSError) as error:
        return FoundModel(f"ollama:{name}", "Ollama", str(manifest), 0, problem=_short(error, manifest))
    return _in_file(f"ollama:{name}", "Ollama", path, _first_line(texts[0]) if texts else None)


def _in_file(name: str, program: str, path: Path, licence: str | None = None) -> FoundModel:
    """Return a GGUF file; `licence` counts where it names none itself."""
    model, problem = FoundModel(name, program, str(path), path.stat().st_size, licence=licence), None
    try:
        file = GgufFile.read(path)
        try:
            file.check()
        except EddyError as error:
            problem = _short(error, path)
    except (EddyError, OSError) as error:
        return replace(model, problem=_short(error, path))
    return replace(
        model,
        bytes=file.bytes,
        memory=None if problem else file.memory,
        family=file.architecture,
        window=file.get("context_length"),
        dtype=file.quantisation,
        licence=file.metadata.get("general.license") or licence,
        methods=None if problem else methods_on(file.architecture),
        problem=problem,
    )


def _in_folder(name: str, program: str, folder: Path, files: list[Path]) -> FoundModel:
    """Return a folder of transformers, by its configuration."""
    model = FoundModel(name, program, str(folder), sum(file.stat().st_size for file in files if file.is_file()))
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        family, text = str(config["model_type"]), config.get("text_config") or config
        windows = (text.get(key) for key in ("max_position_embeddings", "n_positions", "seq_length"))
        kind = config.get("quantization_config") or {}
        dtype = kind.get("quant_method") or text.get("dtype") or text.get("torch_dtype")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return replace(model, problem=f"config.json cannot be read ({type(error).__name__}: {error})")
    return replace(
        model,
        memory=model.bytes,
        family=family,
        window=next((window for window in windows if window), None),
        dtype=dtype,
        licence=_licence_of(folder),
        # The families that were tested are of text alone.
        methods=methods_on(family if text is config else f"{family} and others"),
    )


def _licence_of(folder: Path) -> str | None:
    """Return the licence that a model card names at its top."""
    try:
        head = (folder / "README.md").read_text(encoding="utf-8", errors="replace").split("\n---", 1)[0]
    except OSError:
        return None
    named = _LICENCE.search(head) if head.startswith("---") else None
    return named[1].strip() if named else None


def _first_line(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return next((line.strip()[:60] for line in file if line.strip()), None)
    except OSError:
        return None


def _short(error: Exception, path: Path) -> str:
    """Return what is wrong, without the path and the remedy."""
    said = getattr(error, "strerror", None) or str(error)
    return str(said).removeprefix(str(path)).lstrip(":, ").partition(";")[0]
