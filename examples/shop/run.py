"""Start a service on shop.db, open its page, simulate visitors, and leave it running until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import webbrowser
from pathlib import Path
from typing import IO


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the service and a shop that uses it.")
    parser.add_argument("--db", default="shop.db")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--visitors", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=90.0, help="how long the visitors take to arrive")
    parser.add_argument("--no-browser", action="store_true", help="do not open the page")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the service must not outlive this process
    url = f"http://127.0.0.1:{options.port}"
    with tempfile.TemporaryFile() as log:  # the service's own lines, shown only if it fails
        command = [sys.executable, "-m", "alphafair", "serve", "--db", options.db, "--port", str(options.port)]
        service = subprocess.Popen(command, stderr=log)
        try:
            print("Starting the service. The first start on a machine compiles kernels, which takes half a minute.")
            wait(service, url, log)
            print(f"\nThe page of the service: {url}/\n", flush=True)
            if not options.no_browser and has_screen():
                webbrowser.open(f"{url}/")
            shop = Path(__file__).with_name("shop.py")
            arguments = [
                "--url",
                url,
                "--visitors",
                str(options.visitors),
                "--seconds",
                str(options.seconds),
                "--greedy-first",
            ]
            subprocess.run([sys.executable, str(shop), *arguments], check=True)
            print(f"\nThe service is still running: {url}/. Press Ctrl-C to stop it.", flush=True)
            service.wait()
        except KeyboardInterrupt:
            print(f"\nStopped. All decisions and rewards are in {options.db}.")
        finally:
            service.terminate()
            service.wait()


def wait(service: subprocess.Popen[bytes], url: str, log: IO[bytes]) -> None:
    """Return when the service is ready; if it has ended instead, print why and leave."""
    while not ready(url):
        if service.poll() is not None:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace"))
            sys.exit(service.returncode or 1)
        time.sleep(0.2)


def ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=2.0):
            return True
    except OSError:  # not listening yet, or 503
        return False


def has_screen() -> bool:
    """Whether a browser would open in a window: one in the terminal would cover the table."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


if __name__ == "__main__":
    main()
