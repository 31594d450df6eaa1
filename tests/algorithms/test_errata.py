"""Where the paper's text or its authors' published code differs from what is right, pinned."""

from __future__ import annotations

import json

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairBandit, Decision, Hedge, ScaleFree, Stream, checks, metrics, simulate
from alphafair.algorithms import POLICIES, BasePolicy
from alphafair.lab.plan import KINDS
from alphafair.lab.rivals import READINGS, AlphaFairNextVisit, PublishedSign, PublishedStep
from tests import ROOT, naive

GOLDEN = json.loads((ROOT / "tests" / "fixtures" / "golden.json").read_text())


def test_the_published_sign_agrees_with_golden_values() -> None:
    run = GOLDEN["algorithm2_bandit"]["authors_sign"]
    policy = PublishedSign(2, 3, alpha=run["alpha"])
    for step in run["rounds"]:
        p = policy.probabilities(step["context"])
        np.testing.assert_allclose(p, step["sampling_distribution"], rtol=1e-12)
        policy.update(Decision(step["context"], step["arm"], float(p[step["arm"]]), p), step["reward"])


def worst_arm_share(policy: BasePolicy) -> float:
    rewards = np.array([0.9, 0.5, 0.1])
    pulls = np.zeros(3)
    rng = np.random.default_rng(0)
    for _ in range(3000):
        decision = policy.choose(0, rng=rng)
        policy.update(decision, float(rewards[decision.arm]))
        pulls[decision.arm] += 1
    return float(pulls[2] / pulls.sum())


def test_with_the_sign_turned_over_the_worst_arm_wins() -> None:
    """Arms paying .9, .5 and .1 at alpha = 0: ours plays the worst arm rarely, the published sign almost only."""
    assert worst_arm_share(AlphaFairBandit(1, 3, alpha=0.0)) < 0.1
    assert worst_arm_share(PublishedSign(1, 3, alpha=0.0)) > 0.9


def test_the_check_suite_catches_the_wrong_sign() -> None:
    """The check that every policy must lean toward reward goes red when the sign is turned over."""
    leans = checks.CHECKS["leans_toward_reward"]
    with pytest.raises(AssertionError, match=r"the arm that pays 0\.9 instead of 0\.1"):
        leans(checks.Subject(PublishedSign, {}))
    leans(checks.Subject(AlphaFairBandit, {}))


def test_step_size_adds_up_squared_norms() -> None:
    """S adds ||g||^2 under a root, not ||g||: after one gradient (3/5, 4/5) twice, S = 2 and the step is 1/sqrt(2)."""
    policy = AlphaFair(1, 2, alpha=0.0)
    for _ in range(2):
        policy.update(policy.choose(0), [0.6, 0.8])
    assert policy.squared_gradient_norms[0] == pytest.approx(2.0)
    x1 = naive.project_on_simplex(np.array([0.5, 0.5]) + np.array([0.6, 0.8]) / 1.0)
    x2 = naive.project_on_simplex(x1 + np.array([0.6, 0.8]) / np.sqrt(2.0))
    np.testing.assert_allclose(policy.probabilities(0), x2, rtol=1e-14)


def test_the_published_step_adds_up_norms() -> None:
    """After the gradient (3/10, 4/10) twice its S is 1/2, then 1; after a zero gradient nothing has moved."""
    policy, g = PublishedStep(1, 2, alpha=0.0), np.array([0.3, 0.4])
    x = np.array([0.5, 0.5])
    for size in (0.5, 1.0):
        policy.update(policy.choose(0), g)
        x = naive.project_on_simplex(x + g / np.sqrt(size))
        np.testing.assert_allclose(policy.probabilities(0), x, rtol=1e-14)
    policy.update(policy.choose(0), [0.0, 0.0])
    np.testing.assert_allclose(policy.probabilities(0), x, rtol=1e-14)


def test_the_published_step_reads_the_slope_before_the_round_and_earns_after_it() -> None:
    """At alpha = 1/2 with rewards (1, 1/2): R = (1.5, 1.25) after the first round, so g = r / sqrt(R) in the second."""
    policy, r = PublishedStep(1, 2, alpha=0.5), np.array([1.0, 0.5])
    first = float(np.sqrt(1.25))
    x = naive.project_on_simplex(np.array([0.5, 0.5]) + r / np.sqrt(first))
    policy.update(policy.choose(0), r)
    np.testing.assert_allclose(policy.probabilities(0), x, rtol=1e-14)
    g = r / np.sqrt([1.5, 1.25])
    policy.update(policy.choose(0), r)
    x = naive.project_on_simplex(x + g / np.sqrt(first + np.sqrt(g @ g)))
    np.testing.assert_allclose(policy.probabilities(0), x, rtol=1e-12)


@pytest.mark.parametrize("kind", [PublishedSign, PublishedStep])
def test_what_was_published_is_for_the_reproduction_alone(kind: type[BasePolicy]) -> None:
    assert kind.name in KINDS
    assert kind.name not in POLICIES


def test_the_slope_is_taken_before_the_round_by_default() -> None:
    policies = {name: READINGS[name](1, 2, alpha=0.9) for name in ("before", "after")}
    for policy in policies.values():
        policy.update(policy.choose(0), [1.0, 0.5])
    assert policies["before"].squared_gradient_norms[0] == pytest.approx(1.0 + 0.25)
    after = np.array([1.0, 0.5]) * np.array([1.5, 1.25]) ** -0.9
    assert policies["after"].squared_gradient_norms[0] == pytest.approx(float(after @ after))
    assert READINGS["before"] is AlphaFair


def test_utility_keeps_its_additive_constant() -> None:
    """x^(1-alpha)/(1-alpha), not (x^(1-alpha) - 1)/(1-alpha): the c_alpha-regret would change."""
    assert metrics.utility(1.0, 0.9) == pytest.approx(10.0)


def test_certificate_of_the_next_visit_counts_the_last_gradient() -> None:
    policy = AlphaFairNextVisit(1, 2, alpha=0.5)
    policy.update(policy.choose(0), [1.0, 1.0])
    assert policy.squared_gradient_norms[0] == pytest.approx(2 / 1.5)


def test_bandit_slope_is_taken_before_the_reward_is_booked() -> None:
    """phi'(R) after the reward would depend on the draw and bias the estimate."""
    assert AlphaFairBandit(1, 2, alpha=0.5).accounts.tolist() == [1.0, 1.0]
    policy, reference = AlphaFairBandit(1, 2, alpha=0.5), ScaleFree(1, 2)
    decision = Decision(0, 1, 0.5, np.array([0.5, 0.5]))
    policy.update(decision, 0.8)
    reference.update(decision, 0.8)  # phi'(1) = 1: the gain is the reward itself
    assert np.array_equal(policy.probabilities(0), reference.probabilities(0))


@pytest.mark.compiled
def test_exponential_weights_do_not_overflow() -> None:
    """Products of weights overflow near 171,000 rounds at 19 arms; logarithms do not."""
    policy = Hedge(1, 19, learning_rate=0.05)
    n_rounds = 200_000
    zeros = np.zeros(n_rounds, dtype=np.int32)
    table = np.linspace(0.1, 1.0, 19)[None, :]
    trace = simulate(policy, Stream(zeros, zeros, table))
    assert np.isfinite(trace.final).all()
    assert policy.probabilities(0)[18] == 1.0
