"""Estimates of what a fixed policy would have earned on the rounds of a log, with their intervals and verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import metrics, validate
from alphafair.evaluation import intervals
from alphafair.evaluation.estimators import (
    ESTIMATORS,
    GREATEST,
    LOG,
    LOG_SQUARE,
    PAID,
    PAID_SQUARE,
    PAID_WEIGHT,
    SQUARE,
    WEIGHT,
    WORTH,
    WORTH_SQUARE,
    Estimator,
    Scores,
    Scoring,
    check_distributions,
    score,
)
from alphafair.evaluation.intervals import Level
from alphafair.evaluation.log_rows import Advance, AnyLog, check_log, cluster_count, folds_of, silent
from alphafair.evaluation.optima import Survey, best_policy, logged_distributions, survey
from alphafair.evaluation.reward_model import Model, divide, fit, model_totals
from alphafair.formatting import clipped, json_alpha, number, percent
from alphafair.groups import ArmGroups, GroupsLike, arm_groups
from alphafair.math.utility import MOST_PLAYED
from alphafair.values import Interval, Matrix, Vector

METRICS = ("alpha_performance", "welfare", "jain_index", "average_reward", "least_share", "greatest_share")
NAMED = ("logged", "uniform", "fair")  # policies that `evaluate_all` makes itself
EXPONENTS = ("alpha", "safe")  # fields that are values of alpha
UNKNOWN = Interval(math.nan, math.nan, math.nan)
Verdict = Literal["trustworthy", "thin", "do not use"]
FEWEST, FEW = 30.0, 200.0  # effective rounds: below the first there is no estimate, below the second it is thin
FEW_REWARDED = 20.0  # effective rounds with a reward, for every arm
LOPSIDED = 10.0 / 3.0  # over c: for the skewness of rewards, in addition to their spread
FEW_USERS = 50
GREAT_WEIGHT = 0.03  # of the sum of an arm's weights
MUCH_CUT = 0.25  # of the standard error of an arm's weights
BLIND = 0.001  # of all rounds: those about which the log has no information
FAR, OFF = 5.0, 0.1  # standard errors, and relative: weights that do not add up


class Options(NamedTuple):
    """The groups, alpha and confidence of an estimate, and the replicates and seed of its bootstrap."""

    groups: ArmGroups
    alpha: float
    confidence: float
    n_replicates: int
    seed: int
    context_share: float = 0.0  # of its best that the best policy gives every context

    @classmethod
    def checked(cls, groups: ArmGroups, alpha: float, confidence: float, n_replicates: int, seed: int) -> Options:
        return cls(
            groups,
            validate.alpha(alpha),
            validate.number("confidence", confidence, low=0.5, high=0.999),
            validate.integer("n_replicates", n_replicates, low=100, high=100_000),
            validate.integer("seed", seed, low=0),
        )


class Reason(str):
    """Why a verdict is not better, as a sentence; of two with the same kind the one of the larger size is worse."""

    __slots__ = ("kind", "size")
    kind: str
    size: float

    def __new__(cls, kind: str, size: float, sentence: str) -> Reason:
        made = super().__new__(cls, sentence)
        made.kind, made.size = kind, size
        return made

    def __getnewargs__(self) -> tuple[str, float, str]:  # type: ignore[override]
        return self.kind, self.size, str(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured:
    """The rewards and the fairness of a policy; all numbers are NaN where the verdict is "do not use"."""

    alpha: float
    n_rounds: int
    accounts: Vector  # R, including the initial 1: per group where there are groups, else per arm
    cumulative_rewards: Vector  # per arm
    reward_per_round: Interval  # of all arms together, without the initial 1
    alpha_performance: Interval  # a sum of logarithms at alpha 1, negative above; NaN at inf, where it does not exist
    welfare: Interval  # in units of reward, for every alpha
    jain_index: Interval
    average_reward: Interval
    least_share: Interval
    greatest_share: Interval
    verdict: Verdict
    reasons: tuple[str, ...]  # why the verdict is not better

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None for NaN."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return dict(plain({"rounds": found.pop("n_rounds"), **found}))


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate(Measured):
    """The estimate for a fixed policy, from a log of another; each of the six metrics is an `Interval`."""

    estimator: str
    confidence: float
    reasons: tuple[Reason, ...]
    bias: dict[str, float]  # of the plug-in estimate, by metric, before any correction
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
    executor: Executor | None = None,
    progress: bool = False,
) -> Estimate:
    """Estimate what a fixed policy would have earned on the rounds of a log, and how fair it would have been.

    Parameters
    ----------
    log
        A `Log`, or a `LogFile` that is too large for memory; rewards of at least 0.
    distributions
        The policy: (n_contexts, n_arms), rows that sum to 1. In rounds in which not all arms were available they are
        renormalized over those that were, and uniform over them where all of those have probability 0. Where decisions
        show k arms, an entry is the probability of the arm to be in one slot, so at most 1/k, and a round is a slot.
    alpha
        Fairness, 0 to inf, of alpha-performance and welfare.
    estimator
        "ips" inverse propensity, "snips" self-normalized, "dr" doubly robust, "clipped" inverse propensity with large
        weights cut, "switch" doubly robust with the model alone where weights are large. docs/howto/evaluate_a_log.md
        has the formulas.
    groups
        A `Groups`, or a label per arm: metrics are over groups then; see docs/howto/groups_and_entitlements.md. A fixed
        policy keeps the floors that its distributions have.
    confidence
        The confidence level of the intervals.
    n_replicates
        Replicates of the bootstrap, over rounds, or over users or else decisions where the log has them.
    executor
        Adds up parts of the log in its workers, see `alphafair.executors`; the numbers are the same to the last bit.
        Workers read the rows of a `LogFile` themselves, at the same paths. None: in this thread.
    progress
        Show a progress bar.

    >>> from alphafair import Uniform, simulate, streams
    >>> stream = streams.ratings(n_rounds=20_000, n_contexts=2, n_arms=3, seed=0)
    >>> log = simulate(Uniform(2, 3, feedback="bandit"), stream, log=True).log
    >>> estimate = evaluate(log, [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], alpha=0.5)
    >>> estimate.verdict, estimate.jain_index.low < estimate.jain_index.value < estimate.jain_index.high
    ('trustworthy', True)
    """
    settings: dict[str, Any] = {
        "estimator": estimator,
        "groups": groups,
        "confidence": confidence,
        "n_replicates": n_replicates,
        "seed": seed,
    }
    found = evaluate_all(log, {"policy": distributions}, alpha, **settings, executor=executor, progress=progress)
    return found["policy"]


def evaluate_all(
    log: AnyLog,
    policies: Mapping[str, ArrayLike],
    alpha: float = 0.9,
    *,
    estimator: str = "dr",
    groups: GroupsLike | None = None,
    confidence: float = 0.95,
    n_replicates: int = 1000,
    seed: int = 0,
    executor: Executor | None = None,
    progress: bool = False,
) -> dict[str, Estimate]:
    """Estimate what several fixed policies would have earned, in at most two passes over the log.

    `policies` are distributions by name, as in `evaluate`, or one of three strings: "logged" (the frequencies of arms
    in the log), "uniform" and "fair" (the best fixed policy, learned from each half of the rounds and scored on the
    other).

    >>> from alphafair import Uniform, simulate, streams
    >>> stream = streams.ratings(n_rounds=20_000, n_contexts=2, n_arms=3, seed=0)
    >>> log = simulate(Uniform(2, 3, feedback="bandit"), stream, log=True).log
    >>> found = evaluate_all(log, {"even": "uniform", "fair": "fair"}, alpha=0.5)
    >>> bool(found["fair"].alpha_performance.value > found["even"].alpha_performance.value)
    True
    """
    check_log(log)
    chosen = ESTIMATORS[validate.choice("estimator", estimator, ESTIMATORS)]
    options = Options.checked(arm_groups(groups, log.n_arms), alpha, confidence, n_replicates, seed)
    names = [policy for policy in policies.values() if isinstance(policy, str)]
    for name in names:
        validate.choice("policies", name, NAMED)
    tables = {name: check_distributions(each, log) for name, each in policies.items() if not isinstance(each, str)}
    surveyed = chosen.with_model or not {"logged", "fair"}.isdisjoint(names)
    with bar("Reading", (1 + surveyed) * log.n_rounds, progress) as advance:
        found = survey(log, advance, executor) if surveyed else None
        model = fit(found.cells) if found is not None and chosen.with_model else None
        scorings = []
        for name, policy in policies.items():
            if isinstance(policy, str) and policy == "fair":
                folds = folds_of(cluster_count(log))
                scorings.append(held_out(_required(found), options, log.n_rounds, folds, chosen, model))
            else:
                table = tables[name] if name in tables else _named(str(policy), log, found)
                scorings.append(Scoring(table[None], chosen, model))
        scores = score(log, scorings, advance, executor)
    with bar("Resampling", options.n_replicates, progress) as advance:
        drawn = Resampled.all_of(scores, options, advance)
    return {name: each.estimate(estimator, options) for name, each in zip(policies, drawn, strict=True)}


def _required(found: Survey | None) -> Survey:
    assert found is not None  # noqa: S101 - a survey was made for this policy
    return found


def _named(name: str, log: AnyLog, found: Survey | None) -> Matrix:
    """The distributions of a policy by its name."""
    if name == "logged":
        return logged_distributions(_required(found))
    return np.full((log.n_contexts, log.n_arms), 1.0 / log.n_arms)


def held_out(
    found: Survey, options: Options, n_rounds: int, folds: Any, estimator: Estimator, model: Model | None
) -> Scoring:
    """The best fixed policies of both halves of the rounds, each to be scored on the other half."""
    n_decisions = found.cells.visits.sum()
    totals = [model_totals(half) * (n_decisions / max(half.visits.sum(), 1.0)) for half in found.halves[::-1]]
    best = [
        best_policy(
            each, options.alpha, options.groups, found.situations, found.shown, options.context_share
        ).distributions()
        for each in totals
    ]
    return Scoring(np.stack(best), estimator, model, folds)


class Resampled(NamedTuple):
    """The scores of a policy with the verdict about them, and the accounts of bootstrap replicates."""

    scores: Scores  # by arm
    pooled: Scores  # by group of arms
    verdict: Verdict
    reasons: tuple[Reason, ...]
    drawn: Matrix | None  # (n_replicates, n_groups); None where the verdict is "do not use"

    @classmethod
    def all_of(cls, scores: Sequence[Scores], options: Options, advance: Advance = silent) -> list[Resampled]:
        """Judge and resample the scores of several policies, with the same random numbers for each."""
        pooled, judged = [each.pooled(options.groups) for each in scores], [judge(each) for each in scores]
        usable = [place for place, (verdict, _) in enumerate(judged) if verdict != "do not use"]
        replicates = intervals.replicates(
            [pooled[place] for place in usable], options.n_replicates, options.seed, advance
        )
        drawn = dict(zip(usable, replicates, strict=True))
        return [
            cls(own, pooled[place], judged[place][0], tuple(judged[place][1]), drawn.get(place))
            for place, own in enumerate(scores)
        ]

    def estimate(self, estimator: str, options: Options) -> Estimate:
        """The estimate with its intervals."""
        alpha, groups = options.alpha, options.groups
        accounts, cumulative_rewards = self.pooled.accounts()[0], self.scores.cumulative_rewards()[0]
        found, bias = dict.fromkeys(METRICS, UNKNOWN), dict.fromkeys(METRICS, math.nan)
        if self.drawn is None:
            accounts, cumulative_rewards = (np.full_like(each, math.nan) for each in (accounts, cumulative_rewards))
        else:
            found = metric_intervals(accounts, self.drawn, self.pooled.freedom, options)
            bias = {
                name: float(metric(self.drawn, alpha, groups).mean() - metric(accounts, alpha, groups))
                for name, metric in PLUG_IN.items()
            }
        per_round = (len(accounts) * (side - 1.0) / self.scores.n_rounds for side in found["average_reward"])
        return Estimate(
            estimator=estimator,
            alpha=alpha,
            confidence=options.confidence,
            n_rounds=self.scores.n_rounds,
            reward_per_round=Interval(*per_round),
            accounts=accounts,
            cumulative_rewards=cumulative_rewards,
            bias=bias,
            effective_sample_size=effective_sample_size(self.scores),
            verdict=self.verdict,
            reasons=self.reasons,
            **found,
        )


def _performance(accounts: Any, alpha: float, groups: ArmGroups | None = None) -> Any:
    """alpha-performance; NaN at inf."""
    if alpha == math.inf:
        return np.full(np.shape(accounts)[:-1], math.nan)
    return metrics.alpha_performance(accounts, alpha, groups=groups)


PLUG_IN: dict[str, Callable[..., Any]] = {  # functions of the accounts of groups, alpha and the groups
    "alpha_performance": _performance,
    "welfare": lambda accounts, alpha, groups=None: metrics.welfare(accounts, alpha, groups=groups),
    "jain_index": lambda accounts, alpha, groups=None: metrics.jain_index(accounts, groups=groups),
    "average_reward": lambda accounts, alpha, groups=None: metrics.average_reward(accounts),
    "least_share": lambda accounts, alpha, groups=None: metrics.shares(accounts).min(axis=-1),
    "greatest_share": lambda accounts, alpha, groups=None: metrics.shares(accounts).max(axis=-1),
}


def metric_intervals(
    accounts: Vector, drawn: Matrix, freedom: Callable[[Vector], int], options: Options
) -> dict[str, Interval]:
    """The interval of every metric of R, from replicates of R and the degrees of freedom in a direction of R."""
    alpha, groups, s = options.alpha, options.groups, options.groups.entitlements
    shares, performance, average = metrics.shares(accounts), PLUG_IN["alpha_performance"], PLUG_IN["average_reward"]

    def level(direction: Vector) -> Level:
        return Level(options.confidence, freedom(direction))

    def of_share(arm: int) -> Level:
        return level(np.eye(len(accounts))[arm] - shares[arm])

    entitled_shares = metrics.shares(accounts / s)
    levels = accounts / s
    by_marginal = level(levels**-alpha if alpha < 1.0 else (levels / levels.min()) ** -alpha)
    by_deviation = level((entitled_shares - entitled_shares.mean()) / s)
    welfare = _welfare_interval(accounts, drawn, by_marginal, options)
    if alpha < 1.0:
        worth = intervals.smooth(
            performance(accounts, alpha, groups), performance(drawn, alpha, groups), by_marginal, corrected=True
        )
    else:
        worth = Interval(*(_performance_of_welfare(side, alpha, groups) for side in welfare))
    found = {
        "alpha_performance": worth,
        "welfare": welfare,
        "jain_index": intervals.jain(accounts / s, drawn / s, by_deviation),
        "average_reward": intervals.smooth(
            average(accounts, alpha, groups), average(drawn, alpha, groups), level(np.ones_like(accounts))
        ),
        "least_share": intervals.least_share(accounts, drawn, of_share(int(shares.argmin()))),
        "greatest_share": intervals.greatest_share(accounts, drawn, of_share(int(shares.argmax()))),
    }
    return {name: each.clip(*possible(name, groups, alpha)) for name, each in found.items()}


def _welfare_interval(accounts: Vector, drawn: Matrix, level: Level, options: Options) -> Interval:
    """The interval of the welfare: of a smooth function of R, or of the least level where alpha is too steep."""
    alpha, groups, s = options.alpha, options.groups, options.groups.entitlements
    if alpha > MOST_PLAYED:
        return intervals.least_level(accounts / s, drawn / s, level, PLUG_IN["welfare"](accounts, alpha, groups))
    value, replicates = (PLUG_IN["welfare"](each, alpha, groups) for each in (accounts, drawn))
    return intervals.smooth(value, replicates, level, corrected=True)


def _performance_of_welfare(welfare: float, alpha: float, groups: ArmGroups) -> float:
    """alpha-performance from the welfare, of which it is an increasing function; NaN at inf."""
    s = groups.entitlements
    if alpha == 1.0:
        return float(s.sum() * np.log(welfare) + (s * np.log(s)).sum())
    return math.nan if alpha == math.inf else float(s.sum() * welfare ** (1.0 - alpha) / (1.0 - alpha))


def possible(metric: str, groups: ArmGroups, alpha: float) -> tuple[float, float]:
    """The range of a metric: accounts begin with 1 and never fall."""
    n = groups.n_groups
    start = float(PLUG_IN["alpha_performance"](np.ones(n), alpha, groups))
    return {
        "alpha_performance": (start, math.inf if alpha <= 1.0 else 0.0),
        "welfare": (float(metrics.welfare(np.ones(n), alpha, groups=groups)), math.inf),
        "jain_index": (1.0 / n, 1.0),
        "average_reward": (1.0, math.inf),
        "least_share": (0.0, 1.0 / n),
        "greatest_share": (1.0 / n, 1.0),
    }[metric]


@contextmanager
def bar(title: str, total: int, progress: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar, shown if `progress`."""
    from alphafair.progress import progress_bar

    with progress_bar(disable=not progress) as shown:
        task = shown.add_task(title, total=total)
        yield lambda done: shown.advance(task, done)


def plain(value: Any) -> Any:
    """A value for JSON: named tuples as objects, arrays as lists, None for NaN and infinity, "inf" for that alpha."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: json_alpha(each) if name in EXPONENTS else plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(each) for each in (value.tolist() if isinstance(value, np.ndarray) else value)]
    return value


# The verdict: whether a log has enough rounds like the policy's own, and weights that add up


def effective_sample_size(scores: Scores) -> float:
    """(sum w)^2 / sum w^2: the number of the policy's own rounds with as much information (Kish, 1965)."""
    return float(_effective(scores.arm_weights[WEIGHT].sum(), scores.arm_weights[SQUARE].sum()))


def judge(scores: Scores) -> tuple[Verdict, list[Reason]]:
    """The verdict, and the reasons why it is not better."""
    unusable, thin = list(_unusable(scores)), list(_thin(scores))
    size = effective_sample_size(scores)
    if not size >= FEW:
        rounds = "one round" if size == 1.0 else f"{number(size, 2)} rounds"
        found = Reason("rounds", -size, f"the log is worth only {rounds} of the policy")
        (unusable if size < FEWEST else thin).append(found)
    verdict: Verdict = "do not use" if unusable else "thin" if thin else "trustworthy"
    return verdict, unusable + thin


def _unusable(scores: Scores) -> Iterator[Reason]:
    """Reasons why there is no estimate."""
    weights, squares = scores.arm_weights[WEIGHT], scores.arm_weights[SQUARE]
    shown = _shown(scores)
    never = shown & (weights == 0.0)
    if never.any():
        part = float(scores.expected[never].sum()) / scores.n_rounds
        which, were, they = _which(scores, never, scores.expected)
        sentence = f"{which} {were} never shown, and the policy would show {they} in {percent(part)} of rounds"
        yield Reason("never shown", part, sentence)
    if not scores.arm_weights[WORTH].any():
        sentence = "no round in which the policy could have shown the same arm has a reward above 0"
        yield Reason("no reward", 0.0, sentence)
    apart = np.abs(weights - scores.expected)
    off = shown & ~never & (apart > np.maximum(FAR * np.sqrt(squares), OFF * scores.expected))
    often = scores.n_rounds / max(scores.n_contexts, 1)
    if off.any() and often < len(weights):
        few = f"rounds per context: {number(often, 2)}, fewer than arms"
        yield Reason("contexts", -often, f"{few}, which are too few to estimate what a policy earns in each")
    elif off.any():
        ratios = divide(weights, scores.expected, np.ones_like(weights))
        which, _, they = _which(scores, off, np.abs(np.log(np.maximum(ratios, 1e-300))))
        worst = ratios[off][np.abs(np.log(ratios[off])).argmax()]
        yield Reason(
            "weights",
            float(np.abs(np.log(worst))),
            f"the weights of {which} add up to {number(worst, 2)} times what they should: propensities are wrong, or "
            f"the log did not show {they} where the policy would",
        )


def _thin(scores: Scores) -> Iterator[Reason]:
    """Reasons why intervals are only indications."""
    weights, squares = scores.arm_weights[WEIGHT], scores.arm_weights[SQUARE]
    shown, none = _shown(scores), np.zeros_like(weights)
    blind = float(scores.unseen.sum() / scores.n_rounds)
    if blind > BLIND:
        arm = int(scores.unseen.argmax())
        yield Reason(
            "unseen",
            blind,
            f"in {percent(blind, 2)} of rounds the policy would show an arm, such as {_name(scores, arm)}, in a "
            "context where the log never did: the estimate for them is a guess",
        )
    greatest = shown * divide(scores.arm_weights[GREATEST], weights, none)
    if greatest.max() > GREAT_WEIGHT:
        arm = int(greatest.argmax())
        sentence = f"one round carries {percent(greatest[arm], 2)} of the weight of {_name(scores, arm)}"
        yield Reason("one round", float(greatest[arm]), sentence)
    cut = shown & (scores.cut > MUCH_CUT * np.sqrt(squares))
    if cut.any():
        parts = cut * divide(scores.cut, weights, none)
        arm = int(parts.argmax())
        part = percent(parts[arm], 2)
        sentence = f"{part} of the weight of {_name(scores, arm)} was cut, which no interval accounts for"
        yield Reason("cut", float(parts[arm]), sentence)
    paid, rewarded = rewarded_rounds(scores.arm_weights)
    poor = shown & (paid < FEW_REWARDED)
    if poor.any():
        which, _, _ = _which(scores, poor, -paid)
        sentence = f"the estimate for {which} rests on fewer than {FEW_REWARDED:g} rewarded rounds"
        yield Reason("rewarded rounds", float(poor.sum()), sentence)
    uneven = shown & (rewarded < FEW_REWARDED) & ~poor
    if uneven.any():
        which, _, _ = _which(scores, uneven, -rewarded)
        sentence = f"rewards are so uneven that those of {which} are worth fewer than {FEW_REWARDED:g} equal ones"
        yield Reason("uneven rewards", float(uneven.sum()), sentence)
    n_users = len(scores.shares)
    if n_users < min(FEW_USERS, scores.n_rounds):
        yield Reason("users", -n_users, f"there are only {n_users} {scores.clusters}")


def _shown(scores: Scores) -> NDArray[np.bool_]:
    """The arms that the policy would ever show."""
    return np.asarray(scores.expected / scores.n_rounds > 1e-9)


def _which(scores: Scores, arms: NDArray[np.bool_], worst: Vector) -> tuple[str, str, str]:
    """The arms in words, by the name of the worst of several; "was" or "were"; "it" or "them"."""
    name = _name(scores, int(np.flatnonzero(arms)[worst[arms].argmax()]))
    return (name, "was", "it") if arms.sum() == 1 else (f"{arms.sum()} arms, such as {name},", "were", "them")


def rewarded_rounds(sums: Matrix) -> tuple[Vector, Vector]:
    """By arm: the effective number of rounds with a reward above 0, and of rounds with equal rewards.

    The latter is (sum w r)^2 / sum (w r)^2 as observed. Where rewards are very uneven most logs lack the largest, and
    look even. So their logarithms, which hardly depend on the largest, are used as well: of n effective rounds with a
    reward, and with c = E r^2/(E r)^2, there are n/c for the spread and LOPSIDED n/c^2 for the skewness.
    """
    paid, seen = _effective(sums[PAID_WEIGHT], sums[PAID_SQUARE]), _effective(sums[WORTH], sums[WORTH_SQUARE])
    c = max(1.0, min(_lognormal(sums), 2.0 * float(paid.sum()) / max(float(seen.sum()), 1e-300)))
    return paid, np.minimum(seen, paid * min(1.0 / c, LOPSIDED / c**2))


def _lognormal(sums: Matrix) -> float:
    """E r^2/(E r)^2 of rewards above 0 if they are lognormal: e^(s^2), with s^2 the variance of log r within arms."""
    paid = np.maximum(sums[PAID], 1.0)
    squares = float((sums[LOG_SQUARE] - sums[LOG] ** 2 / paid).sum())
    return math.exp(min(100.0, max(0.0, squares) / max(1.0, float((paid - 1.0).sum()))))


def _effective(totals: Any, squares: Any) -> Any:
    return divide(totals**2, squares, np.zeros_like(totals))


def _name(scores: Scores, arm: int) -> str:
    return f"arm {clipped(scores.arm_labels[arm], 24)}"
