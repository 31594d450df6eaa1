"""Streams of rounds, adversaries, and the trace of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.values.arrays import Indices, Matrix, Vector, frozen
from alphafair.values.log import Log
from alphafair.values.protocol import Feedback


@dataclass(frozen=True, eq=False)
class Stream:
    """Contexts and rewards by round: round t has context `contexts[t]` and rewards `reward_table[items[t]]`.

    Many rounds share few rows of rewards (all ratings of one movie do), so 25 million rounds over 62,000 items take two
    int32 arrays and one small table. `Stream.from_arrays` takes one row of rewards per round.

    Arms may come and go: arm i takes part in rounds `arrivals[i] <= t < departures[i]`, counted from 0. Arms are
    numbered in the order of their arrival, with at least one in round 0; rewards of absent arms are ignored.

    Rounds may have `features`: of their context, (n_rounds, n_features), or of every arm, (n_rounds, n_arms,
    n_features). They are passed to policies with features.
    """

    contexts: Indices
    items: Indices
    reward_table: Matrix
    context_labels: tuple[str, ...] | None = None
    arm_labels: tuple[str, ...] | None = None
    n_contexts: int = field(default=0, kw_only=True)
    arrivals: Indices | None = field(default=None, kw_only=True)
    departures: Indices | None = field(default=None, kw_only=True)
    features: NDArray[np.float64] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        table = validate.reward_table("reward_table", self.reward_table)
        contexts = validate.indices("contexts", self.contexts, None)
        items = validate.indices("items", self.items, table.shape[0], n_entries=len(contexts))
        seen = int(contexts.max()) + 1
        for name, labels, least in (
            ("context_labels", self.context_labels, seen),
            ("arm_labels", self.arm_labels, table.shape[1]),
        ):
            if labels is not None:
                object.__setattr__(self, name, validate.labels(name, labels, least))
        announced = self.n_contexts or len(self.context_labels or ()) or seen
        validate.integer("n_contexts", announced, low=seen)
        if self.arm_labels is not None and len(self.arm_labels) != table.shape[1]:
            repair = "Pass one name per arm."
            raise InvalidArgument("arm_labels", f"{table.shape[1]} names", len(self.arm_labels), repair)
        object.__setattr__(self, "n_contexts", announced)
        columns: dict[str, NDArray[Any]] = {"contexts": contexts, "items": items, "reward_table": table}
        if self.arrivals is not None or self.departures is not None:
            sizes = {"n_arms": table.shape[1], "n_rounds": len(contexts)}
            columns["arrivals"], columns["departures"] = validate.presence(self.arrivals, self.departures, **sizes)
        if self.features is not None:
            columns["features"] = validate.feature_rows(self.features, len(contexts), table.shape[1])
        for name, column in columns.items():
            object.__setattr__(self, name, frozen(column))

    @classmethod
    def from_arrays(
        cls,
        contexts: ArrayLike,
        rewards: ArrayLike,
        *,
        context_labels: Sequence[str] | None = None,
        arm_labels: Sequence[str] | None = None,
        n_contexts: int = 0,
        arrivals: ArrayLike | None = None,
        departures: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> Self:
        """Make a stream from one context and one row of rewards (n_arms) per round."""
        repair = "Pass one row per round and one column per arm."
        table = np.atleast_1d(validate.floats("rewards", "a table of numbers", rewards, repair))
        return cls(
            contexts,  # type: ignore[arg-type]
            np.arange(len(table), dtype=np.int32),
            table,
            None if context_labels is None else tuple(context_labels),
            None if arm_labels is None else tuple(arm_labels),
            n_contexts=n_contexts,
            arrivals=arrivals,  # type: ignore[arg-type]
            departures=departures,  # type: ignore[arg-type]
            features=features,  # type: ignore[arg-type]
        )

    @property
    def n_rounds(self) -> int:
        return len(self.contexts)

    @property
    def n_arms(self) -> int:
        """The number of arms that ever take part."""
        return int(self.reward_table.shape[1])

    @property
    def n_first_arms(self) -> int:
        """The number of arms in the first round: `n_arms` of a policy for this stream."""
        return self.n_arms if self.arrivals is None else int((self.arrivals == 0).sum())

    def present(self, t: int) -> NDArray[np.bool_]:
        """Return which arms take part in round t, counted from 0."""
        if self.arrivals is None or self.departures is None:
            return np.ones(self.n_arms, dtype=np.bool_)
        return (self.arrivals <= t) & (t < self.departures)

    @property
    def epochs(self) -> list[int]:
        """The rounds, after the first, in which arms arrive or depart."""
        if self.arrivals is None or self.departures is None:
            return []
        changes = np.unique(np.concatenate([self.arrivals, self.departures]))
        return [int(t) for t in changes if 0 < t < self.n_rounds]

    def rewards(self, t: int) -> Vector:
        """Return the rewards of all arms in round t, counted from 0; read-only."""
        row: Vector = self.reward_table[self.items[t]]
        return row

    def head(self, n_rounds: int) -> Self:
        """Return the first rounds, sharing memory; labels and the number of contexts stay."""
        validate.integer("n_rounds", n_rounds, low=1, high=self.n_rounds)
        features = None if self.features is None else self.features[:n_rounds]
        return replace(self, contexts=self.contexts[:n_rounds], items=self.items[:n_rounds], features=features)


ADVERSARIES = ("settled", "largest", "halving")


@dataclass(frozen=True, eq=False)
class Adversary:
    """An adversary that sees the distribution of every round before it sets the rewards: see `streams.adversary`.

    `stream` has the contexts, and the rewards in each of them before any is lowered: item j is context j.
    """

    kind: str
    stream: Stream

    def __post_init__(self) -> None:
        validate.choice("kind", self.kind, ADVERSARIES)
        validate.stream("stream", self.stream)
        if len(self.stream.reward_table) != self.stream.n_contexts:
            allowed = f"a row for each of {self.stream.n_contexts} contexts"
            repair = "Pass one row per context."
            raise InvalidArgument("stream.reward_table", allowed, len(self.stream.reward_table), repair)


class Period(NamedTuple):
    """A period of a run: rounds [first, last), the rewards of every arm in them, and the accounts of the policy.

    Accounts are those of arms, or of groups, at the start and at the end; None if the policy keeps none.
    """

    first: int
    last: int
    rewards: Vector
    entry_accounts: Vector | Matrix | None
    accounts: Vector | Matrix | None


@dataclass(frozen=True, eq=False)
class Trace:
    """The record of a run: R at the recorded rounds (initial 1 included) and the number of pulls of each arm.

    `log` has every decision with its reward, if `simulate` was called with `log=True`; `periods` has an entry per
    period, if it was called with `period`. Accounts count from the first round. `context_rewards` are the rewards in
    every context: expected with full information, realized with bandit feedback.
    """

    policy: str
    feedback: Feedback
    seed: int | None
    rounds: NDArray[np.int64]
    accounts: Matrix
    pulls: NDArray[np.int64]
    log: Log | None = None
    periods: tuple[Period, ...] = ()
    context_rewards: Vector = field(default_factory=lambda: np.empty(0))

    @property
    def final(self) -> Vector:
        """Accounts after the last round."""
        last: Vector = self.accounts[-1]
        return last
