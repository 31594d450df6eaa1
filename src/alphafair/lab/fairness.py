"""How fair one run was by every published notion: one row of numbers for a stream, a policy and what was promised.

Three sorts of measures. From the rewards and the pulls alone, as a `Log` has them: reward, welfare, Jain's index, least
reward, least pulls, lapse, shortfall of rates, instability, longest wait. From the rewards of all arms as well, which a
`Stream` knows: envy and proportional share (of the arms played, if probabilities are not known), the least context.
From the probabilities of all rounds: least probability, merit, favoring, bounds of groups, Nash welfare of the rounds.
What cannot be known is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import metrics, validate
from alphafair.errors import InvalidArgument
from alphafair.lab.plan import half_of_uniform as rates_of_half
from alphafair.values import Log, Matrix, Stream, Vector

SLOPE = 4.0  # of the merit exp(slope mu)
LOW, HIGH = 0.4, 0.6  # the probability of the arms with even numbers
LEAST_ROUNDS = 100  # of a context that counts
LEAST_LOG = 1e-6  # the least expected reward of a round, in the mean of logarithms


Indices = NDArray[np.int32]


class Promises(NamedTuple):
    """What is measured against: a share of the pulls and a rate of reward for every arm, a merit, and bounds.

    Merit is exp(slope mu) of the mean reward mu of an arm in its context. The probability of `group`, a boolean per
    arm, is to lie in [low, high] in every context.
    """

    shares: Vector
    rates: Vector
    group: ArrayLike
    slope: float = SLOPE
    low: float = LOW
    high: float = HIGH


def half_of_uniform(stream: Stream) -> Promises:
    """Promise half an equal share of the pulls, half of what uniform play gives every arm, and each half of the arms
    at least 0.4.

    >>> from alphafair import streams
    >>> promises = half_of_uniform(streams.stationary(1000, 2, 4, seed=0))
    >>> promises.shares.tolist(), promises.rates.round(3).tolist()
    ([0.125, 0.125, 0.125, 0.125], [0.09, 0.048, 0.049, 0.083])
    """
    n = stream.n_arms
    return Promises(np.full(n, 0.5 / n), rates_of_half(stream), np.arange(n) % 2 == 0)


class Fairness(NamedTuple):
    """The measures of a run, with the value that is best. R is 1 + the rewards of an arm, N_i its pulls of T."""

    reward: float  # per round; high
    welfare_1: float  # the geometric mean of R; high
    welfare_2: float  # the harmonic mean of R; high
    least_account: float  # min R; high
    jain_index: float  # of R; 1
    least_reward: float  # n min R/sum R; 1
    least_pulls: float  # n min N_i/T; 1
    lapse: float  # `metrics.pull_lapse`; at most 0
    rate_shortfall: float  # `metrics.rate_shortfall`; 0
    unstable: float  # total variation between the shares of reward of the first and the second half; 0
    wait: int  # `metrics.longest_wait`; low
    envy: float | None = None  # `metrics.envy`; 0
    proportional: float | None = None  # `metrics.proportional_share`; at least 1
    least_context: float | None = None  # min over contexts of mean reward over the mean best mu; 1
    least_probability: float | None = None  # n min p over rounds and arms; 1
    merit: float | None = None  # `metrics.merit_distance`; 0
    favored: float | None = None  # `metrics.favoring`; 0
    outside_bounds: float | None = None  # mean over rounds of how far p(group) of the context is outside; 0
    nash_rounds: float | None = None  # exp mean log of sum_i p_ti mu_i; high


class Measure(NamedTuple):
    """How tables and figures write a measure."""

    title: str
    meaning: str  # with what is best
    text: Callable[[float], str]
    is_wide: bool = False  # of values over several orders of magnitude


_TWO, _THREE = "{:.2f}".format, "{:.3f}".format
MEASURES: Mapping[str, Measure] = {  # in the order of columns
    "reward": Measure("reward", "mean reward per round; high", _THREE),
    "welfare_1": Measure("W 1", "geometric mean of the accounts; high", "{:,.0f}".format),
    "welfare_2": Measure("W 2", "harmonic mean of the accounts; high", "{:,.0f}".format),
    "least_account": Measure("min", "the least account; high", "{:,.0f}".format),
    "jain_index": Measure("Jain", "Jain's index of the accounts; 1", _TWO),
    "least_reward": Measure("least reward", "the least account over the mean one; 1", _TWO),
    "least_pulls": Measure("least pulls", "the fewest pulls of an arm over an equal share; 1", _TWO),
    "least_probability": Measure("least p", "the least probability over an equal one; 1", _TWO),
    "lapse": Measure("lapse", "the most pulls that an arm was behind its promise; at most 0", "{:,.0f}".format, True),
    "rate_shortfall": Measure("rate short", "the part of a promised reward that an arm lacks; 0", "{:.0%}".format),
    "merit": Measure("merit", "distance of exposure to merit; 0", _TWO),
    "favored": Measure("favored", "by how much a worse arm is favored; 0", _TWO),
    "outside_bounds": Measure("halves", "how far half of the arms is outside its bounds; 0", _TWO),
    "envy": Measure("envy", "how much better off an arm would be in the rounds of another; 0", _TWO, True),
    "proportional": Measure("prop.", "the least account over an n-th of all it could be; at least 1", _TWO),
    "unstable": Measure("unstable", "shares of reward that change hands between the halves of a run; 0", _TWO),
    "wait": Measure("wait", "the most rounds in a row without some arm; low", "{:,.0f}".format, True),
    "nash_rounds": Measure("Nash rounds", "geometric mean of the expected rewards of the rounds; high", _THREE),
    "least_context": Measure("least context", "the least reward of a context over its best; 1", _TWO),
}


def fairness_of(
    rounds: Stream | Log,
    arms: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    promises: Promises | None = None,
    *,
    phases: ArrayLike | None = None,
) -> Fairness:
    """Measure a run: the arms played on a stream, and the probabilities of all arms in every round if they are known.

    Parameters
    ----------
    rounds
        The stream; or a log, which has the arms, and for which only the measures that need no more are known.
    arms
        The arms played, one per round: `simulate(..., log=True).log.arms`.
    probabilities
        Of all arms in every round, (n_rounds, n_arms).
    promises
        Default: `half_of_uniform(stream)`; a log needs them.
    phases
        The phase of every round, if means change: mu is then the mean over the rounds of a context and a phase.

    >>> from alphafair import AlphaFairAdaptive, simulate, streams
    >>> stream = streams.stationary(2000, 3, 4, seed=0)
    >>> log = simulate(AlphaFairAdaptive(3, 4, alpha=1), stream, log=True).log
    >>> found = fairness_of(stream, log.arms)
    >>> found.lapse <= 0, found.rate_shortfall, found.envy < 0.1, found.merit
    (True, 0.0, True, None)
    """
    if isinstance(rounds, Log):
        if promises is None:
            repair = "Pass Promises(shares, rates, group)."
            raise InvalidArgument("promises", "given for a log, which does not show all rewards", None, repair)
        return _of_rewards(rounds.arms, rounds.rewards, rounds.n_arms, promises)
    validate.stream("rounds", rounds)
    if rounds.arrivals is not None:
        raise InvalidArgument("rounds", "a stream with a fixed set of arms", rounds, "Measure every epoch by itself.")
    n = rounds.n_arms
    played = validate.indices("arms", [] if arms is None else arms, n, n_entries=rounds.n_rounds)
    promises = half_of_uniform(rounds) if promises is None else promises
    rewards = rounds.reward_table[rounds.items]
    found = _of_rewards(played, rewards[np.arange(len(played)), played], n, promises)
    drawn = np.eye(n)[played] if probabilities is None else probabilities
    values = metrics.exchange_values(drawn, rewards)
    means = means_by_context(rounds, phases)
    found = found._replace(
        envy=metrics.envy(values),
        proportional=metrics.proportional_share(values),
        least_context=_least_context(rounds.contexts, rewards[np.arange(len(played)), played], means.max(axis=1)),
    )
    if probabilities is None:
        return found
    p = np.asarray(probabilities, dtype=np.float64)
    n_contexts, of_group = rounds.n_contexts, p[:, np.asarray(promises.group, dtype=bool)].sum(axis=1)
    counts = np.bincount(rounds.contexts, minlength=n_contexts)
    by_context = np.bincount(rounds.contexts, of_group, n_contexts) / np.maximum(1, counts)
    outside = np.maximum(0.0, np.maximum(promises.low - by_context, by_context - promises.high))
    expected = np.maximum(LEAST_LOG, (p * means).sum(axis=1))
    return found._replace(
        least_probability=n * float(p.min()),
        merit=metrics.merit_distance(p, np.exp(promises.slope * means)),
        favored=metrics.favoring(p, means),
        outside_bounds=float((outside * counts).sum() / counts.sum()),
        nash_rounds=float(np.exp(np.log(expected).mean())),
    )


def means_by_context(stream: Stream, phases: ArrayLike | None = None) -> Matrix:
    """Return mu of every arm in every round: the mean of its rewards over the rounds of the context, and the phase."""
    cells = stream.contexts.astype(np.int64)
    if phases is not None:
        cells = cells + stream.n_contexts * validate.indices("phases", phases, None, n_entries=stream.n_rounds)
    _, cells = np.unique(cells, return_inverse=True)
    rewards = stream.reward_table[stream.items]
    counts = np.bincount(cells)
    means = np.stack([np.bincount(cells, column) / counts for column in rewards.T], axis=1)
    return np.asarray(means[cells])


def _of_rewards(arms: Indices, rewards: Vector, n: int, promises: Promises) -> Fairness:
    """The measures of what a log has."""
    n_rounds, earned = len(arms), np.bincount(arms, rewards, n)
    accounts, pulls = 1.0 + earned, np.bincount(arms, minlength=n)
    halves = [np.bincount(arms[half], rewards[half], n) for half in (slice(n_rounds // 2), slice(n_rounds // 2, None))]
    first, second = (half / max(float(half.sum()), np.finfo(np.float64).tiny) for half in halves)
    return Fairness(
        reward=float(rewards.mean()),
        welfare_1=metrics.welfare(accounts, 1.0),
        welfare_2=metrics.welfare(accounts, 2.0),
        least_account=float(accounts.min()),
        jain_index=metrics.jain_index(accounts),
        least_reward=n * metrics.least_share(accounts),
        least_pulls=n * float(pulls.min()) / n_rounds,
        lapse=metrics.pull_lapse(arms, promises.shares),
        rate_shortfall=metrics.rate_shortfall(earned, promises.rates, n_rounds),
        unstable=float(0.5 * np.abs(first - second).sum()),
        wait=metrics.longest_wait(arms, n),
    )


def _least_context(contexts: Indices, earned: Vector, best: Vector) -> float | None:
    """The least mean reward over the mean best mu, of contexts with enough rounds; None without any."""
    counts = np.bincount(contexts)
    enough = counts >= LEAST_ROUNDS
    if not enough.any():
        return None
    most = np.bincount(contexts, best)[enough]
    got = np.bincount(contexts, earned)[enough]
    return float((got / np.maximum(most, np.finfo(np.float64).tiny)).min())
