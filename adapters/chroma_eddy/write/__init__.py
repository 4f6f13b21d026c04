"""Writing: documents, pieces, integrity checks and rebuilding."""
