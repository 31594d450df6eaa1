"""What a fixed policy would have earned on the rounds of a log, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from alphafair import metrics, validate
from alphafair.evaluation import intervals
from alphafair.evaluation.batches import AnyLog, check_log
from alphafair.evaluation.intervals import Interval, Level
from alphafair.evaluation.scores import ESTIMATORS, Scores, checked_distributions, n_passes, score
from alphafair.evaluation.verdict import Verdict, effective_sample_size, judge
from alphafair.groups import ArmGroups, GroupsLike, arm_groups
from alphafair.values import Matrix, Vector

METRICS = ("alpha_performance", "jain_index", "average_reward", "least_share", "greatest_share")
UNKNOWN = Interval(math.nan, math.nan, math.nan)


class Options(NamedTuple):
    """What is to be measured, whom it shall be fair to, and how surely intervals shall hold."""

    groups: ArmGroups
    alpha: float
    confidence: float
    n_replicates: int
    seed: int

    @classmethod
    def checked(cls, groups: ArmGroups, alpha: float, confidence: float, n_replicates: int, seed: int) -> Options:
        return cls(
            groups,
            validate.alpha(alpha),
            validate.number("confidence", confidence, low=0.5, high=0.999),
            validate.integer("n_replicates", n_replicates, low=100, high=100_000),
            validate.integer("seed", seed, low=0),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured:
    """What a policy would have earned and how fairly; where the verdict is "do not use" all numbers are NaN."""

    alpha: float
    n_rounds: int
    accounts: Vector  # R, initial 1 included: per group where there are groups, else per arm
    cumulative_rewards: Vector  # what every arm earns
    reward_per_round: Interval  # of all arms together, without the initial 1
    alpha_performance: Interval
    jain_index: Interval
    average_reward: Interval
    least_share: Interval
    greatest_share: Interval
    verdict: Verdict
    reasons: tuple[str, ...]  # why the verdict is not better

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None where nothing is known."""
        known = {each.name: getattr(self, each.name) for each in fields(self)}
        return dict(intervals.plain({"rounds": known.pop("n_rounds"), **known}))


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate(Measured):
    """What a fixed policy would have earned, from a log of another; each of the five metrics is (value, low, high)."""

    estimator: str
    confidence: float
    bias: dict[str, float]  # of the plain plug-in, by metric: what was or could be taken off
    effective_sample_size: float


def evaluate(
    log: AnyLog,
    distributions: ArrayLike,
    alpha: float = 0.9,
    *,
    estimator: str = "dr",
    groups: GroupsLike | None = None,
    confidence: float = 0.95,
    n_replicates: int = 1000,
    seed: int = 0,
    progress: bool = False,
) -> Estimate:
    """What a fixed policy would have earned on the rounds of a log, and how fair it would have been.

    Parameters
    ----------
    log
        A `Log`, or a `LogFile` that is too large for memory; rewards of at least 0.
    distributions
        The policy: (n_contexts, n_arms), rows that sum to 1. In rounds of the log in which not all arms were available
        they are renormalised over those that were, as policies do; uniform over them where nothing is left.
    alpha
        Fairness that alpha-performance is measured with.
    estimator
        "ips" inverse propensity, "snips" self-normalised, "dr" doubly robust, "clipped" inverse propensity with large
        weights cut, "switch" doubly robust that trusts the model alone where weights are large. docs/logs.md has the
        formulas.
    groups
        Whom the policy is to be fair to: a `Groups`, or a label per arm; see docs/groups.md. A fixed policy keeps the
        floors that its distributions have.
    confidence
        How surely the intervals shall hold.
    n_replicates
        Of the bootstrap, over rounds, or over users where the log names them.
    progress
        Show a bar.

    >>> from alphafair import Uniform, simulate, streams
    >>> stream = streams.ratings(n_rounds=20_000, n_contexts=2, n_arms=3, seed=0)
    >>> log = simulate(Uniform(2, 3, feedback="bandit"), stream, log=True).log
    >>> estimate = evaluate(log, [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], alpha=0.5)
    >>> estimate.verdict, estimate.jain_index.low < estimate.jain_index.value < estimate.jain_index.high
    ('trustworthy', True)
    """
    check_log(log)
    table = checked_distributions(distributions, log)
    chosen = ESTIMATORS[validate.choice("estimator", estimator, ESTIMATORS)]
    options = Options.checked(arm_groups(groups, log.n_arms), alpha, confidence, n_replicates, seed)
    with bar("Evaluating", n_passes(chosen) * log.n_rounds, progress) as advance:
        scores = score(log, table[None], chosen, advance)
    return estimated(scores, estimator, options, progress)


def estimated(scores: Scores, estimator: str, options: Options, progress: bool = False) -> Estimate:
    """The estimate that scores amount to."""
    verdict, reasons = judge(scores)
    cumulative_rewards, scores = scores.cumulative_rewards()[0], scores.pooled(options.groups)
    accounts, alpha, groups = scores.accounts()[0], options.alpha, options.groups
    found = dict.fromkeys(METRICS, UNKNOWN)
    bias = dict.fromkeys(METRICS, math.nan)
    if verdict == "do not use":
        accounts, cumulative_rewards = (np.full_like(each, math.nan) for each in (accounts, cumulative_rewards))
    else:
        with bar("Replicates", options.n_replicates, progress) as advance:
            drawn = intervals.replicates(scores, options.n_replicates, options.seed, advance)
        found = metric_intervals(accounts, drawn, scores.freedom, options)
        bias = {
            name: float(plain(drawn, alpha, groups).mean() - plain(accounts, alpha, groups))
            for name, plain in PLAIN.items()
        }
    per_round = (len(accounts) * (side - 1.0) / scores.n_rounds for side in found["average_reward"])
    return Estimate(
        estimator=estimator,
        alpha=alpha,
        confidence=options.confidence,
        n_rounds=scores.n_rounds,
        reward_per_round=Interval(*per_round),
        accounts=accounts,
        cumulative_rewards=cumulative_rewards,
        bias=bias,
        effective_sample_size=effective_sample_size(scores),
        verdict=verdict,
        reasons=tuple(reasons),
        **found,
    )


PLAIN: dict[str, Callable[..., Any]] = {  # of the accounts of groups, alpha and the groups
    "alpha_performance": lambda accounts, alpha, groups=None: metrics.alpha_performance(accounts, alpha, groups=groups),
    "jain_index": lambda accounts, alpha, groups=None: metrics.jain_index(accounts, groups=groups),
    "average_reward": lambda accounts, alpha, groups=None: metrics.average_reward(accounts),
    "least_share": lambda accounts, alpha, groups=None: metrics.shares(accounts).min(axis=-1),
    "greatest_share": lambda accounts, alpha, groups=None: metrics.shares(accounts).max(axis=-1),
}


def metric_intervals(
    accounts: Vector, drawn: Matrix, freedom: Callable[[Vector], int], options: Options
) -> dict[str, Interval]:
    """Every metric of R with its interval, from replicates of R and the degrees of freedom in a direction of R."""
    alpha, groups, s = options.alpha, options.groups, options.groups.entitlements
    shares, performance, average = metrics.shares(accounts), PLAIN["alpha_performance"], PLAIN["average_reward"]

    def level(direction: Vector) -> Level:
        return Level(options.confidence, freedom(direction))

    def of_share(arm: int) -> Level:
        return level(np.eye(len(accounts))[arm] - shares[arm])

    entitled_shares = metrics.shares(accounts / s)
    by_marginal = level((accounts / s) ** -alpha)
    by_deviation = level((entitled_shares - entitled_shares.mean()) / s)
    found = {
        "alpha_performance": intervals.smooth(
            performance(accounts, alpha, groups), performance(drawn, alpha, groups), by_marginal, corrected=True
        ),
        "jain_index": intervals.jain(accounts / s, drawn / s, by_deviation),
        "average_reward": intervals.smooth(
            average(accounts, alpha, groups), average(drawn, alpha, groups), level(np.ones_like(accounts))
        ),
        "least_share": intervals.least_share(accounts, drawn, of_share(int(shares.argmin()))),
        "greatest_share": intervals.greatest_share(accounts, drawn, of_share(int(shares.argmax()))),
    }
    return {name: each.clip(*possible(name, groups, alpha)) for name, each in found.items()}


def possible(metric: str, groups: ArmGroups, alpha: float) -> tuple[float, float]:
    """Between which two a metric lies whatever is earned: accounts begin with 1 and never fall."""
    n = groups.n_groups
    start = float(PLAIN["alpha_performance"](np.ones(n), alpha, groups))
    return {
        "alpha_performance": (start, math.inf),
        "jain_index": (1.0 / n, 1.0),
        "average_reward": (1.0, math.inf),
        "least_share": (0.0, 1.0 / n),
        "greatest_share": (1.0 / n, 1.0),
    }[metric]


@contextmanager
def bar(title: str, total: int, progress: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar, or nothing."""
    from alphafair.progress import progress_bar

    with progress_bar(disable=not progress) as shown:
        task = shown.add_task(title, total=total)
        yield lambda done: shown.advance(task, done)
