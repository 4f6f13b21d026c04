"""The Chroma database: clients, locks, vectors, collections and pages of rows."""
