"""Policies that learn, on a log: replayed on the rounds that match their draws, or simulated on a model; warm starts.

Both evaluations depend on assumptions, which every result states.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from alphafair import metrics, run, validate
from alphafair.errors import InvalidArgument
from alphafair.evaluation.diagnosis import inverse_propensities
from alphafair.evaluation.estimates import FEWEST, METRICS, PLUG_IN, UNKNOWN, Measured, Verdict, possible
from alphafair.evaluation.log_rows import arm_names, check_in_memory, check_log, check_single, select_rows
from alphafair.evaluation.optima import survey
from alphafair.evaluation.reward_model import fit
from alphafair.formatting import clipped, counted, listed, percent
from alphafair.groups import ArmGroups, GroupsLike, arm_groups
from alphafair.run import simulate
from alphafair.tasks import in_order
from alphafair.values import Interval, Log, Policy, Stream, Vector
from alphafair.values.log import runs_of

REPLAY = (
    "rounds are exchangeable over time, propensities are true, and the arm shown in one round does not affect later "
    "rounds; the policy sees only the rounds that match, so it learns from fewer"
)
MODEL = (
    "the model is true: the reward of an arm in a context has its estimated mean at all times and is the least or the "
    "greatest of the log; where the log did not show an arm the mean is a guess"
)
MOST_CELLS, MOST_DRAWS = 4_000_000, 1024
FEW_SHOWN = 10  # rewards of an arm in a context: with fewer, the model relies on the arm's mean elsewhere


Kind = TypeVar("Kind", bound=Policy)


@dataclass(frozen=True, eq=False, kw_only=True)
class Learned(Measured):
    """The result of a learning policy on a log, over several seeds: means with their bands, and a verdict.

    Bands of a replay are for a single run on a log of other rounds, since all seeds use the rounds of one log; those of
    a model are over its draws, and do not include the model's own error. So no verdict is better than "thin".
    `n_rounds` is the mean number of rounds that counted.
    """

    policy: str
    confidence: float
    how: str  # "replay" or "model"
    assumes: str


def replay(
    log: Log,
    policy: Policy,
    alpha: float = 0.9,
    *,
    groups: GroupsLike | None = None,
    confidence: float = 0.95,
    n_seeds: int = 20,
    seed: int = 0,
    executor: Executor | None = None,
) -> Learned:
    """Replay a learning policy on the rounds of a log that match its own draws (Li et al., WSDM 2011).

    A round counts if the policy draws the arm that was shown. Where arms were not shown with equal probability, rounds
    are first kept with probability least/p, p the round's propensity and least the smallest of all. About one round in
    n_arms is left, or fewer; a log of which a tiny propensity leaves almost nothing is refused. The policy draws among
    the arms that were available. `confidence` is the level of the bands; every `seed` stands for n_seeds different
    seeds of the policy's draws. Seeds run in the workers of an `executor`, as in `evaluate`.

    >>> from alphafair import AlphaFairAdaptive, Uniform, streams
    >>> stream = streams.ratings(n_rounds=20_000, n_contexts=2, n_arms=3, seed=0)
    >>> log = simulate(Uniform(2, 3, feedback="bandit"), stream, log=True).log
    >>> found = replay(log, AlphaFairAdaptive(2, 3, alpha=0.5), alpha=0.5, n_seeds=5)
    >>> 6000 < found.n_rounds < 7000, bool(found.reward_per_round.value > log.rewards.mean())
    (True, True)
    """
    _check(log, policy)
    options = Repeats.checked(arm_groups(groups, log.n_arms), alpha, confidence, n_seeds, seed)
    tasks = [partial(_replayed, log, policy, each) for each in options.seeds]
    runs = list(in_order(tasks, executor, shared=(log, policy)))
    return _learned(log, policy, "replay", REPLAY, options, runs)


def _replayed(log: Log, policy: Policy, seed: int) -> Run:
    """The replay with one seed."""
    generator, player = np.random.default_rng(seed), policy.fresh()
    kept = np.flatnonzero(generator.random(log.n_rounds) < log.propensities.min() / log.propensities)
    if len(kept) < 10 * log.n_arms:
        repair = "Propensities are too uneven to match rounds: use simulate_model, or evaluate a fixed policy."
        raise InvalidArgument("log", f"one with {10 * log.n_arms} rounds that could match", len(kept), repair)
    n, played = run.over_matches(player, select_rows(log, kept), generator)
    return Run(n, played.earned, _again(n, played.earned, float(log.rewards.max()), generator))


def simulate_model(
    log: Log,
    policy: Policy,
    alpha: float = 0.9,
    *,
    groups: GroupsLike | None = None,
    confidence: float = 0.95,
    n_seeds: int = 20,
    seed: int = 0,
    executor: Executor | None = None,
) -> Learned:
    """Simulate a learning policy on rewards drawn from the model of a log, in the log's contexts, round by round.

    Where not all arms were available, the policy draws among those that were, step by step instead of compiled.
    `confidence`, `seed` and `executor` are as in `replay`.

    >>> from alphafair import AlphaFairAdaptive, Uniform, streams
    >>> stream = streams.ratings(n_rounds=5_000, n_contexts=2, n_arms=3, seed=0)
    >>> log = simulate(Uniform(2, 3, feedback="bandit"), stream, log=True).log
    >>> simulate_model(log, AlphaFairAdaptive(2, 3, alpha=0.5), alpha=0.5, n_seeds=5).n_rounds
    5000
    """
    _check(log, policy)
    options = Repeats.checked(arm_groups(groups, log.n_arms), alpha, confidence, n_seeds, seed)
    tasks = [partial(_on_model, log, policy, each) for each in options.seeds]
    runs = list(in_order(tasks, executor, shared=(log, policy)))
    return _learned(log, policy, "model", MODEL, options, runs)


def _on_model(log: Log, policy: Policy, seed: int) -> Run:
    """The simulation with one seed."""
    stream = model_stream(log, seed=seed)
    if log.available is None:
        final = simulate(policy.fresh(), stream, seed=seed).final
    else:
        generator = np.random.default_rng(seed)
        final = run.over_stream(policy.fresh(), stream, generator, every=log.n_rounds, available=log.available).earned
    return Run(log.n_rounds, final, final)


def model_stream(log: Log, *, seed: int = 0) -> Stream:
    """A stream with the log's contexts whose rewards have the means of the log's model.

    Every arm pays the least or the greatest reward of the log, with its mean: exact for clicks, and the greatest
    possible noise for other rewards.
    """
    check_log(log)
    check_single(log)
    generator = validate.random_generator("seed", seed)
    cells = survey(log).cells
    means = fit(cells).means
    least, most = float(log.rewards.min()), float(log.rewards.max())
    low, high = least / cells.unit, most / cells.unit
    n_draws = int(np.clip(MOST_CELLS // means.size, 1, MOST_DRAWS))
    chances = (means - low) / (high - low) if high > low else np.zeros_like(means)
    drawn = generator.random((n_draws, *means.shape)) < chances
    table = np.where(drawn, most, least).reshape(-1, log.n_arms)
    items = generator.integers(0, n_draws, log.n_rounds) * log.n_contexts + log.contexts
    return Stream(
        log.contexts, items.astype(np.int32), table, log.context_labels, log.arm_labels, n_contexts=log.n_contexts
    )


def _check(log: Log, policy: Policy) -> None:
    check_log(check_in_memory(log))
    check_single(log)
    if (policy.n_contexts, policy.n_arms) != (log.n_contexts, log.n_arms):
        allowed = f"one of {log.n_contexts} contexts and {log.n_arms} arms"
        raise InvalidArgument(
            "policy", allowed, [policy.n_contexts, policy.n_arms], "Make it for the log's contexts and arms."
        )
    validate.learnable(log.rewards, policy.traits.reward_range)


class Repeats(NamedTuple):
    """The groups, alpha and confidence of the bands, and the seeds of the runs."""

    groups: ArmGroups
    alpha: float
    confidence: float
    seeds: range

    @classmethod
    def checked(cls, groups: ArmGroups, alpha: float, confidence: float, n_seeds: int, seed: int) -> Repeats:
        n_seeds = validate.integer("n_seeds", n_seeds, low=2)
        first = n_seeds * validate.integer("seed", seed, low=0)
        confidence = validate.number("confidence", confidence, low=0.5, high=0.999)
        return cls(groups, validate.alpha(alpha), confidence, range(first, first + n_seeds))


class Run(NamedTuple):
    """One seed: the number of rounds that counted, the accounts, and accounts with rewards drawn anew."""

    n_rounds: int
    earned: Vector
    again: Vector


def _again(n: int, earned: Vector, most: float, generator: np.random.Generator) -> Vector:
    """Accounts after as many other rounds: in each, one arm pays the greatest reward, or none does.

    Exact for rewards of 0 and 1; others vary less.
    """
    chances = (earned - 1.0) / (n * most) if n * most > 0.0 else np.zeros_like(earned)
    chances = chances / max(1.0, float(chances.sum()))  # up to rounding their sum is at most 1
    return np.asarray(1.0 + most * generator.multinomial(n, np.append(chances, max(0.0, 1.0 - chances.sum())))[:-1])


def _learned(log: Log, policy: Policy, how: str, assumes: str, options: Repeats, runs: list[Run]) -> Learned:
    groups, alpha = options.groups, options.alpha
    counts, earned, again = (np.array(each) for each in zip(*runs, strict=True))
    n_rounds = round(float(counts.mean()))
    verdict, reasons = _judged(log, how, n_rounds)
    known = 1.0 if verdict == "thin" else math.nan
    reach = metrics.student_quantile(0.5 + options.confidence / 2.0, len(runs) - 1) * (
        1.0 if how == "replay" else len(runs) ** -0.5
    )

    def band(found: Callable[[Any], Any], least: float, most: float = math.inf) -> Interval:
        if verdict == "do not use":
            return UNKNOWN
        value, half = float(found(earned).mean()), reach * float(found(again).std(ddof=1))
        return Interval(value, value - half, value + half).clip(least, most)

    def of_metric(name: str) -> Interval:
        plain = PLUG_IN[name]
        return band(lambda accounts: plain(groups.accounts(accounts), alpha, groups), *possible(name, groups, alpha))

    return Learned(
        policy=policy.name,
        confidence=options.confidence,
        how=how,
        assumes=assumes,
        alpha=alpha,
        n_rounds=n_rounds,
        accounts=known * groups.accounts(earned).mean(axis=0),
        cumulative_rewards=known * (earned.mean(axis=0) - 1.0),
        reward_per_round=band(lambda accounts: (accounts.sum(axis=1) - log.n_arms) / np.maximum(counts, 1), 0.0),
        verdict=verdict,
        reasons=reasons,
        **{name: of_metric(name) for name in METRICS},
    )


def _judged(log: Log, how: str, n_rounds: int) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict, from the assumptions and the number of rounds."""
    cells, names = survey(log).cells, arm_names(log)
    unusable, thin = [], []
    never = [clipped(names[arm], 24) for arm in np.flatnonzero(cells.counts.sum(axis=0) == 0.0)]
    if never:
        unusable.append(f"arms never shown, which a learning policy would try: {listed(never[:3])}")
    if not log.rewards.any():
        unusable.append("no round has a reward above 0")
    if how == "replay":
        if inverse_propensities(log).off.any():
            unusable.append("inverse propensities do not average to one: `alphafair doctor` shows for which arms")
        if n_rounds < FEWEST:
            unusable.append(f"only {counted(n_rounds, 'round')} matched")
        part = percent(n_rounds / log.n_rounds, 2)
        thin.append(f"{part} of the rounds matched, and the policy learned from no more")
    else:
        guessed = float(cells.available[cells.counts < FEW_SHOWN].sum() / cells.available.sum())
        thin.append("bands do not include the model's own error")
        if guessed > 0.0:
            part = percent(guessed, 2)
            thin.append(f"for {part} of all rounds and arms the model has fewer than {FEW_SHOWN} rewards")
    return ("do not use" if unusable else "thin"), (*unusable, *thin)


def warm_start(log: Log, kind: type[Kind], *, weight: float = 1.0, seed: int | None = None, **settings: Any) -> Kind:
    """Make a policy and let it learn from a log, as if it had made those decisions itself.

    It believes every row, and counts the rewards in its accounts: for logs of a policy of yours. For a log of anybody
    else call `policy.observe_log`, which trusts a log as far as it predicts the policy's own rewards.

    Parameters
    ----------
    log
        Decisions with rewards in the policy's range, in the order of time.
    kind
        A class of policies with bandit feedback, such as `AlphaFairAdaptive`.
    weight
        The fraction of decisions to learn from, evenly spaced, in [0, 1]; to what is learned and to accounts alike.
    seed, settings
        Arguments of the policy, such as `alpha=0.9`.

    The same log, class, settings and weight give the same state. Propensities below 1/(2n), n arms, are raised to that,
    so that no reward counts for more than 2n times its size. A decision that another policy hardly ever made would
    otherwise outweigh thousands of the policy's own. A decision that showed several arms is learned as one slate, so
    the policy must show slates as well.

    >>> from alphafair import AlphaFairAdaptive, Log
    >>> log = Log([0, 0, 0, 0], [1, 0, 1, 2], [1.0, 0.0, 1.0, 0.2], [0.001, 0.4, 0.3, 0.3])
    >>> policy = warm_start(log, AlphaFairAdaptive, alpha=0.5, weight=0.5)
    >>> policy.accounts.tolist()
    [1.0, 1.0, 1.2]
    """
    check_in_memory(log)
    weight = validate.number("weight", weight, low=0.0, high=1.0)
    policy = kind(log.n_contexts, log.n_arms, **settings, seed=seed)  # type: ignore[call-arg]
    validate.learnable(log.rewards, policy.traits.reward_range)  # also those of rounds that are skipped
    places = np.floor(np.arange(log.n_decisions + 1) * weight)
    kept = np.diff(places) > 0.0
    rows = np.flatnonzero(kept if log.decisions is None else kept[runs_of(log.decisions)])
    if len(rows):
        run.over_log(policy, select_rows(log, rows, least=0.5 / log.n_arms))
    return policy
