"""Uploads, and the thread that writes them to the library."""
