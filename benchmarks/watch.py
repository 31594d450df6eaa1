"""Readers of server-sent events, in a process of their own: `python -m benchmarks.watch PORT PATH COUNT`.

Prints a line once all have received their first event, then reads until it is ended.
"""

from __future__ import annotations

import selectors
import socket
import sys


def main(port: int, path: str, count: int) -> None:
    waiting, selector = set[socket.socket](), selectors.DefaultSelector()
    for _ in range(count):
        reader = socket.create_connection(("127.0.0.1", port))
        reader.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\naccept: text/event-stream\r\n\r\n".encode())
        selector.register(reader, selectors.EVENT_READ)
        waiting.add(reader)
    while True:
        for key, _ in selector.select():
            reader = key.fileobj  # type: ignore[assignment]
            received = reader.recv(1 << 16)
            if not received:
                return
            if reader in waiting and b"event: state" in received:
                waiting.discard(reader)
                if not waiting:
                    print("all watch", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
