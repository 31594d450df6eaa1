"""A log that is too large for memory: read piece by piece, as often as it is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from alphafair import validate
from alphafair.streams.log_table import (
    AVAILABLE,
    ROW,
    Columns,
    arm_codes,
    label_codes,
    log_of,
    open_table,
    refuse_none,
)
from alphafair.streams.table import collected
from alphafair.types import Log

if TYPE_CHECKING:
    import polars as pl

ROWS = 1 << 20  # per piece


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
        whole = collected(rows.select(pl.len(), pl.col(reward).cast(pl.Float64, strict=False).min()), self._table.label)
        self.n_rounds = int(whole.item(0, 0))
        refuse_none(self._table.label, self.n_rounds)
        least = whole.item(0, 1)
        if least is not None and least < 0.0:
            raise validate.Refusal(f"{self._table.label}: {reward}", "at least 0", least, "Map them onto [0, 1] first.")
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
