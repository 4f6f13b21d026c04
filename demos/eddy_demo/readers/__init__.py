"""Readers: files of several formats to titles and texts."""

from eddy_embed.integrations import check_installed

check_installed("demo", *"bs4 lxml mammoth markdown_it markdownify mdit_py_plugins pypdf yaml".split())
