"""What an engine is asked and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from alphafair.engine.experiment import Experiment, GroupStatus

Value = float | Sequence[float] | Mapping[str, float]  # one number; under full information one per arm


class Decide(NamedTuple):
    """Draw an arm. The same id again is answered with the same arm."""

    experiment: str
    context: str
    id: str | None = None
    available: Sequence[str] | None = None
    deferred: bool = False


class Reward(NamedTuple):
    """What the arm of a decision has earned."""

    id: str
    reward: Value
    experiment: str | None = None


class Activate(NamedTuple):
    """A deferred decision was carried out."""

    id: str
    experiment: str | None = None


Request = Decide | Reward | Activate


class Receipt(NamedTuple):
    """An arm was drawn, and it is on the disk."""

    id: str
    arm: str
    propensity: float
    context: str


class Outcome(NamedTuple):
    """What became of a reward or activation: applied, activated, repeated, conflict, unknown, expired, rolled_back."""

    outcome: str


@dataclass(frozen=True)
class Status:
    """An experiment at one moment."""

    name: str
    policy: str
    feedback: str
    alpha: float | None
    arms: tuple[str, ...]  # those that can be drawn, masked ones included
    retired_arms: tuple[str, ...]
    masked_arms: tuple[str, ...]
    paused: bool
    reward_range: tuple[float, float]
    reward_wait: float | None
    default_reward: float | None
    policy_version: int
    contexts: int  # erased ones included
    max_contexts: int  # more are refused
    decisions: int
    rewards: int
    defaulted: int
    expired: int
    lapsed: int
    rolled_back: int
    pending: int
    pulls: dict[str, int]
    cumulative_rewards: dict[str, float]  # of every arm, in the units of `reward_range`; what the log sums up to
    accounts: dict[str, float]  # R of every group, or arm: 1, and the rewards that count, mapped onto [0, 1]
    groups: GroupStatus | None  # whom it is fair to; None where every arm is on its own
    unhealthy: str | None  # what its policy failed at, and why; None while all is well

    @classmethod
    def of(cls, experiment: Experiment, max_contexts: int) -> Status:
        tally = experiment.tally
        about_policy = experiment.about_policy()
        return cls(
            name=experiment.name,
            policy=experiment.policy_name,
            arms=tuple(experiment.live_arms),
            retired_arms=tuple(experiment.arms[number] for number in sorted(experiment.retired)),
            masked_arms=tuple(experiment.arms[number] for number in sorted(experiment.masked)),
            paused=experiment.paused,
            reward_range=(experiment.low, experiment.high),
            reward_wait=experiment.reward_wait,
            default_reward=experiment.default_reward,
            policy_version=experiment.version,
            contexts=experiment.n_contexts,
            max_contexts=max_contexts,
            decisions=tally.decisions,
            rewards=tally.rewards,
            defaulted=tally.defaulted,
            expired=tally.expired,
            lapsed=tally.lapsed,
            rolled_back=tally.rolled_back,
            pending=tally.pending,
            pulls=dict(zip(experiment.arms, tally.pulls, strict=True)),
            cumulative_rewards=dict(zip(experiment.arms, tally.earned, strict=True)),
            **about_policy,
            unhealthy=experiment.unhealthy,
        )
