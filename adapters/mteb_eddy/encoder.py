"""`EddyEncoder`: any model and method as an encoder for `mteb.evaluate`."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction
from mteb.types import PromptType
from numpy.typing import NDArray

from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations import digest

logger = logging.getLogger(__name__)

_SIMILARITIES: dict[str, Any] = {"cosine": ScoringFunction.COSINE, "dot": ScoringFunction.DOT_PRODUCT}
_IGNORED = ("batch_size", "show_progress_bar")
"""Entries of `encode_kwargs` that change no vector: batches are filled by tokens, whatever the loader's batches."""


class EddyEncoder(AbsEncoder):
    """An encoder of MTEB for any model and method.

    `encode_query` embeds queries; `encode_document` embeds documents and the texts of symmetric tasks. Blank texts,
    which some data sets have, get the vector of zeros, which is similar to nothing, and a warning. MTEB stores results
    by name, revision and `experiment_kwargs`; the fingerprint is part of these, so results of other methods, weights,
    lengths or instructions are never mixed up.

    Attributes:
        embedder: Embeds texts of tasks without an instruction.
    """

    def __init__(
        self,
        model: Any,
        revision: str | None = None,
        *,
        method: str | None = None,
        device: str | None = None,
        instructions: Mapping[str, str] | None = None,
        similarity: str = "cosine",
        **settings: Any,
    ) -> None:
        """Load a model, or use an embedder.

        Args:
            model: A name, folder or loaded model for `eddy_embed.Embedder`, or an embedder.
            revision: Revision of a hub model.
            method: How a text becomes a vector; None: as is recommended for the model.
            device: As for `Embedder`.
            instructions: Instructions by task, put before the queries of retrieval and reranking, and before every text
                of tasks without queries. Other tasks use the embedder's own.
            similarity: "cosine" or "dot".
            **settings: Other arguments of `Embedder`.

        Raises:
            InvalidParameter: An embedder with settings, or an unknown similarity.
        """
        if similarity not in _SIMILARITIES:
            raise InvalidParameter(f"similarity={similarity!r} is unknown; choose one of {', '.join(_SIMILARITIES)}")
        settings |= {"method": method, "device": device, "revision": revision}
        settings = {name: value for name, value in settings.items() if value is not None}
        if isinstance(model, Embedder) and settings:
            raise InvalidParameter(f"{', '.join(settings)}: an embedder has its own; leave this out")
        self.embedder = model if isinstance(model, Embedder) else Embedder(model, **settings)
        self.model = self.embedder
        self.instructions = dict(instructions or {})
        self._given = (model, {**settings, "instructions": instructions, "similarity": similarity})
        self.mteb_model_meta: ModelMeta = self._meta(revision, similarity)

    @property
    def key(self) -> str:
        """Hash of the embedder's fingerprint and the instructions of tasks; equal keys give equal vectors."""
        fingerprint = self.embedder.fingerprint
        return digest({"embedder": fingerprint, "tasks": self.instructions}) if self.instructions else fingerprint

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> NDArray[np.float32]:
        """Embed a task's texts.

        Args:
            inputs: Batches with "text".
            task_metadata: Metadata of the task.
            hf_split: Split; not used.
            hf_subset: Subset; not used.
            prompt_type: Queries, documents, or neither.
            **kwargs: `batch_size` and `show_progress_bar`.

        Returns:
            Vectors in the order of the texts, shape (texts, dimension).

        Raises:
            InvalidParameter: Another keyword, which may ask for other vectors.
        """
        unknown = kwargs.keys() - set(_IGNORED)
        if unknown:
            raise InvalidParameter(
                f"{', '.join(sorted(unknown))}: not known in encode_kwargs; give settings to EddyEncoder itself"
            )
        texts = [text for batch in inputs for text in batch["text"]]
        full = [at for at, text in enumerate(texts) if text.strip()]
        if len(full) < len(texts):
            counted = task_metadata.name, len(texts) - len(full), len(texts)
            logger.warning("%s: %d of %d texts are blank and get a vector of zeros", *counted)
        embedder = self._for_task(task_metadata.name, prompt_type)
        vectors = np.zeros((len(texts), embedder.dimension), np.float32)
        encode = embedder.encode_query if prompt_type is PromptType.query else embedder.encode_document
        if full:
            vectors[full] = encode([texts[at] for at in full], show_progress=kwargs.get("show_progress_bar"))
        return vectors

    def close(self) -> None:
        """Release the model; a shared one stays with its owner."""
        self.embedder.close()

    def _for_task(self, task: str, prompt_type: PromptType | None) -> Embedder:
        instruction = self.instructions.get(task)
        if instruction is None or prompt_type is PromptType.document:
            return self.embedder
        if prompt_type is PromptType.query:
            return self.embedder.with_instructions(query=instruction)
        return self.embedder.with_instructions(text=instruction)

    def _meta(self, revision: str | None, similarity: str) -> ModelMeta:
        embedder = self.embedder
        trained = embedder.backbone.pooling is not None
        model, settings = self._given
        loader = functools.partial(load_encoder, model, settings) if isinstance(model, str | os.PathLike) else None
        instructed = [embedder.settings["query_instruction"], embedder.settings["text_instruction"]]
        return ModelMeta(
            loader=loader,
            name=public_name(embedder.model_name),
            revision=revision or "unnamed",
            release_date=None,
            languages=None,
            n_parameters=None,
            memory_usage_mb=None,
            max_tokens=embedder.max_length,
            embed_dim=embedder.dimension,
            license=None,
            open_weights=True,
            public_training_code=None,
            public_training_data=None,
            framework=["PyTorch", "Transformers"],
            similarity_fn_name=_SIMILARITIES[similarity],
            use_instructions=bool(self.instructions) or any(instructed),
            # No method trains; the training data of an embedding model is unknown.
            training_datasets=None if trained else set(),
            experiment_kwargs=self._experiment(similarity),
        )

    def _experiment(self, similarity: str) -> dict[str, Any]:
        """What distinguishes runs of one model in MTEB: settings for people to read, and the fingerprint."""
        embedder, method = self.embedder, self.embedder.method
        experiment = {"method": str(method), "exit": f"{method.exit_layer}-of-{embedder.backbone.layers}"}
        if method.rewire is not None:
            experiment["copies"] = "-".join(str(layer) for layer in method.rewire.span or ())
        if method.reroute is not None:
            experiment["entries"] = ",".join(str(layer) for layer in method.reroute.layers or ())
        if similarity != "cosine":
            experiment["similarity"] = similarity
        length = f"{embedder.max_length}-{embedder.settings['overflow']}"
        return {**experiment, "length": length, "dtype": embedder.dtype, "fingerprint": self.key}


def public_name(model: str) -> str:
    """A model's name in MTEB's form "organisation/model", without the path of a folder or file."""
    if os.path.exists(model):
        return f"local/{os.path.basename(os.path.abspath(model))}"
    program, colon, name = model.partition(":")
    if colon:  # such as ollama:user/model:tag, and colons are in no names of folders on Windows
        return f"{program}/{name.replace('/', '_').replace(':', '_')}"
    return model if "/" in model else f"eddy-embed/{model}"


def load_encoder(
    model: Any,
    settings: Mapping[str, Any],
    model_name: str,
    revision: str | None = None,
    *,
    device: str | None = None,
    fingerprint: str | None = None,
    **_: Any,
) -> EddyEncoder:
    """Load an encoder again, for `ModelMeta.load_model`; fail if its key is not the expected fingerprint."""
    encoder = EddyEncoder(model, **{**settings, **({} if device is None else {"device": device})})
    if fingerprint is not None and encoder.key != fingerprint:
        raise FingerprintMismatch(
            f"`{model_name}` gives other vectors than those that the results were made with.\nFingerprint "
            f"{fingerprint}, now {encoder.key}; results of the two do not belong together"
        )
    return encoder
