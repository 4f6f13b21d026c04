"""Readers: files of several formats to titles and texts."""

from eddy_embed.utils.extras import check_installed

_NEEDED = "bs4 lxml mammoth markdown_it markdownify openpyxl pptx pypdfium2 webencodings yaml"
check_installed("demo", *_NEEDED.split())
