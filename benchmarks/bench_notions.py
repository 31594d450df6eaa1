"""The published notions: compiled runs against the naive formulas in a NumPy loop, and against each other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from alphafair import Stream, notions, simulate
from benchmarks.jobs import N_ARMS, N_CONTEXTS, common
from benchmarks.table import Row, duration, faster, named
from benchmarks.timing import best, seconds
from tests import naive_notions
from tests.naive_notions import kl_upper

OURS, THEIRS, REPEATS = 200_000, 2_000, 3  # rounds of a turn, and turns
RATES = 0.2 / N_ARMS
THIRDS = [arm % 3 for arm in range(N_ARMS)]
BOUNDS: dict[str, Any] = {"low": 0.2, "high": 0.5, "gap": 2.0}
NASH: dict[str, Any] = {"c": 0.1, "explore": 10.0}
BANDIT_Q = partial(naive_notions.BanditQ, N_CONTEXTS, N_ARMS, rates=RATES, horizon=OURS)
HORIZON_FAIR = partial(naive_notions.HorizonFair, N_CONTEXTS, N_ARMS, alpha=0.9, low=0.1 / N_ARMS)


def rows() -> Iterator[Row]:
    """Every policy with kernels."""
    jobs: dict[str, tuple[Any, Any]] = {
        "FairLearn": (partial(notions.FairLearn, shares=0.5 / N_ARMS), fair_learn),
        "RateUCB": (notions.RateUCB, rate_ucb),
        "LFG": (notions.LFG, lfg),
        "FairX": (partial(notions.FairX, width=0.3), fairx),
        "FairBandits": (notions.FairBandits, fair_bandits),
        "BanditQ": (partial(notions.BanditQ, rates=RATES, horizon=OURS), BANDIT_Q),
        "GuaranteedRevenue": (partial(notions.GuaranteedRevenue, rates=RATES), guaranteed_revenue),
        "ConstrainedGreedy": (partial(notions.ConstrainedGreedy, groups=THIRDS, **BOUNDS), constrained_greedy),
        "NashConfidenceBound": (partial(notions.NashConfidenceBound, horizon=OURS, **NASH), nash_confidence_bound),
        "HorizonFair": (notions.HorizonFair, HORIZON_FAIR),
    }
    long = common(OURS)
    short, uniforms = long.head(THEIRS), np.random.default_rng(0).random(THEIRS)
    spent = {}
    for name, (make, step) in jobs.items():
        trace = simulate(make(N_CONTEXTS, N_ARMS), short, seed=0)  # compiles
        if not np.array_equal(trace.pulls, loop(short, uniforms, step)):
            raise AssertionError(f"{name}: the NumPy loop and the compiled run are not the same algorithm")

        def compiled(make: Any = make) -> float:
            policy = make(N_CONTEXTS, N_ARMS)
            return seconds(lambda: simulate(policy, long, seed=0)) / OURS

        def interpreted(step: Any = step) -> float:
            return seconds(lambda: loop(short, uniforms, step)) / THEIRS

        times = best({"compiled": compiled, "numpy": interpreted}, REPEATS)
        spent[name] = times["compiled"]
        yield faster(f"simulate {name}", times["compiled"], f"{named('numpy')}, plain loop", times["numpy"], 30)
    ratio = spent["GuaranteedRevenue"] / spent["FairLearn"]
    ours, theirs = duration(spent["GuaranteedRevenue"]), duration(spent["FairLearn"])
    yield Row("simulate GuaranteedRevenue", ours, "FairLearn", theirs, f"{ratio:.2g} x", "at most 5 x", ratio <= 5.0)


class Counts:
    """What a NumPy loop keeps: counts and sums by context and arm, and of arms."""

    def __init__(self) -> None:
        self.n, self.s = np.zeros((2, N_CONTEXTS, N_ARMS))
        self.visits, self.t = np.zeros(N_CONTEXTS), 0
        self.queues = np.zeros(N_ARMS)
        self.low, self.high = np.zeros((N_CONTEXTS, N_ARMS)), np.ones((N_CONTEXTS, N_ARMS))  # of FairBandits
        self.active, self.last = np.ones((N_CONTEXTS, N_ARMS), dtype=np.bool_), np.zeros(N_CONTEXTS, dtype=np.int64)

    def bounds(self, context: int, width: float) -> np.ndarray:
        n = self.n[context]
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = self.s[context] / n + width * np.sqrt(np.log(max(1.0, self.visits[context])) / n)
        return np.where(n > 0, bound, np.inf)


def largest(scores: np.ndarray) -> np.ndarray:
    top = scores.max()
    chosen = scores >= (top - 1e-12 * abs(top) if np.isfinite(top) else top)
    return np.asarray(chosen / chosen.sum())


def loop(stream: Stream, uniforms: np.ndarray, step: Any) -> np.ndarray:
    """Play every round with the distribution of `step`, or with what it makes, and return the pulls."""
    if isinstance(step, partial):
        return oracle_loop(stream, uniforms, step())
    counts, pulls = Counts(), np.zeros(N_ARMS, dtype=np.int64)
    rounds = zip(stream.contexts.tolist(), stream.items.tolist(), uniforms.tolist(), strict=True)
    for context, item, uniform in rounds:
        p = step(counts, context)
        arm = min(int(p.cumsum().searchsorted(uniform, side="right")), N_ARMS - 1)
        reward = stream.reward_table[item, arm]
        counts.n[context, arm] += 1
        counts.s[context, arm] += reward
        counts.visits[context] += 1
        counts.last[context] = arm
        counts.t += 1
        counts.queues = np.maximum(0.0, counts.queues + 0.5 / N_ARMS - (np.arange(N_ARMS) == arm))
        pulls[arm] += 1
    return pulls


def oracle_loop(stream: Stream, uniforms: np.ndarray, oracle: Any) -> np.ndarray:
    """The same with an oracle of the tests that keeps no log."""
    pulls = np.zeros(N_ARMS, dtype=np.int64)
    rounds = zip(stream.contexts.tolist(), stream.items.tolist(), uniforms.tolist(), strict=True)
    for context, item, uniform in rounds:
        p, rewards = oracle.probabilities(context), stream.reward_table[item]
        arm = min(int(p.cumsum().searchsorted(uniform, side="right")), N_ARMS - 1)
        if isinstance(oracle, naive_notions.HorizonFair):
            oracle.learn_all(context, p, rewards)
        else:
            oracle.learn(context, arm, p[arm], rewards[arm])
        pulls[arm] += 1
    return pulls


def fair_learn(counts: Counts, context: int) -> np.ndarray:
    behind = 0.5 / N_ARMS * counts.t - counts.n.sum(axis=0)
    return largest(behind if behind.max() > 0.0 else counts.bounds(context, 2**0.5))


def rate_ucb(counts: Counts, context: int) -> np.ndarray:
    return np.asarray(0.5 / N_ARMS + 0.5 * largest(counts.bounds(context, 2**0.5)))


def lfg(counts: Counts, context: int) -> np.ndarray:
    return largest(counts.queues + 10.0 * np.minimum(1.0, counts.bounds(context, 1.5**0.5)))


def fairx(counts: Counts, context: int) -> np.ndarray:
    n = counts.n[context]
    if (n == 0).any():
        return np.asarray((n == 0) / (n == 0).sum())
    mean, radius = counts.s[context] / n, 0.3 / np.sqrt(n)
    low, high = np.maximum(0.0, mean - radius), np.minimum(1.0, mean + radius)
    mu, value = high, -np.inf
    while True:
        merit = np.exp(4.0 * mu)
        found = (merit @ mu) / merit.sum()
        if found <= value:
            return np.asarray(merit / merit.sum())
        value = found
        mu = np.where(np.exp(4 * high) * (high - value) >= np.exp(4 * low) * (low - value), high, low)


def guaranteed_revenue(counts: Counts, context: int) -> np.ndarray:
    pulls = counts.n.sum(axis=0)
    if (pulls == 0).any():
        return np.asarray((pulls == 0) / (pulls == 0).sum())
    q = RATES / np.maximum(RATES, counts.s.sum(axis=0) / pulls)
    if q.sum() >= 1.0:
        return np.asarray(q / q.sum())
    level = 2.0 * np.log(max(1.0, counts.visits[context]))
    pairs = zip(counts.s[context].tolist(), counts.n[context].tolist(), strict=True)
    bounds = np.array([kl_upper(s / n, level / n) if n else 1.0 for s, n in pairs])
    return np.asarray(q + (1.0 - q.sum()) * largest(np.maximum(RATES, bounds)))


def fair_bandits(counts: Counts, context: int) -> np.ndarray:
    active, low, high = counts.active[context], counts.low[context], counts.high[context]
    if counts.visits[context]:  # what the last round of this context has changed
        arm = counts.last[context]
        n, terms = counts.n[context, arm], (np.pi * (counts.visits[context] + 1)) ** 2 * N_CONTEXTS / (3 * 0.05)
        radius, mean = np.sqrt(np.log(terms) / (2 * n)), counts.s[context, arm] / n
        low[arm], high[arm] = mean - radius, mean + radius
        order = np.flatnonzero(active)
        order = order[np.argsort(-high[order])]
        apart = high[order][1:] < np.minimum.accumulate(low[order])[:-1]
        if apart.any():
            active[order[apart.argmax() + 1 :]] = False
    return np.asarray(active / active.sum())


def constrained_greedy(counts: Counts, context: int) -> np.ndarray:
    groups = np.array(THIRDS)
    spread = (1.0 / 3.0 / np.bincount(groups))[groups]
    eps = min(1.0, 4.0 / (spread.min() * BOUNDS["gap"] ** 2 * (counts.visits[context] + 1)))
    means = counts.s[context] / np.maximum(1.0, counts.n[context])
    best = np.array([means[groups == g].max() for g in range(3)])
    mass, left = np.full(3, BOUNDS["low"]), 1.0 - 3 * BOUNDS["low"]
    for g in np.argsort(-best, kind="stable"):
        added = min(left, BOUNDS["high"] - mass[g])
        mass[g], left = mass[g] + added, left - added
    greedy = np.zeros(N_ARMS)
    for g in range(3):
        greedy[groups == g] = mass[g] * largest(means[groups == g])
    return np.asarray((1.0 - eps) * greedy + eps * spread)


def nash_confidence_bound(counts: Counts, context: int) -> np.ndarray:
    n, s, c, log_horizon = counts.n[context], counts.s[context], NASH["c"], np.log(OURS)
    if s.max() <= NASH["explore"] * c**2 * log_horizon:
        return np.full(N_ARMS, 1.0 / N_ARMS)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = s / n + 2.0 * c * np.sqrt(2.0 * s / n * log_horizon / n)
    return largest(np.where(n > 0, bound, np.inf))
