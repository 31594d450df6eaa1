"""The same algorithms as a careful NumPy user would write them: one round a turn of the loop, arms vectorized.

Every loop takes the round's uniform from the same array as `alphafair.simulate`, so both must end with the same pulls.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from alphafair import Stream
from alphafair.values import Vector

Outcome = tuple[Vector, NDArray[np.int64]]  # earned, pulls


def draw(probabilities: Vector, uniform: float) -> int:
    """The first arm whose cumulative probability exceeds the uniform."""
    return min(int(probabilities.cumsum().searchsorted(uniform, side="right")), len(probabilities) - 1)


def project(v: Vector, ranks: Vector) -> Vector:
    """The nearest point of the simplex, by sorting; `ranks` is 1 .. n."""
    ordered = np.sort(v)[::-1]
    excess = ordered.cumsum() - 1.0
    size = np.count_nonzero(ordered * ranks > excess)
    projected: Vector = np.maximum(v - excess[size - 1] / size, 0.0)
    return projected


def level(v: Vector, guess: float, tolerance: float) -> float:
    """mu with sum 1/(mu + v) = 1, for v >= 0 with smallest entry 0: Newton on 1/sum."""
    mu = min(max(guess, 1.0), float(len(v)))
    while True:
        inverse = 1.0 / (mu + v)
        total = float(inverse.sum())
        before = mu
        mu = max(1.0, mu + total * (total - 1.0) / float(inverse @ inverse))
        if abs(mu - before) <= tolerance * before:
            return mu


def alpha_fair(stream: Stream, uniforms: Vector, alpha: float) -> Outcome:
    """Algorithm 1: adaptive gradient ascent, all rewards seen."""
    n = stream.n_arms
    earned = np.ones(n)
    pulls = np.zeros(n, dtype=np.int64)
    distributions = np.full((stream.n_contexts, n), 1.0 / n)
    squared_norms = [0.0] * stream.n_contexts
    ranks = np.arange(1.0, n + 1.0)
    rounds = zip(stream.contexts.tolist(), stream.items.tolist(), uniforms.tolist(), strict=True)
    for context, item, uniform in rounds:
        rewards = stream.reward_table[item]
        x = distributions[context]
        pulls[draw(x, uniform)] += 1
        gradient = earned**-alpha * rewards
        squared_norms[context] += gradient @ gradient
        earned += x * rewards
        distributions[context] = project(x + gradient / math.sqrt(squared_norms[context]), ranks)
    return earned, pulls


def alpha_fair_bandit(stream: Stream, uniforms: Vector, alpha: float) -> Outcome:
    """Algorithm 2: a scale-free learner per context, one reward seen."""
    n = stream.n_arms
    earned = np.ones(n)
    pulls = np.zeros(n, dtype=np.int64)
    p_of = np.full((stream.n_contexts, n), 1.0 / n)
    losses_of = np.zeros((stream.n_contexts, n))
    eta = [float(n)] * stream.n_contexts
    gamma = [0.5] * stream.n_contexts
    level_of = [float(n)] * stream.n_contexts
    stability_sum = [0.0] * stream.n_contexts
    exploration_sum = [0.0] * stream.n_contexts
    rounds = zip(stream.contexts.tolist(), stream.items.tolist(), uniforms.tolist(), strict=True)
    for k, item, uniform in rounds:
        p = p_of[k]
        played = (1.0 - gamma[k]) * p + gamma[k] / n
        arm = draw(played, uniform)
        reward = float(stream.reward_table[item, arm])
        pulls[arm] += 1
        estimate = -(float(earned[arm]) ** -alpha) * reward / float(played[arm])
        earned[arm] += reward

        move = eta[k] * estimate  # M(eta): the maximizer is 1/(lambda + 1/p + eta lt)
        v = 1.0 / p
        v[arm] += move
        smallest = v.min()
        v -= smallest
        mu = level(v, smallest - move * p[arm] ** 2 / (p @ p), 1e-7)
        gain = mu - smallest + move * p[arm] - np.log(p * (mu + v)).sum()
        stability_sum[k] += max(0.0, gain / eta[k])
        exploration_sum[k] += gamma[k] * abs(estimate)

        losses = losses_of[k]
        losses[arm] += estimate
        eta[k] = n / (1.0 + stability_sum[k])
        gamma[k] = n / (2.0 * n + exploration_sum[k])
        v = eta[k] * (losses - losses.min())
        level_of[k] = level(v, level_of[k], 1e-8)
        p = 1.0 / (level_of[k] + v)
        p_of[k] = p / p.sum()
    return earned, pulls


def alpha_fair_adaptive(stream: Stream, uniforms: Vector, alpha: float) -> Outcome:
    """The index in the safe mixture, one reward seen; memories as one array, so that five features take few calls."""
    n, decays = stream.n_arms, np.array([1.0, 0.97, 0.8])[:, None, None]
    earned, slopes, pulls = np.ones(n), np.ones(n), np.zeros(n, dtype=np.int64)
    own = np.zeros((stream.n_contexts, 3, 2, n))
    of_arm, of_age = np.zeros((2, n)), np.zeros((8, 2, n))
    losses_of, norms = np.zeros((stream.n_contexts, n)), [0.0] * stream.n_contexts
    level_of, visits = [float(n)] * stream.n_contexts, [0] * stream.n_contexts
    gram, moment, prior = np.zeros((5, 5)), np.zeros(5), np.array([1.0, 1.0, 0.5, 0.5, 0.0])
    beta, features, eye = prior.copy(), np.zeros((5, n)), np.eye(5)
    total = largest = lead = spread = 0.0
    rounds = zip(stream.contexts.tolist(), stream.items.tolist(), uniforms.tolist(), strict=True)
    for t, (k, item, uniform) in enumerate(rounds):
        gamma, peak = min(0.5, 0.3 * math.sqrt(n / (t + 1))), float(slopes.max())
        age = of_age[min(7, (visits[k] + 1).bit_length() - 1)]
        s = (1.0 - gamma) / peak * slopes
        if largest == 0.0:
            h, a, b, raised, m = 0.5, np.full(n, 1.0 / n), np.full(n, 1.0 / n), np.zeros(n), np.zeros(n)
            q = 0.02 + 0.98 * h
        else:
            mean = total / t
            slow, quick = 2.5 * largest / mean, 0.5 * largest / mean
            g = of_arm[0] / (of_arm[1] + slow)
            features[0] = g
            memory, counts = own[k, :, 0], own[k, :, 1]
            features[1] = (memory[0] - counts[0] * g) / (counts[0] + slow)
            features[2:4] = (memory[1:] - counts[1:] * g) / (counts[1:] + quick)
            features[4] = (age[0] - age[1] * g) / (age[1] + slow)
            m = np.clip(mean + beta @ features, 0.0, largest)
            v = slopes * m
            top = float(v.max())
            best = v >= (1.0 - 1e-9) * top
            a = 1.0 / (n + 400.0 * n / (float(slopes[best].max()) * math.sqrt(mean * largest)) * (top - v))
            a[best] = 0.0
            a[best] = (1.0 - a.sum()) / best.sum()
            behind = 2.0 / math.sqrt(16.0 * largest**2 + 2.0 * spread) * lead
            h = 2.0 / (abs(behind) + 2.0 + math.sqrt(behind * behind + 4.0))
            h = h if behind >= 0.0 else 1.0 - h
            q = 0.02 + 0.98 * h
            eta = n / math.sqrt(largest**2 + n * norms[k])
            raised = np.maximum(m, largest - ((1.0 - q) * a + q * (1.0 - gamma)) / (2.0 * eta * s))
            scores = losses_of[k] - s * raised
            v = eta * (scores - scores.min())
            level_of[k] = level(v, level_of[k], 1e-8)
            b = 1.0 / (level_of[k] + v)
            b /= b.sum()
        played = (1.0 - gamma) * b + gamma / n
        p = (1.0 - q) * a + q * played
        arm = draw(p, uniform)
        reward = float(stream.reward_table[item, arm])
        pulls[arm] += 1
        if largest > 0.0:
            chance, known = float(p[arm]), min(reward, largest)
            missed = slopes[arm] * (m[arm] - known) / chance
            ahead = float((a - played) @ (slopes * m) + (played[arm] - a[arm]) * missed) / peak
            lead += ahead
            spread += (h * (1.0 - h) * ahead) ** 2
            surprise = float(s[arm] * (raised[arm] - known)) / chance
            losses_of[k] -= s * raised
            losses_of[k, arm] += surprise
            norms[k] += float(b[arm] * surprise) ** 2
            f = features[:, arm]
            gram = 0.9995 * gram + np.outer(f, f)
            moment = 0.9995 * moment + f * (reward - mean)
        total += reward
        largest = max(largest, reward)
        mean = total / (t + 1)
        if largest > 0.0:
            ridge = 5.0 * mean * largest
            beta = np.linalg.solve(gram + ridge * eye, moment + ridge * prior)
        own[k] *= decays
        for memory in (own[k], of_arm, age):
            memory[..., 0, arm] += reward - mean
            memory[..., 1, arm] += 1.0
        visits[k] += 1
        earned[arm] += reward
        slopes[arm] = earned[arm] ** -alpha
    return earned, pulls


def hedge(stream: Stream, uniforms: Vector, learning_rate: float) -> Outcome:
    """Exponential weights in the log domain, all rewards seen: the yardstick of the plain Python loop."""
    gains = np.zeros(stream.n_arms)
    earned = np.ones(stream.n_arms)
    pulls = np.zeros(stream.n_arms, dtype=np.int64)
    for item, uniform in zip(stream.items.tolist(), uniforms.tolist(), strict=True):
        rewards = stream.reward_table[item]
        weights = np.exp(learning_rate * (gains - gains.max()))
        probabilities = weights / weights.sum()
        pulls[draw(probabilities, uniform)] += 1
        earned += probabilities * rewards
        gains += rewards
    return earned, pulls
