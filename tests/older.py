"""Files as older versions of the schema left them, for tests of the way from there."""

from __future__ import annotations

import sqlite3

UNDO = {  # what takes back a numbered step, where there is anything to take back
    4: "drop table scratch",
    5: "alter table change drop column by",
}


def take_back(file: sqlite3.Connection, number: int) -> None:
    """Take the steps after this one back, the last one first."""
    ((last,),) = file.execute("select max(number) from migration").fetchall()
    for step in range(last, number, -1):
        if step in UNDO:
            file.execute(UNDO[step])
    file.execute("delete from migration where number > ?", (number,))
