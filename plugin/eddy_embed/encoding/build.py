"""A model and a method made into a pipeline: loaded or shared, resolved, checked."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from eddy_embed import methods
from eddy_embed.encoding.calibration import MEASURED, general_layers
from eddy_embed.encoding.encoder import Encoder, VectorFinalizer
from eddy_embed.encoding.planner import Overflow, Planner
from eddy_embed.encoding.runner import Runner
from eddy_embed.encoding.validation import torch_name
from eddy_embed.errors import InvalidParameter, UnsupportedModel
from eddy_embed.methods.kv import with_layers
from eddy_embed.methods.method import Method
from eddy_embed.methods.published import last_layer
from eddy_embed.model.backbone import Backbone
from eddy_embed.model.devices import check_numbers
from eddy_embed.model.host import ModelView
from eddy_embed.model.loading.names import BUNDLED, is_gguf, locate, reachable
from eddy_embed.model.loading.pretrained import load, load_trained
from eddy_embed.model.loading.sentence_transformers import (
    LIBRARY,
    SentenceTransformerSpec,
    transformer_folder,
    unwrapped,
)
from eddy_embed.model.packed import embeddings_at_distance, weights_digest
from eddy_embed.model.products import unpack
from eddy_embed.model.view import describe, device_of
from eddy_embed.parts.layout import Layout, TextRole
from eddy_embed.parts.postprocess import Fitted
from eddy_embed.text.calibration import calibration_text
from eddy_embed.text.sentences import Segmenter
from eddy_embed.text.tokenizer import Tokenizer
from eddy_embed.utils.arrays import Doubles
from eddy_embed.utils.memory import collector_paused
from eddy_embed.utils.progress import Progress

PER_THREAD, ON_PROCESSOR, ON_ACCELERATOR = 1024, 8192, 16_384
"""Default of most tokens in a pass. The states of more tokens leave a processor's caches, and fewer do not keep its
threads busy."""
_MADE_BY = (
    *("architecture", "config", "weights", "tokenizer", "start", "text_instruction", "query_instruction"),
    *("head", "query_attached", "text_attached"),  # of embedding models alone
)
FILTER_ROWS = 2**13
"""Most token embeddings that a filter's directions are found from: more cost seconds and change little."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model, by its requested name or its class, with the method resolved for it.

    `trained` for embedding models; `private`: whether the tokenizer was read with the model and is nobody else's.
    """

    name: str
    model: torch.nn.Module
    tokenizer: Any
    backbone: Backbone
    method: Method
    trained: SentenceTransformerSpec | None = None
    private: bool = False


def open_model(
    model: str | os.PathLike[str] | torch.nn.Module,
    method: Method,
    tokenizer: Any | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype = "auto",
    revision: str | None = None,
    cache_folder: str | os.PathLike[str] | None = None,
    trust_remote_code: bool = False,
    local_files_only: bool = False,
    model_kwargs: dict[str, Any] | None = None,
    show_progress: bool = False,
    head: bool = False,
) -> LoadedModel:
    """Share a loaded model, or load one up to the method's exit layer; see `Embedder` for the arguments.

    With `head`, a named model is loaded whole, with its language-model head.
    """
    if not isinstance(trust_remote_code, bool):  # "false" must not run foreign code
        raise TypeError(f"trust_remote_code={trust_remote_code!r:.80} must be True or False")
    numbers: dict[str, Any] = {"device": torch_name(device), "dtype": torch_name(dtype)}
    trained: SentenceTransformerSpec | None = None
    if type(model).__module__.startswith(f"{LIBRARY}."):
        model, bundled_tokenizer, trained = unwrapped(model)
        tokenizer = bundled_tokenizer if tokenizer is None else tokenizer
    if isinstance(model, torch.nn.Module):
        if tokenizer is None:
            raise InvalidParameter("a loaded model needs tokenizer=, the one it was trained with")
        own_device, own_dtype = device_of(model), str(next(model.parameters()).dtype).removeprefix("torch.")
        changes = {
            "revision": revision,
            "cache_folder": cache_folder,
            "model_kwargs": model_kwargs,
            "device": numbers["device"] not in (None, str(own_device), own_device.type),
            "dtype": numbers["dtype"] not in ("auto", own_dtype),
        }
        if refused := [name for name, value in changes.items() if value]:
            raise InvalidParameter(
                f"{', '.join(refused)}: a loaded model stays as it is and where it is; leave this out, or name it"
            )
        backbone = describe(getattr(model, "config", None))
        backbone = replace(backbone, pooling=None if trained is None else trained.pooling)
        name = str(getattr(model, "name_or_path", "") or type(model).__name__)
        resolved = methods.resolve(method, backbone)
        return _measured(LoadedModel(name, model, tokenizer, backbone, resolved, trained), show_progress)
    name = os.fspath(model)
    cache_dir = None if cache_folder is None else os.fspath(cache_folder)
    named = {"revision": revision, "cache_dir": cache_dir, "local_files_only": local_files_only}
    # Always said, also where it is False: transformers would ask on stdin, and an answer may wait there.
    options = {"trust_remote_code": trust_remote_code, **{key: value for key, value in named.items() if value}}
    check_numbers(**numbers)
    where = locate(model)
    options = reachable(name, where, options)
    loading = numbers | {"options": options, "model_kwargs": dict(model_kwargs or {}), "show_progress": show_progress}
    subfolder = None if name in BUNDLED or is_gguf(where) else transformer_folder(where, options)
    if subfolder is not None:
        if head:
            raise UnsupportedModel(
                f"{name!r} is an embedding model, which gives no probabilities of words; name a language model, such "
                "as smollm2"
            )
        base, used, trained = unwrapped(load_trained(model, subfolder, **loading))
        backbone = replace(describe(base.config), pooling=trained.pooling)
        used = used if tokenizer is None else tokenizer
    else:
        base, used, backbone = load(
            model,
            exit_of=lambda backbone: last_layer(methods.resolve(method, backbone), backbone),
            tokenizer=tokenizer,
            head=head,
            **loading,
        )
    resolved, private = methods.resolve(method, backbone), tokenizer is None
    return _measured(LoadedModel(name, base, used, backbone, resolved, trained, private), show_progress)


def open_generator(name: str | os.PathLike[str], device: str | None = None) -> tuple[Any, Any]:
    """Open a causal language model with its head, and its tokenizer; embedders may share both."""
    opened = open_model(name, methods.plain(exit=-1), device=device, head=True)
    return opened.model, opened.tokenizer


def _measured(opened: LoadedModel, show_progress: bool) -> LoadedModel:
    """Return the model, with those layers in its method that are to be found by measuring it."""
    if not opened.method.measures_model:
        return opened
    shape = replace(opened.backbone, pooling=None)
    pipeline = assemble(
        replace(opened, method=methods.resolve(MEASURED, shape), backbone=shape, trained=None, private=False),
        overflow="truncate",
        instructions={"query": None, "document": None},
        language="xx",
        finish=VectorFinalizer(normalize=False),
    )
    with Progress(show_progress) as bar:
        layers = general_layers(pipeline, bar)
    return replace(opened, method=methods.resolve(with_layers(opened.method, layers), opened.backbone))


@collector_paused()
def assemble(
    opened: LoadedModel,
    *,
    overflow: Overflow,
    instructions: dict[TextRole, str | None],
    language: str,
    finish: VectorFinalizer,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    batch_size: int | None = None,
) -> Encoder:
    """Return the pipeline of a loaded model; see `Embedder` for the arguments."""
    host = host_for(opened)
    planner = _planner(opened, host, overflow, instructions, language, max_length)
    weights = opened.method.weights
    table = None if weights is None else weights.of(planner.tokenizer.ranks())
    rewire = opened.method.rewire
    space = planner.tokenizer.space if rewire is not None and rewire.init == "space" else None
    batch_tokens = budget(batch_tokens, host.device)
    runner = Runner(host, opened.method, table, batch_tokens=batch_tokens, batch_size=batch_size, space=space)
    return Encoder(planner, runner, finish)


def budget(chosen: int | None, device: torch.device) -> int:
    """Return most tokens in a pass on a device: the given number, or the default for None."""
    usual = min(PER_THREAD * torch.get_num_threads(), ON_PROCESSOR) if device.type == "cpu" else ON_ACCELERATOR
    return chosen or usual


def host_for(opened: LoadedModel) -> ModelView:
    """Return a loaded model, up to the layer that its method reads."""
    make = partial(ModelView, opened.model, exit_layer=opened.method.exit_layer, layers=opened.backbone.layers)
    try:
        return make()
    except UnsupportedModel:
        if not unpack(opened.model):
            raise
    return make()  # a few models, such as Mamba, read weights without calling their modules


def _planner(
    opened: LoadedModel,
    host: ModelView,
    overflow: Overflow,
    instructions: dict[TextRole, str | None],
    language: str,
    max_length: int | None,
) -> Planner:
    spec, layout = opened.trained, cast("Layout", opened.method.layout)
    tokenizer = Tokenizer(opened.tokenizer, private=opened.private)
    positions = opened.backbone.window - host.first_position  # of tokens
    usual = min(positions, tokenizer.max_length)  # of an embedding model: what it was trained with
    window = usual if spec is None else positions
    if max_length is not None and not 1 <= max_length <= window:
        raise InvalidParameter(
            f"max_length={max_length} must lie between 1 and the model's window of {window} tokens; longer texts are "
            "read in windows"
        )
    attached = frozenset(role for role, text in instructions.items() if spec and text is None and spec.prompts[role])
    if spec is not None:
        instructions = {role: spec.prompts[role] if role in attached else text for role, text in instructions.items()}
        _check_prompts(opened.name, tokenizer, [instructions[role] for role in attached])
    return Planner(
        layout=layout,
        tokenizer=tokenizer,
        prefix=tokenizer.starting(layout.start, auto=not host.bidirectional and spec is None),
        segmenter=Segmenter(language),
        max_length=usual if max_length is None else int(max_length),
        overflow=overflow,
        instructions=instructions,
        closed=host.bidirectional or spec is not None,
        attached=attached,
    )


def first_finish(
    opened: LoadedModel, fitted: Fitted | str | os.PathLike[str] | None, normalize: bool
) -> VectorFinalizer:
    """Return the last stage for a loaded model; see `Embedder` for the arguments."""
    spec, width = opened.trained, opened.backbone.hidden
    head = None if spec is None else spec.head
    if spec is not None and normalize and spec.similarity != "cosine" and not spec.unit:
        raise InvalidParameter(
            f"{opened.name} was trained for similarity_fn_name={spec.similarity!r}, where vectors' lengths count; "
            "pass normalize=False to keep them, and search by that, or by cosine"
        )
    chosen = opened.method.filter
    filtered = None if chosen is None else chosen.directions(_token_embeddings(opened.model), width)
    width = width if head is None else head.width(width)
    layers = 1 if opened.method.average is None else opened.method.average.apart
    finish = VectorFinalizer(normalize, filtered=filtered, head=head, layers=layers)
    return finish_for(opened.method, width, fitted, finish)


def _token_embeddings(model: torch.nn.Module) -> Doubles:
    """Return token embeddings, at most `FILTER_ROWS` of them at equal distances, shape (tokens, width)."""
    table = embeddings_at_distance(cast("Any", model).get_input_embeddings(), FILTER_ROWS)
    return np.asarray(table.double().cpu().numpy())


def finish_for(
    method: Method, width: int, fitted: Fitted | str | os.PathLike[str] | None, finish: VectorFinalizer
) -> VectorFinalizer:
    """Return a last stage with the post-processing of a method whose vectors have this width before it."""
    if method.post is not None:
        method.post.dimension(width)
    if fitted is not None and not isinstance(fitted, Fitted):
        fitted = Fitted.load(fitted)
    if fitted is not None and fitted.post != method.post:
        raise InvalidParameter(
            f"fitted= holds {fitted.post}, the method {method} asks for {method.post}; use the file that was fitted "
            "with this method, or fit again"
        )
    if fitted is not None and len(fitted.mean) != (wanted := width * (finish.layers if fitted.post.by_layer else 1)):
        raise InvalidParameter(
            f"fitted= was fitted on vectors of width {len(fitted.mean)}, this model's have {wanted}; fit it "
            "again with this model"
        )
    return replace(finish, post=method.post, fitted=fitted)


def settings_of(pipeline: Encoder, backbone: Backbone, method: Method) -> dict[str, Any]:
    """Return everything that decides a vector, as plain values."""
    planner, host, finish = pipeline.planner, pipeline.open_runner.host, pipeline.finish
    post = None
    if finish.post is not None and finish.post.learns:
        # Without a fit of its own it is calibrated, and the general text decides that, not the last bits of the fit.
        post = calibration_text().name if finish.fitted is None else finish.fitted.digest
    settings = {
        "format": 1,
        "architecture": backbone.architecture,
        "config": host.settings,
        "weights": weights_digest(host.weights()),
        "tokenizer": planner.tokenizer.digest,
        "method": method.settings,
        "segmenter": planner.segmenter.fingerprint,
        "max_length": planner.max_length,
        "overflow": planner.overflow,
        "query_instruction": planner.instructions["query"],
        "text_instruction": planner.instructions["document"],
        "normalize": finish.normalize,
        "post": post,
    }
    if planner.prefix.tolist() != planner.tokenizer.prefix.tolist():
        settings["start"] = planner.prefix.tolist()
    if backbone.pooling is not None:
        settings["head"] = None if finish.head is None else finish.head.digest
        settings["query_attached"] = "query" in planner.attached
        settings["text_attached"] = "document" in planner.attached
    return settings


def made_by(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that decide the vectors that post-processing is fitted on and applied to."""
    method = {part: value for part, value in settings["method"].items() if part != "post"}
    others = {name: settings[name] for name in _MADE_BY if name in settings}
    return cast("dict[str, Any]", json.loads(json.dumps({**others, "method": method})))


def _check_prompts(name: str, tokenizer: Tokenizer, prompts: list[str | None]) -> None:
    for prompt in prompts:
        if prompt and (specials := tokenizer.specials_in(prompt)):
            raise UnsupportedModel(
                f"{name}: its prompt {prompt!r} holds the special token {specials[0]!r}, which would be text here; "
                "pass query_instruction= and text_instruction=, each a wording of yours or '' for none"
            )
