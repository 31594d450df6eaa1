"""The Open Bandit Dataset (Saito et al., arXiv 2008.07146): what a fashion shop showed, and what was clicked.

Such a log knows the reward of the shown arm only, so it is no `Stream`: it is a `Log`, made for estimating what
another policy would have earned. `click_rates` turns it into a stream to simulate on, and that stream is a model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from alphafair import validate
from alphafair.data.table import collected, column_list, named_columns, place, scan
from alphafair.errors import InvalidArgument
from alphafair.values import Log, Stream

if TYPE_CHECKING:
    import polars as pl

TIME = "%Y-%m-%d %H:%M:%S%.f%z"


def open_bandit(
    path: str | os.PathLike[str], *, context: str | Sequence[str] = "user_feature_0", reward_floor: float = 0.0
) -> Log:
    """The log in one CSV file of the Open Bandit Dataset, such as random/men/men.csv.

    Parameters
    ----------
    context
        The column, or columns, that make a context: every combination of values that occurs is one. The four user
        features make some 230 contexts in 10,000 rows, too many to learn from so few clicks.
    reward_floor
        The reward without a click; a click pays 1.

    Arms are the items that the log shows, in the order of their numbers.

    >>> log = open_bandit("open_bandit_dataset/random/men/men.csv")  # doctest: +SKIP
    """
    features = column_list("context", context)
    if not features:
        raise InvalidArgument("context", "at least one column", features, "Name one, such as user_feature_0.")
    floor = validate.number("reward_floor", reward_floor, low=0.0, high=1.0, high_open=True)
    frame = _read(Path(path), features).sort("timestamp", maintain_order=True)
    context_labels, contexts = np.unique(frame["context"].to_numpy(), return_inverse=True)
    item_ids, arms = np.unique(frame["item_id"].to_numpy(), return_inverse=True)
    return Log(
        contexts=contexts.astype(np.int32),
        arms=arms.astype(np.int32),
        rewards=np.where(frame["click"].to_numpy() == 1, 1.0, floor),
        propensities=frame["propensity_score"].to_numpy(),
        positions=frame["position"].to_numpy(),
        timestamps=frame["timestamp"].dt.replace_time_zone(None).to_numpy(),
        context_labels=tuple(context_labels.tolist()),
        arm_labels=tuple(str(item) for item in item_ids.tolist()),
    )


def click_rates(log: Log, *, smoothing: float = 1.0) -> Stream:
    """A stream of the log's contexts in which every arm pays its estimated mean reward: a model, not data.

    (reward of arm i in context j + smoothing · mean) / (times shown there + smoothing), with the mean reward of the
    whole log as the guess for what was seen little or never. Every round of a context shows the same rewards.

    The log itself does not hold what the other arms would have earned. A few dozen clicks over a hundred cells say
    little: a larger `smoothing` (in showings) trusts the mean more. Positions on the page are averaged over.
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
    """The needed columns in their types; the features joined into one label. Refuses the first row that is wrong."""
    import polars as pl

    if not path.name.lower().endswith((".csv", ".csv.gz")):
        raise InvalidArgument(str(path), "a .csv file of the data set", path.suffix, "Pass one, such as men.csv.")
    text = scan(path, infer_schema=False)
    kinds: dict[str, tuple[str, pl.Expr, pl.Expr]] = {
        "timestamp": (
            "a time such as 2019-11-24 00:01:03+00:00",
            pl.col("timestamp").str.to_datetime(TIME, time_zone="UTC", time_unit="us", strict=False),
            pl.lit(True),
        ),
        "item_id": ("a whole number", pl.col("item_id").cast(pl.Int32, strict=False), pl.col("item_id") >= 0),
        "position": ("a whole number", pl.col("position").cast(pl.Int32, strict=False), pl.lit(True)),
        "click": ("0 or 1", pl.col("click").cast(pl.Int8, strict=False), pl.col("click").is_between(0, 1)),
        "propensity_score": (
            "a number in (0, 1]",
            pl.col("propensity_score").cast(pl.Float64, strict=False),
            pl.col("propensity_score").is_between(0, 1, closed="right"),
        ),
    }
    named_columns(str(path), text.collect_schema().names(), [*kinds, *features])
    label = _joined([pl.col(name) for name in features]).alias("context")
    frame = collected(text.select([kind for _, kind, _ in kinds.values()] + [label]), str(path))
    if not len(frame):
        raise InvalidArgument(str(path), "a log with rows", "a header alone", "Download it again.")
    wrong: list[tuple[int, str, str]] = []
    for name, (allowed, _, inside) in kinds.items():
        faults = frame.select(~inside.fill_null(False) | pl.col(name).is_null()).to_series().arg_true()
        wrong += [(faults[0], name, allowed)] if len(faults) else []
    empty = frame["context"].is_null().arg_true()
    wrong += [(empty[0], " ".join(features), "a value")] if len(empty) else []
    if wrong:
        row, name, allowed = min(wrong)
        found: Any = text.slice(row, 1).select(name).collect().item() if name in kinds else None
        raise InvalidArgument(f"{place(path, row)}: {name}", allowed, found, "Correct it or delete that line.")
    return frame


def _joined(features: Sequence[pl.Expr]) -> pl.Expr:
    """One label of several: a space between, and a backslash before those inside, so that no two look the same."""
    import polars as pl

    if len(features) == 1:
        return features[0]
    return pl.concat_str([feature.str.replace_all(r"([\\ ])", r"\$1") for feature in features], separator=" ")
