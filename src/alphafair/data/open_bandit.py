"""The Open Bandit Dataset (Saito et al., arXiv 2008.07146): the items that a fashion shop showed, and the clicks.

It has the reward of the shown arm only, so it is a `Log`, from which the rewards of another policy can be estimated.
`click_rates` makes a stream of it to simulate on, which is a model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.extras import polars as pl
from alphafair.tables import Column, column_names, open_table
from alphafair.values import Log, Stream

REPAIR = "Correct it or delete that line."
CONTEXT = "\0context"  # no file has a column of that name
COLUMNS = (
    Column(
        "timestamp",
        "time",
        allowed="a time such as 2019-11-24 00:01:03+00:00",
        repair=REPAIR,
        time_format="%Y-%m-%d %H:%M:%S%.f%z",
    ),
    Column("item_id", "integer", 0, 2**31 - 1, "an integer of at least 0", REPAIR),
    Column("position", "integer", 0, 2**31 - 1, "an integer of at least 0", REPAIR),
    Column("click", "integer", 0, 1, "0 or 1", REPAIR),
    Column("propensity_score", "number", 0.0, 1.0, "a number in (0, 1]", REPAIR, low_open=True),
)


def open_bandit(
    path: str | os.PathLike[str], *, context: str | Sequence[str] = "user_feature_0", reward_floor: float = 0.0
) -> Log:
    """Read the log in one CSV file of the Open Bandit Dataset, such as random/men/men.csv.

    Parameters
    ----------
    context
        The column, or columns, of the context: every combination of values that occurs is a context. The four user
        features make about 230 contexts in 10,000 rows, too many to learn from so few clicks.
    reward_floor
        The reward without a click; a click pays 1.

    Arms are the items that the log shows, in the order of their numbers.

    >>> log = open_bandit("open_bandit_dataset/random/men/men.csv")  # doctest: +SKIP
    """
    features = column_names("context", context)
    if not features:
        raise InvalidArgument("context", "at least one column", features, "Pass one, such as user_feature_0.")
    floor = validate.number("reward_floor", reward_floor, low=0.0, high=1.0, high_open=True)
    frame = _read(Path(path), features).sort("timestamp", maintain_order=True)
    context_labels, contexts = np.unique(frame[CONTEXT].to_numpy(), return_inverse=True)
    item_ids, arms = np.unique(frame["item_id"].to_numpy().astype(np.int32), return_inverse=True)
    return Log(
        contexts=contexts.astype(np.int32),
        arms=arms.astype(np.int32),
        rewards=np.where(frame["click"].to_numpy() == 1, 1.0, floor),
        propensities=frame["propensity_score"].to_numpy(),
        positions=frame["position"].to_numpy().astype(np.int32),
        timestamps=frame["timestamp"].dt.replace_time_zone(None).to_numpy(),
        context_labels=tuple(context_labels.tolist()),
        arm_labels=tuple(str(item) for item in item_ids.tolist()),
    )


def click_rates(log: Log, *, smoothing: float = 1.0) -> Stream:
    """A stream with the log's contexts in which every arm pays its estimated mean reward, which is a model.

    (reward of arm i in context j + smoothing · mean) / (times shown there + smoothing), with the mean reward of the
    whole log as the prior mean. Every round of a context has the same rewards.

    The log does not contain the rewards of the arms that were not shown. With few clicks per cell, use a larger
    `smoothing` (in rounds), which gives the mean more weight. Positions on the page are averaged over.
    """
    weight = validate.number("smoothing", smoothing, low=0.0, high=1e12, low_open=True)
    shape = (log.n_contexts, log.n_arms)
    cells = np.ravel_multi_index((log.contexts, log.arms), shape)
    n_cells = shape[0] * shape[1]
    earned = np.bincount(cells, weights=log.rewards, minlength=n_cells)
    shown = np.bincount(cells, minlength=n_cells)
    rates = (earned + weight * log.rewards.mean()) / (shown + weight)
    return Stream(log.contexts, log.contexts, rates.reshape(shape), log.context_labels, log.arm_labels)


def _read(path: Path, features: Sequence[str]) -> pl.DataFrame:
    """The needed columns in their types, with the features joined into one label; the first bad row is refused."""
    if not path.name.lower().endswith((".csv", ".csv.gz")):
        raise InvalidArgument(str(path), "a .csv file of the data set", path.suffix, "Pass one, such as men.csv.")
    table = open_table(path)
    table.require([*(column.name for column in COLUMNS), *features])
    label = _joined([pl.col(name) for name in features]).alias(CONTEXT)
    table = table._replace(rows=table.rows.select(*(column.name for column in COLUMNS), label))
    frame = table.read()
    if not len(frame):
        raise InvalidArgument(str(path), "a log with rows", "a header alone", "Download it again.")
    columns = (*COLUMNS, Column(CONTEXT, repair=REPAIR))
    faults = {column: rows[0] for column in columns if (rows := column.bad_rows(frame[column.name]))}
    if faults:
        column, row = min(faults.items(), key=lambda each: each[1])
        values = frame[column.name]
        name = " ".join(features) if column.name == CONTEXT else column.name
        raise replace(column, name=name).error(values, row, table.where)
    return frame.with_columns([column.convert(frame[column.name]).alias(column.name) for column in columns])


def _joined(features: Sequence[pl.Expr]) -> pl.Expr:
    """One label from several, separated by spaces; spaces inside are escaped by backslashes, so labels are distinct."""
    if len(features) == 1:
        return features[0]
    return pl.concat_str([feature.str.replace_all(r"([\\ ])", r"\$1") for feature in features], separator=" ")
