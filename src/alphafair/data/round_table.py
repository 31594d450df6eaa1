"""Tables of rounds as streams: one row per round, a column of contexts, and a column of rewards per arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.tables import Column, Table, column_names, encode, label_codes, open_table
from alphafair.values import Stream

LOG_COLUMNS = {"arm": ("arm", "item", "item_id", "action"), "reward": ("reward", "click", "rating", "conversion")}
FILL_IN = "Fill it in or delete that row."
DATES = "Write dates as 2024-05-31 or 2024-05-31T12:00:00, all in one form."
REWARDS = "Correct it, delete that row, or choose the columns of rewards (arm_columns=)."


def table(
    source: Any, *, context: str = "context", arm_columns: Sequence[str] | None = None, time: str | None = None
) -> Stream:
    """Make a stream from a table in a file or in memory.

    Parameters
    ----------
    source
        A path (.csv, .tsv, .csv.gz, .jsonl, .parquet, .arrow, .ipc, .feather), a polars DataFrame or LazyFrame, a
        pandas DataFrame, any Arrow table, or a mapping of columns. The columns of text files are separated by commas,
        semicolons (with decimal commas or points), tabs or `|`; they are UTF-8, or UTF-16 with a byte order mark.
    context
        The column of contexts: any labels, strings or numbers. Contexts are sorted: by size if all are integers, else
        alphabetically.
    arm_columns
        The columns of rewards, one per arm, in the order of the arms. By default all other columns, which must hold
        numbers then.
    time
        A column of numbers or dates to sort the rounds by; rows of equal time keep their order. By default rounds are
        in the order of the rows.

    >>> stream = table({"context": ["new", "old", "new"], "jazz": [1, 0, 0.2], "rock": [0, 1, 1]})
    >>> stream.context_labels, stream.arm_labels, stream.contexts.tolist(), stream.rewards(2).tolist()
    (('new', 'old'), ('jazz', 'rock'), [0, 1, 0], [0.2, 1.0])
    """
    special = column_names("context", [context]) + column_names("time", [] if time is None else [time])
    opened = open_table(source)
    columns = opened.columns
    _refuse_log(opened, special, arm_columns)
    opened.require(special[:1], " (context=)")
    opened.require(special[1:], " (time=)")
    if arm_columns is None:
        arm_columns = [name for name in columns if name not in special]
    arms = column_names("arm_columns", arm_columns)
    opened.require(arms, " (arm_columns=)")
    if not arms:
        repair = "Add one column of rewards per arm."
        raise InvalidArgument(f"{opened.label}: columns", "the context and at least one arm", columns, repair)
    clash = [name for name in arms if name in special]
    if clash:
        allowed = "other columns than the context and the time"
        raise InvalidArgument("arm_columns", allowed, clash, "Remove them: they are not rewards.")
    chosen = opened.select(*dict.fromkeys(special), *arms)
    frame = chosen.read()
    if not len(frame):
        got = "a header alone" if opened.is_text else "none"
        raise InvalidArgument(opened.label, "a table with rows", got, "Pass one row per round.")
    names = chosen.column(frame, Column(context, repair=FILL_IN))
    rows = np.arange(len(frame))
    if time is not None:
        times = chosen.column(frame, Column(time, "time", repair=DATES))
        rows = np.argsort(times.to_physical().to_numpy(), kind="stable")
    rewards = np.empty((len(frame), len(arms)))
    for k, name in enumerate(arms):
        rewards[:, k] = chosen.column(frame, Column(name, "number", *validate.ANY_REWARD, "", REWARDS)).to_numpy()
    codes = label_codes(names.unique().to_list())
    return Stream(encode(names, codes)[rows], rows.astype(np.int32), rewards, tuple(codes), tuple(arms))


def _refuse_log(opened: Table, special: Sequence[str], arm_columns: Sequence[str] | None) -> None:
    """Refuse a log, which has one arm and one reward per row; a stream needs the rewards of all arms."""
    rest = {name.lower() for name in opened.columns if name not in special}
    if arm_columns is None and all(rest.intersection(names) for names in LOG_COLUMNS.values()):
        repair = (
            "It looks like a log, which has the reward of the shown arm only: read it with alphafair.Log.from_table, "
            "or choose the columns of rewards (arm_columns=)."
        )
        allowed = "the context and a column of rewards per arm"
        raise InvalidArgument(f"{opened.label}: columns", allowed, opened.columns, repair)
