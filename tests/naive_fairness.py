"""The measures of published notions of fairness, one round after the other, as their formulas are written."""

from __future__ import annotations

import math
from typing import Any


def envy(v: list[list[float]]) -> float:
    n = len(v)
    return max((1 + v[i][k]) / (1 + v[i][i]) - 1 for i in range(n) for k in range(n))


def proportional_share(v: list[list[float]]) -> float:
    n = len(v)
    return min((1 + v[i][i]) / (1 + sum(v[i]) / n) for i in range(n))


def exchange_values(p: Any, r: Any) -> list[list[float]]:
    n = len(p[0])
    return [[math.fsum(p[t][k] * r[t][i] for t in range(len(p))) for k in range(n)] for i in range(n)]


def pull_lapse(arms: list[int], shares: list[float]) -> float:
    pulls, worst = [0] * len(shares), -math.inf
    for t, arm in enumerate(arms, 1):
        pulls[arm] += 1
        worst = max(worst, *(math.floor(share * t + 1e-9) - pulls[i] for i, share in enumerate(shares)))
    return worst


def rate_shortfall(rewards: list[float], rates: list[float], n_rounds: int) -> float:
    return max(max(0.0, 1 - s / (rate * n_rounds)) if rate > 0 else 0.0 for s, rate in zip(rewards, rates, strict=True))


def longest_wait(arms: list[int], n_arms: int) -> int:
    waits, longest = [0] * n_arms, 0
    for arm in arms:
        for i in range(n_arms):
            waits[i] = 0 if i == arm else waits[i] + 1
            longest = max(longest, waits[i])
    return longest


def merit_distance(p: Any, f: Any) -> float:
    rounds = [sum(abs(p[t][i] - f[t][i] / sum(f[t])) for i in range(len(p[t]))) / 2 for t in range(len(p))]
    return math.fsum(rounds) / len(rounds)


def favoring(p: Any, mu: Any) -> float:
    total = 0.0
    for probabilities, means in zip(p, mu, strict=True):
        n = len(means)
        pairs = [(i, k) for i in range(n) for k in range(n) if means[i] < means[k] - 1e-9]
        total += max((max(0.0, probabilities[i] - probabilities[k]) for i, k in pairs), default=0.0)
    return total / len(p)


def fairness(stream: Any, arms: list[int], p: Any, phases: list[int]) -> dict[str, float | None]:
    """The whole row, for the promises of `half_of_uniform`."""
    n, t_max, contexts = stream.n_arms, stream.n_rounds, stream.contexts.tolist()
    r = [stream.rewards(t).tolist() for t in range(t_max)]
    cells: dict[Any, list[int]] = {}
    for t in range(t_max):
        cells.setdefault((contexts[t], phases[t]), []).append(t)
    of_cell = {key: [math.fsum(r[t][i] for t in ts) / len(ts) for i in range(n)] for key, ts in cells.items()}
    mu = [of_cell[contexts[t], phases[t]] for t in range(t_max)]
    own = [r[t][arms[t]] for t in range(t_max)]
    earned = [sum(own[t] for t in range(t_max) if arms[t] == i) for i in range(n)]
    accounts = [1 + s for s in earned]

    def shares(ts: range) -> list[float]:
        total = sum(own[t] for t in ts)
        return [sum(own[t] for t in ts if arms[t] == i) / total for i in range(n)]

    first, second = shares(range(t_max // 2)), shares(range(t_max // 2, t_max))
    v = exchange_values(p, r)
    rounds_of = {j: [t for t in range(t_max) if contexts[t] == j] for j in {*contexts}}
    outside = 0.0
    for ts in rounds_of.values():
        even = sum(p[t][i] for t in ts for i in range(0, n, 2)) / len(ts)
        outside += len(ts) * max(0.0, 0.4 - even, even - 0.6)
    served = [sum(own[t] for t in ts) / sum(max(mu[t]) for t in ts) for ts in rounds_of.values() if len(ts) >= 100]
    rates = [math.fsum(row[i] for row in r) / t_max / (2 * n) for i in range(n)]
    nash = [math.log(max(1e-6, sum(p[t][i] * mu[t][i] for i in range(n)))) for t in range(t_max)]
    return {
        "reward": sum(own) / t_max,
        "welfare_1": math.prod(accounts) ** (1 / n),
        "welfare_2": n / sum(1 / account for account in accounts),
        "least_account": min(accounts),
        "jain_index": sum(accounts) ** 2 / (n * sum(account**2 for account in accounts)),
        "least_reward": n * min(accounts) / sum(accounts),
        "least_pulls": n * min(arms.count(i) for i in range(n)) / t_max,
        "lapse": pull_lapse(arms, [0.5 / n] * n),
        "rate_shortfall": rate_shortfall(earned, rates, t_max),
        "unstable": sum(abs(a - b) for a, b in zip(first, second, strict=True)) / 2,
        "wait": longest_wait(arms, n),
        "envy": envy(v),
        "proportional": proportional_share(v),
        "least_context": min(served) if served else None,
        "least_probability": n * min(min(row) for row in p),
        "merit": merit_distance(p, [[math.exp(4 * m) for m in row] for row in mu]),
        "favored": favoring(p, mu),
        "outside_bounds": outside / t_max,
        "nash_rounds": math.exp(sum(nash) / t_max),
    }
