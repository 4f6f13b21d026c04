"""A library: a folder with an index and the choices that made it."""
