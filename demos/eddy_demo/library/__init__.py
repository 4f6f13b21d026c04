"""A library: a folder with an index, and a file with the choices that made it."""
