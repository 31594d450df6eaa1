"""What is written down while a policy plays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alphafair.loops import Book
from alphafair.types import Indices, Matrix, Vector


@dataclass
class Played:
    """What is written down of a run: see `Trace`."""

    earned: Vector
    pulls: NDArray[np.int64]
    records: Matrix
    every: int
    arms: Indices  # empty unless decisions are kept
    propensities: Vector

    @classmethod
    def blank(cls, n_rounds: int, n_arms: int, every: int, *, keep: bool = False) -> Played:
        n_kept = n_rounds if keep else 0
        return cls(
            np.ones(n_arms),
            np.zeros(n_arms, dtype=np.int64),
            np.empty((-(-n_rounds // every), n_arms)),
            every,
            np.empty(n_kept, dtype=np.int32),
            np.empty(n_kept),
        )

    def book(self, start: int, stop: int) -> Book:
        """The pages for rounds [start, stop)."""
        done = start // self.every
        first = (done + 1) * self.every - 1 - start
        arms, propensities = self.arms[start:stop], self.propensities[start:stop]
        return Book(self.earned, self.pulls, arms, propensities, first, self.every, self.records[done:])
