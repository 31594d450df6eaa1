"""The price of fairness: the fair optimum from a log along alpha, and a bound on the regret of the logged run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from alphafair import metrics, validate
from alphafair.errors import InvalidArgument
from alphafair.evaluation.estimates import (
    METRICS,
    UNKNOWN,
    Estimate,
    Options,
    Reason,
    Resampled,
    Verdict,
    bar,
    held_out,
    metric_intervals,
)
from alphafair.evaluation.estimators import ESTIMATORS, Estimator, Scoring, score
from alphafair.evaluation.log_rows import AnyLog, check_log, check_single, cluster_count, folds_of, most_reward
from alphafair.evaluation.optima import Best, Survey, best_policy, survey
from alphafair.evaluation.reward_model import Cells, Model, fit, model_totals, plausible_totals, robust_totals
from alphafair.formatting import json_alpha
from alphafair.groups import GroupsLike, arm_groups
from alphafair.offline.sides import check_room
from alphafair.tasks import in_order, n_workers
from alphafair.values import Interval, Matrix, Vector

ALPHAS = (*(k / 10 for k in range(10)), 0.99, 1.0, 2.0, 5.0, math.inf)
SEVERITY: tuple[Verdict, ...] = ("trustworthy", "thin", "do not use")
OPTIMA = ("realized", "expected")  # of which rewards
N_DRAWS = 20  # of plausible rewards
MOST_SUMS = 1 << 25  # numbers: the sums of one pass, which are 256 MB


class Answer(NamedTuple):
    """An alpha, and one on the safe side of the band; None where the curve has none."""

    alpha: float | None
    safe: float | None


@dataclass(frozen=True, eq=False)
class Frontier:
    """The best fixed policies along alpha, or along a promise to contexts at one alpha, from a log.

    The `optimum` is that of the rewards of every arm in these rounds ("realized"), or of their expectations given the
    rounds' contexts ("expected"). Neither is known. A policy learned from one half of the rounds and scored on the
    other (`held_out`) is worse than the optimum, one scored on the rounds that it was learned from (`flattered`) looks
    better, and the optimum of rewards that are plausible given the log (`plausible`) is spread around it. The band of
    every metric covers the intervals of all three, the last simultaneous for all alphas (Bonferroni). The value is the
    held-out one: what a policy earns that was learned from as many rounds.
    """

    alphas: Vector
    confidence: float
    optimum: str  # "realized" or "expected"
    held_out: tuple[Estimate, ...]
    flattered: tuple[Estimate, ...]
    plausible: tuple[dict[str, Interval], ...]  # by metric
    distributions: tuple[Matrix, ...]  # learned from all rounds: the policies to use
    regrets: tuple[RegretStatement, ...]  # none where decisions show several arms, or contexts have a promise
    context_shares: Vector | None = None  # of one alpha: what the policies promise every context of its best

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the held-out policies, and of flattered ones that leave the band undefined."""
        return max((each.verdict for each in self._judged), key=SEVERITY.index)

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(reason for each in self._judged for reason in each.reasons))

    def worst_reasons(self) -> list[tuple[float, Reason]]:
        """The worst reason of each kind with its alpha; those of the worst verdict come first."""
        worst: dict[str, tuple[float, Reason]] = {}
        for each in sorted(self._judged, key=lambda each: -SEVERITY.index(each.verdict)):
            for reason in each.reasons:
                if reason.kind not in worst or reason.size > worst[reason.kind][1].size:
                    worst[reason.kind] = each.alpha, reason
        return [*worst.values()]

    @property
    def _judged(self) -> tuple[Estimate, ...]:
        return (*self.held_out, *(each for each in self.flattered if each.verdict == "do not use"))

    @property
    def alpha_performance(self) -> Interval:
        return self.curve("alpha_performance")

    @property
    def welfare(self) -> Interval:
        return self.curve("welfare")

    @property
    def jain_index(self) -> Interval:
        return self.curve("jain_index")

    @property
    def average_reward(self) -> Interval:
        return self.curve("average_reward")

    @property
    def least_share(self) -> Interval:
        return self.curve("least_share")

    @property
    def greatest_share(self) -> Interval:
        return self.curve("greatest_share")

    def curve(self, metric: str) -> Interval:
        estimates = [[getattr(each, metric) for each in found] for found in (self.held_out, self.flattered)]
        sides = np.array([*estimates, [each[metric] for each in self.plausible]])
        low, high = sides[:, :, 1].min(axis=0), sides[:, :, 2].max(axis=0)
        return Interval(np.where(np.isnan(low), np.nan, sides[0, :, 0]), low, high)  # no value without its band

    def alpha_for_least_share(self, share: float) -> Answer:
        """The least alpha at which no arm has less than a share of all reward."""
        self._check_along_alpha()
        share = validate.number("share", share, low=0.0, high=1.0)
        found = self.curve("least_share")
        return Answer(*(_first(self.alphas, side >= share) for side in (found.value, found.low)))

    def alpha_for_cost(self, percent: float) -> Answer:
        """The greatest alpha that costs at most a percentage of the average reward at the least alpha."""
        self._check_along_alpha()
        percent = validate.number("percent", percent, low=0.0, high=100.0)
        found, kept = self.curve("average_reward"), 1.0 - percent / 100.0
        enough = found.value >= kept * found.value[0]
        safe = np.array([each.average_reward.low for each in self.held_out]) >= kept * found.value[0]
        return Answer(*(_last(self.alphas, side) for side in (enough, safe)))

    def _check_along_alpha(self) -> None:
        if self.context_shares is not None:
            repair = "Leave out context_shares."
            raise InvalidArgument("alphas", "the points of the curve", "one, with context_shares", repair)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        points = [
            {"held_out": own.as_dict(), "flattered": other.as_dict()}
            for own, other in zip(self.held_out, self.flattered, strict=True)
        ]
        about = {
            "alphas": [json_alpha(alpha) for alpha in self.alphas.tolist()],
            "optimum": self.optimum,
            "confidence": self.confidence,
        }
        if self.context_shares is not None:
            about["context_shares"] = self.context_shares.tolist()
        return {**about, "verdict": self.verdict, "points": points}


def frontier(
    log: AnyLog,
    alphas: Sequence[float] = ALPHAS,
    *,
    context_shares: Sequence[float] | None = None,
    optimum: str = "realized",
    estimator: str = "dr",
    groups: GroupsLike | None = None,
    confidence: float = 0.95,
    n_replicates: int = 1000,
    seed: int = 0,
    executor: Executor | None = None,
    progress: bool = False,
) -> Frontier:
    """The price of fairness from a log: the best fixed policy at every alpha, on rounds that it was not learned from.

    Parameters
    ----------
    log
        A `Log` or a `LogFile`. Where not all arms were always available, the optimum is over policies with a
        distribution for every context and set of available arms, assuming that the reward of an arm in a context does
        not depend on which others are available. `distributions` are tables that show arms as often once they are
        renormalized over the available ones.
    alphas
        In increasing order, from 0 to inf. Costs are relative to the first, so begin with 0.
    context_shares
        With one alpha: a curve along these promises instead, in increasing order; at 0.6 every context gets 60% of its
        best, as the log estimates both. What the arms pay for it is in the curves. The shares of contexts are not
        estimated: their best is a maximum of noisy sums. All arms must always have been available, one per decision.
    optimum
        The optimum that the bands cover: "realized", the best fixed policy for the rewards of these very rounds,
        including chance, which regret is measured against; or "expected", the best fixed policy for the expected
        rewards in these rounds' contexts, which applies to other rounds like them. The first is better, since it
        profits from chance. Policies and held-out values are the same.
    estimator
        The estimator for held-out policies, as in `evaluate`.
    groups
        A `Groups`, or a label per arm; every policy keeps its floors. See docs/howto/groups_and_entitlements.md.
    confidence, n_replicates, seed, executor, progress
        As in `evaluate`. The optima of different alphas are solved for by different workers as well.

    >>> from alphafair import Uniform, simulate, streams
    >>> stream = streams.ratings(n_rounds=20_000, n_contexts=2, n_arms=3, seed=0)
    >>> log = simulate(Uniform(2, 3, feedback="bandit"), stream, log=True).log
    >>> found = frontier(log, [0.0, 0.5, 0.9])
    >>> found.verdict, found.jain_index.value.round(2).tolist()
    ('trustworthy', [0.33, 0.96, 0.99])
    """
    check_log(log)
    exponents = [validate.alpha(alpha) for alpha in alphas]
    if not exponents or sorted(set(exponents)) != exponents:
        raise InvalidArgument("alphas", "increasing, at least one", list(alphas), "Sort them and remove duplicates.")
    promises = None if context_shares is None else _promises(context_shares, exponents)
    validate.choice("optimum", optimum, OPTIMA)
    chosen = ESTIMATORS[validate.choice("estimator", estimator, ESTIMATORS)]
    options = Options.checked(arm_groups(groups, log.n_arms), 0.0, confidence, n_replicates, seed)
    here = [options._replace(alpha=each) for each in exponents]
    if promises is not None:
        check_room(promises[-1], options.groups)
        here = [options._replace(alpha=exponents[0], context_share=share) for share in promises]
    at_once = max(1, MOST_SUMS // (2 * cluster_count(log) * log.n_arms * n_workers(executor)))
    parts = [here[first : first + at_once] for first in range(0, len(here), at_once)]
    points: list[tuple[Any, ...]] = []
    regrets: list[RegretStatement] = []
    with bar("Reading", (1 + len(parts)) * log.n_rounds, progress) as advance:
        found = survey(log, advance, executor)
        if promises is not None and (found.situations is not None or found.shown is not None):
            allowed = "left out where some arms were not available, or decisions show several"
            raise InvalidArgument("context_shares", allowed, promises, "Pass several alphas instead.")
        problems = Problems(found, fit(found.cells), log.n_rounds, folds_of(cluster_count(log)), chosen)
        draws = list(plausible_totals(found.cells, N_DRAWS, seed, expected=optimum == "expected"))
        for here in parts:
            to_score = in_order([partial(problems.scorings, each) for each in here], executor, shared=(problems,))
            scorings = [scoring for pair in zip(*to_score, strict=True) for scoring in pair]
            resampled = Resampled.all_of(score(log, scorings, advance, executor), options)
            held, flattered = resampled[: len(here)], resampled[len(here) :]
            wanted = [same.drawn is not None for same in flattered]
            tasks = [partial(problems.optima, each, draws, used) for each, used in zip(here, wanted, strict=True)]
            solved = in_order(tasks, executor, shared=(problems, draws))
            for each, own, same, (optima, learned) in zip(here, held, flattered, solved, strict=True):
                plausible = dict.fromkeys(METRICS, UNKNOWN)
                if same.drawn is not None:
                    along = 1.0 - (1.0 - confidence) / sum(map(len, parts))  # simultaneous for all points
                    plausible = _plausible(np.array(optima), same, each._replace(confidence=along))
                estimates = own.estimate(estimator, each), same.estimate("dr", each)
                points.append((*estimates, plausible, learned))
                if found.shown is None and promises is None:
                    regrets.append(_regret(same, found.cells, log, each))
    of_others, of_own, of_draws, distributions = zip(*points, strict=True)
    along_shares = None if promises is None else np.array(promises)
    every = of_others, of_own, of_draws, distributions, tuple(regrets)
    return Frontier(np.array(exponents), confidence, optimum, *every, along_shares)


def _promises(context_shares: Sequence[float], exponents: list[float]) -> list[float]:
    """Check the shares of a curve."""
    if len(exponents) != 1:
        raise InvalidArgument("context_shares", "used with one alpha", len(exponents), "Pass one.")
    shares = [validate.context_share(share) for share in context_shares]
    if not shares or sorted(set(shares)) != shares:
        allowed = "increasing, at least one"
        raise InvalidArgument("context_shares", allowed, shares, "Sort them and remove duplicates.")
    return shares


class Problems(NamedTuple):
    """What the optima of all alphas are solved from."""

    found: Survey
    model: Model
    n_rounds: int
    folds: Any
    estimator: Estimator

    def best(self, totals: Matrix, options: Options) -> Best:
        """The best fixed policy for some totals."""
        found, share = self.found, options.context_share
        return best_policy(totals, options.alpha, options.groups, found.situations, found.shown, share)

    def scorings(self, options: Options) -> tuple[Scoring, Scoring]:
        """The best fixed policies to be scored: learned from the other half of the rounds, and from the same rounds."""
        held = held_out(self.found, options, self.n_rounds, self.folds, self.estimator, self.model)
        found = self.found
        best = self.best(robust_totals(found.cells), options)
        return held, _own_rounds(best.shown, self.model)

    def optima(self, options: Options, draws: Sequence[Matrix], wanted: bool) -> tuple[list[Vector], Matrix]:
        """The accounts of the optimum of every draw, where they are wanted, and the policy learned from all rounds."""
        accounts = [self.best(draw, options).accounts for draw in draws] if wanted else []
        return accounts, self.best(model_totals(self.found.cells), options).distributions()


def _own_rounds(shown: Matrix, model: Any) -> Scoring:
    """The best policy for robust totals, scored on the rounds that these are from."""
    return Scoring(shown[None], ESTIMATORS["dr"], model, renormalize=False)


def _plausible(earned: Matrix, same: Resampled, options: Options) -> dict[str, Interval]:
    """Intervals of the optimum, from the spread of the draws and from a bootstrap of the rounds."""
    errors = same.drawn / same.pooled.accounts()[0]
    drawn = np.maximum(1.0, earned[np.arange(options.n_replicates) % len(earned)] * errors)
    return metric_intervals(earned.mean(axis=0), drawn, same.pooled.freedom, options)


class RegretStatement(NamedTuple):
    """An upper bound on the difference between the best fixed policy and the logged run.

    It is in alpha-performance below alpha = 1 and in welfare from 1 on; `measure` says in which.
    """

    alpha: float
    confidence: float
    achieved: float  # by the logged run
    optimum_at_most: float
    at_most: float  # optimum_at_most - achieved, never below 0; NaN where the verdict is "do not use"
    verdict: Verdict
    vacuous: bool = False  # larger than if every round had paid the greatest reward of the log
    measure: str = "alpha_performance"  # or "welfare"

    def __str__(self) -> str:
        if self.verdict == "do not use":
            return "This log does not bound the difference between the best fixed policy and the logged run."
        vacuous = " The bound is vacuous: every round would have to pay more than the greatest reward of the log."
        best = (
            "The welfare of the best fixed policy would have been"
            if self.measure == "welfare"
            else "The best fixed policy would have been worth"
        )
        return (
            f"{best} at most {self.at_most:.4g} more than the {self.achieved:.4g} "
            f"achieved ({self.at_most / self.achieved:.2%}), with {self.confidence:.0%} confidence."
            f"{vacuous if self.vacuous else ''}"
        )


def regret(
    log: AnyLog,
    alpha: float = 0.9,
    *,
    groups: GroupsLike | None = None,
    confidence: float = 0.95,
    n_replicates: int = 1000,
    seed: int = 0,
    executor: Executor | None = None,
) -> RegretStatement:
    """An upper bound on how much more the best fixed policy would have been worth than the logged run.

    With x the true best policy, the optimum of estimated totals is at least the value of x under those totals, which is
    an estimate of OPT without bias. So that optimum and the upper half of its own interval bound OPT at the confidence
    level, whether x is best for the realized or for the expected rewards of these rounds (`optimum` of `frontier`).
    `executor` is as in `evaluate`.

    >>> from alphafair import AlphaFairAdaptive, simulate, streams
    >>> stream = streams.ratings(n_rounds=50_000, n_contexts=2, n_arms=3, seed=0)
    >>> log = simulate(AlphaFairAdaptive(2, 3, alpha=0.5), stream, log=True).log
    >>> found = regret(log, alpha=0.5)
    >>> 0.0 < found.at_most < 0.1 * found.achieved
    True
    """
    check_log(log)
    check_single(log)
    options = Options.checked(arm_groups(groups, log.n_arms), alpha, confidence, n_replicates, seed)
    found = survey(log, executor=executor)
    best = best_policy(robust_totals(found.cells), options.alpha, options.groups, found.situations)  # of one arm
    scores = score(log, [_own_rounds(best.shown, fit(found.cells))], executor=executor)
    return _regret(Resampled.all_of(scores, options)[0], found.cells, log, options)


def _regret(same: Resampled, cells: Cells, log: AnyLog, options: Options) -> RegretStatement:
    """The statement that follows from the optimum of robust totals, resampled on the same rounds."""
    alpha, groups, confidence = options.alpha, options.groups, options.confidence
    one_sided = options._replace(confidence=max(2.0 * confidence - 1.0, 1e-3))  # a half has no interval of its own
    measure = "alpha_performance" if alpha < 1.0 else "welfare"
    most = getattr(same.estimate("dr", one_sided), measure).high
    achieved = float(getattr(metrics, measure)(1.0 + cells.unit * cells.sums.sum(axis=0), alpha, groups=groups))
    at_most = float(np.maximum(0.0, most - achieved))  # which keeps a NaN, as `max` does not
    total = groups.n_groups + log.n_rounds * most_reward(log)
    if measure == "welfare":
        limit = metrics.most_welfare(total, log.n_arms, groups=groups)
    else:
        limit = metrics.most_worth(total, log.n_arms, alpha, groups=groups)
    return RegretStatement(alpha, confidence, achieved, most, at_most, same.verdict, most > limit, measure)


def _first(alphas: Vector, holds: Any) -> float | None:
    return float(alphas[np.argmax(holds)]) if holds.any() else None


def _last(alphas: Vector, holds: Any) -> float | None:
    return float(alphas[np.flatnonzero(holds)[-1]]) if holds.any() else None
