"""The fair optimum from a log, alpha by alpha: what fairness costs, and how far a run was from the best policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from alphafair import metrics, validate
from alphafair.errors import InvalidArgument
from alphafair.evaluation.batches import Advance, AnyLog, check_log, folds_of, group_count, silent
from alphafair.evaluation.estimate import METRICS, UNKNOWN, Estimate, Options, bar, estimated, metric_intervals
from alphafair.evaluation.intervals import Interval, replicates
from alphafair.evaluation.log_file import LogFile
from alphafair.evaluation.log_scores import Model
from alphafair.evaluation.model import Cells, divided, fit, model_totals, robust_totals
from alphafair.evaluation.plausible import plausible_totals
from alphafair.evaluation.scores import ESTIMATORS, Scores, count_cells, count_halves, score
from alphafair.evaluation.situations import Situations, situations_of
from alphafair.evaluation.verdict import Verdict
from alphafair.groups import ArmGroups, GroupsLike, arm_groups
from alphafair.offline import offline_optimum
from alphafair.offline.reduction import MOST_REWARD
from alphafair.values import Matrix, Vector

ALPHAS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99)
SEVERITY: tuple[Verdict, ...] = ("trustworthy", "thin", "do not use")
OPTIMA = ("realised", "expected")  # of which rewards
N_DRAWS = 20  # of plausible rewards
TOLERANCE = 1e-6  # of an optimum, relative: far below what a log can tell


class Curve(NamedTuple):
    """A metric along alpha, and between which two it lies at the optimum that the frontier is about."""

    value: Vector
    low: Vector
    high: Vector


class Answer(NamedTuple):
    """An alpha, and one that is on the safe side of the band; None where there is none on the curve."""

    alpha: float | None
    safe: float | None


@dataclass(frozen=True, eq=False)
class Frontier:
    """The best fixed policies along alpha, from a log.

    The `optimum` is that of the rewards that these rounds would have paid, arm by arm ("realised"), or of what they pay
    on average in these rounds' contexts ("expected"). Nobody knows either. A policy learned from one half of the rounds
    and valued on the other (`held_out`) is worse than it, one valued on the rounds that it was learned from
    (`flattered`) looks better than it, and the optimum of rewards that are plausible given the log (`plausible`) is
    spread around it. The band of every metric holds the intervals of all three, the last as sure for all alphas
    together as was asked for (Bonferroni). The value is the held-out one: what can be had by learning from as much.
    """

    alphas: Vector
    confidence: float
    optimum: str  # "realised" or "expected"
    held_out: tuple[Estimate, ...]
    flattered: tuple[Estimate, ...]
    plausible: tuple[dict[str, Interval], ...]  # by metric
    distributions: tuple[Matrix, ...]  # learned from all rounds: the policies to use

    @property
    def verdict(self) -> Verdict:
        """The worst of the held-out ones, and of those that leave the band without an end."""
        return max((each.verdict for each in self._judged), key=SEVERITY.index)

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(reason for each in self._judged for reason in each.reasons))

    @property
    def _judged(self) -> tuple[Estimate, ...]:
        return (*self.held_out, *(each for each in self.flattered if each.verdict == "do not use"))

    @property
    def alpha_performance(self) -> Curve:
        return self.curve("alpha_performance")

    @property
    def jain_index(self) -> Curve:
        return self.curve("jain_index")

    @property
    def average_reward(self) -> Curve:
        return self.curve("average_reward")

    @property
    def least_share(self) -> Curve:
        return self.curve("least_share")

    @property
    def greatest_share(self) -> Curve:
        return self.curve("greatest_share")

    def curve(self, metric: str) -> Curve:
        estimates = [[getattr(each, metric) for each in found] for found in (self.held_out, self.flattered)]
        sides = np.array([*estimates, [each[metric] for each in self.plausible]])
        low, high = sides[:, :, 1].min(axis=0), sides[:, :, 2].max(axis=0)
        return Curve(np.where(np.isnan(low), np.nan, sides[0, :, 0]), low, high)  # no number without its band

    def alpha_for_least_share(self, share: float) -> Answer:
        """The least alpha at which no arm gets less than a share of all reward."""
        share = validate.number("share", share, low=0.0, high=1.0)
        found = self.curve("least_share")
        return Answer(*(_first(self.alphas, side >= share) for side in (found.value, found.low)))

    def alpha_for_cost(self, percent: float) -> Answer:
        """The greatest alpha that costs at most so many per cent of the average reward at the least alpha."""
        percent = validate.number("percent", percent, low=0.0, high=100.0)
        found, kept = self.curve("average_reward"), 1.0 - percent / 100.0
        enough = found.value >= kept * found.value[0]
        safe = np.array([each.average_reward.low for each in self.held_out]) >= kept * found.value[0]
        return Answer(*(_last(self.alphas, side) for side in (enough, safe)))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        points = [
            {"held_out": own.as_dict(), "flattered": other.as_dict()}
            for own, other in zip(self.held_out, self.flattered, strict=True)
        ]
        about = {"alphas": self.alphas.tolist(), "optimum": self.optimum, "confidence": self.confidence}
        return {**about, "verdict": self.verdict, "points": points}


def frontier(
    log: AnyLog,
    alphas: Sequence[float] = ALPHAS,
    *,
    optimum: str = "realised",
    estimator: str = "dr",
    groups: GroupsLike | None = None,
    confidence: float = 0.95,
    n_replicates: int = 1000,
    seed: int = 0,
    progress: bool = False,
) -> Frontier:
    """The price of fairness from a log: the best fixed policy at every alpha, valued on rounds that it has not seen.

    Parameters
    ----------
    log
        A `Log` or a `LogFile`. Where not all arms were always available, the optimum is that of policies which have a
        distribution for every context and set of available arms; what an arm pays in a context is taken not to depend
        on which others are available. `distributions` are tables as ever, to be renormalised over what is available:
        they show arms as often.
    alphas
        Rising; the first is what costs are measured from, so begin with 0.
    optimum
        Whose optimum the bands hold: "realised", the best fixed policy for the rewards that these very rounds would
        have paid, luck included, which is what regret is measured against; or "expected", the best fixed policy for
        what arms pay on average in these rounds' contexts, which is what can be hoped for in other rounds like them.
        The first is better: it makes use of luck. Policies and held-out values are the same.
    estimator
        What held-out policies are valued with, as in `evaluate`.
    groups
        Whom to be fair to, and the floors that every policy keeps: a `Groups`, or a label per arm. See docs/groups.md.
    confidence, n_replicates, seed, progress
        As in `evaluate`.

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
        raise InvalidArgument("alphas", "rising, at least one", list(alphas), "Sort them and leave repeats out.")
    validate.choice("optimum", optimum, OPTIMA)
    chosen = ESTIMATORS[validate.choice("estimator", estimator, ESTIMATORS)]
    options = Options.checked(arm_groups(groups, log.n_arms), 0.0, confidence, n_replicates, seed)
    folds = folds_of(group_count(log))
    along = 1.0 - (1.0 - confidence) / len(exponents)  # for all points of the curve together
    with bar("Learning", (1 + 2 * len(exponents)) * log.n_rounds, progress) as advance:
        halves = count_halves(log, folds, advance)
        cells = Cells.together(halves)
        model = fit(cells)
        draws = list(plausible_totals(cells, N_DRAWS, seed, expected=optimum == "expected"))
        others = [model_totals(half) * (log.n_rounds / max(half.visits.sum(), 1.0)) for half in halves[::-1]]
        totals, situations = [*others, robust_totals(cells), model_totals(cells)], situations_of(log)
        found: list[tuple[Any, ...]] = []
        for alpha in exponents:
            here = options._replace(alpha=alpha)
            *crossed, flattering, learned = (_best(each, alpha, options.groups, situations) for each in totals)
            policies = np.stack([best.distributions() for best in crossed])
            own = score(log, policies, chosen, advance, folds=folds, model=model)
            same = _valued(log, flattering, model, advance)  # the optimum of just these
            estimates = [estimated(own, estimator, here), estimated(same, "dr", here)]
            plausible = dict.fromkeys(METRICS, UNKNOWN)
            if estimates[1].verdict != "do not use":
                optima = np.array([_best(each, alpha, options.groups, situations).accounts for each in draws])
                plausible = _plausible(optima, same.pooled(here.groups), here._replace(confidence=along))
            found.append((*estimates, plausible, learned.distributions()))
    return Frontier(np.array(exponents), confidence, optimum, *zip(*found, strict=True))


def _valued(log: AnyLog, best: Best, model: Model, advance: Advance = silent) -> Scores:
    """The best policy for robust totals on the very rounds that those are of."""
    return score(log, best.shown[None], ESTIMATORS["dr"], advance, model=model, renormalise=False)


def _plausible(earned: Matrix, scores: Scores, options: Options) -> dict[str, Interval]:
    """The optimum of draws, as uncertain as the draws differ and as a bootstrap of the rounds makes it."""
    errors = replicates(scores, options.n_replicates, options.seed) / scores.accounts()[0]
    drawn = np.maximum(1.0, earned[np.arange(options.n_replicates) % len(earned)] * errors)
    return metric_intervals(earned.mean(axis=0), drawn, scores.freedom, options)


class RegretStatement(NamedTuple):
    """How much better the best fixed policy could have been than the run that a log is of."""

    alpha: float
    confidence: float
    achieved: float  # alpha-performance of the run itself
    optimum_at_most: float
    at_most: float  # optimum_at_most - achieved, never below 0; NaN where the log does not tell
    verdict: Verdict
    vacuous: bool = False  # more than if every round had paid the greatest reward of the log: it says nothing

    def __str__(self) -> str:
        if self.verdict == "do not use":
            return "How much better the best fixed policy would have been, this log does not tell."
        nothing = " That says nothing: every round would have to pay more than the greatest reward of the log."
        return (
            f"The best fixed policy would have been worth at most {self.at_most:.4g} more than the {self.achieved:.4g} "
            f"achieved ({self.at_most / self.achieved:.2%}), with {self.confidence:.0%} confidence."
            f"{nothing if self.vacuous else ''}"
        )


def regret(
    log: AnyLog,
    alpha: float = 0.9,
    *,
    groups: GroupsLike | None = None,
    confidence: float = 0.95,
    n_replicates: int = 1000,
    seed: int = 0,
) -> RegretStatement:
    """How much more the best fixed policy would have been worth than the run that the log is of, at most.

    With x the true best policy, the optimum of estimated totals is at least what those totals say of x, which errs on
    either side of OPT: so that optimum and the upper half of its own interval bound OPT as surely as was asked for,
    whether x is best for these rounds' rewards or for what they are on average (`optimum` of `frontier`).

    >>> from alphafair import AlphaFairAdaptive, simulate, streams
    >>> stream = streams.ratings(n_rounds=50_000, n_contexts=2, n_arms=3, seed=0)
    >>> log = simulate(AlphaFairAdaptive(2, 3, alpha=0.5), stream, log=True).log
    >>> found = regret(log, alpha=0.5)
    >>> 0.0 < found.at_most < 0.1 * found.achieved
    True
    """
    check_log(log)
    options = Options.checked(arm_groups(groups, log.n_arms), alpha, confidence, n_replicates, seed)
    resolved, cells = options.groups, count_cells(log)
    one_sided = options._replace(confidence=2.0 * options.confidence - 1.0)
    policy = _best(robust_totals(cells), options.alpha, resolved, situations_of(log))
    best = estimated(_valued(log, policy, fit(cells)), "dr", one_sided)
    achieved = metrics.alpha_performance(1.0 + cells.unit * cells.sums.sum(axis=0), alpha, groups=resolved)
    most = best.alpha_performance.high
    at_most = float(np.maximum(0.0, most - achieved))  # which keeps a NaN, as `max` does not
    greatest = log.most_reward if isinstance(log, LogFile) else float(log.rewards.max())
    total = resolved.n_groups + log.n_rounds * greatest
    vacuous = most > metrics.most_worth(total, log.n_arms, alpha, groups=resolved)
    return RegretStatement(alpha, confidence, achieved, most, at_most, best.verdict, vacuous)


def fair_policy(log: AnyLog, alpha: float = 0.9, *, groups: GroupsLike | None = None) -> Matrix:
    """The best fixed policy for a log's rounds, by the model of its rewards: (n_contexts, n_arms).

    Where not all arms are available it is to be renormalised over those that are.
    """
    check_log(log)
    resolved = arm_groups(groups, log.n_arms)
    return _best(model_totals(count_cells(log)), validate.alpha(alpha), resolved, situations_of(log)).distributions()


def logged_policy(log: AnyLog) -> Matrix:
    """How often the log shows every arm in every context: (n_contexts, n_arms). Contexts without rows are uniform.

    Where not all arms were always available, the table that shows every arm as often as the log did once it is
    renormalised over the available ones.
    """
    check_log(log)
    counts, situations = count_cells(log).counts, situations_of(log)
    visits = counts.sum(axis=1, keepdims=True)
    parts = divided(counts, visits, np.full_like(counts, 1.0 / log.n_arms))
    return parts if situations is None else situations.table(parts)


class Best(NamedTuple):
    """The best fixed policy for some totals, and the accounts that it leaves.

    Where not all arms were always available, `shown` is how often it shows each arm of a context while that is
    available: no distribution, and what `score` takes with renormalise=False.
    """

    shown: Matrix
    accounts: Vector
    distributions: Callable[[], Matrix]  # the policy as a table, to be renormalised over what is available


def _best(totals: Matrix, alpha: float, groups: ArmGroups, situations: Situations | None) -> Best:
    """Totals beyond what `offline_optimum` takes are divided, and the initial 1 with them."""
    part = min(1.0, 0.5 * MOST_REWARD / max(float(totals.max()), 1.0))
    part = math.ldexp(1.0, math.frexp(part)[1] - 1)
    settings: dict[str, Any] = {"tolerance": TOLERANCE, "initial": part, "groups": groups}
    if situations is None:
        found = offline_optimum(part * totals, alpha, **settings)
        return Best(found.distributions, found.accounts / part, lambda: found.distributions)
    found = offline_optimum(situations.totals(part * totals), alpha, **settings, present=situations.sets)
    shown = situations.shown(found.distributions)
    rates = divided(shown, situations.available, np.zeros_like(shown))
    return Best(rates, found.accounts / part, lambda: _raised(situations.table(shown), groups))


def _raised(table: Matrix, groups: ArmGroups) -> Matrix:
    """A table that keeps the floors; renormalised over fewer arms, those of arms are kept all the more."""
    base = np.full_like(table, groups.arm_floor)
    if groups.floored:
        inside = groups.of_arms == np.arange(groups.n_groups)[:, None]  # (n_groups, n_arms)
        whole = (table @ inside.T)[:, groups.of_arms]
        even = np.broadcast_to(1.0 / inside.sum(axis=1)[groups.of_arms], table.shape)
        base = groups.group_floors[groups.of_arms] * divided(table, whole, even)
    above = np.maximum(table - base, 0.0)
    free = np.broadcast_to(above.sum(axis=1, keepdims=True), table.shape)
    room = 1.0 - base.sum(axis=1, keepdims=True)
    return np.asarray(base + room * divided(above, free, np.full_like(table, 1.0 / table.shape[1])))


def _first(alphas: Vector, holds: Any) -> float | None:
    return float(alphas[np.argmax(holds)]) if holds.any() else None


def _last(alphas: Vector, holds: Any) -> float | None:
    return float(alphas[np.flatnonzero(holds)[-1]]) if holds.any() else None
