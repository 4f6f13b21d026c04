"""Convert LlamaIndex's nodes to rows of an index, and rows to nodes."""

from __future__ import annotations

from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, ObjectType, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from chroma_eddy import PIECE, RESERVED, Piece, Row, user_metadata
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT, END, START

DOCUMENT_KEYS = ("document_id", "doc_id", "ref_doc_id")
"""Metadata keys of a node's document in LlamaIndex; the index has a key of its own for it."""
NODE_TYPE = "_node_type"
"""LlamaIndex's metadata key of a node's class."""


def to_piece(node: BaseNode) -> Piece:
    """Convert a node with its embedding to a piece of the index, from which `to_node` restores it."""
    if node.embedding is None:
        raise InvalidParameter(
            f"node {node.node_id!r} has no embedding; add nodes through VectorStoreIndex or IngestionPipeline, which "
            "embed them"
        )
    row = node_to_metadata_dict(node, remove_text=True)
    # LlamaIndex would write None for NaN, which the index refuses.
    row.update({key: value for key, value in node.metadata.items() if isinstance(value, float)})
    return Piece(
        id=node.node_id,
        document=node.ref_doc_id or node.node_id,
        text=node.get_content(metadata_mode=MetadataMode.NONE) or "",
        vector=node.embedding,
        metadata={key: value for key, value in row.items() if key not in DOCUMENT_KEYS},
        start=getattr(node, "start_char_idx", None),
        end=getattr(node, "end_char_idx", None),
    )


def to_node(row: Row) -> BaseNode:
    """Convert a row with its text to a node."""
    stored = row.metadata
    if all(key in stored for key in ("_node_content", NODE_TYPE)):
        return metadata_dict_to_node(dict(stored), text=row.text)
    metadata = user_metadata(stored)
    document = RelatedNodeInfo(node_id=str(stored[DOCUMENT]), node_type=ObjectType.DOCUMENT, metadata=dict(metadata))
    place = {key: stored[key] for key in RESERVED if key in stored and key not in (START, END) and PIECE not in stored}
    return TextNode(
        id_=row.id,
        text=row.text,
        metadata={**metadata, **place},
        start_char_idx=stored.get(START),
        end_char_idx=stored.get(END),
        relationships={NodeRelationship.SOURCE: document},
    )
