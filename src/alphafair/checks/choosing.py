"""Questions, draws and masks."""

import math

import numpy as np

from alphafair.checks.subject import Counting, Subject, is_sound, memory, reward_of, rounds
from alphafair.run import simulate


def distribution_sums_to_one(subject: Subject) -> None:
    for policy in (subject.make(), subject.trained(1000), subject.make(1, 1), subject.trained(5, n_arms=300)):
        is_sound(policy)


def questions_change_nothing(subject: Subject) -> None:
    policy = subject.trained()
    before = memory(policy)
    rng = np.random.default_rng(0)
    mask = np.array([True, False, True, True])
    for context in range(3):
        policy.probabilities(context)
        policy.probabilities(context, available=mask)
        policy.choose(context, rng=rng)
        policy.choose(context, rng=rng, available=mask)
        policy.choose(context)
    assert memory(policy) == before, "probabilities or choose changed what the policy has learned"


def one_uniform_per_choice(subject: Subject) -> None:
    for available in (None, np.array([True, True, False, True])):
        source = Counting()
        subject.make().choose(1, rng=source, available=available)
        assert source.asked == 1, f"choose drew {source.asked} uniform numbers"
    policy = subject.trained()
    for uniform in (0.0, math.nextafter(1.0, 0.0)):
        decision = policy.choose(1, rng=Counting(uniform))
        assert decision.propensity > 0.0, f"uniform {uniform} drew an arm of probability 0"


def propensity_is_the_frequency(subject: Subject) -> None:
    policy = subject.trained()
    rng = np.random.default_rng(7)
    n_draws = 20_000
    counts = np.zeros(policy.n_arms, dtype=np.int64)
    p = policy.probabilities(2)
    for _ in range(n_draws):
        decision = policy.choose(2, rng=rng)
        counts[decision.arm] += 1
        assert decision.propensity == decision.probabilities[decision.arm], "propensity is not that of the arm"
    assert np.array_equal(decision.probabilities, p), "choose and probabilities disagree"
    assert not decision.probabilities.flags.writeable, "a decision's probabilities must be read-only"
    for arm in range(policy.n_arms):
        low, high = binomial_band(n_draws, float(p[arm]), 1e-6)
        assert low <= counts[arm] <= high, f"arm {arm} of probability {p[arm]} came {counts[arm]} times of {n_draws}"


def binomial_band(n: int, p: float, tail: float) -> tuple[int, int]:
    """Counts of n draws of probability p that are exceeded, on each side, with probability at most `tail`."""
    if p in (0.0, 1.0):
        return int(n * p), int(n * p)
    k = np.arange(n + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    log_mass = log_factorial[n] - log_factorial - log_factorial[::-1] + k * math.log(p) + (n - k) * math.log1p(-p)
    mass = np.exp(log_mass)
    low = int(np.searchsorted(np.cumsum(mass), tail))
    high = n - int(np.searchsorted(np.cumsum(mass[::-1]), tail))
    return low, high


def same_uniforms_same_path(subject: Subject) -> None:
    stream = rounds(300, 3, 4)
    first, second = (simulate(subject.make(seed=k), stream, seed=11, record_every=1) for k in (0, 99))
    assert np.array_equal(first.accounts, second.accounts), "two equal runs earned differently"
    a, b = subject.make(seed=4), subject.make(seed=4)
    assert [a.choose(0)[:3] for _ in range(600)] == [b.choose(0)[:3] for _ in range(600)], "one seed, two paths"


def masked_arms_are_never_drawn(subject: Subject) -> None:
    policy = subject.trained()
    rng = np.random.default_rng(9)
    for mask in ([True, False, True, False], [False, False, False, True]):
        available = np.array(mask)
        p = policy.probabilities(0, available=available)
        assert (p[~available] == 0.0).all(), "a masked arm has a positive probability"
        assert abs(math.fsum(p) - 1.0) <= 1e-12, f"masked probabilities sum to {math.fsum(p)!r}"
        for _ in range(200):
            decision = policy.choose(0, rng=rng, available=available)
            assert available[decision.arm], f"arm {decision.arm} was drawn though it was masked"
            assert decision.propensity == p[decision.arm], "the propensity of a masked choice is not the true one"


def inputs_are_not_touched(subject: Subject) -> None:
    policy = subject.trained()
    mask = np.array([True, True, False, True])
    rewards = np.array([0.5, 0.25, 1.0, 0.75])
    decision = policy.choose(0, available=mask)
    kept = decision.probabilities.copy()
    policy.update(decision, reward_of(policy, decision, rewards))
    for _ in range(300):
        policy.choose(1)
    assert mask.tolist() == [True, True, False, True], "the mask was written to"
    assert rewards.tolist() == [0.5, 0.25, 1.0, 0.75], "the rewards were written to"
    assert np.array_equal(decision.probabilities, kept), "an old decision was written to"
