"""Runs that show slates: whole runs equal single steps, late rewards, adversaries, and the bounds of every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alphafair import (
    AlphaFair,
    AlphaFairAdaptive,
    AlphaFairBandit,
    FairCB,
    Groups,
    Stream,
    Uniform,
    context_reward_totals,
    metrics,
    offline_optimum,
    simulate,
    simulate_against,
    simulate_all,
    streams,
)
from alphafair.errors import InvalidArgument
from tests.certificates import check_certificates
from tools import measure_slates

N_ROUNDS = 120
KINDS: dict[str, Any] = {
    "adaptive": (AlphaFairAdaptive, {"alpha": 0.5}),
    "adaptive, nash": (AlphaFairAdaptive, {"alpha": 1.0, "groups": ["a", "b", "a", "c", "b"]}),
    "adaptive full": (AlphaFairAdaptive, {"alpha": 0.5, "feedback": "full"}),
    "alpha-fair": (AlphaFair, {"alpha": 2.0, "groups": Groups(pull_floor=0.05)}),
    "bandit": (AlphaFairBandit, {"alpha": 0.5}),
    "uniform": (Uniform, {}),
}


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes longer; `slates_agree_in_every_mode` of the conformance checks compares machine code."""
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")


def stream_of(seed: int, n_rounds: int = N_ROUNDS, **options: Any) -> Stream:
    rng = np.random.default_rng(seed)
    return Stream.from_arrays(rng.integers(0, 2, n_rounds), rng.random((n_rounds, 5)), **options)


def made(kind: str, n_arms: int = 5) -> Any:
    policy, options = KINDS[kind]
    return policy(2, n_arms, **options, seed=1)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_runs_equal_single_steps(kind: str) -> None:
    """To the last bit, with a number of shown arms that changes from round to round, one and all included."""
    k = np.random.default_rng(3).integers(1, 6, N_ROUNDS)
    runs = []
    for compiled in (True, False):
        policy = made(kind)
        trace = simulate(policy, stream_of(1), k=k, record_every=25, compiled=compiled)
        runs.append((trace.accounts.tolist(), trace.pulls.tolist(), policy.snapshot().arrays))
    (accounts, pulls, state), (others, other_pulls, other_state) = runs
    assert (accounts, pulls) == (others, other_pulls)
    assert sum(pulls) == k.sum()
    assert all(np.array_equal(state[name], other_state[name]) for name in state)
    earned = np.array(accounts[-1])
    assert earned.sum() > 5.0
    assert made(kind).accounts is None or np.array_equal(policy.cumulative_rewards + 1.0, earned)


def test_one_shown_arm_is_the_same_run() -> None:
    for kind in KINDS:
        plain, slates = made(kind), made(kind)
        assert (simulate(plain, stream_of(2)).final == simulate(slates, stream_of(2), k=1).final).all()
        assert all(np.array_equal(a, slates.snapshot().arrays[name]) for name, a in plain.snapshot().arrays.items())


@pytest.mark.parametrize("kind", ["adaptive", "adaptive full", "bandit", "alpha-fair"])
def test_late_rewards_of_every_shown_arm(kind: str) -> None:
    """All of them are learned from in the end, each at its own time."""
    delay = np.random.default_rng(4).integers(0, 20, (N_ROUNDS, 3))
    policy = made(kind)
    trace = simulate(policy, stream_of(5), k=3, delay=delay)
    np.testing.assert_allclose(policy.cumulative_rewards + 1.0, trace.final)
    assert trace.pulls.sum() == 3 * N_ROUNDS
    waits = simulate(made(kind), stream_of(5), k=3, delay=7)
    at_once = simulate(made(kind), stream_of(5), k=3, delay=0)
    now = simulate(made(kind), stream_of(5), k=3, compiled=False)
    assert (at_once.final == now.final).all() or kind == "adaptive"  # `expect` changes the play of adaptive policies
    assert waits.pulls.sum() == 3 * N_ROUNDS


def test_arms_come_and_go_and_periods_pass() -> None:
    stream = stream_of(6, arrivals=[0, 0, 0, 40, 60])
    for kind in ("adaptive", "adaptive full"):
        runs = [
            simulate(made(kind, 3), stream, k=2, period=50, carry=0.5, compiled=compiled) for compiled in (True, False)
        ]
        assert (runs[0].final == runs[1].final).all()
        assert len(runs[0].periods) == 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_the_bound_when_arms_come_and_go(alpha: float, seed: int) -> None:
    """Against the best slates per context and epoch, as tests/conftest.py checks every run; floors change the set."""
    rng = np.random.default_rng(seed)
    rewards = rng.random((150, 6)) ** 4
    stream = Stream.from_arrays(
        rng.integers(0, 2, 150), rewards, arrivals=[0, 0, 0, 0, 50, 100], departures=[150, 100, 150, 150, 150, 150]
    )
    for policy in (
        AlphaFair(2, 4, alpha=alpha, groups=Groups(pull_floor=0.1)),
        AlphaFairAdaptive(2, 4, alpha=alpha, feedback="full"),
    ):
        simulate(policy, stream, k=2)
        assert policy.surrogate_regret_bound is not None


HOSTILE: dict[str, Any] = {
    "random": lambda rng, n: rng.random((n, 5)),
    "rare": lambda rng, n: (rng.random((n, 5)) < 0.05).astype(float),
    "turning": lambda rng, n: np.where((np.arange(n)[:, None] // 20 + np.arange(5)) % 5 < 2, 1.0, 0.01),
    "tiny": lambda rng, n: 1e-9 * rng.random((n, 5)),
}


@pytest.mark.parametrize("world", HOSTILE)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 1.0, 2.0])
def test_the_bounds_of_every_run(alpha: float, world: str) -> None:
    """Regret at most the bound with full information, for groups of several arms, floors, and both policies."""
    rng = np.random.default_rng([int(alpha * 10), len(world)])
    stream = Stream.from_arrays(rng.integers(0, 2, 60), HOSTILE[world](rng, 60))
    totals = context_reward_totals(stream)
    for k, groups in ((2, None), (3, Groups(["a", "a", "b", "a", "b"], {"b": 2.0})), (4, Groups(pull_floor=0.1))):
        for policy in (
            AlphaFair(2, 5, alpha=alpha, groups=groups),
            AlphaFairAdaptive(2, 5, alpha=alpha, feedback="full", groups=groups),
        ):
            simulate(policy, stream, k=k, compiled=False)
            assert policy.most_shown == k
            best = offline_optimum(totals, alpha, k=k, groups=groups)
            achieved = np.asarray(policy.accounts)
            check_certificates(totals, achieved, alpha, k=k, groups=groups, policy=policy)
            ratio = best.welfare / metrics.welfare(achieved, alpha, groups=groups)
            assert ratio <= metrics.welfare_certificate(policy) * (1 + 1e-9)
            if alpha < 1.0:
                regret = metrics.approximate_regret(best.value, achieved, alpha, groups=groups)
                assert regret <= metrics.regret_certificate(policy)


@pytest.mark.parametrize(("n", "k"), [(4, 2), (10, 5), (5, 4)])
def test_the_factor_keep_in_the_bound_is_needed(n: int, k: int) -> None:
    """An adversary pays only the arm that is shown least: the bound holds, and without keep in S it would not.

    The linear regret at alpha = 0 against the best fixed slate, by a sum of its own.
    """
    policy, gains, earned = AlphaFair(1, n, alpha=0.0), np.zeros(n), 0.0
    for _ in range(60):
        decision = policy.choose(0, k=k)
        rewards = (np.arange(n) == decision.probabilities.argmin()).astype(float)
        gains, earned = gains + rewards, earned + float(decision.probabilities @ rewards)
        policy.update(decision, rewards)
    regret, bound = np.sort(gains)[::-1][:k].sum() - earned, policy.surrogate_regret_bound
    assert bound is not None
    assert regret <= bound
    assert regret > bound / k or k == 2  # S without keep is k^2 times smaller


@pytest.mark.parametrize("kind", ["settled", "largest", "halving"])
def test_against_adversaries(kind: str) -> None:
    adversary = streams.adversary(kind, n_rounds=90, n_contexts=2, n_arms=5, seed=0)
    for name in ("adaptive", "adaptive full"):
        runs = [simulate_against(made(name), adversary, k=3, compiled=compiled) for compiled in (True, False)]
        (trace, stream), (other, other_stream) = runs
        assert (trace.final == other.final).all()
        assert (stream.reward_table == other_stream.reward_table).all()
        assert trace.pulls.sum() == 270


def test_slates_close_the_gap() -> None:
    """Most of what is between random slates and the best fixed ones."""
    stream = streams.ratings(n_rounds=1_200, n_contexts=2, n_arms=8, seed=1)
    best = offline_optimum(context_reward_totals(stream), 0.5, k=3)
    (slates,), (uniform,) = simulate_all([AlphaFairAdaptive(2, 8, alpha=0.5), Uniform(2, 8)], stream, k=3)
    assert metrics.gap_closed(best.value, uniform.final, slates.final, 0.5) > 0.3


@pytest.mark.parametrize("case", ["groups", "late up to 20", "missing", "random k"])
def test_what_slates_close(case: str) -> None:
    """A small part of what tools/measure_slates.py measures: most of the gap, whatever happens to the slates."""
    assert 45.0 < measure_slates.shares("stationary", case, 3, 0, sizes=(400, 2, 10)) < 100.0


def test_refusals() -> None:
    stream = stream_of(1, 6)
    for policy, options, words in (
        (FairCB(2, 5, pull_share=0.1, horizon=10), {"k": 2}, "k must be left out: fair-cb shows one arm per decision"),
        (made("uniform"), {"k": 0}, "k must be"),
        (made("uniform"), {"k": [1, 2]}, "k must be"),
        (made("uniform"), {"k": 2, "delay": np.zeros((6, 1), dtype=int)}, "delay must be of shape"),
        (
            AlphaFair(2, 5, groups=Groups(list("aabbc"), pull_floor={"a": 0.1})),
            {"k": 2},
            "k must be 1 with a pull_floor by group",
        ),
    ):
        with pytest.raises((InvalidArgument, TypeError), match=words):
            simulate(policy, stream, **options)
