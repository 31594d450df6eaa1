"""Files as older versions of the schema left them, for tests of the way from there."""

from __future__ import annotations

import json
import sqlite3

from alphafair.engine.store.dialect import FIRST, SQLITE
from alphafair.engine.store.migrate import MOVED, older

STEPS = {number: text for number, _, text in older(SQLITE)}
KEYS, LEDGER = STEPS[2], STEPS[1]
DECISION = "create table decision (" + LEDGER.split("create table decision (")[1].partition(") strict;")[0] + ") strict"
UNDO = {  # what takes back a numbered step, where there is anything to take back
    2: ["drop table api_key"],
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
EVENT_OF = "(select event from place where experiment = {0}.experiment and position = {0}.{1})"
TO_12 = f"""
update position set last = (select coalesce(sum(position), 0) from present_experiment);
insert into change select event, experiment, kind, body, state, at, by from present_change;
insert into context select * from present_context;
insert into decision select event, id, experiment, context, arm, propensity, {EVENT_OF.format("d", "state_version")},
    {EVENT_OF.format("d", "policy_version")}, deferred, available, probabilities, at, checksum from present_decision d;
insert into activation select event, decision, at from present_activation;
insert into reward select event, decision, reward, source, rewards, at from present_reward;
insert into late_reward select event, decision, reward, rewards, at from present_late_reward;
insert into snapshot select experiment, {EVENT_OF.format("s", "position")}, code_version, tally, state, summary
    from present_snapshot s;
insert into snapshot_piece select experiment, {EVENT_OF.format("s", "position")}, number, bytes
    from present_snapshot_piece s;
insert into api_key select * from present_api_key;
insert into erasure select event from present_erasure;
"""


def take_back(file: sqlite3.Connection, number: int) -> None:
    """Take the steps after this one back, the last one first."""
    ((last,),) = file.execute("select max(number) from migration").fetchall()
    if number < 15 <= last:
        file.execute("drop index decision_source")
        for column in ("bucket", "features", "decided_by"):
            file.execute(f"alter table decision drop column {column}")
    if number <= FIRST < last:
        file.execute("drop table slate_reward")
        file.execute("drop index decision_slate")
        file.execute("alter table decision drop column slate")
    if number < FIRST <= last:
        _to_12(file)
    for step in range(FIRST - 1, number, -1):
        if step in UNDO:
            for statement in UNDO[step]:
                file.execute(statement)
    file.execute("delete from migration where number > ?", (number,))


def _to_12(file: sqlite3.Connection) -> None:
    """Number the events of a file in one order, as version 12 did; the keys of experiments stay."""
    names = (*MOVED, "experiment", "erasure", "scratch")
    for name in names:
        file.execute(f"alter table {name} rename to present_{name}")
    for number, name, text in older(SQLITE):
        if "with_present_names" not in text:
            _run(file, text)
        file.execute("insert or ignore into migration values (?, ?, '0.1.0', 0)", (number, name))
    events = " union all ".join(
        f"select event, experiment, position from present_{table}"
        for table in ("change", "decision", "activation", "reward", "late_reward")
    )
    _run(file, f"create table place as {events};\ncreate index of_place on place (experiment, position);\n")
    _run(file, TO_12)
    for table, column, key in (("snapshot", "tally", "seq"), ("change", "body", "seq")):
        query = f"select experiment, {key}, {column} from {table}"
        if table == "change":
            query += " where kind in ('rollback', 'upgrade')"
        for experiment, seq, text in file.execute(query).fetchall():
            fields = json.loads(text)
            tally = json.loads(fields["tally"]) if table == "change" else fields
            tally["settled_to"] = _event(file, experiment, tally["settled_to"])
            if table == "change":
                fields["tally"] = json.dumps(tally)
                if "position" in fields:
                    fields["position"] = _event(file, experiment, fields["position"])
            statement = f"update {table} set {column} = ? where experiment = ? and seq = ?"
            file.execute(statement, (json.dumps(fields), experiment, seq))
    for name in (*(f"present_{name}" for name in names), "place", "mark"):
        file.execute(f"drop table {name}")


def _event(file: sqlite3.Connection, experiment: int, position: int) -> int:
    query = "select event from place where experiment = ? and position = ?"
    found = file.execute(query, (experiment, position)).fetchall()
    return int(found[0][0]) if found else 0


def _run(file: sqlite3.Connection, text: str) -> None:
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            file.execute(statement)
            statement = ""
