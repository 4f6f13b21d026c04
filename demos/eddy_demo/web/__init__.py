"""The web page of a library: a local server, and the thread that writes uploads."""

from eddy_embed.utils.extras import check_installed

check_installed("demo", "fastapi", "jinja2", "uvicorn")
