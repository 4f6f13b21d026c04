"""The settings of an embedder as plain values: one list, which the frameworks' classes inherit or hold."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eddy_embed.encoding.planner import Overflow
from eddy_embed.encoding.validation import refuse_unknown, torch_name
from eddy_embed.errors import InvalidParameter
from eddy_embed.methods.method import Method

PROCESS_SETTINGS = frozenset({"device", "trust_remote_code", "check", "show_progress"})
"""Those that are not stored beside vectors: another machine may open them, and no file may make foreign code run."""
_S = TypeVar("_S", bound="EmbedderSettings")


class EmbedderSettings(BaseModel):
    """What `eddy_embed.Embedder` takes, beside a loaded model and its tokenizer; None stands for a setting's default.

    Paths, methods and torch objects become text, so that a configuration can be stored with vectors and sent to another
    process.

    Raises:
        InvalidParameter: A parameter is unknown or missing, or a value is of another type or outside its range.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model_name: str = Field(description="A folder, a .gguf file, a Hugging Face id, or another name for `Embedder`.")
    method: str = Field("recommended", description="How a text becomes a vector, such as 'htp'.")
    max_length: int | None = Field(None, gt=0, description="Most tokens in a pass; None: the model's window.")
    overflow: Overflow = Field("window", description="What becomes of longer texts.")
    query_instruction: str | None = Field(None, description="Put before queries; None: the model's own prompt.")
    text_instruction: str | None = Field(None, description="Put before documents; None: likewise.")
    normalize: bool = Field(True, description="Whether vectors have length 1.")
    fitted: str | None = Field(None, description="File of what an earlier fit learned, for post-processing.")
    batch_size: int | None = Field(None, gt=0, description="Most texts in a pass; None: no limit.")
    batch_tokens: int | None = Field(None, gt=0, description="Most tokens in a pass; None: as the device suits.")
    device: str | None = Field(None, description="Such as 'cpu' or 'cuda:1'; None: an accelerator if there is one.")
    dtype: str = Field("auto", description="Type of the model's numbers, such as 'bfloat16' or 'float32'.")
    language: str = Field("en", description="Language code for sentences, 'xx' for any.")
    revision: str | None = Field(None, description="Revision of a hub model.")
    cache_folder: str | None = Field(None, description="Where hub models are kept.")
    trust_remote_code: bool = Field(False, description="Whether a model may bring its own code.")
    local_files_only: bool = Field(False, description="Never ask the hub.")
    model_kwargs: dict[str, Any] = Field({}, description="Further arguments of `from_pretrained`.")
    show_progress: bool = Field(False, description="Show a bar on long work.")
    check: bool = Field(True, description="Warn if the method's vectors hardly tell short sentences apart.")

    def __init__(self, **given: Any) -> None:
        refuse_unknown(type(self).__name__, given, type(self).model_fields)
        try:
            super().__init__(**_plain_values(type(self).__name__, given))
        except ValidationError as error:
            (first, *_), owner = error.errors(), type(self).__name__
            raise InvalidParameter(f"{owner}: {first['loc'][0]}={first['input']!r:.80}: {first['msg']}") from error

    @classmethod
    def of(cls: type[_S], owner: str, given: Mapping[str, Any], *, without: frozenset[str] = frozenset()) -> _S:
        """Return the settings that another class was given under their names; `without`: those that it does not take.

        Raises:
            InvalidParameter: A name is unknown to that class, or as for the class itself.
        """
        refuse_unknown(owner, given, cls.model_fields.keys() - without)
        return cls(**_plain_values(owner, given))

    def arguments(self) -> dict[str, Any]:
        """Return arguments of `Embedder` beside the model and the bar, without those that are None."""
        values = ((name, getattr(self, name)) for name in ENGINE_SETTINGS)
        return {name: value for name, value in values if value is not None}

    def stored(self) -> dict[str, Any]:
        """Return what is kept beside vectors: settings that are not None, without those of a process."""
        values = {"model_name": self.model_name, **self.arguments()}
        return {name: value for name, value in values.items() if name not in PROCESS_SETTINGS}

    def key(self, **changed: Any) -> str:
        """Return text that is equal for settings that ask for the same embedder, with other values for some of them."""
        # Checked or not, it is the same embedder.
        values = {name: value for name, value in {**self.arguments(), **changed}.items() if name != "check"}
        fields = EmbedderSettings.model_fields
        changes = {name: value for name, value in values.items() if value not in (None, fields[name].default)}
        return json.dumps([self.model_name, changes], sort_keys=True, default=repr)


ENGINE_SETTINGS = tuple(name for name in EmbedderSettings.model_fields if name not in ("model_name", "show_progress"))
"""Settings that make another embedder, beside the model."""


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


def _plain_values(owner: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that are not None, with text in place of paths, methods and torch objects."""
    plain = {name: torch_name(value) for name, value in values.items() if value is not None}
    if isinstance(method := plain.get("method"), Method):
        if not method.terms:
            raise InvalidParameter(
                f"method={method!r:.80} was put together by hand and has no name by which {owner} could store or send "
                "it; register a function that makes it with eddy_embed.methods.register, and name that."
            )
        plain["method"] = str(method)
    for name in plain.keys() & {"model_name", "cache_folder", "fitted"}:
        plain[name] = os.fspath(plain[name])
    return plain
