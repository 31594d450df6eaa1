"""Pages of the service in a real browser, in a process of their own: `python -m benchmarks.browse PORT PATH COUNT`.

Prints a line once all show live numbers, then keeps them open until it is ended. The browser takes only the time of the
processor that nobody else wants: what it draws on the machines of those who watch is not work of the service.
"""

from __future__ import annotations

import os
import signal
import sys

from tests.browsers import chromium


def main(port: int, path: str, count: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that the browser is closed
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with chromium() as browser:
        pages = [browser.new_page(base_url=f"http://127.0.0.1:{port}") for _ in range(count)]
        for page in pages:
            page.goto(path)
        for page in pages:
            page.locator('[data-figure="decisions"]').wait_for(timeout=60_000)
        print("all watch", flush=True)
        signal.pause()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
