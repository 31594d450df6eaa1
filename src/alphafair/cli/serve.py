"""`alphafair serve`: run the HTTP service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Database = Annotated[
    str,
    typer.Option(
        "--db",
        metavar="FILE|URL",
        help="A SQLite file, created if it does not exist, or postgresql://USER@HOST/NAME.",
    ),
]


def command(
    db: Database,
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="ADDRESS", help="The address to listen on; other addresses than this machine's need keys."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any free one.")] = 8000,
    unix_socket: Annotated[
        Path | None, typer.Option("--unix-socket", metavar="PATH", help="Listen on a Unix socket instead of a port.")
    ] = None,
    root_path: Annotated[
        str, typer.Option("--root-path", metavar="PATH", help="The path prefix that a reverse proxy adds.")
    ] = "",
    max_body: Annotated[int, typer.Option("--max-body", min=1, metavar="BYTES", help="The longest accepted body.")] = 1
    << 20,
    max_waiting: Annotated[
        int,
        typer.Option(
            "--max-waiting",
            min=1,
            metavar="N",
            help="Answer 503 if more commands wait for the disk, or a quarter of one key.",
        ),
    ] = 20_000,
    max_contexts: Annotated[
        int | None,
        typer.Option(
            "--max-contexts",
            min=1,
            metavar="N",
            help="Contexts per experiment. Default: what half of the memory can hold.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            min=0.001,
            metavar="N",
            help="Requests, and items of batches, per second and key (or address). Default: unlimited.",
        ),
    ] = None,
    max_connections: Annotated[
        int | None,
        typer.Option(
            "--max-connections",
            min=1,
            metavar="N",
            help="Answer 503 to more connections. Default: 1000, or what the limit on open files (ulimit -n) allows.",
        ),
    ] = None,
    head_timeout: Annotated[
        float, typer.Option("--head-timeout", min=0.1, metavar="S", help="Seconds to send all headers.")
    ] = 10.0,
    body_timeout: Annotated[
        float, typer.Option("--body-timeout", min=0.1, metavar="S", help="Seconds to send a body, or 64 kB of it.")
    ] = 30.0,
    answer_timeout: Annotated[
        float, typer.Option("--answer-timeout", min=0.1, metavar="S", help="Seconds to read an answer, or 48 kB of it.")
    ] = 30.0,
    idle_timeout: Annotated[
        float,
        typer.Option("--idle-timeout", min=0.1, metavar="S", help="Seconds between an answer and the next request."),
    ] = 5.0,
    must_exist: Annotated[
        bool,
        typer.Option("--must-exist", help="Fail if there is no database, or an empty one, instead of creating it."),
    ] = False,
    accept_clock: Annotated[
        bool,
        typer.Option(
            "--accept-clock", help="Take the clock of this machine for right, although it has jumped far ahead."
        ),
    ] = False,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log every request, not only errors and infrequent requests.")
    ] = False,
) -> None:
    """Serve decisions over HTTP; every answer is on disk before it is sent.

    On SIGTERM or SIGINT the service answers the requests it has received, then stops. The page /docs describes all
    routes. The log is written to standard error, one JSON object per line.
    """
    from alphafair.service.http.connections import Timeouts
    from alphafair.service.server import serve
    from alphafair.service.service import Limits

    timeouts = Timeouts(head_timeout, body_timeout, answer_timeout, idle_timeout)
    limits = Limits(max_body, max_waiting, rate, max_connections, timeouts)
    serve(
        db,
        host=host,
        port=port,
        unix_socket=unix_socket,
        root_path=root_path,
        limits=limits,
        log_all=log_requests,
        must_exist=must_exist,
        max_contexts=max_contexts,
        accept_clock=accept_clock,
    )
