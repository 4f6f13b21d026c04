"""Models of transformers, read from disk only up to the exit layer, in the numbers that suit the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForTextEncoding,
    AutoTokenizer,
    PreTrainedConfig,
)
from transformers.utils import logging

from eddy_embed.errors import EddyError, InvalidParameter, ModelNotFound, UnsupportedModel
from eddy_embed.model.backbone import Backbone, Pooling
from eddy_embed.model.devices import best_device, resolve_dtype, usable_device
from eddy_embed.model.loading.gguf.config import config_of
from eddy_embed.model.loading.gguf.header import GgufFile
from eddy_embed.model.loading.gguf.open import open_gguf
from eddy_embed.model.loading.gguf.tokenizer import tokenizer_of
from eddy_embed.model.loading.names import BUNDLED, is_gguf, locate, not_opened, permitted, reachable
from eddy_embed.model.loading.peft import adapter_at, attach, file_at
from eddy_embed.model.loading.sentence_transformers import transformer_folder
from eddy_embed.model.products import prepack, prepacks
from eddy_embed.model.view import check_size, check_sizes, count_parameters, describe, keep_layers, layer_of
from eddy_embed.utils.extras import importing
from eddy_embed.utils.memory import collector_paused, out_of_memory

NO_HEAD = "it gives no probabilities of words; name a language model with its head, such as smollm2"


def load(
    name: str | os.PathLike[str],
    *,
    exit_of: Callable[[Backbone], int],
    device: str | None,
    dtype: str,
    options: dict[str, Any],
    model_kwargs: dict[str, Any],
    tokenizer: Any | None,
    show_progress: bool,
    head: bool = False,
) -> tuple[torch.nn.Module, Any, Backbone]:
    """Load a model's base up to its exit layer, or with `head` all of the model, and its tokenizer; see `Embedder`."""
    where, prepacked = locate(name), prepacks()
    device = _device(device, model_kwargs)
    if is_gguf(where):
        with _opening(name), collector_paused():
            if model_kwargs:
                raise InvalidParameter(f"model_kwargs={model_kwargs!r}: a GGUF file takes none; leave them out")
            opened = open_gguf(where, exit_of=exit_of, device=device, dtype=dtype, tokenizer=tokenizer, head=head)
        if prepacked:
            prepack(opened[0])
        return opened
    with _opening(name):
        source = _Source(options, where, options, None) if name in BUNDLED else _Source.of(where, options)
        config = read_config(source.base, source.options)
        with source.collector_paused():
            tokenizer = source.tokenizer() if tokenizer is None else tokenizer
    if source.adapter is not None and "device_map" in model_kwargs:
        raise InvalidParameter(
            f"model_kwargs' device_map: an adapter is put into a model in one place; load {os.fspath(name)!r} with "
            "AutoModelForCausalLM and PeftModel, and hand it over"
        )
    torch_dtype, backbone = _dtype(dtype, device, config, model_kwargs), describe(config)
    # An adapter's configuration names the modules of the whole model.
    whole = head or source.adapter is not None
    kept = backbone.layers if whole else max(exit_of(backbone), 1)
    kind: Any = AutoModelForCausalLM if whole else _kind(config)
    keep_layers(config, backbone.layers, kept)
    if isinstance(model_kwargs.get("device_map"), dict) and not whole:
        model_kwargs = {**model_kwargs, "device_map": _of_base(model_kwargs["device_map"], config, kept)}
    if name not in BUNDLED and not source.options["trust_remote_code"]:
        with _opening(name):
            check_size(source.base, source.options.get("subfolder", ""), config, kind)
    with _reading(name, model_kwargs, show_progress), source.collector_paused():
        model, info = kind.from_pretrained(
            source.base,
            config=config,
            dtype=torch_dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported in `info`, and refused below
            **source.options,
            **model_kwargs,
        )
        _complete(name, info, whole)
        if source.adapter is not None:
            model = attach(model, source.adapter, options)
    if "device_map" not in model_kwargs:
        model = model.to(device)
        # Other code, such as an adapter's, may read weights without calling their modules.
        if prepacked and type(model).__module__.startswith("transformers."):
            prepack(model)
    return model, tokenizer, backbone


def load_trained(
    name: str | os.PathLike[str],
    subfolder: str,
    *,
    device: str | None,
    dtype: str,
    options: dict[str, Any],
    model_kwargs: dict[str, Any],
    show_progress: bool,
) -> Any:
    """Load a model with sentence-transformers; see `Embedder`.

    Args:
        name: Its folder or hub id.
        subfolder: Where in it the transformers model is.
        device: See `Embedder`.
        dtype: See `Embedder`.
        options: Where a hub model is looked for.
        model_kwargs: See `Embedder`.
        show_progress: See `Embedder`.

    Raises:
        MissingExtra: The package sentence-transformers is not installed.
        ModelNotFound: The model's files cannot be read.
        UnsupportedModel: It comes with code of its own, or its files are too small for its configuration.
    """
    where, device = locate(name), _device(device, model_kwargs)
    with importing("sentence-transformers"):
        from sentence_transformers import SentenceTransformer
    with _opening(name):
        config = read_config(where, {**options, "subfolder": subfolder})
        check_size(where, subfolder, config, _kind(config))
        with _quiet(show_progress):
            model: Any = SentenceTransformer(
                where,
                device=device,
                revision=options.get("revision"),
                cache_folder=options.get("cache_dir"),
                local_files_only=bool(options.get("local_files_only")),
                trust_remote_code=bool(options["trust_remote_code"]),
                model_kwargs={"dtype": _dtype(dtype, device, config, model_kwargs), **model_kwargs},
            )
    if prepacks() and "device_map" not in model_kwargs and not options["trust_remote_code"]:
        prepack(model[0].auto_model)
    return model


def _device(device: str | None, model_kwargs: dict[str, Any]) -> str:
    """Return the device that a model is loaded to; refuse one that cannot be used, or beside a device map."""
    if device is not None and "device_map" in model_kwargs:
        raise InvalidParameter(
            f"device={device!r} and model_kwargs' device_map say the same thing twice; leave one out"
        )
    return best_device() if device is None else usable_device(device)


def _dtype(dtype: str, device: str, config: Any, model_kwargs: dict[str, Any]) -> Any:
    """Return the torch dtype, or "auto", in which a model of a configuration is loaded."""
    quantised = "quantization_config" in model_kwargs or getattr(config, "quantization_config", None) is not None
    return resolve_dtype(dtype, device, None if quantised else getattr(config, "dtype", None))


def read_backbone(name: str | os.PathLike[str], **options: Any) -> Backbone:
    """Return the shape of a model, from its configuration alone: no weights are read, fetched or converted.

    Args:
        name: As for `Embedder`.
        **options: Where a hub model is looked for, as for `from_pretrained`: `revision`, `local_files_only` ..

    Raises:
        ModelNotFound: No usable model there.
        UnsupportedModel: Its configuration is none of a language model.
    """
    where = locate(name)
    options = reachable(os.fspath(name), where, {"trust_remote_code": False, **options})
    with _opening(name):
        subfolder = None if name in BUNDLED or is_gguf(where) else transformer_folder(where, options)
        options = {**options, "subfolder": subfolder} if subfolder else options
        source = _Source(options, where, options, None) if name in BUNDLED else _Source.of(where, options)
        config = read_config(source.base, source.options)
    # Which pooling it is, sentence-transformers says when it opens the model; that there is one decides all defaults.
    return replace(describe(config), pooling=None if subfolder is None else Pooling("its own", "mean"))


def read_generator(name: str | os.PathLike[str]) -> tuple[bool, int]:
    """Return whether a causal language model has a chat template, and its number of parameters; read no weights.

    Raises:
        Exception: Whatever transformers raises on files that are no language model's.
    """
    where = locate(name)
    options = reachable(os.fspath(name), where, {"trust_remote_code": False})
    chat = getattr(read_tokenizer(where, options), "chat_template", None)
    return bool(chat), count_parameters(read_config(where, options), AutoModelForCausalLM)


def read_config(where: str, options: dict[str, Any]) -> Any:
    """Return the configuration in a folder, of a GGUF file, or of a hub id.

    Args:
        where: The folder, file or hub id.
        options: Of `from_pretrained`, `trust_remote_code` among them: without it transformers would ask on stdin.

    Raises:
        UnsupportedModel: A size is none that a model can have.
        Exception: Whatever transformers raises on a file that is absent, damaged or wrong.
    """
    if is_gguf(where):
        file = GgufFile.read(where)
        file.check()
        return config_of(file)
    # The raw file: some classes make lists as long as the number of layers.
    raw, _ = PreTrainedConfig.get_config_dict(where, **options)
    check_sizes(where, raw)
    return AutoConfig.from_pretrained(where, **options)


@dataclass(frozen=True)
class _Source:
    """Where a model's weights are, and the adapter on top, if any."""

    own_options: dict[str, Any]
    base: str
    options: dict[str, Any]
    adapter: str | None

    @classmethod
    def of(cls, where: str, options: dict[str, Any]) -> _Source:
        adapter = None if is_gguf(where) else adapter_at(where, options)
        if adapter is None:
            return cls(options, where, options, None)
        base_options = {key: value for key, value in options.items() if key not in ("revision", "subfolder")}
        if adapter.get("revision"):
            base_options["revision"] = adapter["revision"]
        return cls(options, locate(adapter["base_model_name_or_path"]), base_options, where)

    def collector_paused(self) -> AbstractContextManager[None]:
        """Pause the collector while objects are made, but not where files may be fetched, which can take hours."""
        here = all(os.path.isdir(where) for where in (self.base, self.adapter or self.base))
        return collector_paused() if here or self.options.get("local_files_only") else nullcontext()

    def tokenizer(self) -> Any:
        """Return the adapter's own if it has one."""
        if self.adapter is not None and file_at(self.adapter, "tokenizer_config.json", self.own_options):
            return AutoTokenizer.from_pretrained(self.adapter, **self.own_options)
        return read_tokenizer(self.base, self.options)


def read_tokenizer(where: str, options: dict[str, Any]) -> Any:
    """Return the tokenizer of a located model."""
    return tokenizer_of(GgufFile.read(where)) if is_gguf(where) else AutoTokenizer.from_pretrained(where, **options)


@contextmanager
def _opening(name: str | os.PathLike[str]) -> Iterator[None]:
    """Report files that cannot be read, and whatever transformers' code raises on values that no model has."""
    try:
        with permitted():
            yield
    except (EddyError, MemoryError):
        raise
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise UnsupportedModel(
                f"model {os.fspath(name)!r} comes with code of its own, which is not run; read that code, and pass "
                "trust_remote_code=True if you trust it, or name another model"
            ) from None
        if "this kind of AutoModel: AutoModelForCausalLM" in str(error):
            raise UnsupportedModel(f"{os.fspath(name)!r}: {NO_HEAD}") from None
        known = isinstance(error, OSError | ValueError)
        said = _first_line(error) if known else f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise not_opened(name, f"{said:.400}") from error


def _complete(name: str | os.PathLike[str], info: dict[str, Any], head: bool) -> None:
    # Nothing reads the output of an encoder's pooler, and many checkpoints leave it out.
    missing = (key for key in info["missing_keys"] if not key.startswith("pooler."))
    absent = sorted(missing) + sorted(str(entry) for entry in info["mismatched_keys"])
    if absent:
        raise UnsupportedModel(
            f"{os.fspath(name)!r}: {len(absent)} tensors are missing from the checkpoint or have another shape, "
            f"such as {absent[0]}; random weights are refused. If only the embeddings are missing, because they are "
            "stored as those of the output, load the model with AutoModelForCausalLM, and hand it over"
            f"{f'; if only the head is, {NO_HEAD}' * head}"
        )


@contextmanager
def _reading(name: str | os.PathLike[str], model_kwargs: dict[str, Any], show_progress: bool) -> Iterator[None]:
    """Report weights that cannot be read or used."""
    try:
        with _quiet(show_progress):
            yield
    except (TypeError, ImportError) as error:
        raise InvalidParameter(
            f"model_kwargs={model_kwargs!r} is refused by the model: {_first_line(error)}"
        ) from error
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelNotFound(f"weights of {os.fspath(name)!r} could not be read: {_first_line(error)}") from error
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        raise UnsupportedModel(
            f"weights of {os.fspath(name)!r} cannot be put to use up to the exit alone: {_first_line(error)} Load the "
            "model with AutoModelForCausalLM, and hand it over"
        ) from error


def _kind(config: Any) -> Any:
    """Return the class that loads a model without its head, and without its decoder where it can."""
    if type(config) not in MODEL_FOR_TEXT_ENCODING_MAPPING:
        return AutoModel
    # A checkpoint of the encoder alone may have is_encoder_decoder=False.
    named = str(getattr(MODEL_FOR_TEXT_ENCODING_MAPPING[type(config)], "__name__", "")).endswith("EncoderModel")
    return AutoModelForTextEncoding if named or getattr(config, "is_encoder_decoder", False) else AutoModel


@contextmanager
def _quiet(show_progress: bool) -> Iterator[None]:
    """Hide the progress bar, and the report of unread tensors, which would list the layers left out on purpose."""
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(40)
    if not show_progress:
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _of_base(device_map: dict[str, Any], config: Any, kept: int) -> dict[str, Any]:
    """Return the part of a device map for the base model's loaded layers, under the names that they have there."""
    prefix = f"{getattr(MODEL_MAPPING.get(type(config), None), 'base_model_prefix', '')}."
    if any(name.startswith(prefix) for name in device_map):  # written for the model with its head
        inside = {name: place for name, place in device_map.items() if name == "" or name.startswith(prefix)}
        device_map = {name.removeprefix(prefix): place for name, place in inside.items()}
    return {name: place for name, place in device_map.items() if layer_of(name) < kept}


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
