"""A log in pieces, whether it is in memory or in a file, and which of its rows hang together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import InvalidArgument
from alphafair.evaluation.log_file import LEAST_PROPENSITY, LogFile, refuse_improbable
from alphafair.evaluation.log_scores import Rows
from alphafair.values import Log
from alphafair.values.available import AvailableArms

AnyLog = Log | LogFile
Advance = Callable[[int], None]  # of a progress bar: so many more rows, or replicates, are done
BLOCK = 1 << 18  # rows per piece: the progress bar moves, and all else stays small
MOST_GROUPS, MOST_SCORES = 4096, 1 << 22


def check_log(log: AnyLog) -> None:
    """A log whose rewards can be added up fairly, and divided by its propensities."""
    if not isinstance(log, Log | LogFile):
        repair = "Make one with Log.from_table, or open a large file with evaluation.LogFile."
        raise InvalidArgument("log", "a Log or a LogFile", log, repair)
    if isinstance(log, LogFile):
        return  # which has looked at them when it was opened
    if log.rewards.min() < 0.0:
        repair = "Map them with alphafair.rescale_rewards: fairness is about what arms earn."
        raise InvalidArgument("log.rewards", "at least 0", float(log.rewards.min()), repair)
    if log.propensities.min() < LEAST_PROPENSITY:
        row = int(log.propensities.argmin())
        refuse_improbable(f"log.propensities[{row}]", float(log.propensities[row]))


def reward_unit(log: AnyLog) -> float:
    """The power of two at or just below the greatest reward; 1 where there is no reward.

    Rewards are added up in this unit. Their squares then neither overflow nor vanish, and to multiply all rewards by a
    power of two changes no digit of what is found.
    """
    most = log.most_reward if isinstance(log, LogFile) else float(log.rewards.max())
    return math.ldexp(1.0, math.frexp(most)[1] - 1) if 0.0 < most < math.inf else 1.0


def in_memory(log: object) -> Log:
    """A log whose rows a policy can learn from in their order."""
    if not isinstance(log, Log):
        raise InvalidArgument("log", "a Log", log, "Make one with Log.from_table: a policy learns from rows in order.")
    return log


def some_rows(log: Log, rows: Any, least: float = 0.0) -> Log:
    """Some rows of a log, propensities raised to the least."""
    columns = (log.contexts, log.arms, log.rewards, np.maximum(log.propensities, least))
    features = None if log.features is None else log.features[rows]
    available = None if log.available is None else log.available.take(rows)
    return Log(
        *(column[rows] for column in columns),
        n_contexts=log.n_contexts,
        n_arms=log.n_arms,
        features=features,
        available=available,
    )


def arm_names(log: AnyLog) -> list[str]:
    return list(log.arm_labels) if log.arm_labels is not None else [str(arm) for arm in range(log.n_arms)]


def has_available(log: AnyLog) -> bool:
    """Whether it says which arms its decisions were drawn among."""
    return log.has_available if isinstance(log, LogFile) else log.available is not None


def silent(done: int) -> None:
    """Where there is no progress bar."""


def group_count(log: AnyLog) -> int:
    """As many groups as there is room for, at most one per row where there are no users."""
    room = min(MOST_GROUPS, max(256, MOST_SCORES // log.n_arms))
    return room if log.has_users else min(log.n_rounds, room)


def batches(log: AnyLog) -> Iterator[Rows]:
    """The rows in their order, each with its group: its own, or one by chance where there are more rows than groups.

    Rewards are in units of `reward_unit`.
    The sum of a group's rows takes the place of a row in the bootstrap. Groups of rows that were put together by chance
    vary as the rows do, so the bootstrap sees the same spread from a few thousand sums as from a hundred million rows.
    All rows of one user are in one group.
    """
    n_groups, first, unit = group_count(log), 0, reward_unit(log)
    every = AvailableArms.every(BLOCK, log.n_arms)
    for part in [log] if isinstance(log, Log) else log.batches():
        for start in range(0, part.n_rounds, BLOCK):
            stop = min(start + BLOCK, part.n_rounds)
            own = np.arange(first + start, first + stop) if part.users is None else part.users[start:stop]
            is_own = not log.has_users and log.n_rounds <= n_groups
            groups = own if is_own else (scattered(own) % np.uint64(n_groups)).astype(np.int64)
            contexts, arms, propensities = (
                column[start:stop] for column in (part.contexts, part.arms, part.propensities)
            )
            sets, of_rounds = every if part.available is None else part.available
            of_sets = of_rounds[: stop - start] if part.available is None else of_rounds[start:stop]
            yield Rows(contexts, arms, part.rewards[start:stop] / unit, propensities, groups, of_sets, sets)
        first += part.n_rounds


def folds_of(n_groups: int) -> NDArray[np.int64]:
    """Half of the groups, by chance: 0 or 1 for each."""
    return (scattered(np.arange(n_groups) + n_groups) >> np.uint64(63)).astype(np.int64)


def scattered(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Numbers as good as random, the same for the same number: the finaliser of SplitMix64 (Steele et al., 2014)."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
