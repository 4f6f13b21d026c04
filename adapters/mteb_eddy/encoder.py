"""`EddyEncoder`: any model and method as an encoder for `mteb.evaluate`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction
from mteb.types import PromptType
from numpy.typing import NDArray

from eddy_embed.errors import InvalidParameter
from eddy_embed.utils.settings import digest

if TYPE_CHECKING:
    from eddy_embed import Embedder

logger = logging.getLogger(__name__)

_IGNORED = {"batch_size", "show_progress_bar"}
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

    def __init__(self, model: Any, *, instructions: Mapping[str, str] | None = None, **settings: Any) -> None:
        """Load a model, or use an embedder.

        Args:
            model: A name, folder or loaded model for `eddy_embed.Embedder`, or an embedder.
            instructions: Instructions by task, put before the queries of retrieval and reranking, and before every text
                of tasks without queries. Other tasks use the embedder's own.
            **settings: Other arguments of `Embedder`, such as `method`.

        Raises:
            InvalidParameter: An embedder with settings.
        """
        from eddy_embed import Embedder

        if isinstance(model, Embedder) and settings:
            raise InvalidParameter(f"{', '.join(settings)}: an embedder has its own; leave this out")
        self.embedder = model if isinstance(model, Embedder) else Embedder(model, **settings)
        self.model = self.embedder
        self.instructions = dict(instructions or {})
        self.mteb_model_meta: ModelMeta = self._meta(settings.get("revision"))

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
        """Embed the texts of batches, in a task's query prompt or not; `hf_split` and `hf_subset` change nothing.

        Returns:
            Vectors in the order of the texts, shape (texts, dimension).

        Raises:
            InvalidParameter: A keyword that is not `batch_size` or `show_progress_bar`: it may ask for other vectors.
        """
        if unknown := kwargs.keys() - _IGNORED:
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
        return self.embedder.with_instructions(**{"query" if prompt_type is PromptType.query else "text": instruction})

    def _meta(self, revision: str | None) -> ModelMeta:
        embedder, settings = self.embedder, self.embedder.settings
        about: dict[str, Any] = {
            "name": public_name(embedder.model_name),
            "revision": revision or "unnamed",
            "max_tokens": embedder.max_length,
            "embed_dim": embedder.dimension,
            "open_weights": True,
            "framework": ["PyTorch", "Transformers"],
            "similarity_fn_name": ScoringFunction.COSINE,
            "use_instructions": bool(
                self.instructions or settings["query_instruction"] or settings["text_instruction"]
            ),
            # No method trains; the training data of an embedding model is unknown.
            "training_datasets": set() if embedder.backbone.pooling is None else None,
            "experiment_kwargs": {
                "method": str(embedder.method),
                "length": f"{embedder.max_length}-{settings['overflow']}",
                "dtype": embedder.dtype,
                "fingerprint": self.key,
            },
        }
        return ModelMeta.create_empty(overwrites=about)  # type: ignore[no-any-return]


def public_name(model: str) -> str:
    """Return a model's name in MTEB's form "organisation/model", without the path of a folder or file."""
    if os.path.exists(model):
        return f"local/{os.path.basename(os.path.abspath(model))}"
    program, colon, name = model.partition(":")
    if colon:  # such as ollama:user/model:tag, and colons are in no names of folders on Windows
        return f"{program}/{name.replace('/', '_').replace(':', '_')}"
    return model if "/" in model else f"eddy-embed/{model}"
