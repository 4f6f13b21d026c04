"""Uploaded files: stored in the library's folder, read in a child process, written to the library by one thread."""
