"""Theorems as inequalities, on thousands of generated streams."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from alphafair import (
    AlphaFair,
    AlphaFairBandit,
    FairCB,
    Hedge,
    ScaleFree,
    Stream,
    metrics,
    offline_optimum,
    simulate,
    streams,
)
from alphafair.lab.rivals import READINGS
from alphafair.math import log_barrier
from tests import naive

pytestmark = pytest.mark.compiled  # thousands of runs: with the JIT off they would take an hour

KINDS = ("smooth", "binary", "tiny", "zeros", "adversarial", "one big", "alternating")


def make_stream(kind: str, n_rounds: int, n_contexts: int, n_arms: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Contexts and rewards of one round each; every kind is hard in its own way."""
    rng = np.random.default_rng(seed)
    contexts = rng.integers(0, n_contexts, n_rounds)
    rewards = rng.random((n_rounds, n_arms))
    if kind == "binary":
        rewards = np.where(rewards < 0.2, 1.0, 0.2)
    elif kind == "tiny":
        rewards *= 1e-12
    elif kind == "zeros":
        rewards = np.where(rewards < 0.2, 1.0, 0.0)
    elif kind == "one big":
        rewards = np.where(np.arange(n_arms) == 0, 1.0, 1e-6 * rewards)
    elif kind == "alternating":
        rewards = np.where((np.arange(n_rounds)[:, None] + np.arange(n_arms)) % 2 == 0, 1.0, 0.0)
    return contexts, rewards


def run_alpha_fair(
    kind: str, n_rounds: int, n_contexts: int, n_arms: int, alpha: float, reading: str, seed: int
) -> tuple[AlphaFair, np.ndarray, np.ndarray, float, np.ndarray]:
    """Play; also gains by context and arm (sum of g), the total <g, x>, and S by context. Adversarial rewards are 1 on
    the arm the policy likes least and 0 elsewhere."""
    contexts, rewards = make_stream(kind, n_rounds, n_contexts, n_arms, seed)
    policy = READINGS[reading](n_contexts, n_arms, alpha=alpha, seed=seed)
    gains, linear = np.zeros((n_contexts, n_arms)), 0.0
    waiting: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for t in range(n_rounds):
        context = int(contexts[t])
        before = policy.accounts
        decision = policy.choose(context)
        if kind == "adversarial":
            rewards[t] = np.arange(n_arms) == int(decision.probabilities.argmin())
        x = decision.probabilities
        policy.update(decision, rewards[t])
        if reading == "next_visit":
            if context in waiting:
                r, used = waiting[context]
                g = before**-alpha * r
                gains[context] += g
                linear += float(g @ used)
            waiting[context] = (rewards[t], x)
        else:
            g = (before if reading == "before" else policy.accounts) ** -alpha * rewards[t]
            gains[context] += g
            linear += float(g @ x)
    for context, (r, used) in waiting.items():
        g = policy.accounts**-alpha * r
        gains[context] += g
        linear += float(g @ used)
    totals = naive.context_reward_totals(contexts.tolist(), rewards, n_contexts)
    return policy, totals, gains, linear, contexts


def optimum_above(totals: np.ndarray, alpha: float) -> float:
    """A certified upper bound of OPT; the certificate is checked against two other solvers in test_offline.py."""
    best = offline_optimum(totals, alpha)
    return best.value + best.gap


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(KINDS),
    reading=st.sampled_from([*READINGS]),
    alpha=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99]),
    n_rounds=st.integers(1, 60),
    n_contexts=st.integers(1, 4),
    n_arms=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_three_certificates(
    kind: str, reading: str, alpha: float, n_rounds: int, n_contexts: int, n_arms: int, seed: int
) -> None:
    policy, totals, gains, linear, _ = run_alpha_fair(kind, n_rounds, n_contexts, n_arms, alpha, reading, seed)
    earned = policy.accounts
    bound = 2.0 * np.sqrt(policy.squared_gradient_norms)
    slack = 1e-9
    assert (gains.max(axis=1)).sum() - linear <= bound.sum() + slack  # 1, added up over the contexts
    assert linear <= metrics.alpha_performance(earned, alpha) + slack  # 2
    regret = metrics.approximate_regret(optimum_above(totals, alpha), earned, alpha)
    assert regret <= metrics.regret_certificate(policy) + slack  # 3


@settings(max_examples=600, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(KINDS[:-1]),
    alpha=st.sampled_from([0.0, 0.3, 0.5, 0.9]),
    n_contexts=st.integers(1, 3),
    n_arms=st.sampled_from([2, 5, 40, 300]),
    seed=st.integers(0, 2**32 - 1),
)
def test_regret_of_every_single_context(kind: str, alpha: float, n_contexts: int, n_arms: int, seed: int) -> None:
    """Certificate 1, context by context, with many arms (300 takes the pivot projection)."""
    contexts, rewards = make_stream(kind, 120, n_contexts, n_arms, seed)
    policy = AlphaFair(n_contexts, n_arms, alpha=alpha, seed=seed)
    gains, linear = np.zeros((n_contexts, n_arms)), np.zeros(n_contexts)
    for t in range(120):
        context = int(contexts[t])
        slope = policy.accounts**-alpha
        decision = policy.choose(context)
        policy.update(decision, rewards[t])
        gains[context] += slope * rewards[t]
        linear[context] += slope * rewards[t] @ decision.probabilities
    assert (gains.max(axis=1) - linear <= 2.0 * np.sqrt(policy.squared_gradient_norms) + 1e-9).all()


def test_gradient_regret_bound_is_nearly_attained() -> None:
    """Certificate 1 is tight: a step twice as long or half as long would break it here, and so would a constant 10%
    smaller. Two losses add up to it, each with half of the bound:

    - near a corner, every arm pays in turn and every step, of the same length as rewards grow, was for nothing;
    - then one arm alone pays, at the other end of the simplex, and sqrt(S) is at its largest.
    """
    n_arms, step = 12, 0.01
    n_turns = n_arms * 19_000
    growth = np.exp(-0.5 * step**2 * np.arange(n_turns)[::-1])  # reward / sqrt(S) stays at `step`
    arms = np.repeat([n_arms - 1, 0], [int(1 / step**2), int(4 / step)])
    arms = np.insert(arms, int(1 / step**2), np.arange(n_turns) % n_arms)
    sizes = np.concatenate([np.full(int(1 / step**2), growth[0]), growth, np.ones(int(4 / step))])
    policy = AlphaFair(1, n_arms, alpha=0.0)
    trace = simulate(policy, Stream.from_arrays(np.zeros(len(arms), dtype=int), np.eye(n_arms)[arms] * sizes[:, None]))
    regret = np.bincount(arms, sizes).max() - (trace.final.sum() - n_arms)
    assert 0.9 <= regret / (2.0 * math.sqrt(policy.squared_gradient_norms[0])) <= 1.0


@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(KINDS),
    reading=st.sampled_from([*READINGS]),
    alpha=st.sampled_from([0.0, 0.5, 0.9]),
    delay=st.integers(0, 30),
    seed=st.integers(0, 2**32 - 1),
)
def test_certificate_holds_for_late_and_masked_decisions(
    kind: str, reading: str, alpha: float, delay: int, seed: int
) -> None:
    contexts, rewards = make_stream(kind, 60, 2, 4, seed)
    rng = np.random.default_rng(seed)
    policy = READINGS[reading](2, 4, alpha=alpha, seed=seed)
    waiting: list[Any] = []
    for t in range(60):
        mask = np.ones(4, dtype=bool)
        mask[rng.integers(0, 4)] = rng.random() < 0.5
        waiting.append((policy.choose(int(contexts[t]), available=mask), rewards[t]))
        while len(waiting) > delay:
            policy.update(*waiting.pop(int(rng.integers(0, len(waiting)))))
    for decision, reward in waiting:
        policy.update(decision, reward)
    totals = naive.context_reward_totals(contexts.tolist(), rewards, 2)
    regret = metrics.approximate_regret(optimum_above(totals, alpha), policy.accounts, alpha)
    assert regret <= metrics.regret_certificate(policy) + 1e-9


def test_the_certificate_can_fail() -> None:
    """The inequality is not always true: for rewards that nobody earned (R = 1) it breaks."""
    policy, totals, *_ = run_alpha_fair("one big", 20_000, 1, 40, 0.0, "before", 0)
    regret = metrics.approximate_regret(optimum_above(totals, 0.0), np.full(40, 1.0), 0.0)
    assert regret > metrics.regret_certificate(policy)


@pytest.mark.parametrize("alpha", [0.1, 0.25, 0.5, 0.75, 0.9, 0.99])
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_impossibility_limit_is_attained(alpha: float, reading: str, seed: int) -> None:
    limit = 2.0 / (1.5 ** (1 - alpha) + 0.5 ** (1 - alpha))
    n_half = 200_000
    stream = streams.impossibility(n_half, seed=seed)
    policy = READINGS[reading](2, 2, alpha=alpha)
    trace = simulate(policy, stream)
    poor = int(np.argmin(stream.rewards(n_half)))  # knowing the coin: the first half all to the arm starved later
    best = np.array([1.0 + n_half, 1.0 + n_half])
    assert stream.rewards(n_half)[poor] == pytest.approx(1 / 3)
    ratio = metrics.performance_ratio(metrics.alpha_performance(best, alpha), trace.final, alpha)
    assert ratio == pytest.approx(limit, abs=1e-3)


def test_both_outcomes_of_the_coin_occur() -> None:
    late = {tuple(streams.impossibility(1, seed=seed).rewards(1)) for seed in range(8)}
    assert late == {(1.0, 1 / 3), (1 / 3, 1.0)}


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    n_arms=st.integers(1, 12),
    scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e6, 1e90]),
    sign=st.sampled_from([-1.0, 0.0, 1.0]),
    exploration=st.sampled_from(["adaptive", "sqrt"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_putta_agrawal_invariants(n_arms: int, scale: float, sign: float, exploration: Any, seed: int) -> None:
    """0 <= M <= (eta/2) sum p lt^2, M <= 2|lt|; eta and gamma never rise; gamma <= 1/2; p is the leader.

    And the regret they are there for, against any q and so against the best, the leader p itself:
    sum_t <lt, p_t> - <L, q> <= sum M + F(q)/eta, where F(q) = -sum_k log(n q_k).
    """
    rng = np.random.default_rng(seed)
    policy = ScaleFree(1, n_arms, exploration=exploration, seed=seed)
    suffered = 0.0
    for _ in range(40):
        before = policy.snapshot().arrays
        p, eta, gamma = before["p"], before["rate"], before["exploration"]
        decision = policy.choose(0)
        loss = scale * (sign + rng.normal() * (0.2 if sign else 1.0))
        policy.update(decision, -loss)
        after = policy.snapshot().arrays
        estimate = abs(loss) / decision.propensity
        gained = after["stability_sum"] - before["stability_sum"]
        rounding = 1e-12 * (1.0 + after["stability_sum"])
        assert gained >= 0.0
        assert gained <= 0.5 * eta * p[decision.arm] * estimate**2 + rounding
        assert gained <= 2.0 * estimate + rounding
        assert after["rate"] <= eta
        assert after["exploration"] <= gamma + 1e-15
        assert after["exploration"] <= 0.5
        leader = naive.log_barrier_leader(after["rate"] * after["losses"])
        np.testing.assert_allclose(after["p"], leader, rtol=1e-9, atol=1e-300)
        suffered += loss / decision.propensity * p[decision.arm]
        bound = after["stability_sum"] - np.log(n_arms * leader).sum() / after["rate"]
        regret = suffered - after["losses"] @ leader
        assert regret <= bound + rounding + 1e-12 * abs(suffered)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    values=st.lists(st.floats(0.0, 1e12), min_size=1, max_size=30),
    guess=st.floats(-10.0, 1e9),
)
def test_level_from_any_guess(values: list[float], guess: float) -> None:
    v = np.array(values)
    v -= v.min()
    mu = log_barrier.level(v, guess, 1e-5, np.empty_like(v))
    assert 1.0 <= mu <= len(v) + 1e-9
    assert math.fsum(1.0 / (mu + v)) == pytest.approx(1.0, rel=1e-13)


def scale_free_bound(losses: np.ndarray, n_arms: int) -> float:
    """The explicit bound of the adaptive option, for losses (T, n)."""
    largest = float(np.abs(losses).max())
    logs = math.log1p(float(np.abs(losses.sum(axis=0)).max())) + 1.0
    l1, l2 = float(np.abs(losses).sum()), float((losses**2).sum())
    return (
        1.0 + logs + math.sqrt(2 * n_arms * l2) * logs + 2 * n_arms * largest * (2 + largest) * logs
        + n_arms * largest + (2 * largest * logs + 1) * math.sqrt(2 * n_arms * l1)
    )  # fmt: skip


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("change", [0.0, 1 / 3])
def test_scale_free_regret_bound(sign: float, change: float) -> None:
    """The explicit bound, at a horizon where it says something: uniform play breaks it. Rewards or losses; the better
    arm always the same, or another one after a third of the rounds."""
    items = (np.arange(200_000) >= change * 200_000).astype(np.int32)
    stream = Stream(np.zeros_like(items), items, sign * np.array([[0.1, 0.0], [0.0, 0.1]]))
    rewards = stream.reward_table[items]
    earned = [simulate(ScaleFree(1, 2), stream, seed=seed).final.sum() - 2.0 for seed in range(10)]
    best, bound = rewards.sum(axis=0).max(), scale_free_bound(-rewards, 2)
    assert best - np.mean(earned) <= bound
    assert best - rewards.mean(axis=1).sum() > bound


@pytest.mark.parametrize("seed", range(5))
def test_hedge_regret_bound(seed: int) -> None:
    for stream in (streams.greedy_trap(5000, 1, 7), streams.drifting_ratings(5000, 1, 7, seed=seed)):
        trace = simulate(Hedge(1, 7, horizon=5000), stream, seed=seed)
        best = stream.reward_table[stream.items].sum(axis=0).max()
        assert best - (trace.final.sum() - 7.0) <= math.sqrt(5000 * math.log(7) / 2) + 1e-9


def swings(n_rounds: int, n_arms: int, n_late: int) -> Stream:
    """Half of the arms pay, then the other half, by turns; in the late rounds arm 0 alone.

    Exponential weights lose as much as their rate lets them swing in the early rounds, and log(n)/rate in the late.
    """
    odd = np.arange(n_arms) % 2 == 1
    early = np.arange(n_rounds) < n_rounds - n_late
    items = np.where(early, np.arange(n_rounds) % 2, 2).astype(np.int32)
    return Stream(np.zeros_like(items), items, 1.0 * np.array([odd, ~odd, np.arange(n_arms) == 0]))


def test_hedge_regret_bound_is_nearly_attained() -> None:
    trace = simulate(Hedge(1, 6, horizon=5000), stream := swings(5000, 6, 110))
    best = stream.reward_table[stream.items].sum(axis=0).max()
    assert 0.98 <= (best - (trace.final.sum() - 6.0)) / math.sqrt(5000 * math.log(6) / 2) <= 1.0


def best_with_floors(stream: Stream, weights: np.ndarray, pull_floor: float) -> float:
    """What the best fixed policy earns of those with sum_j q_j p^j_i >= pull_floor for every arm: a linear program."""
    m, n = stream.n_contexts, stream.n_arms
    totals = naive.context_reward_totals(stream.contexts.tolist(), stream.reward_table[stream.items], m)
    pulls, sums = np.kron(weights, np.eye(n)), np.kron(np.eye(m), np.ones(n))
    program = linprog(-totals.ravel(), -pulls, np.full(n, -pull_floor), sums, np.ones(m))
    assert program.success
    return float(-program.fun)


@pytest.mark.parametrize("seed", range(3))
def test_fair_cb_full_information_regret_bound(seed: int) -> None:
    """At most sqrt(2 T M ln N) behind the best policy that keeps the floors; uniform play, which keeps them, is not."""
    for stream in (streams.drifting_ratings(3000, 4, 5, seed=seed), streams.ratings(3000, 4, 5, seed=seed)):
        weights = np.bincount(stream.contexts, minlength=4) / 3000
        policy = FairCB(4, 5, pull_share=0.1, horizon=3000, context_weights=weights, feedback="full")
        earned = simulate(policy, stream, seed=seed).final.sum() - 5.0
        best, bound = best_with_floors(stream, weights, 0.1), math.sqrt(2 * 3000 * 4 * math.log(5))
        assert best - earned <= bound
        assert best - stream.reward_table[stream.items].mean(axis=1).sum() > bound


def test_fair_cb_full_information_regret_is_as_large_as_can_be() -> None:
    """5/8 of the bound: half lost in the late rounds of `swings`, an eighth in the early ones. It pins the rate."""
    stream = swings(5000, 6, 220)
    policy = FairCB(1, 6, pull_share=1e-4, horizon=5000, context_weights=[1.0], feedback="full")
    earned = simulate(policy, stream).final.sum() - 6.0
    regret = best_with_floors(stream, np.ones(1), 1e-4) - earned
    assert 0.6 <= regret / math.sqrt(2 * 5000 * math.log(6)) <= 0.625


@pytest.mark.parametrize("policy", [AlphaFair(2, 3, alpha=0.0), AlphaFairBandit(2, 3, alpha=0.0)], ids=lambda p: p.name)
def test_efficiency_at_alpha_zero(policy: Any) -> None:
    """alpha = 0 is plain reward: each context ends up with its own best arm."""
    contexts = np.arange(30_000, dtype=np.int32) % 2
    stream = Stream(contexts, contexts, np.array([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]]))
    simulate(policy, stream, seed=0)
    assert policy.probabilities(0)[0] > 0.9
    assert policy.probabilities(1)[2] > 0.9
