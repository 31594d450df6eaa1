"""A log that is too large for memory: read piece by piece, as often as it is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator

from alphafair import validate
from alphafair.streams.log_table import Columns, label_codes, log_of, open_table, refuse_none
from alphafair.streams.table import collected
from alphafair.types import Log

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
    ) -> None:
        import polars as pl

        self.has_users = user is not None
        self._table = open_table(path, Columns(context, arm, reward, propensity, user=user))
        rows = self._table.rows
        whole = collected(rows.select(pl.len(), pl.col(reward).cast(pl.Float64, strict=False).min()), self._table.label)
        self.n_rounds = int(whole.item(0, 0))
        refuse_none(self._table.label, self.n_rounds)
        least = whole.item(0, 1)
        if least is not None and least < 0.0:
            raise validate.Refusal(f"{self._table.label}: {reward}", "at least 0", least, "Map them onto [0, 1] first.")
        labels = (collected(rows.select(pl.col(name).unique()), self._table.label) for name in (context, arm))
        self._contexts, self._arms = (label_codes(frame.to_series().to_list()) for frame in labels)
        self.context_labels, self.arm_labels = tuple(self._contexts), tuple(self._arms)
        self.n_contexts, self.n_arms = len(self._contexts), len(self._arms)

    def batches(self) -> Iterator[Log]:
        """The rows, checked, a million at a time."""
        for frame in self._table.rows.collect_batches(chunk_size=ROWS, maintain_order=True):
            if len(frame):
                yield log_of(frame, self._table, self._contexts, self._arms)
