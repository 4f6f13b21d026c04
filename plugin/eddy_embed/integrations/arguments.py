"""Arguments of the adapters' classes: plain values in place of objects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from eddy_embed.encoding.validation import check_options, torch_name
from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Method
from eddy_embed.parts.postprocess import Fitted


def put(values: dict[str, Any], name: str, value: Any, origin: str) -> None:
    """Take over the value of a parameter that was given under another name; refuse two different values."""
    if values.get(name) not in (None, value):
        raise InvalidParameter(f"{origin}={value!r} and {name}={values[name]!r} differ; give one of them.")
    values[name] = value


def check_loaded(owner: str, llm: Any, kind: str, *parts: Any) -> None:
    """Refuse an LLM from which a model or a tokenizer is missing, as its model runs elsewhere or not on torch."""
    if None in parts:
        raise InvalidParameter(
            f"llm is a {type(llm).__name__}, which holds no loaded model to share; give a {kind}, or the model itself: "
            f"{owner}.from_model(model, tokenizer)."
        )


def plain(owner: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A class's arguments with text in place of paths, methods and torch objects, so that they can be stored and sent.

    Refuses a model that is missing, a method that has no name, and values of the wrong kind.
    """
    values = dict(given)
    model_name = values.get("model_name")
    method = "recommended" if values.get("method") is None else values["method"]
    if model_name is None:
        raise InvalidParameter("model_name is missing; name a model, such as model_name='eddy-tiny'.")
    if not isinstance(model_name, (str, os.PathLike)):
        raise InvalidParameter(
            f"model_name is a {type(model_name).__name__}, not a name or path; "
            f"for a loaded model use {owner}.from_model(model, tokenizer)."
        )
    if isinstance(method, Method) and not method.terms:
        raise InvalidParameter(
            f"method={method!r:.80} was put together by hand and has no name by which {owner} could store or send it; "
            "register a function that makes it with eddy_embed.methods.register, and name that."
        )
    values.update(model_name=os.fspath(model_name), method=str(method))
    values["dtype"] = "auto" if values.get("dtype") is None else torch_name(values["dtype"])
    values["device"] = torch_name(values.get("device"))
    check_options(values)
    if isinstance(values.get("post"), Fitted):
        raise InvalidParameter(f"post= must be a file here, so that {owner} can store and send it; save() writes one.")
    for name in ("cache_folder", "post"):
        if values.get(name) is not None:
            values[name] = os.fspath(values[name])
    return values
