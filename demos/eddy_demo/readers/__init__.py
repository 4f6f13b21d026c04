"""Readers: files to text."""
