"""The front door for adapters: all that they may use of the engine beside `Embedder`, `methods` and `errors`.

Each name comes from its module when it is first asked for, since many of them import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eddy_embed.encoding.build import open_model as open_model
    from eddy_embed.encoding.document import *
    from eddy_embed.encoding.finalize import *
    from eddy_embed.encoding.validation import *
    from eddy_embed.integrations.document_ids import *
    from eddy_embed.integrations.failures import *
    from eddy_embed.integrations.first_tokens import *
    from eddy_embed.integrations.generators import *
    from eddy_embed.integrations.http_guard import *
    from eddy_embed.integrations.metadata_names import *
    from eddy_embed.integrations.page_numbers import *
    from eddy_embed.integrations.settings import *
    from eddy_embed.integrations.shared_embedders import *
    from eddy_embed.integrations.shared_rerankers import *
    from eddy_embed.integrations.unrelated import *
    from eddy_embed.integrations.whole_documents import *
    from eddy_embed.model.fingerprint import *
    from eddy_embed.model.loading import inventory as inventory
    from eddy_embed.model.loading.catalog import *
    from eddy_embed.model.loading.pretrained import *
    from eddy_embed.parts.layout import *
    from eddy_embed.parts.postprocess import *
    from eddy_embed.text.sentences import *
    from eddy_embed.text.tokenizer import *
    from eddy_embed.utils.arrays import *
    from eddy_embed.utils.atomic_files import *
    from eddy_embed.utils.diff import *
    from eddy_embed.utils.extras import *
    from eddy_embed.utils.interrupts import *

_NAMES = {
    "encoding.build": "open_model",
    "encoding.document": "LongDocument Part Passage PassageUnit Span heading_path",
    "encoding.finalize": "unit",
    "encoding.validation": "PASSAGES PASSAGE_SIZE check_count check_kind check_one check_options check_parts "
    "check_seconds checked_text_list refuse_unknown torch_name",
    "integrations.document_ids": "document_identity is_random passage_id",
    "integrations.failures": "isolate_failures",
    "integrations.first_tokens": "first_tokens",
    "integrations.generators": "open_generator read_generator",
    "integrations.http_guard": "LOOPBACK HttpGuard RequestRefused",
    "integrations.metadata_names": "DOCUMENT END FINGERPRINT HEADINGS N_TOKENS N_TRUNCATED N_WINDOWS START",
    "integrations.page_numbers": "LABEL LAST_LABEL PAGES Pages joined_pages page_name pages_by_file",
    "integrations.settings": "PROCESS_SETTINGS EmbedderSettings check_loaded put",
    "integrations.shared_embedders": "EmbedderOwner in_worker live_error name_of open_embedder",
    "integrations.shared_rerankers": "RerankerOwner open_reranker scores_with_blank",
    "integrations.unrelated": "unrelated_cosines",
    "integrations.whole_documents": "filled grouped_by_size warn_of_blank with_text",
    "model.fingerprint": "digest",
    "model.loading.catalog": "CATALOG",
    "model.loading.pretrained": "read_backbone",
    "parts.layout": "TextRole",
    "parts.postprocess": "Fitted",
    "text.sentences": "Segmenter headings",
    "text.tokenizer": "raise_on_surrogates",
    "utils.arrays": "Doubles Floats",
    "utils.atomic_files": "atomic_write sync sync_tree",
    "utils.diff": "contrast differences",
    "utils.extras": "check_installed import_lazily importing",
    "utils.interrupts": "Interrupted stoppable",
}
_MODULES = {"inventory": "model.loading.inventory"}
_HOMES = {**_MODULES, **{name: home for home, names in _NAMES.items() for name in names.split()}}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"eddy_embed.{_HOMES[name]}")
    value = globals()[name] = home if name in _MODULES else getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
