"""The rivals of the arena that one would write oneself: against naive loops, closed forms and the policies' checks."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy import stats

from alphafair import AlphaFairAdaptive, InvalidArgument, Stream, simulate, streams
from alphafair.algorithms import POLICIES
from alphafair.checks import run_checks
from alphafair.lab.rivals import (
    RIVALS,
    TUNABLE,
    FairDiscountedUCB,
    FairEpsilonGreedy,
    FairLinUCB,
    FairThompson,
    FairUCB,
)
from alphafair.lab.rivals.one_by_one import AdaptiveOneByOne, simulate_one_by_one
from alphafair.lab.rivals.thompson import W, among_largest, largest, normal_below
from tests import naive, naive_adaptive, naive_rivals

ORACLES: dict[str, tuple[Any, Any, dict[str, float]]] = {
    "epsilon": (FairEpsilonGreedy, naive_rivals.FairEpsilonGreedy, {"epsilon": 0.1, "prior": 3.0}),
    "ucb": (FairUCB, naive_rivals.FairUCB, {"width": 0.2}),
    "discounted ucb": (FairDiscountedUCB, naive_rivals.FairUCB, {"width": 0.05, "discount": 0.97}),
    "thompson": (FairThompson, naive_rivals.FairThompson, {"scale": 0.2}),
}
ALPHAS = (0.0, 0.9, 1.0, 5.0, math.inf)


def rounds(n_rounds: int = 300) -> Stream:
    """Clicks and sizes: contexts that repeat, zeros, and rewards that are neither 0 nor 1."""
    stream = streams.purchases(n_rounds, 3, 4, rates=(0.2, 0.9), seed=4)
    return Stream(stream.contexts, stream.items, np.minimum(1.0, 4.0 * stream.reward_table), n_contexts=3)


def play(policy: Any, stream: Stream) -> Any:
    trace = simulate(policy, stream, seed=1, log=True)
    assert trace.log is not None
    return trace


def test_rivals_are_not_among_the_policies() -> None:
    assert not {kind.name for kind in RIVALS} & {*POLICIES}
    assert {*TUNABLE} < {*RIVALS}


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", ORACLES)
def test_rivals_match_the_naive_loop(name: str, alpha: float) -> None:
    """The same draws: the same arms, with the same probabilities."""
    kind, oracle, settings = ORACLES[name]
    stream = rounds()
    uniforms = np.random.default_rng(1).random(stream.n_rounds)
    slow = oracle(3, 4, alpha=alpha, **settings)
    arms, p, earned = naive.play(slow, stream.contexts.tolist(), stream.reward_table, uniforms, "bandit")
    trace = play(kind(3, 4, alpha=alpha, **settings), stream)
    assert trace.log.arms.tolist() == arms
    np.testing.assert_allclose(trace.log.propensities, np.array(p)[np.arange(len(arms)), arms], rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(trace.final, earned, rtol=1e-12)
    assert len({*arms}) == 4


@pytest.mark.parametrize("alpha", ALPHAS)
def test_lin_ucb_matches_the_naive_loop(alpha: float) -> None:
    """Inverses by Sherman and Morrison against systems that are solved anew in every round."""
    stream = streams.described("linear", n_rounds=200, n_arms=4, n_features=3, seed=2)
    assert stream.features is not None
    uniforms = np.random.default_rng(1).random(stream.n_rounds)
    slow = naive_rivals.FairLinUCB(1, 4, alpha=alpha, width=0.3, features=stream.features)
    arms, _, earned = naive.play(slow, stream.contexts.tolist(), stream.reward_table, uniforms, "bandit")
    trace = play(FairLinUCB(1, 4, alpha=alpha, width=0.3, n_features=3), stream)
    assert trace.log.arms.tolist() == arms
    np.testing.assert_allclose(trace.final, earned, rtol=1e-12)


def test_the_normal_distribution_function() -> None:
    z = np.linspace(-9.0, 9.0, 3001)
    found = np.array([normal_below(each) for each in z])
    np.testing.assert_allclose(found, stats.norm.cdf(z), atol=2e-7)
    assert (found > 0.0).all()
    assert (np.diff(found) >= 0.0).all()


@pytest.mark.parametrize("seed", range(4))
def test_thompson_probabilities_are_those_of_the_largest_normal(seed: int) -> None:
    """Adaptive quadrature, within what 32 cells allow."""
    rng = np.random.default_rng(seed)
    v, s = rng.random(5), rng.uniform(0.05, 0.5, 5)
    out, work = np.zeros(5), np.zeros((W.size, 5))
    largest(v, s, work, out)
    np.testing.assert_allclose(out, naive_rivals.largest_of_normals(v, s), atol=4e-3)
    assert out.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", ORACLES)
def test_slates_of_rivals_match_the_naive_loop(name: str, alpha: float) -> None:
    """Probabilities of inclusion of one to four arms, after rewards of any number of arms."""
    kind, oracle, settings = ORACLES[name]
    policy, slow = kind(3, 4, alpha=alpha, **settings, seed=2), oracle(3, 4, alpha=alpha, **settings)
    stream, k = rounds(80), np.random.default_rng(3).integers(2, 5, 80).tolist()
    for t, context in enumerate(stream.contexts.tolist()):
        decision = policy.choose(context, k=k[t])
        np.testing.assert_allclose(decision.probabilities, slow.inclusion(context, k[t]), rtol=2e-5, atol=1e-6)
        given = stream.rewards(t)[list(decision.arms)].tolist()
        policy.update(decision, given)
        for arm, p, reward in zip(decision.arms, decision.propensities, given, strict=True):
            slow.learn(context, arm, p, decision.probabilities, reward)
    assert (policy.cumulative_rewards > 0.0).all()


@pytest.mark.parametrize("k", [1, 2, 4])
def test_thompson_slates_hold_the_largest_normals(k: int) -> None:
    rng = np.random.default_rng(k)
    v, s = rng.random(5), rng.uniform(0.05, 0.5, 5)
    out = np.zeros(5)
    among_largest(v, s, k, np.zeros((W.size, 5)), out)
    np.testing.assert_allclose(out, naive_rivals.among_largest_normals(v, s, k), atol=4e-3)
    assert out.sum() == pytest.approx(k, abs=1e-12)
    assert out.max() <= 1.0


def test_slates_drawn_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws without replacement, each learned with its conditional probability, by the naive policy of single arms."""
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")
    stream, k = rounds(25), 2
    trace = simulate_one_by_one(AdaptiveOneByOne(3, 4, alpha=0.5), stream, k, seed=3)
    slow, rng = naive_adaptive.AlphaFairAdaptive(3, 4, alpha=0.5), np.random.default_rng(3)
    earned, pulls = np.ones(4), np.zeros(4)
    for t, context in enumerate(stream.contexts.tolist()):
        left, drawn, p = np.ones(4), [], slow.probabilities(context)
        for _ in range(k):
            conditional = left * p / (left * p).sum()
            arm = naive.draw(conditional, rng.random())
            drawn.append((arm, float(conditional[arm]), conditional))
            left[arm] = 0.0
        for arm, propensity, conditional in drawn:
            reward = float(stream.rewards(t)[arm])
            slow.learn(context, arm, propensity, conditional, reward)
            earned[arm] += reward
            pulls[arm] += 1
    np.testing.assert_allclose(trace.final, earned, rtol=1e-9)
    assert trace.pulls.tolist() == pulls.tolist()
    single = simulate_one_by_one(AdaptiveOneByOne(3, 4, alpha=0.5), stream, 1, seed=3)
    assert single.final.tolist() == simulate(AlphaFairAdaptive(3, 4, alpha=0.5), stream, seed=3).final.tolist()
    assert AdaptiveOneByOne(3, 4, alpha=0.5).fresh().alpha == 0.5
    with pytest.raises(InvalidArgument, match="k must be left out: adaptive-one-by-one shows one arm"):
        AdaptiveOneByOne(3, 4).choose(0, k=2)


def test_discounted_ucb_follows_a_change() -> None:
    """Two arms swap: with discounts the new one is found, while the plain bound stays with the old one for long."""
    means = np.repeat([[0.9, 0.1], [0.1, 0.9]], 1500, axis=0)
    stream = Stream.from_arrays(np.zeros(3000, dtype=int), means)
    late = {}
    for policy in (FairUCB(1, 2, alpha=0.0, width=0.1), FairDiscountedUCB(1, 2, alpha=0.0, width=0.1, discount=0.99)):
        late[policy.name] = float((play(policy, stream).log.arms[1500:2000] == 1).mean())
    assert late["fair-ucb"] < 0.2
    assert late["fair-discounted-ucb"] > 0.8


def test_a_discount_of_one_is_ucb() -> None:
    stream = rounds()
    one = play(FairDiscountedUCB(3, 4, discount=1.0), stream)
    assert one.log.arms.tolist() == play(FairUCB(3, 4), stream).log.arms.tolist()


def test_lin_ucb_finds_the_arm_of_the_features() -> None:
    policy = FairLinUCB(1, 2, alpha=0.0, n_features=1)
    rng = np.random.default_rng(0)
    for _ in range(400):
        z = float(rng.normal())
        decision = policy.choose(0, features=[z], rng=rng)
        policy.update(decision, 0.5 + 0.4 * math.tanh(z if decision.arm else -z))
    assert policy.probabilities(0, features=[1.0]).tolist() == [0.0, 1.0]
    assert policy.probabilities(0, features=[-1.0]).tolist() == [1.0, 0.0]


MADE: list[Any] = [
    FairEpsilonGreedy(3, 4),
    FairUCB(3, 4),
    FairDiscountedUCB(3, 4, alpha=2.0),
    FairThompson(3, 4, alpha=math.inf),
]


def digests() -> list[str]:
    return [play(policy.fresh(), rounds(150)).log.propensities.tobytes().hex()[-4000:] for policy in MADE]


def test_interpreted_equals_compiled() -> None:
    other = "0" if os.environ.get("NUMBA_DISABLE_JIT") == "1" else "1"
    code = "from tests.algorithms.test_rivals import digests\nprint(*digests())"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": other, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == digests()


@pytest.mark.compiled
@pytest.mark.parametrize("kind", TUNABLE[:4])
def test_rivals_keep_the_promises_of_a_policy(kind: Any) -> None:
    """At alpha = 0: with more fairness it takes longer than the check does to lean toward what pays."""
    results = run_checks(kind, {"alpha": 0.0})
    assert {result.name: result.message for result in results if not result.passed} == {}


@pytest.mark.parametrize("kind", TUNABLE)
def test_new_arms_start_with_the_least_account(kind: Any) -> None:
    features = {"n_features": 2} if kind is FairLinUCB else {}
    policy = kind(1, 2, alpha=0.5, seed=1, **features)
    shown = {"features": [0.5, -0.5]} if features else {}
    for _ in range(100):
        decision = policy.choose(0, **shown)
        policy.update(decision, 0.1 + 0.1 * decision.arm)
    before = policy.accounts
    policy.grow(n_arms=3)
    assert policy.accounts.tolist() == [*before, before.min()]
    p = policy.probabilities(0, **shown)
    assert p.sum() == pytest.approx(1.0)
    assert policy.update(policy.choose(0, **shown), 0.2) is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FairEpsilonGreedy(1, 2, epsilon=0.0), r"epsilon must be a number in \(0, 1\]; got 0.0"),
        (lambda: FairEpsilonGreedy(1, 2, prior=0.0), r"prior must be a number in \(0, 1e\+06\]; got 0.0"),
        (lambda: FairUCB(1, 2, width=-0.1), r"width must be a number in \[0, 100\]; got -0.1"),
        (lambda: FairDiscountedUCB(1, 2, discount=1.5), r"discount must be a number in \[0.5, 1\]; got 1.5"),
        (lambda: FairThompson(1, 2, scale=0.0), r"scale must be a number in \(0, 100\]; got 0.0"),
        (lambda: FairLinUCB(1, 2, n_features=0), "n_features must be an integer of at least 1; got 0"),
    ],
)
def test_refusals(make: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()
