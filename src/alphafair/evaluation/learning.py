"""How a policy that learns would have done, from a log: replayed on the rounds that match, or played against a model.

Both are worth as much as what they assume, so every result says it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from alphafair import metrics, run, validate
from alphafair.errors import InvalidArgument
from alphafair.evaluation.batches import arm_names, check_log, in_memory, some_rows
from alphafair.evaluation.doctor import inverse_propensities
from alphafair.evaluation.estimate import METRICS, PLAIN, UNKNOWN, Measured, possible
from alphafair.evaluation.intervals import Interval
from alphafair.evaluation.model import fit
from alphafair.evaluation.scores import count_cells
from alphafair.evaluation.verdict import FEWEST, Verdict
from alphafair.formatting import clipped, counted, listed, percent
from alphafair.groups import ArmGroups, GroupsLike, arm_groups
from alphafair.run import simulate
from alphafair.values import Log, Policy, Stream, Vector

REPLAY = (
    "rounds are alike at all times, propensities are true, and what one round shows changes nothing in the next; "
    "the policy meets only the rounds that match, so it learns from fewer"
)
MODEL = (
    "the model is the world: every arm pays its estimated mean in a context at all times, 1 or 0 as it were; what the "
    "log did not show is what the model guesses"
)
MOST_CELLS, MOST_DRAWS = 4_000_000, 1024
FEW_SHOWN = 10  # rewards of an arm in a context: below it, the model leans on the arm's mean elsewhere


@dataclass(frozen=True, eq=False, kw_only=True)
class Learned(Measured):
    """A learning policy on a log, over several seeds: means with their bands, and a verdict.

    Bands of a replay are of a single run on a log of other rounds, since all seeds have the rounds of one log; those of
    a model are over its draws, and have nothing of the model's own error in them. So no verdict is better than "thin".
    Rounds are those that counted, on average.
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
) -> Learned:
    """A learning policy on the rounds of a log that match its own draws (Li et al., WSDM 2011).

    A round counts if the policy draws the arm that was shown. Where arms were not shown alike, rounds are first kept
    with probability least/p, p the round's propensity and least the smallest of all, so that they are. About one round
    in n_arms is left, or fewer: one tiny propensity leaves next to nothing, and then it is refused. The policy draws
    among the arms that were available. `confidence` is how surely bands shall hold; every `seed` has n_seeds random
    numbers of its own, for the policy's draws.

    >>> from alphafair import AlphaFairAdaptive, Uniform, streams
    >>> stream = streams.ratings(n_rounds=20_000, n_contexts=2, n_arms=3, seed=0)
    >>> log = simulate(Uniform(2, 3, feedback="bandit"), stream, log=True).log
    >>> found = replay(log, AlphaFairAdaptive(2, 3, alpha=0.5), alpha=0.5, n_seeds=5)
    >>> 6000 < found.n_rounds < 7000, bool(found.reward_per_round.value > log.rewards.mean())
    (True, True)
    """
    _check(log, policy)
    options = Repeats.checked(arm_groups(groups, log.n_arms), alpha, confidence, n_seeds, seed)
    keep = log.propensities.min() / log.propensities
    runs = []
    for each in options.seeds:
        generator, player = np.random.default_rng(each), policy.fresh()
        kept = np.flatnonzero(generator.random(log.n_rounds) < keep)
        if len(kept) < 10 * log.n_arms:
            repair = "Propensities are too uneven to match rounds: use simulate_model, or evaluate a fixed policy."
            raise InvalidArgument("log", f"one with {10 * log.n_arms} rounds that could match", len(kept), repair)
        n, played = run.over_matches(player, some_rows(log, kept), generator)
        runs.append(Run(n, played.earned, _again(n, played.earned, float(log.rewards.max()), generator)))
    return _learned(log, policy, "replay", REPLAY, options, runs)


def simulate_model(
    log: Log,
    policy: Policy,
    alpha: float = 0.9,
    *,
    groups: GroupsLike | None = None,
    confidence: float = 0.95,
    n_seeds: int = 20,
    seed: int = 0,
) -> Learned:
    """A learning policy on rewards drawn from the model of a log, in the log's contexts, round by round.

    Where not all arms were available, the policy plays among those that were, step by step instead of compiled.
    `confidence` and `seed` are as in `replay`.

    >>> from alphafair import AlphaFairAdaptive, Uniform, streams
    >>> stream = streams.ratings(n_rounds=5_000, n_contexts=2, n_arms=3, seed=0)
    >>> log = simulate(Uniform(2, 3, feedback="bandit"), stream, log=True).log
    >>> simulate_model(log, AlphaFairAdaptive(2, 3, alpha=0.5), alpha=0.5, n_seeds=5).n_rounds
    5000
    """
    _check(log, policy)
    options = Repeats.checked(arm_groups(groups, log.n_arms), alpha, confidence, n_seeds, seed)
    runs = []
    for each in options.seeds:
        stream = model_stream(log, seed=each)
        if log.available is None:
            final = simulate(policy.fresh(), stream, seed=each).final
        else:
            generator = np.random.default_rng(each)
            final = run.over_stream(
                policy.fresh(), stream, generator, every=log.n_rounds, available=log.available
            ).earned
        runs.append(Run(log.n_rounds, final, final))
    return _learned(log, policy, "model", MODEL, options, runs)


def model_stream(log: Log, *, seed: int = 0) -> Stream:
    """Rounds in the log's contexts whose rewards have the means that the log's model says; a model, not data.

    Every arm pays the least or the greatest reward of the log, drawn around its mean: for clicks that is all there is,
    for other rewards it is as noisy as can be.
    """
    check_log(log)
    generator = validate.random_generator("seed", seed)
    cells = count_cells(log)
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
    check_log(in_memory(log))
    if (policy.n_contexts, policy.n_arms) != (log.n_contexts, log.n_arms):
        allowed = f"one of {log.n_contexts} contexts and {log.n_arms} arms"
        raise InvalidArgument("policy", allowed, [policy.n_contexts, policy.n_arms], "Make it for the log.")
    validate.learnable(log.rewards, policy.traits.reward_range)


class Repeats(NamedTuple):
    """What is to be measured, over which seeds, and how sure one wants to be."""

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
    """One seed: how many rounds counted, what arms earned, and what they might have on other rounds."""

    n_rounds: int
    earned: Vector
    again: Vector


def _again(n: int, earned: Vector, most: float, generator: np.random.Generator) -> Vector:
    """Rewards of as many other rounds: in each an arm pays the most with its chance, or none does.

    Exact for rewards of 0 and 1; others vary less.
    """
    chances = (earned - 1.0) / (n * most) if n * most > 0.0 else np.zeros_like(earned)
    chances = chances / max(1.0, float(chances.sum()))  # rounding apart they are at most 1 together
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
        plain = PLAIN[name]
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
    """From what is assumed, and how many rounds are left."""
    cells, names = count_cells(log), arm_names(log)
    unusable, thin = [], []
    never = [clipped(names[arm], 24) for arm in np.flatnonzero(cells.counts.sum(axis=0) == 0.0)]
    if never:
        unusable.append(f"arms never shown, which a policy that learns would try: {listed(never[:3])}")
    if not log.rewards.any():
        unusable.append("no round has a reward above 0")
    if how == "replay":
        if inverse_propensities(log).off.any():
            unusable.append("inverse propensities do not average to one: `alphafair doctor` says for which arms")
        if n_rounds < FEWEST:
            unusable.append(f"only {counted(n_rounds, 'round')} matched")
        part = percent(n_rounds / log.n_rounds, 2)
        thin.append(f"{part} of the rounds matched, and it learned from no more")
    else:
        guessed = float(cells.available[cells.counts < FEW_SHOWN].sum() / cells.available.sum())
        thin.append("bands have nothing of the model's own error in them")
        if guessed > 0.0:
            part = percent(guessed, 2)
            thin.append(f"of {part} of all rounds and arms the model knows fewer than {FEW_SHOWN} rewards")
    return ("do not use" if unusable else "thin"), (*unusable, *thin)
