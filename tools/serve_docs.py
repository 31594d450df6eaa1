"""Show the site that `make docs` has built in a browser, to this machine alone: `python tools/serve_docs.py [PORT]`."""

from __future__ import annotations

import sys
import webbrowser
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8008
    with ThreadingHTTPServer(("127.0.0.1", port), partial(SimpleHTTPRequestHandler, directory=SITE)) as server:
        address = f"http://127.0.0.1:{port}"
        print(f"The site is at {address}; Ctrl-C stops it.")
        webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
