"""Files as older versions of the schema left them, for tests of the way from there."""

from __future__ import annotations

import sqlite3

from alphafair.engine.store.migrate import schema

KEYS = next(text for number, _, text in schema() if number == 2)
LEDGER = next(text for number, _, text in schema() if number == 1)
DECISION = "create table decision (" + LEDGER.split("create table decision (")[1].partition(") strict;")[0] + ") strict"
UNDO = {  # what takes back a numbered step, where there is anything to take back
    4: ["drop table scratch"],
    5: ["alter table change drop column by", "drop table api_key", KEYS],
    6: ["drop table erasure"],
    7: ["drop table snapshot_piece"],
    8: ["alter table decision drop column checksum"],
    10: [
        "alter table decision rename to later",
        DECISION,
        "alter table decision add column checksum integer",
        "insert into decision select * from later",
        "drop table later",
    ],
    11: ["alter table snapshot drop column summary"],
    12: ["alter table api_key drop column epoch"],
}


def take_back(file: sqlite3.Connection, number: int) -> None:
    """Take the steps after this one back, the last one first."""
    ((last,),) = file.execute("select max(number) from migration").fetchall()
    for step in range(last, number, -1):
        if step in UNDO:
            for statement in UNDO[step]:
                file.execute(statement)
    file.execute("delete from migration where number > ?", (number,))
