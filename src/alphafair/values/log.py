"""A log of decisions, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.extras import polars as pl
from alphafair.values.arrays import Indices, Vector, frozen
from alphafair.values.available import AvailableArms
from alphafair.values.features import FeatureSchema

if TYPE_CHECKING:
    from alphafair.values.log_table import Decisions, Labels


def first_entries(decisions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of the entries that begin a decision."""
    return np.flatnonzero(np.append(True, decisions[1:] != decisions[:-1])[: len(decisions)])


def runs_of(decisions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of the decision of every entry, counted from 0."""
    firsts = first_entries(decisions)
    return np.repeat(np.arange(len(firsts)), np.diff(np.append(firsts, len(decisions))))


def entries_per_decision(decisions: NDArray[np.int64]) -> Indices:
    """The number of entries of the decision of each entry."""
    runs = runs_of(decisions)
    return np.bincount(runs)[runs].astype(np.int32) if len(runs) else np.empty(0, dtype=np.int32)


def repeated(runs: NDArray[np.int64], arms: Indices) -> NDArray[np.int64]:
    """The entries whose arm has an earlier entry in the same decision."""
    order = np.lexsort((np.arange(len(arms)), arms, runs))
    same = (np.diff(runs[order]) == 0) & (np.diff(arms[order]) == 0)
    return np.sort(order[1:][same])


def refuse_slates(log: Log) -> None:
    """Check that every decision of a log shows one arm."""
    if log.has_slates:
        row = int((log.n_shown > 1).argmax())  # all before it show one arm
        got = f"{log.n_shown[row]} arms in decision {row}"
        raise InvalidArgument("log", "one with one arm per decision", got, "Use evaluate.")


def refuse_unknown_propensities(log: Log) -> None:
    """Check that every decision has a propensity, before anything divides by them."""
    n_unknown = int(np.isnan(log.propensities).sum())
    if n_unknown:
        repair = "Without propensities a policy can learn from others, but what another policy would have earned "
        repair += "cannot be said."
        got = f"{n_unknown} of {log.n_rounds} unknown"
        raise InvalidArgument("log.propensities", "known for every decision", got, repair)


@dataclass(frozen=True, eq=False)
class Log:
    """A log of decisions, one entry each, in the order of time; checked when it is made, and read-only.

    Only the reward of the shown arm is known, which is the difference to a `Stream`. Labels, timestamps, positions,
    users and features (as of a `Stream`) are optional. A propensity may be nan, where whoever decided has told none:
    policies may learn from such decisions, but estimates need propensities.

    Where decisions were not always drawn among all arms, because some were out of stock, retired or not yet added,
    `available` must list the arms that they were drawn among: one boolean per round and arm, or the pair
    (sets, of_rounds) that is stored, see `alphafair.values.AvailableArms`. Propensities are those among the available
    arms. None means that every arm was always available.

    A decision that showed several arms has an entry for each of them. They follow each other and share a number in
    `decisions`, a context and the available arms; the slot may be in `positions`. The propensity of an entry is the
    probability that its slot shows its arm. Where slots are shuffled, as this package does, that is p/k, with p the
    probability of the arm to be among the k shown. None means one arm per decision.

    Where the best arms got the first slots, `exposures` says how much the slot of each entry is looked at, in (0, 1]. A
    reward counts in estimates as one of the first slot would, `values`: the reward over the exposure.

    >>> log = Log([0, 1, 0], [2, 0, 1], [1.0, 0.0, 0.5], [0.5, 0.25, 0.25])
    >>> log.n_rounds, log.n_contexts, log.n_arms
    (3, 2, 3)
    >>> stock = [[True, False, True], [True, True, True], [True, True, True]]
    >>> Log([0, 1, 0], [2, 0, 1], [1.0, 0.0, 0.5], [0.5, 0.25, 0.25], available=stock).available.of_rounds.tolist()
    [0, -1, -1]
    >>> slates = Log([0, 0, 1, 1], [2, 0, 1, 2], [1, 0, 0, 1], [0.4, 0.2, 0.3, 0.5], decisions=[7, 7, 8, 8])
    >>> slates.n_rounds, slates.n_decisions, slates.n_shown.tolist()
    (4, 2, [2, 2, 2, 2])
    """

    contexts: Indices
    arms: Indices
    rewards: Vector
    propensities: Vector  # of the shown arm, in (0, 1]; nan where it is unknown
    n_contexts: int = field(default=0, kw_only=True)
    n_arms: int = field(default=0, kw_only=True)
    context_labels: tuple[str, ...] | None = field(default=None, kw_only=True)
    arm_labels: tuple[str, ...] | None = field(default=None, kw_only=True)
    timestamps: NDArray[np.datetime64] | None = field(default=None, kw_only=True)  # UTC, microseconds
    positions: Indices | None = field(default=None, kw_only=True)  # on the page: 1 is the first
    users: NDArray[np.int64] | None = field(default=None, kw_only=True)  # whose rounds are resampled together
    features: NDArray[np.float64] | None = field(default=None, kw_only=True)
    available: AvailableArms | None = field(default=None, kw_only=True)  # the arms that decisions were drawn among
    decisions: NDArray[np.int64] | None = field(default=None, kw_only=True)  # whose entries follow each other
    exposures: Vector | None = field(default=None, kw_only=True)  # of the slots, in (0, 1]

    def __post_init__(self) -> None:
        for count in ("n_contexts", "n_arms"):
            validate.integer(count, getattr(self, count), low=0, high=np.iinfo(np.int32).max)
        available = None if self.available is None else AvailableArms.of(self.available)
        if available is not None and not self.n_arms and self.arm_labels is None:
            object.__setattr__(self, "n_arms", available.n_arms)
        contexts = validate.indices("contexts", self.contexts, self.n_contexts or None)
        arms = validate.indices("arms", self.arms, self.n_arms or None, n_entries=len(contexts))
        columns: dict[str, NDArray[Any]] = {
            "contexts": contexts,
            "arms": arms,
            "rewards": validate.column("rewards", self.rewards, len(contexts), *validate.ANY_REWARD),
            "propensities": validate.propensities("propensities", self.propensities, len(contexts)),
        }
        for name, count, seen in (("context", "n_contexts", contexts), ("arm", "n_arms", arms)):
            labels = getattr(self, f"{name}_labels")
            least = getattr(self, count) or int(seen.max()) + 1
            if labels is not None:
                labels = validate.labels(f"{name}_labels", labels, least)
                object.__setattr__(self, f"{name}_labels", labels)
                if getattr(self, count) and len(labels) != least:
                    raise InvalidArgument(f"{name}_labels", f"{least} names", len(labels), f"Pass one per {name}.")
            object.__setattr__(self, count, least if labels is None else len(labels))
        if self.positions is not None:
            columns["positions"] = validate.indices("positions", self.positions, None, len(contexts), low=1)
        if self.users is not None:
            columns["users"] = validate.integers("users", self.users, len(contexts))
        if self.timestamps is not None:
            columns["timestamps"] = validate.timestamps("timestamps", self.timestamps, len(contexts))
        if self.features is not None:
            columns["features"] = validate.feature_rows(self.features, len(contexts), self.n_arms)
        if available is not None:
            self._check_available(available)
            object.__setattr__(self, "available", available)
        if self.decisions is not None:
            columns["decisions"] = validate.integers("decisions", self.decisions, len(contexts))
            self._check_decisions(columns, available)
        if self.exposures is not None:
            if self.decisions is None:
                raise InvalidArgument("exposures", "left out without decisions", self.exposures, "Pass decisions.")
            columns["exposures"] = validate.column(
                "exposures", self.exposures, len(contexts), validate.LEAST_EXPOSURE, 1.0
            )
        for name, column in columns.items():  # arrays that the caller could still write to are copied
            object.__setattr__(self, name, frozen(column.copy() if column.flags.writeable else column))

    def _check_available(self, available: AvailableArms) -> None:
        """Check that there is a set of arms for every round, and that the shown arm is in it."""
        shape = (len(available.of_rounds), available.n_arms)
        if shape != (len(self.contexts), self.n_arms):
            allowed = f"for {len(self.contexts)} rounds and {self.n_arms} arms"
            raise InvalidArgument("available", allowed, list(shape), "Pass one row per round and one column per arm.")
        missing = np.flatnonzero(~available.includes(np.asarray(self.arms)))
        if len(missing):
            shown = f"true for the arm that was shown, {np.asarray(self.arms)[missing[0]]}"
            repair = "Pass the arms that the decision was drawn among."
            raise InvalidArgument(f"available[{missing[0]}]", shown, False, repair)

    def _check_decisions(self, columns: dict[str, NDArray[Any]], available: AvailableArms | None) -> None:
        """Check that the entries of a decision follow each other, show different arms and agree."""
        decisions = columns["decisions"]
        firsts = first_entries(decisions)
        numbers, places = np.unique(decisions[firsts], return_index=True)
        if len(numbers) < len(firsts):
            row = int(firsts[np.setdiff1d(np.arange(len(firsts)), places)[0]])
            repair = "Sort the entries by decision."
            raise InvalidArgument(
                f"decisions[{row}]", "a number that is not of an earlier decision", decisions[row].tolist(), repair
            )
        runs = runs_of(decisions)
        repair = "Pass different arms, one context and one set of available arms per decision."
        again = repeated(runs, columns["arms"])
        if len(again):
            row = int(again[0])
            raise InvalidArgument(
                f"arms[{row}]", "different in every entry of a decision", columns["arms"][row].tolist(), repair
            )
        for name in ("contexts", "users", "features"):
            if name in columns:
                column = columns[name].reshape(len(runs), -1)
                apart = np.flatnonzero((column != column[firsts[runs]]).any(axis=1))
                if len(apart):
                    row = int(apart[0])
                    raise InvalidArgument(
                        f"{name}[{row}]", "the same in a decision", columns[name][row].tolist(), repair
                    )
        if available is not None:
            sets = np.concatenate(
                [available.sets, np.ones((1, available.n_arms), dtype=np.bool_)]
            )  # the last is for -1
            _, kinds = np.unique(sets, axis=0, return_inverse=True)
            own = kinds.ravel()[available.of_rounds]
            apart = np.flatnonzero(own != own[firsts[runs]])
            if len(apart):
                row = int(apart[0])
                raise InvalidArgument(
                    f"available[{row}]", "the same in a decision", sets[available.of_rounds[row]].tolist(), repair
                )

    @property
    def n_rounds(self) -> int:
        return len(self.contexts)

    @property
    def values(self) -> Vector:
        """The rewards, as they would be in the first slot: over the exposures, if there are any."""
        return self.rewards if self.exposures is None else self.rewards / self.exposures

    @property
    def n_decisions(self) -> int:
        return self.n_rounds if self.decisions is None else len(first_entries(self.decisions))

    @property
    def n_shown(self) -> Indices:
        """The number of arms that the decision of each entry shows."""
        if self.decisions is None:
            return np.ones(self.n_rounds, dtype=np.int32)
        return entries_per_decision(self.decisions)

    @property
    def most_shown(self) -> Indices:
        """The most arms that a decision of each context shows; 1 for contexts without one."""
        most = np.ones(self.n_contexts, dtype=np.int32)
        if self.decisions is not None:
            np.maximum.at(most, self.contexts, self.n_shown)
        return most

    @property
    def has_slates(self) -> bool:
        """Whether some decision shows several arms."""
        return self.n_decisions < self.n_rounds

    @property
    def has_users(self) -> bool:
        return self.users is not None

    @classmethod
    def from_table(
        cls,
        source: Any,
        *,
        context: str = "context",
        arm: str = "arm",
        reward: str = "reward",
        propensity: str | None = "propensity",
        time: str | None = None,
        user: str | None = None,
        position: str | None = None,
        available: str | None = "available",
        decision: str | None = None,
        exposure: str | None = None,
        features: FeatureSchema | Mapping[str, Any] | None = None,
    ) -> Log:
        """Read a log from a table in a file or in memory, one row per shown arm; rows without a reward are left out.

        Parameters
        ----------
        source
            A path (.csv, .tsv, .csv.gz, .jsonl, .parquet, .arrow, .ipc, .feather), a polars DataFrame or LazyFrame, a
            pandas DataFrame, any Arrow table, or a mapping of columns. Files of `alphafair export` can be read.
        context, arm
            Columns of labels: strings, numbers, dates or booleans. They are sorted: by size if all are integers, else
            alphabetically. An empty string or NaN is a missing label, and refused.
        reward, propensity
            Columns of numbers: the reward of the shown arm, and the probability in (0, 1] with which it was shown.
            A table without propensities is read with None; see `BasePolicy.observe_log`.
        time
            A column of numbers or dates to sort by; by default rows are in the order of time.
        user
            A column of users, or of other units whose decisions depend on each other: a bootstrap draws users then.
        position
            A column of positions on the page, from 1.
        available
            A column of the arms that the decision was drawn among: lists of labels, in a text file as JSON arrays, and
            empty where every arm was available. Arms in it that were never shown are arms of the log too. By default
            the column `available`, if there is one; None for none.
        decision
            A column that says which rows are of one decision, where decisions show several arms. A decision of which
            a row has no reward is left out. In a file of `alphafair export` with such decisions it is found by itself.
        exposure
            A column of how much the slot of a row is looked at, in (0, 1], where the best arms got the first slots.
        features
            Features by name and type: "number", "number?" if it may be missing, or a list of labels, in which "*"
            stands for all others. Each has a column of its name; in files of `alphafair export`, `feature.<name>`.

        >>> rows = {"who": ["new", "old", "new"], "item": ["b", "a", "a"], "click": [1, 0, None], "p": [0.5, 0.5, 0.2]}
        >>> log = Log.from_table(rows, context="who", arm="item", reward="click", propensity="p")
        >>> log.arm_labels, log.arms.tolist(), log.rewards.tolist()
        (('a', 'b'), [1, 0], [1.0, 0.0])
        """
        from alphafair.values.log_table import LogColumns, LogTable

        columns = LogColumns(
            context, arm, reward, propensity, time, user, position, exposure, available, decision=decision
        )
        schema = None if features is None else FeatureSchema.of(features)
        return cls.from_decisions(*LogTable.open(source, columns, features=schema).read())

    @classmethod
    def from_decisions(cls, found: Decisions, labels: Labels) -> Log:
        """A log of decoded rows of a table."""
        times = found.times
        if times is not None:
            dated = times.dtype in (pl.Date, pl.Datetime)
            times = times.cast(pl.Datetime("us")) if dated else None  # of UTC
        return cls(
            *found[:4],
            users=found.users,
            positions=found.positions,
            timestamps=None if times is None else times.to_numpy(),
            available=found.available,
            decisions=found.decisions,
            exposures=found.exposures,
            features=found.features,
            context_labels=tuple(labels.contexts),
            arm_labels=tuple(labels.arms),
        )
