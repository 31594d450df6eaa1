"""`alphafair serve`: decisions over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Database = Annotated[Path, typer.Option("--db", metavar="FILE", help="The ledger: one SQLite file, made if need be.")]


def command(
    db: Database,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen; any but this machine's own needs keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes any free one.")] = 8000,
    unix_socket: Annotated[
        Path | None, typer.Option("--unix-socket", metavar="PATH", help="Listen here instead of on a port.")
    ] = None,
    root_path: Annotated[
        str, typer.Option("--root-path", metavar="PATH", help="The prefix under which a reverse proxy shows it.")
    ] = "",
    max_body: Annotated[int, typer.Option("--max-body", min=1, metavar="BYTES", help="The longest body taken.")] = 1
    << 20,
    max_waiting: Annotated[
        int, typer.Option("--max-waiting", min=1, metavar="N", help="Beyond so many waiting commands: 503.")
    ] = 10_000,
    max_contexts: Annotated[
        int | None,
        typer.Option(
            "--max-contexts",
            min=1,
            metavar="N",
            help="Contexts per experiment. Default: what half of the memory takes.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.001, metavar="N", help="Requests per second and key (or address). Default: any."),
    ] = None,
    max_connections: Annotated[
        int | None,
        typer.Option(
            "--max-connections",
            min=1,
            metavar="N",
            help="Beyond so many: 503. Default: 1000, or what the limit on open files (ulimit -n) leaves.",
        ),
    ] = None,
    head_timeout: Annotated[
        float, typer.Option("--head-timeout", min=0.1, metavar="S", help="Seconds for a client to send all headers.")
    ] = 10.0,
    body_timeout: Annotated[
        float, typer.Option("--body-timeout", min=0.1, metavar="S", help="Seconds to send a body, or 64 kB of it.")
    ] = 30.0,
    answer_timeout: Annotated[
        float, typer.Option("--answer-timeout", min=0.1, metavar="S", help="Seconds to read an answer, or 48 kB of it.")
    ] = 30.0,
    idle_timeout: Annotated[
        float, typer.Option("--idle-timeout", min=0.1, metavar="S", help="Seconds until the next request begins.")
    ] = 5.0,
    must_exist: Annotated[
        bool, typer.Option("--must-exist", help="Refuse a file that is not there or empty, instead of making one.")
    ] = False,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log every request, not only errors and the less busy routes.")
    ] = False,
) -> None:
    """Serve decisions over HTTP, on disk before they are answered.

    What was accepted when it is told to stop is answered first. The page /docs tells of every route. Logs are lines of
    JSON on standard error.
    """
    from alphafair.service.assemble import Limits
    from alphafair.service.connections import Timeouts
    from alphafair.service.serve import serve

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
    )
