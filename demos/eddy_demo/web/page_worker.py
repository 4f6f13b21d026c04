"""Child process that draws one page of a PDF file under limits of the operating system.

`page_images` runs it as `python -m eddy_demo.web.page_worker MEMORY SECONDS`. Its standard input is a JSON object
with the file and the other arguments of `draw_page`; it prints `1` or `0`, whether the text is marked, and the image.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from readers_eddy.pdf.page_image import draw_page
from readers_eddy.worker import limit_resources


def main() -> None:
    """Draw the page that the standard input names."""
    memory, seconds = map(int, sys.argv[1:])
    limit_resources(memory, seconds)
    request = json.load(sys.stdin)
    data = Path(request.pop("file")).read_bytes()
    image, marked = draw_page(data, **request)
    sys.stdout.buffer.write(b"%d" % marked + image)


if __name__ == "__main__":
    main()
