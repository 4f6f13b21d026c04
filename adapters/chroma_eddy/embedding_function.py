"""`EddyEmbeddingFunction`: a causal language model as Chroma's embedding function, without training."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from chromadb.api import ClientAPI
from chromadb.api.models.Collection import Collection
from chromadb.api.types import Documents, EmbeddingFunction, Embeddings, Space
from chromadb.errors import NotFoundError
from chromadb.utils.embedding_functions import register_embedding_function

from chroma_eddy.rows import check_collection_name
from eddy_embed.encoding.validation import check_kind, checked_text_list
from eddy_embed.errors import EddyError, FingerprintMismatch, InvalidParameter
from eddy_embed.integrations.documents import FINGERPRINT, filled
from eddy_embed.integrations.settings import PROCESS_SETTINGS, EmbedderSettings, put
from eddy_embed.integrations.shared import name_of, open_embedder
from eddy_embed.utils.settings import contrast

if TYPE_CHECKING:
    from typing_extensions import Self

    from eddy_embed import Embedder

_STORED = EmbedderSettings.model_fields.keys() - PROCESS_SETTINGS | {"fingerprint", "live_model"}
# Names of these parameters in Chroma's SentenceTransformerEmbeddingFunction.
_ALIASES = {"normalize_embeddings": "normalize", "model": "model_name"}
# Chroma makes a new function for every query to a collection that was opened without one, so the embedders are kept
# between queries here. Chroma's own functions keep their models in the same way.
_loaded_embedders: dict[str, Embedder] = {}


class EddyEmbeddingFunction(EmbeddingFunction[Documents]):
    """Embeds documents and queries with a causal language model that was never trained to embed.

    The constructor loads the model, so a wrong name or method fails there. A function that Chroma makes from a
    collection's stored configuration loads it on first use, once per process, and raises an error if the model behind
    the name has changed since. `device`, `trust_remote_code` and `check` are not stored.

    Args:
        model_name: `"eddy-tiny"`, a path, a Hugging Face id, or another name for `Embedder`.
        **settings: The other parameters of `eddy_embed.Embedder`, as plain values; `normalize_embeddings` is another
            name for `normalize`.

    Raises:
        InvalidParameter, ModelNotFound, UnknownMethod: As of `Embedder`.
    """

    def __init__(self, model_name: str | os.PathLike[str] | None = None, **settings: Any) -> None:
        self._configure({"model_name": model_name, **settings})
        _ = self.embedder

    def _configure(self, values: Mapping[str, Any], *, live: bool = False) -> None:
        """Set the settings without loading anything; `live`: of a loaded model, which only this process has."""
        self.settings, self._live = _storable_settings(values), live
        self._expected: str | None = None
        self._embedder: Embedder | None = None

    def _adopt(self, embedder: Embedder) -> Self:
        """Take an embedder of the settings, and name its method in full, for what a collection stores."""
        self._embedder = embedder
        self.settings = self.settings.model_copy(update={"method": str(embedder.method)})
        return self

    @classmethod
    def from_model(cls, model: Any, tokenizer: Any, *, method: str | None = None, **settings: Any) -> Self:
        """Embed with a loaded model, whose weights are shared, never copied or changed.

        Open a collection that was made with it with such a function again: Chroma cannot make one. `method` None is
        the one recommended for the model; `settings` are the other parameters of the class.
        """
        self = cls.__new__(cls)
        self._configure({"model_name": name_of(model), **settings, "method": method}, live=True)
        return self._adopt(open_embedder(self.settings, (model, tokenizer)))

    @classmethod
    def from_embedder(cls, embedder: Embedder) -> Self:
        """Embed with an existing embedder, including its post-processing."""
        self = cls.__new__(cls)
        self._configure({"model_name": embedder.model_name}, live=True)
        return self._adopt(embedder)

    @property
    def model_name(self) -> str:
        """Name of the model."""
        return self.settings.model_name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model_name!r}, method={self.settings.method!r})"

    @property
    def embedder(self) -> Embedder:
        """The embedder, loaded on first use; FingerprintMismatch if the model has changed since it was stored."""
        if self._embedder is None:
            if self._live:
                raise EddyError(
                    f"The collection was made with {self.model_name!r} as a loaded model, which Chroma cannot load; "
                    "open it with embedding_function=EddyEmbeddingFunction.from_model(model, tokenizer, method=...), "
                    "or, if it belongs to an index, take open_index(place, name, embedder).collection."
                )
            embedder = open_embedder(self.settings)
            if self._expected is not None:
                # Kept even on a mismatch, so that a second call does not load it again.
                _loaded_embedders[self.settings.key()] = embedder
                if embedder.fingerprint != self._expected:
                    raise FingerprintMismatch(
                        f"{self.model_name!r} with {self.settings.method!r} gives other vectors than the "
                        f"collection holds.\nFingerprint {self._expected}, now {embedder.fingerprint}: the model, or "
                        "the library, has changed since. Embed the documents again into another collection."
                    )
            self._adopt(embedder)
            return embedder
        return self._embedder

    @property
    def fingerprint(self) -> str:
        """Hash of everything that decides a vector."""
        return self._expected or self.embedder.fingerprint

    @staticmethod
    def release() -> None:
        """Release the models that functions made by Chroma loaded in this process."""
        _loaded_embedders.clear()

    # --- Chroma's interface

    def __call__(self, input: Documents) -> Embeddings:
        """Embed documents, a blank one as a full stop; InvalidText if one is no string, or not valid Unicode."""
        texts = filled(checked_text_list(input, blank=True))
        return cast("Embeddings", list(self.embedder.encode_document(texts, show_progress=False)))

    def embed_query(self, input: Documents) -> Embeddings:
        """Embed queries, with the method's query wording and the query instruction; InvalidText if one is blank."""
        return cast("Embeddings", list(self.embedder.encode_query(checked_text_list(input), show_progress=False)))

    @staticmethod
    def name() -> str:
        """Return the name under which Chroma registers the function."""
        return "eddy"

    def default_space(self) -> Space:
        """Return the distance of collections that name none."""
        return "cosine"

    def get_config(self) -> dict[str, Any]:
        """Return what a collection stores: the fingerprint, and the settings without those of the process."""
        live = {"live_model": True} if self._live else {}
        return {**self.settings.stored(), **live, "fingerprint": self.fingerprint}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> EddyEmbeddingFunction:
        """Make the function of a stored configuration, from `get_config`; it loads its model on first use."""
        EddyEmbeddingFunction.validate_config(config)
        self = EddyEmbeddingFunction.__new__(EddyEmbeddingFunction)
        settings = {name: value for name, value in config.items() if name not in ("fingerprint", "live_model")}
        self._configure(settings, live=config.get("live_model", False))
        self._expected = config["fingerprint"]
        return self

    @staticmethod
    def validate_config(config: dict[str, Any]) -> None:
        """Refuse a configuration that `get_config` cannot have written, with InvalidParameter."""
        check_kind("config", config, Mapping, "a dictionary that get_config made")
        missing = {"model_name", "method", "fingerprint"} - set(config)
        unknown = set(config) - _STORED | PROCESS_SETTINGS & set(config.get("model_kwargs") or {})
        if missing or unknown:
            raise InvalidParameter(
                f"A stored configuration of the embedding function 'eddy' lacks {sorted(missing)} and has "
                f"{sorted(unknown)} too much: {config!r}. It was written by another version or by hand; give the "
                "function when opening the collection."
            )

    def validate_config_update(self, old_config: dict[str, Any], new_config: dict[str, Any]) -> None:
        """Refuse a configuration with another fingerprint than the stored vectors', with FingerprintMismatch."""
        if old_config.get("fingerprint") != new_config.get("fingerprint"):
            raise FingerprintMismatch(
                f"The collection was {contrast(old_config, new_config)}.\nStored {old_config!r}, given "
                f"{new_config!r}: their vectors cannot be compared. Embed the documents again into another collection."
            )


def _storable_settings(arguments: Mapping[str, Any]) -> EmbedderSettings:
    """Return the settings, also by the names of Chroma's own functions, as JSON can hold them; None: the default."""
    values = {name: value for name, value in arguments.items() if name not in _ALIASES}
    for alias in _ALIASES.keys() & arguments.keys():
        put(values, _ALIASES[alias], arguments[alias], alias)
    settings = EmbedderSettings.of("EddyEmbeddingFunction", values, without=frozenset({"show_progress"}))
    try:
        json.dumps(settings.model_kwargs)
    except TypeError as error:
        raise InvalidParameter(
            f"model_kwargs={settings.model_kwargs!r} cannot be stored with a collection ({error}); use plain values, "
            "or EddyEmbeddingFunction.from_model with a model that was loaded with them."
        ) from None
    return settings


register_embedding_function(EddyEmbeddingFunction)  # type: ignore[no-untyped-call]


def open_collection(
    client: ClientAPI,
    name: str,
    function: EddyEmbeddingFunction,
    *,
    configuration: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Collection:
    """Open a collection, or create it in cosine space; FingerprintMismatch if another embedder made its vectors.

    Chroma itself compares only the functions' names, so `get_collection` and `get_or_create_collection` silently accept
    another model or method. `configuration`, Chroma's further settings, and `metadata` are those of a new collection.
    """
    check_kind("function", function, EddyEmbeddingFunction, "an EddyEmbeddingFunction")
    check_kind("client", client, ClientAPI, "one of Chroma's clients, such as chromadb.PersistentClient(path)")
    check_collection_name(name)
    try:
        collection = client.get_collection(name, embedding_function=None)
    except NotFoundError:
        # Another process may create it first, so what comes back is checked too.
        collection = client.get_or_create_collection(
            name,
            embedding_function=function,  # type: ignore[arg-type]
            configuration=dict(configuration or {}),  # type: ignore[arg-type]
            # Chroma replaces a stored configuration before it asks whether it may.
            metadata={**(metadata or {}), FINGERPRINT: function.fingerprint},
        )
    _check_embedder(collection, function)
    configured = collection.configuration_json
    space = next((index.get("space") for kind in ("hnsw", "spann") if (index := configured.get(kind))), None)
    if space != "cosine":
        warnings.warn(
            f"Collection {name!r} is in {space!r} space: distances are not 1 minus the cosine. A collection that "
            "open_collection creates is in cosine space.",
            stacklevel=2,
        )
    return client.get_collection(name, embedding_function=function)  # type: ignore[arg-type]


def _check_embedder(collection: Collection, function: EddyEmbeddingFunction) -> None:
    """Refuse a collection of another function, or with rows of which nobody knows that this one made them."""
    stored = collection.configuration_json.get("embedding_function") or {}
    kind, config, fingerprint = stored.get("name"), stored.get("config") or {}, function.fingerprint
    if kind == function.name():
        recorded = (collection.metadata or {}).get(FINGERPRINT)
        if {config.get("fingerprint"), recorded or fingerprint} == {fingerprint}:
            return
        replaced = "" if recorded in (None, config.get("fingerprint")) else f", put in place of fingerprint {recorded}"
        differs = (
            f"{contrast(config, function.get_config())}.\nStored {config!r}{replaced}, given {function.get_config()!r}"
        )
    elif kind is not None:
        differs = f"made with Chroma's embedding function {kind!r}, opened with `{function.model_name}`"
    else:
        rows: Any = collection.get(limit=1, include=["metadatas"])["metadatas"]
        made_by = (rows[0] or {}).get(FINGERPRINT) if rows else fingerprint
        if made_by == fingerprint:
            return
        differs = (
            f"filled by {'an unknown' if made_by is None else 'another'} embedder, opened with "
            f"`{function.settings.method}` on `{function.model_name}`.\nIts fingerprint: {made_by}, here {fingerprint}"
        )
    raise FingerprintMismatch(
        f"Collection {collection.name!r} was {differs}: their vectors cannot be compared. Give the function "
        "that made it, or embed the documents again into another collection."
    )
