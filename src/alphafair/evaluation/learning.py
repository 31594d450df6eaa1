"""How a policy that learns would have done, from a log: replayed on the rounds that match, or played against a model.

Both are worth as much as what they assume, so every result says it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alphafair import drive, metrics, validate
from alphafair.evaluation.batches import check_log
from alphafair.evaluation.estimate import METRICS, PLAIN
from alphafair.evaluation.intervals import Interval
from alphafair.evaluation.model import fit
from alphafair.evaluation.scores import count_cells
from alphafair.simulation import simulate
from alphafair.types import Log, Policy, Stream, Vector

REPLAY = (
    "rounds are alike at all times, propensities are true, and what one round shows changes nothing in the next; "
    "the policy meets only the rounds that match, so it learns from fewer"
)
MODEL = (
    "the model is the world: every arm pays its estimated mean in a context at all times, 1 or 0 as it were; what the "
    "log did not show is what the model guesses"
)
MOST_CELLS, MOST_DRAWS = 4_000_000, 1024


@dataclass(frozen=True, eq=False)
class Learned:
    """A learning policy on a log, over several seeds: means with their 95% confidence bands over the seeds."""

    policy: str
    how: str  # "replay" or "model"
    assumes: str
    alpha: float
    n_rounds: int  # that counted, on average
    cumulative_rewards: Vector  # per arm, the initial 1 included, mean over seeds
    reward_per_round: Interval
    alpha_performance: Interval
    jain_index: Interval
    average_reward: Interval
    least_share: Interval
    greatest_share: Interval

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("reward_per_round", *METRICS)
        return {
            "policy": self.policy,
            "how": self.how,
            "assumes": self.assumes,
            "alpha": self.alpha,
            "rounds": self.n_rounds,
            "cumulative_rewards": self.cumulative_rewards.tolist(),
            **{name: getattr(self, name)._asdict() for name in names},
        }


def replay(log: Log, policy: Policy, *, alpha: float = 0.9, n_seeds: int = 20) -> Learned:
    """A learning policy on the rounds of a log that match its own draws (Li et al., WSDM 2011).

    A round counts if the policy draws the arm that was shown. Where arms were not shown alike, rounds are first kept
    with probability least/p, p the round's propensity and least the smallest of all, so that they are. About one round
    in n_arms is left, or fewer: one tiny propensity leaves next to nothing, and then it is refused.

    >>> from alphafair import AlphaFairAdaptive, Uniform, streams
    >>> stream = streams.stochastic(n_rounds=20_000, n_contexts=2, n_arms=3, seed=0)
    >>> log = simulate(Uniform(2, 3, feedback="bandit"), stream, log=True).log
    >>> found = replay(log, AlphaFairAdaptive(2, 3, alpha=0.5), alpha=0.5, n_seeds=5)
    >>> 6000 < found.n_rounds < 7000, bool(found.reward_per_round.value > log.rewards.mean())
    (True, True)
    """
    _check(log, policy)
    n_seeds = validate.integer("n_seeds", n_seeds, low=2)
    keep = log.propensities.min() / log.propensities
    runs = []
    for seed in range(n_seeds):
        generator, player = np.random.default_rng(seed), policy.fresh()
        kept = np.flatnonzero(generator.random(log.n_rounds) < keep)
        if len(kept) < 10 * log.n_arms:
            repair = "Propensities are too uneven to match rounds: use simulate_model, or evaluate a fixed policy."
            raise validate.Refusal("log", f"one with {10 * log.n_arms} rounds that could match", len(kept), repair)
        runs.append(drive.over_matches(player, _rows(log, kept), generator))
    return _learned(policy, "replay", REPLAY, alpha, [(n, played.earned) for n, played in runs])


def simulate_model(log: Log, policy: Policy, *, alpha: float = 0.9, n_seeds: int = 20) -> Learned:
    """A learning policy on rewards drawn from the model of a log, in the log's contexts, round by round.

    >>> from alphafair import AlphaFairAdaptive, Uniform, streams
    >>> stream = streams.stochastic(n_rounds=5_000, n_contexts=2, n_arms=3, seed=0)
    >>> log = simulate(Uniform(2, 3, feedback="bandit"), stream, log=True).log
    >>> simulate_model(log, AlphaFairAdaptive(2, 3, alpha=0.5), alpha=0.5, n_seeds=5).n_rounds
    5000
    """
    _check(log, policy)
    n_seeds = validate.integer("n_seeds", n_seeds, low=2)
    runs = []
    for seed in range(n_seeds):
        trace = simulate(policy.fresh(), model_stream(log, seed=seed), seed=seed)
        runs.append((log.n_rounds, trace.final))
    return _learned(policy, "model", MODEL, alpha, runs)


def model_stream(log: Log, *, seed: int = 0) -> Stream:
    """Rounds in the log's contexts whose rewards have the means that the log's model says; a model, not data.

    Every arm pays the least or the greatest reward of the log, drawn around its mean: for clicks that is all there is,
    for other rewards it is as noisy as can be.
    """
    check_log(log)
    generator = validate.random_generator("seed", seed)
    means = fit(count_cells(log, lambda rows: None)[0]).means
    low, high = float(log.rewards.min()), float(log.rewards.max())
    n_draws = int(np.clip(MOST_CELLS // means.size, 1, MOST_DRAWS))
    chances = (means - low) / (high - low) if high > low else np.zeros_like(means)
    drawn = generator.random((n_draws, *means.shape)) < chances
    table = np.where(drawn, high, low).reshape(-1, log.n_arms)
    items = generator.integers(0, n_draws, log.n_rounds) * log.n_contexts + log.contexts
    return Stream(
        log.contexts, items.astype(np.int32), table, log.context_labels, log.arm_labels, n_contexts=log.n_contexts
    )


def _check(log: Any, policy: Policy) -> None:
    if not isinstance(log, Log):
        raise validate.Refusal("log", "a Log", log, "Make one with Log.from_table: a policy learns from rows in order.")
    check_log(log)
    if (policy.n_contexts, policy.n_arms) != (log.n_contexts, log.n_arms):
        allowed = f"one of {log.n_contexts} contexts and {log.n_arms} arms"
        raise validate.Refusal("policy", allowed, [policy.n_contexts, policy.n_arms], "Make it for the log.")


def _rows(log: Log, rows: Any) -> Log:
    columns = (log.contexts, log.arms, log.rewards, log.propensities)
    return Log(*(column[rows] for column in columns), n_contexts=log.n_contexts, n_arms=log.n_arms)


def _learned(policy: Policy, how: str, assumes: str, alpha: float, runs: list[tuple[int, Vector]]) -> Learned:
    alpha = validate.alpha(alpha)
    counts, earned = np.array([n for n, _ in runs]), np.array([each for _, each in runs])

    def band(samples: Any) -> Interval:
        return Interval(*(float(side) for side in metrics.average_over_seeds(samples)))

    found = {name: band(PLAIN[name](earned, alpha)) for name in METRICS}
    per_round = band((earned.sum(axis=1) - earned.shape[1]) / np.maximum(counts, 1))
    n_rounds = round(float(counts.mean()))
    return Learned(policy.name, how, assumes, alpha, n_rounds, earned.mean(axis=0), per_round, **found)
