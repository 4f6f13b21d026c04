"""An encoder for `mteb.evaluate`, of any model and method."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction
from mteb.types import PromptType

from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch, InvalidParameter, NotFitted
from eddy_embed.model.fingerprint import digest
from mteb_eddy.costs import Cost, measured

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

_SIMILARITIES: dict[str, Any] = {"cosine": ScoringFunction.COSINE, "dot": ScoringFunction.DOT_PRODUCT}
_IGNORED = ("batch_size", "show_progress_bar")
"""Of `encode_kwargs`, what changes no vector: passes are filled by tokens, whatever the loader's batches."""


class EddyEncoder(AbsEncoder):
    """Any model and method as an encoder of MTEB.

    Queries go through `encode_query`, documents and the texts of symmetric tasks through `encode_document`. A text
    that is blank, as some data sets have, gets the vector of zeros, which is similar to nothing; these are counted and
    warned of. MTEB keeps results by the name, the revision and `experiment_kwargs`, where the fingerprint stands
    beside method and layers, so that results of other methods, weights, lengths or instructions are never taken.

    Attributes:
        embedder: What embeds where a task has no instruction.
        costs: By task, what its texts cost so far.
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
        """Load a model, or take an embedder that is there.

        Args:
            model: A name, folder or loaded model for `eddy_embed.Embedder`, or an embedder.
            revision: Revision of a hub model.
            method: How a text becomes a vector.
            device: As for `Embedder`.
            instructions: By name of a task; in front of the queries of retrieval and reranking, and of every text of
                tasks that know no queries. Tasks that are not named have the embedder's own.
            similarity: "cosine" or "dot".
            **settings: Of `Embedder`.

        Raises:
            InvalidParameter: An embedder is given with settings, or a model without a method.
            NotFitted: The method has post-processing, which learns, and nothing says what it learned.
        """
        if similarity not in _SIMILARITIES:
            raise InvalidParameter(f"similarity={similarity!r} is unknown; choose one of {', '.join(_SIMILARITIES)}")
        told = {**settings, "method": method, "device": device, "revision": revision}
        told = {name: value for name, value in told.items() if value is not None}
        if isinstance(model, Embedder):
            if told:
                raise InvalidParameter(f"{', '.join(told)}: an embedder has its own; leave this out")
            self.embedder = model
        else:
            self.embedder = Embedder(model, **told)
        post = self.embedder.method.post
        if post is not None and post.learns and self.embedder.post is None:
            raise NotFitted(
                f"{self.embedder.method} has post-processing, which learns from a library: give post=, the file that "
                "Embedder(...).fit(texts).save(path) wrote"
            )
        self.model = self.embedder
        self.instructions = dict(instructions or {})
        self.costs: dict[str, Cost] = {}
        self._given = (model, {**told, "instructions": instructions, "similarity": similarity})
        self.mteb_model_meta: ModelMeta = self._meta(revision, similarity)

    @property
    def key(self) -> str:
        """What vectors follow from: the embedder's fingerprint, and the instructions of tasks."""
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
        """Vectors of a task's texts, shape (texts, dimension), in their order.

        Args:
            inputs: Batches with "text".
            task_metadata: Of the task.
            hf_split: Split, which changes nothing.
            hf_subset: Subset, which changes nothing.
            prompt_type: Queries, documents, or neither.
            **kwargs: `batch_size` and `show_progress_bar`.

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
            logger.warning(
                "%s: %d of %d texts are blank and get a vector of zeros",
                task_metadata.name,
                len(texts) - len(full),
                len(texts),
            )
        embedder = self._for_task(task_metadata.name, prompt_type)
        vectors = np.zeros((len(texts), embedder.dimension), np.float32)
        encode = embedder.encode_query if prompt_type is PromptType.query else embedder.encode_document
        with measured(embedder) as cost:
            if full:
                vectors[full] = encode([texts[at] for at in full], show_progress=kwargs.get("show_progress_bar"))
        cost.blank = len(texts) - len(full)
        self.costs[task_metadata.name] = self.costs.get(task_metadata.name, Cost()) + cost
        return vectors

    def close(self) -> None:
        """Let go of the model; a shared one stays with its owner."""
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
        model, given = self._given
        loader = functools.partial(load_encoder, model, given) if isinstance(model, str | os.PathLike) else None
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
            # No method trains; what an embedding model was trained on is not known here.
            training_datasets=None if trained else set(),
            experiment_kwargs=self._experiment(similarity),
        )

    def _experiment(self, similarity: str) -> dict[str, Any]:
        """What MTEB tells runs of one model apart by: plain text, and the fingerprint, which settles it."""
        embedder, method = self.embedder, self.embedder.method
        found: dict[str, Any] = {"method": str(method), "exit": f"{method.exit_layer}-of-{embedder.backbone.layers}"}
        if method.rewire is not None:
            found["copies"] = "-".join(str(layer) for layer in method.rewire.span or ())
        if method.reroute is not None:
            found["entries"] = ",".join(str(layer) for layer in method.reroute.layers or ())
        if similarity != "cosine":
            found["similarity"] = similarity
        length = f"{embedder.max_length}-{embedder.settings['overflow']}"
        return {**found, "length": length, "dtype": embedder.dtype, "fingerprint": self.key}


def public_name(model: str) -> str:
    """A model's name in the form that MTEB asks for, "organisation/model"; a folder's path is not told."""
    if os.path.isdir(model):
        return f"local/{os.path.basename(os.path.abspath(model))}"
    return model if "/" in model else f"eddy-embed/{model}"


def load_encoder(
    model: Any,
    given: Mapping[str, Any],
    model_name: str,
    revision: str | None = None,
    *,
    device: str | None = None,
    fingerprint: str | None = None,
    **_: Any,
) -> EddyEncoder:
    """What `ModelMeta.load_model` calls: the encoder again, and no other.

    Args:
        model: As it was given.
        given: The settings that it was given with.
        model_name: In MTEB; not needed.
        revision: In MTEB; that of the settings holds.
        device: Another device.
        fingerprint: What vectors have to follow from.
        **_: What else MTEB tells runs apart by, which follows from the settings.

    Raises:
        FingerprintMismatch: The model, or this version of Eddy, gives other vectors now.
    """
    encoder = EddyEncoder(model, **{**given, **({} if device is None else {"device": device})})
    if fingerprint is not None and encoder.key != fingerprint:
        raise FingerprintMismatch(
            f"{model_name}: made with fingerprint {fingerprint}, and now has {encoder.key}; results of the two do not "
            "belong together"
        )
    return encoder
