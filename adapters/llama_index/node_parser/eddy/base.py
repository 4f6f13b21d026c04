"""`LongDocumentNodeParser`: documents to passage nodes whose vectors know the whole document."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import ConfigDict, Field
from llama_index.core.callbacks import CallbackManager
from llama_index.core.node_parser import NodeParser
from llama_index.core.node_parser.node_utils import default_id_func
from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode
from llama_index.core.utils import get_tqdm_iterable

from eddy_embed.document import Part, PassageUnit, Span
from eddy_embed.engines import in_worker
from eddy_embed.errors import IncompatibleMethods, InvalidParameter, InvalidText
from eddy_embed.ids import document_identity, is_random, passage_id
from eddy_embed.inputs import PASSAGES, check_kind, check_options, check_parts
from eddy_embed.parameters import refuse_unknown
from llama_index.embeddings.eddy import EddyEmbedding
from llama_index.embeddings.eddy.resolve_embed_model import embedding_of
from llama_index.node_parser.eddy.nodes import LEVELS, document_nodes, link_levels, part_of, whole_files, without_pages

if TYPE_CHECKING:
    from typing_extensions import Self

    from eddy_embed import LongDocument

# One call of the engine takes this much: enough for full batches of short documents, and the sentence vectors that a
# call returns stay within some tens of megabytes.
_GROUP_DOCUMENTS = 64
_GROUP_CHARACTERS = 400_000


class LongDocumentNodeParser(NodeParser):
    """Splits documents at sentence borders and embeds each passage in the context of its whole document.

    The nodes come with `embedding` set, exact offsets (`document.text[node.start_char_idx:node.end_char_idx] ==
    node.text`) and identifiers that are the same in every run. `EddyEmbedding`, as the next transformation of a
    pipeline or as the index's embedding model, leaves their vectors as they are. The vectors are of the documents'
    text; metadata is stored beside it, not embedded.

    A document without text gives no node and one warning that names it.

    Args:
        embed_model: An `EddyEmbedding`, or its parameters as a dictionary; None: `Settings.embed_model`.
        passage_size: Most text tokens in a passage. Passages are whole sentences, headings with what they lead to; a
            longer sentence is one alone.
        passage_unit: "sentences" to count these instead of tokens.
        late: Read passages' vectors out of one pass over the document; False: embed each passage by itself, which
            methods that read a last token need.
        parts: What becomes a node: "document", "passages", "sentences". With several, a node is the parent of those
            of the next narrower part that it holds, as `AutoMergingRetriever` and `get_leaf_nodes` want it.
        include_metadata: Whether nodes get the document's metadata.
        include_prev_next_rel: Whether neighbouring nodes of the same part are linked.
        callback_manager: LlamaIndex's callbacks.
        id_func: Makes the id of node `i` of a document; None: ids that are the same in every run.

    Raises:
        InvalidParameter: No Eddy embedding model is given, or there is no such part.
        IncompatibleMethods: `late`, and the method reads one token only.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    embed_model: EddyEmbedding
    passage_size: int = Field(default=256, gt=0)
    passage_unit: PassageUnit = "tokens"
    late: bool = True
    parts: tuple[Part, ...] = PASSAGES

    def __init__(
        self,
        *,
        embed_model: EddyEmbedding | Mapping[str, Any] | None = None,
        passage_size: int = 256,
        passage_unit: PassageUnit = "tokens",
        late: bool = True,
        parts: Collection[Part] = PASSAGES,
        include_metadata: bool = True,
        include_prev_next_rel: bool = True,
        callback_manager: CallbackManager | None = None,
        id_func: Callable[[int, BaseNode], str] | Mapping[str, str] | None = None,
        **others: Any,
    ) -> None:
        refuse_unknown("LongDocumentNodeParser", others, type(self).model_fields)
        check_options({"passage_size": passage_size, "passage_unit": passage_unit, "late": late})
        check_parts(parts)
        for name, value in (("include_metadata", include_metadata), ("include_prev_next_rel", include_prev_next_rel)):
            check_kind(name, value, bool, "True or False")
        check_kind("callback_manager", callback_manager, CallbackManager | None, "a CallbackManager, or None")
        fields: dict[str, Any] = {
            "embed_model": embedding_of(embed_model, "passages' vectors out of a whole document need"),
            "passage_size": passage_size,
            "passage_unit": passage_unit,
            "late": late,
            "parts": tuple(part for part in LEVELS if part in parts),
            "include_metadata": include_metadata,
            "include_prev_next_rel": include_prev_next_rel,
            "callback_manager": callback_manager or CallbackManager([]),
            "id_func": _id_func(id_func),
        }
        super().__init__(**fields, **others)
        self._refuse_late_without_spans()

    def _refuse_late_without_spans(self) -> None:
        engine = self.embed_model.embedder
        if self.late and not engine.reads_spans:
            raise IncompatibleMethods(
                f"Method {self.embed_model.method!r} reads one token, so passages have no vectors in a pass over the "
                "document; use late=False to embed each passage by itself, or a method that averages."
            )

    @classmethod
    def from_defaults(cls, embed_model: EddyEmbedding | Mapping[str, Any] | None = None, **settings: Any) -> Self:
        """As the constructor; LlamaIndex's other parsers are made this way."""
        return cls(embed_model=embed_model, **settings)

    @staticmethod
    def join_pages(pages: Sequence[Document]) -> list[Document]:
        """Pages, as LlamaIndex's readers give them, as one document for each file.

        Sentences go on over page borders, vectors know the whole file, and each node has the `page_label` where it
        begins and the `last_page_label` where it ends. The document's id is the file's path.

        Args:
            pages: Documents with `page_label`; others are returned as they are.

        Raises:
            InvalidParameter: A page does not say of which file it is, or something is no document.
        """
        return whole_files(pages)

    @classmethod
    def class_name(cls) -> str:
        """Name under which LlamaIndex serialises the class."""
        return "LongDocumentNodeParser"

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any) -> list[BaseNode]:
        engine = self.embed_model.embedder
        # A pipeline asked for progress does not hand the wish on; the embedding model's own is heard as well.
        show = show_progress or self.embed_model.show_progress
        documents = get_tqdm_iterable(_with_text(nodes), show, "Embedding documents")
        copies: Counter[tuple[str, str]] = Counter()
        passages: list[BaseNode] = []
        for group in _groups(documents):
            texts = [document.get_content(metadata_mode=MetadataMode.NONE) for document in group]
            results = engine.encode_long(
                texts,
                passage_size=self.passage_size,
                passage_unit=self.passage_unit,
                late=self.late,
                parts=self.parts,
                show_progress=False,
            )
            for document, result in zip(group, results, strict=True):
                # LlamaIndex draws an id for a document that was given none: another one in every run.
                own_id = None if is_random(document.node_id) else document.node_id
                identity = document_identity(own_id, document.metadata)
                passages.extend(self._nodes(document, result, identity, copies[identity, result.text]))
                copies[identity, result.text] += 1
        return passages

    async def _aparse_nodes(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any
    ) -> list[BaseNode]:
        return await in_worker(partial(self._parse_nodes, nodes, show_progress=show_progress, **kwargs))

    def _nodes(self, document: BaseNode, result: LongDocument, identity: str, copy: int) -> list[TextNode]:
        fingerprint = self.embed_model.fingerprint

        def own_id(number: int, part: Part, span: Span) -> str:
            if self.id_func is not default_id_func:
                return str(self.id_func(number, document))
            return passage_id(identity, result.text, copy, span.start, span.end, fingerprint, self.late, part)

        return document_nodes(document, result, self.parts, fingerprint, own_id)

    def _postprocess_parsed_nodes(self, nodes: list[BaseNode], parent_doc_map: dict[str, Document]) -> list[BaseNode]:
        # The base class looks each node's text up in the document and finds the first of several equal places.
        spans = [(node.start_char_idx, node.end_char_idx) for node in nodes if isinstance(node, TextNode)]
        parents = {
            id_: parent.model_copy(update={"metadata": without_pages(parent.metadata)})
            for id_, parent in parent_doc_map.items()
        }
        for part in self.parts:  # neighbours are of the same level
            super()._postprocess_parsed_nodes([node for node in nodes if part_of(node) == part], parents)
        for node, (start, end) in zip((n for n in nodes if isinstance(n, TextNode)), spans, strict=True):
            node.start_char_idx, node.end_char_idx = start, end
        link_levels(nodes)
        return nodes

    # Without these, LlamaIndex would drop an embedding model that does not pickle, from the live object as well.
    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in set(type(self).model_fields) - {"callback_manager"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Past the constructor, which would load the model: a process that only hands the parser on needs none.
        super().__init__(**state)


def _id_func(given: Callable[[int, BaseNode], str] | Mapping[str, str] | None) -> Callable[[int, BaseNode], str]:
    if isinstance(given, Mapping):
        # What to_dict() writes: a function's name only.
        if given.get("id_func_name") != default_id_func.__name__:
            raise InvalidParameter(f"id_func {given.get('id_func_name')!r} was saved by name; give the function again.")
        return default_id_func
    check_kind("id_func", given, Callable | None, "a function of a number and a document, or None")
    return given or default_id_func


def _with_text(documents: Sequence[BaseNode]) -> list[BaseNode]:
    """The documents that hold text; the others are named in one warning.

    Raises:
        InvalidText: A document's text is not valid Unicode; raised before anything is embedded.
    """
    blank: list[BaseNode] = []
    usable: list[BaseNode] = []
    for index, document in enumerate(documents):
        check_kind(f"documents[{index}]", document, BaseNode, "one of LlamaIndex's documents: Document(text=...)")
        text = document.get_content(metadata_mode=MetadataMode.NONE)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidText(
                f"Document {document.node_id!r}: character {error.start} is half of a surrogate pair, "
                f"{text[error.start]!r}; read the file with its real encoding, or with errors='replace'."
            ) from None
        (usable if text.strip() else blank).append(document)
    if blank:
        names = ", ".join(repr(document.node_id) for document in blank[:10]) + (", ..." if len(blank) > 10 else "")
        warnings.warn(
            f"{len(blank)} of {len(documents)} documents hold no text and give no node: {names}", stacklevel=3
        )
    return usable


def _groups(documents: Iterable[BaseNode]) -> Iterator[list[BaseNode]]:
    group: list[BaseNode] = []
    characters = 0
    for document in documents:
        group.append(document)
        characters += len(document.get_content(metadata_mode=MetadataMode.NONE))
        if len(group) == _GROUP_DOCUMENTS or characters >= _GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group
