"""Convert LlamaIndex's nodes to rows of an index, and rows to nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, ObjectType, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from chroma_eddy import Piece
from chroma_eddy.rows.schema import DOCUMENT, END, FRAMEWORKS, PIECE, START, user_metadata
from chroma_eddy.types import RESERVED
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations import check_kind
from llama_index.embeddings.eddy import vector_metadata

DOCUMENT_KEYS = ("document_id", "doc_id", "ref_doc_id")
"""Metadata keys of a node's document in LlamaIndex; the index has a key of its own for it."""


def to_piece(node: Any, number: int) -> Piece:
    """Convert a node with its embedding to a piece of the index, from which `to_node` restores it."""
    check_kind(f"nodes[{number}]", node, BaseNode, "one of LlamaIndex's nodes")
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


def to_node(id_: str, text: str, row: Mapping[str, Any]) -> BaseNode:
    """Convert a row, with its id, text and metadata, to a node."""
    if all(key in row for key in FRAMEWORKS):
        node = metadata_dict_to_node(dict(row), text=text)
        if vector_metadata.FINGERPRINT in node.metadata:  # the index may have refitted its vectors meanwhile
            node.metadata[vector_metadata.FINGERPRINT] = row[vector_metadata.FINGERPRINT]
        return node
    metadata = user_metadata(row)
    document = RelatedNodeInfo(node_id=str(row[DOCUMENT]), node_type=ObjectType.DOCUMENT, metadata=dict(metadata))
    place = {key: row[key] for key in RESERVED if key in row and key not in (START, END) and PIECE not in row}
    return TextNode(
        id_=id_,
        text=text,
        metadata={**metadata, **place},
        start_char_idx=row.get(START),
        end_char_idx=row.get(END),
        relationships={NodeRelationship.SOURCE: document},
    )
