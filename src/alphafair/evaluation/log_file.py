"""A log that is too large for memory: read piece by piece, as often as it is needed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from alphafair.data.log_table import (
    AVAILABLE,
    ROW,
    Columns,
    arm_codes,
    label_codes,
    log_of,
    open_table,
    refuse_none,
)
from alphafair.data.table import collected
from alphafair.errors import InvalidArgument
from alphafair.values import Log

if TYPE_CHECKING:
    import polars as pl

ROWS = 1 << 20  # per piece
LEAST_PROPENSITY = 1e-100  # squares of weights stay finite


def refuse_improbable(argument: str, propensity: float) -> None:
    repair = "No decision of such a propensity is ever seen: it is a mistake. Mend it, or leave such rows out."
    raise InvalidArgument(argument, f"at least {LEAST_PROPENSITY:g}", propensity, repair)


class LogFile:
    """A table of decisions in a file; `evaluate` and `frontier` take it in place of a `Log`.

    Parameters are those of `Log.from_table`, without the time: the order of rows does not matter to them.

    >>> log = LogFile("log.parquet", context="user", arm="item", reward="click")  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        context: str = "context",
        arm: str = "arm",
        reward: str = "reward",
        propensity: str = "propensity",
        user: str | None = None,
        available: str | None = AVAILABLE,
    ) -> None:
        import polars as pl

        self.has_users = user is not None
        self._table = open_table(path, Columns(context, arm, reward, propensity, user=user, available=available))
        self.has_available = self._table.columns.available is not None
        rows = self._table.rows
        rewards, propensities = (pl.col(name).cast(pl.Float64, strict=False) for name in (reward, propensity))
        ends = (rewards.min().alias("least"), rewards.max().alias("most"), propensities.min().alias("propensity"))
        whole = collected(rows.select(pl.len(), *ends), self._table.label).row(0)
        self.n_rounds, least, most, smallest = int(whole[0]), *whole[1:]
        refuse_none(self._table.label, self.n_rounds)
        if least is not None and least < 0.0:
            raise InvalidArgument(f"{self._table.label}: {reward}", "at least 0", least, "Map them onto [0, 1] first.")
        if smallest is not None and 0.0 < smallest < LEAST_PROPENSITY:
            refuse_improbable(f"{self._table.label}: {propensity}", smallest)
        self.most_reward = math.nan if most is None else float(most)  # what is no number is refused with its row
        contexts = collected(rows.select(pl.col(context).unique()), self._table.label)
        self._contexts = label_codes(contexts.to_series().to_list())
        self._arms = arm_codes(self._table, *self._arm_frames())
        self.context_labels, self.arm_labels = tuple(self._contexts), tuple(self._arms)
        self.n_contexts, self.n_arms = len(self._contexts), len(self._arms)

    def _arm_frames(self) -> Iterator[pl.DataFrame]:
        """All arms that were shown, or could have been; with their rows where each may have a list of its own."""
        import polars as pl

        columns, rows = self._table.columns, self._table.rows
        if columns.available is None:
            yield collected(rows.select(pl.col(columns.arm).unique()), self._table.label)
        else:
            wanted = rows.select(ROW, columns.arm, columns.available)
            yield from wanted.collect_batches(chunk_size=ROWS, maintain_order=True)

    def batches(self) -> Iterator[Log]:
        """The rows, checked, a million at a time."""
        for frame in self._table.rows.collect_batches(chunk_size=ROWS, maintain_order=True):
            if len(frame):
                yield log_of(frame, self._table, self._contexts, self._arms)
