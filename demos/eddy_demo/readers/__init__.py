"""Readers: files of several formats to titles and texts."""
