"""Readers: files of many formats to titles and texts, for Python, LlamaIndex and LangChain."""

from eddy_embed.utils.extras import check_installed

_NEEDED = "bs4 lxml mammoth markdown_it markdownify openpyxl pptx pypdfium2 selectolax webencodings yaml"
check_installed("readers", *_NEEDED.split())
