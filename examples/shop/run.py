"""Start a service on shop.db, simulate visitors, and leave the service running until Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

URL = "http://127.0.0.1:8000"


def main() -> None:
    service = subprocess.Popen([sys.executable, "-m", "alphafair", "serve", "--db", "shop.db"])
    try:
        print("Starting the service. The first start on a machine compiles kernels, which takes half a minute.")
        while not ready():
            if service.poll() is not None:
                sys.exit(service.returncode)
            time.sleep(0.2)
        subprocess.run([sys.executable, str(Path(__file__).with_name("shop.py")), "--url", URL], check=True)
        print(f"\nThe service is still running: {URL}/docs. Press Ctrl-C to stop it.")
        service.wait()
    except KeyboardInterrupt:
        print("\nStopped. All decisions and rewards are in shop.db.")
    finally:
        service.terminate()
        service.wait()


def ready() -> bool:
    try:
        with urllib.request.urlopen(f"{URL}/ready", timeout=2.0):
            return True
    except OSError:  # not listening yet, or 503
        return False


if __name__ == "__main__":
    main()
