"""A retrieval app on real documents: what Eddy, an embedded Chroma and a terminal do together."""
