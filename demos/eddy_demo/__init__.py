"""A retrieval app for documents, on the command line and as a web page, with Eddy and an embedded Chroma."""
