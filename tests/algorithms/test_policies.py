"""Policies against the slow oracle over generated streams, and what is particular to one of them."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import alphafair
from alphafair import (
    POLICIES,
    AlphaFair,
    AlphaFairAdaptive,
    AlphaFairBandit,
    Decision,
    FairCB,
    Hedge,
    IndependentAlphaFair,
    InvalidArgument,
    ScaleFree,
    Stream,
    Uniform,
    load_policy,
    metrics,
    simulate,
    validate,
)
from alphafair.lab.rivals import READINGS, AlphaFairAfter, AlphaFairNextVisit
from alphafair.math.utility import played_alpha
from alphafair.policy.base import BasePolicy
from alphafair.run import known_settings
from tests import naive, naive_adaptive

PAIRS: dict[str, tuple[type[BasePolicy], type[naive.Policy], dict[str, Any]]] = {
    "alpha-fair": (AlphaFair, naive.AlphaFair, {"alpha": 0.9}),
    "alpha-fair-next-visit": (AlphaFairNextVisit, naive.AlphaFairNextVisit, {"alpha": 0.5}),
    "alpha-fair-after": (AlphaFairAfter, naive.AlphaFairAfter, {"alpha": 0.7}),
    "alpha-fair-efficient": (AlphaFair, naive.AlphaFair, {"alpha": 0.0}),
    "independent": (IndependentAlphaFair, naive.IndependentAlphaFair, {"alpha": 0.9}),
    "alpha-fair-bandit": (AlphaFairBandit, naive.AlphaFairBandit, {"alpha": 0.9}),
    "adaptive": (AlphaFairAdaptive, naive_adaptive.AlphaFairAdaptive, {"alpha": 0.9}),
    "adaptive-half": (AlphaFairAdaptive, naive_adaptive.AlphaFairAdaptive, {"alpha": 0.5}),
    "adaptive-full": (AlphaFairAdaptive, naive_adaptive.AlphaFairAdaptive, {"alpha": 0.9, "feedback": "full"}),
    "scale-free": (ScaleFree, naive.ScaleFree, {}),
    "scale-free-sqrt": (ScaleFree, naive.ScaleFree, {"exploration": "sqrt"}),
    "hedge": (Hedge, naive.Hedge, {}),
    "hedge-horizon": (Hedge, naive.Hedge, {"horizon": 50}),
    "fair-cb-bandit": (FairCB, naive.FairCB, {"feedback": "bandit"}),
    "fair-cb-full": (FairCB, naive.FairCB, {"feedback": "full"}),
    "fair-cb-epochs-bandit": (FairCB, naive.FairCB, {"feedback": "bandit", "epochs": True}),
    "fair-cb-epochs-full": (FairCB, naive.FairCB, {"feedback": "full", "epochs": True}),
    "fair-cb-anytime-bandit": (FairCB, naive.FairCB, {"feedback": "bandit", "horizon": None}),
    "fair-cb-anytime-epochs": (FairCB, naive.FairCB, {"feedback": "full", "horizon": None, "epochs": True}),
    "uniform": (alphafair.Uniform, naive.Uniform, {}),
}


def make_pair(name: str, n_contexts: int, n_arms: int, rng: np.random.Generator) -> tuple[BasePolicy, naive.Policy]:
    ours, oracle, options = PAIRS[name]
    options = dict(options)
    if ours is FairCB:
        options = {"pull_share": 0.7 / n_arms, "horizon": 100, **options}
        if not options.pop("epochs", False):
            options["context_weights"] = rng.dirichlet(np.ones(n_contexts))
    return ours(n_contexts, n_arms, **options), oracle(n_contexts, n_arms, **options)


def test_every_policy_has_an_oracle() -> None:
    assert {ours.name for ours, _, _ in PAIRS.values()} >= set(POLICIES)


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_contexts=st.integers(1, 4),
    n_arms=st.integers(1, 6),
    kind=st.sampled_from(["smooth", "floor", "zeros", "tiny"]),
)
def test_matches_the_oracle(name: str, seed: int, n_contexts: int, n_arms: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    n_rounds = 60
    contexts = rng.integers(0, n_contexts, n_rounds)
    rewards = rng.random((n_rounds, n_arms))
    if kind != "smooth":
        other = {"floor": 0.2, "zeros": 0.0, "tiny": 1e-12}[kind]
        rewards = np.where(rewards < 0.3, 1.0, other)
    ours, oracle = make_pair(name, n_contexts, n_arms, rng)
    uniforms = np.random.default_rng(seed).random(n_rounds)
    feedback: Any = ours.feedback.value
    arms, distributions, earned = naive.play(oracle, contexts.tolist(), rewards, uniforms, feedback)
    stream = Stream.from_arrays(contexts, rewards, n_contexts=n_contexts)
    trace = simulate(ours, stream, seed=seed)
    np.testing.assert_allclose(trace.final, earned, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(trace.pulls, np.bincount(arms, minlength=n_arms))
    for context in range(n_contexts):
        np.testing.assert_allclose(ours.probabilities(context), oracle.probabilities(context), rtol=1e-10, atol=1e-10)
    assert distributions.shape == (n_rounds, n_arms)


def test_marginals_stay_exact_over_a_long_run() -> None:
    """phi'(R) is kept by a series around anchors: after 20,000 rounds it is still R^(-alpha) to a few ulp."""
    policy = AlphaFair(3, 5, alpha=0.9)
    simulate(policy, alphafair.streams.ratings(20_000, 3, 5, seed=1))
    learned = policy.snapshot().arrays
    np.testing.assert_allclose(learned["slope"], learned["account"] ** -0.9, rtol=5e-15)


def test_scale_free_does_not_care_about_scale() -> None:
    """Rewards a million times larger: after the first rounds, the same kind of play."""
    rng = np.random.default_rng(0)
    stream = rng.random((2000, 3)) * [0.2, 0.5, 1.0]
    final = []
    for scale in (1e-6, 1.0, 1e6):
        policy = ScaleFree(1, 3)
        simulate(policy, Stream.from_arrays(np.zeros(2000, dtype=int), scale * stream), seed=1)
        final.append(policy.probabilities(0)[2])
    assert min(final[1:]) > 0.8, final
    assert abs(final[1] - final[2]) < 0.1, final


def test_fair_cb_keeps_every_floor() -> None:
    weights = np.array([0.5, 0.3, 0.2])
    stream = alphafair.streams.ratings(400, 3, 5, seed=2)
    for feedback in ("bandit", "full"):
        policy = FairCB(3, 5, pull_share=0.15, horizon=400, context_weights=weights, feedback=feedback)
        for t in range(400):
            decision = policy.choose(int(stream.contexts[t]))
            rewards = stream.rewards(t)
            policy.update(decision, rewards if feedback == "full" else float(rewards[decision.arm]))
            assert policy.marginals.min() >= 0.15 - 1e-12, f"round {t}: {policy.marginals}"
        assert policy.marginals.min() < 0.15 + 1e-6, "the floor never mattered, so this test shows nothing"


def test_fair_cb_without_a_horizon_keeps_its_bound_after_any_number_of_rounds() -> None:
    """Regret against the best distributions with the floors, by linear programming, on losses that change sides."""
    weights, m, n, floor = np.array([0.7, 0.3]), 2, 3, 0.2
    rng = np.random.default_rng(5)
    policy = FairCB(m, n, pull_share=floor, context_weights=weights, feedback="full")
    losses, paid, worst = np.zeros((m, n)), 0.0, 0.0
    floors = -np.hstack([weight * np.eye(n) for weight in weights])
    for t in range(1, 401):
        context = int(rng.random() < weights[1])
        rewards = (rng.random(n) < ([0.9, 0.5, 0.1] if t <= 200 else [0.0, 0.5, 1.0])).astype(float)
        decision = policy.choose(context)
        paid += policy.probabilities(context) @ (1.0 - rewards)
        policy.update(decision, rewards)
        losses[context] += 1.0 - rewards
        assert policy.marginals.min() >= floor - 1e-12
        if t in (1, 5, 25, 100, 200, 300, 400):
            best = linprog(losses.ravel(), floors, np.full(n, -floor), np.kron(np.eye(m), np.ones(n)), np.ones(m)).fun
            worst = max(worst, (paid - best) / (1.5 * np.sqrt(2.0 * t * m * np.log(n))))
    assert 0.1 < worst <= 1.0, worst


def test_settings_known_from_a_stream() -> None:
    stream = Stream.from_arrays([0, 1, 1, 1], np.ones((4, 2)))
    known = known_settings(FairCB, stream, 0.9)
    assert known == {"horizon": 4, "context_weights": [0.25, 0.75]}
    assert known_settings(AlphaFair, stream, 0.9) == {"alpha": 0.9}


def test_fair_cb_contexts_that_grow_weigh_nothing() -> None:
    policy = FairCB(2, 3, horizon=100, context_weights=[0.5, 0.5])
    policy.grow(4)
    assert policy.settings["context_weights"] == [0.5, 0.5, 0.0, 0.0]
    assert policy.fresh().n_contexts == 4
    for _ in range(300):
        policy.update(policy.choose(0), 0.2)
        policy.update(policy.choose(3), 0.9)
    assert policy.marginals.min() >= 0.5 / 3 - 1e-12
    assert load_policy(policy.snapshot()).settings == policy.settings


def test_growing_one_by_one_is_growing_at_once() -> None:
    slow, fast = AlphaFair(1, 3), AlphaFair(1, 3)
    for n in range(2, 100):
        slow.grow(n)
    fast.grow(99)
    assert np.array_equal(slow.snapshot().arrays["x"], fast.snapshot().arrays["x"])


@pytest.mark.parametrize("reading", READINGS)
def test_drift_is_zero_in_order_and_counts_masks(reading: str) -> None:
    policy = READINGS[reading](2, 3, alpha=0.5, seed=0)
    simulate(policy, alphafair.streams.ratings(100, 2, 3, seed=0), compiled=False)
    assert policy.drift == 0.0
    x = policy.probabilities(0)
    slope = policy.accounts**-0.5
    best = int(x.argmax())
    decision = policy.choose(0, available=np.arange(3) != best)
    if reading == "after":
        slope = (policy.accounts + decision.probabilities) ** -0.5
    policy.update(decision, [1.0, 1.0, 1.0])
    ahead = x - decision.probabilities
    expected = float(slope @ (np.maximum(ahead, 0.0) if reading == "next_visit" else ahead))
    assert policy.drift == pytest.approx(expected, rel=1e-12)


def test_hedge_takes_one_of_horizon_and_rate() -> None:
    with pytest.raises(ValueError, match="learning_rate must be None when horizon is given"):
        Hedge(1, 2, horizon=10, learning_rate=0.1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FairCB(2, 4, horizon=10, pull_share=0.25), r"pull_share must be a number in \(0, 0.25\); got 0.25"),
        (lambda: FairCB(2, 4, horizon=0), "horizon must be an integer of at least 1; got 0"),
        (lambda: FairCB(2, 4, horizon=9, context_weights=[0.5, 0.6]), "context_weights must be probabilities"),
        (lambda: FairCB(2, 4, horizon=9, feedback="some"), "feedback must be one of 'full', 'bandit'; got 'some'"),
        (lambda: ScaleFree(2, 4, exploration="none"), "exploration must be one of 'adaptive', 'sqrt'; got 'none'"),
        (lambda: AlphaFairAfter(2, 4, alpha=1.0), r"alpha must be a number in \[0, 1\); got 1.0"),
        (lambda: Hedge(2, 4, learning_rate=0), r"learning_rate must be a number in \(0, inf\); got 0"),
        (lambda: FairCB(2, 4, horizon=9, context_weights=[1.0]), "2 numbers in .* one per context; got 'shape"),
        (lambda: AlphaFair(2, 4).choose(-1), r"context must be an int in \[0, 1\]; got -1. Count contexts from 0."),
        (lambda: AlphaFair(2, 4).choose(True), "context must be an int in .* got True"),
        (lambda: AlphaFair(2, 4).choose(0, available=[[True], [True, False]]), "available must be 4 booleans"),
        (lambda: AlphaFairBandit(2, 4).update((0, 0, 0.5, None), "0.5"), "reward must be a number in .* got '0.5'"),
        (lambda: AlphaFairBandit(2, 4).update((0, 0, 0.5, None), np.nan), "reward .* whose reward is unknown"),
        (lambda: AlphaFair(2, 4, seed="x"), "seed must be an integer of at least 0; got 'x'"),
        (lambda: AlphaFair(2, True), "n_arms must be an integer of at least 1; got True"),
    ],
)
def test_settings_are_refused_in_one_sentence(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_an_invalid_alpha_gets_a_repair() -> None:
    words = "alpha must be a number of at least 0, or inf; got -0.5. Pass 0 for the sum of rewards, 1 for proportional"
    with pytest.raises(ValueError, match=words):
        AlphaFair(1, 2, alpha=-0.5)


@pytest.mark.parametrize("alpha", [0, -0.0, 0.5, 1, 1.5, 64, 1e6, np.inf, "inf", "infinity", np.float32(2.0)])
def test_any_alpha_from_zero_to_infinity_is_accepted(alpha: Any) -> None:
    assert str(validate.alpha(alpha)) == str(float(alpha) + 0.0)


@pytest.mark.parametrize("alpha", [np.nan, -1e-9, -np.inf, "x", "0.9", "nan", None, True, np.True_, b"inf", [1.0]])
def test_anything_else_is_not_an_alpha(alpha: Any) -> None:
    with pytest.raises(InvalidArgument, match="alpha must be a number of at least 0, or inf; got "):
        validate.alpha(alpha)


def test_measures_with_a_factor_need_an_alpha_below_one() -> None:
    assert validate.alpha_below_one(0.9) == 0.9
    for alpha in (1.0, 2, np.inf):
        with pytest.raises(InvalidArgument, match=r"below 1 for c_alpha-regret; got .*: use metrics\.welfare_ratio"):
            validate.alpha_below_one(alpha)


def test_large_exponents_are_played_as_sixteen() -> None:
    assert [played_alpha(alpha) for alpha in (0.0, 1.0, 64.0, 64.5, 1e6, np.inf)] == [0.0, 1.0, 64.0, 16.0, 16.0, 16.0]


def test_arrays_of_the_right_kind_are_checked_too() -> None:
    policy = AlphaFair(1, 2)
    decision = policy.choose(0)
    with pytest.raises(ValueError, match=r"reward\[1\] must be a number in \[0, 1\]; got 2.0"):
        policy.update(decision, np.array([0.5, 2.0]))
    for bad in (np.array([0.5, 0.6]), np.array([1.5, -0.5])):
        with pytest.raises(ValueError, match=r"decision\.probabilities"):
            policy.update(decision._replace(probabilities=bad), np.array([0.5, 0.5]))
    assert policy.accounts.tolist() == [1.0, 1.0]
    assert policy.distributions.tolist() == [[0.5, 0.5]]


NOT_CHOSEN: list[tuple[dict[str, Any], str]] = [
    ({"probabilities": np.full(4, 0.25)}, "decision.probabilities must be 3 numbers in .*; got 'shape"),
    ({"probabilities": np.full((3, 1), 1 / 3)}, "decision.probabilities must be 3 numbers in .*; got 'shape"),
    ({"probabilities": np.full((1, 3), 1 / 3)}, "decision.probabilities must be 3 numbers in .*; got 'shape"),
    ({"probabilities": ()}, "decision.probabilities must be 3 numbers in .*; got 'shape"),
    ({"probabilities": "even"}, "decision.probabilities must be 3 numbers in .*; got 'even'"),
    ({"probabilities": [0.5, 0.5, 0.5]}, "decision.probabilities must be probabilities that sum to 1; got 1.5"),
    (
        {"propensity": 0.5},
        r"decision.propensity must be decision.probabilities\[2\], 0.33\d+; got 0.5. Pass the Dec",
    ),
    ({"arm": -1}, r"decision.arm must be an integer in \[0, 2\]; got -1"),
    ({"arm": 1, "probabilities": [0.2, 0.6, 0.2]}, r"decision.propensity must be decision.probabilities\[1\], 0.6"),
]


@pytest.mark.parametrize("name", PAIRS)
def test_a_decision_that_was_not_chosen_teaches_nothing(name: str) -> None:
    policy, _ = make_pair(name, 2, 3, np.random.default_rng(0))
    reward: Any = [1.0, 0.0, 0.5] if policy.feedback == "full" else 1.0
    decision = Decision(1, 2, 1 / 3, np.full(3, 1 / 3))
    before = policy.snapshot().to_bytes()
    for change, words in NOT_CHOSEN:
        with pytest.raises(ValueError, match=words):
            policy.update(decision._replace(**change), reward)
        assert policy.snapshot().to_bytes() == before
    policy.update(decision._replace(propensity=np.float32(1 / 3)), reward)  # the same number, rounded on its way


def test_a_log_of_propensities_teaches_a_bandit() -> None:
    whole, bare = AlphaFairBandit(1, 2), AlphaFairBandit(1, 2)
    whole.update(Decision(0, 1, 0.25, np.array([0.75, 0.25])), 1.0)
    bare.update((0, 1, 0.25, None), 1.0)  # type: ignore[arg-type]
    assert np.array_equal(bare.probabilities(0), whole.probabilities(0))
    with pytest.raises(ValueError, match=r"decision\.probabilities must be 2 numbers"):
        AlphaFair(1, 2).update((0, 1, 0.25, None), [1.0, 0.0])  # type: ignore[arg-type]


class Stuck:
    """A generator that returns one thing for ever."""

    def __init__(self, drawn: Any) -> None:
        self.drawn = drawn

    def random(self) -> Any:
        return self.drawn


@pytest.mark.parametrize("available", [None, np.array([True, False, True])])
def test_a_broken_generator_is_refused(available: Any) -> None:
    policy = AlphaFairBandit(1, 3, seed=0)
    before = policy.snapshot().to_bytes()
    for drawn in (float("nan"), 1.0, -1e-9, float("inf"), "half", None):
        with pytest.raises(ValueError, match=r"rng.random\(\) must be a number in \[0, 1\); got .* Pass numpy.random"):
            policy.choose(0, rng=Stuck(drawn), available=available)
    with pytest.raises(ValueError, match=r"rng must be an object with a method random\(\); got 42. Pass numpy.random"):
        policy.choose(0, rng=42, available=available)  # type: ignore[arg-type]
    assert policy.snapshot().to_bytes() == before
    assert policy.choose(0, rng=Stuck(np.float32(0.99)), available=available).arm == 2
    assert policy.choose(0, rng=Stuck(0), available=available).arm == 0


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
@pytest.mark.parametrize("name", PAIRS)
def test_a_copy_is_independent(name: str, copied: Any) -> None:
    """It draws what the original draws, learns what it learns, and neither disturbs the other."""
    policy, _ = make_pair(name, 2, 3, np.random.default_rng(0))
    reward: Any = [1.0, 0.0, 0.5] if policy.feedback == "full" else 1.0
    for n_contexts in (3, 4, 5):  # rows to spare
        policy.grow(n_contexts)
        policy.update(policy.choose(0), reward)
    before, twin = policy.snapshot().to_bytes(), copied(policy)
    for chooser in (twin, policy):
        assert chooser.snapshot().to_bytes() == before
        for context in (0, 1, 5):
            chooser.grow(6)
            decision = chooser.choose(context)
            assert decision.probabilities.tolist() == chooser.probabilities(context).tolist()
            chooser.update(decision, reward)
    assert twin.snapshot().to_bytes() == policy.snapshot().to_bytes()
    assert b"numba" not in pickle.dumps(policy), "kernels by name, not their code"


def test_missing_attributes_are_none() -> None:
    """Callers ask the policy, not whether it has such a thing."""
    plain, apart, grouped = Uniform(1, 2), IndependentAlphaFair(1, 2), AlphaFair(1, 2, groups=["a", "a"])
    assert plain.alpha is plain.groups is plain.accounts is plain.cumulative_rewards is None
    assert apart.groups is None
    assert (apart.alpha, apart.accounts.tolist()) == (0.9, [[1.0, 1.0]])
    assert (grouped.groups.labels, grouped.accounts.tolist()) == (("a",), [1.0])


def test_a_copy_is_of_one_moment() -> None:
    """Other threads wait while it is made."""
    policy = AlphaFairBandit(1, 2)
    waiting = []

    class Watch:
        def __deepcopy__(self, memo: dict[int, Any]) -> Watch:
            waiting.append(policy._lock._is_owned())  # type: ignore[attr-defined]
            return self

    policy.settings = {**policy.settings, "watch": Watch()}
    assert isinstance(copy.copy(policy).settings["watch"], Watch)
    assert waiting == [True]


@pytest.mark.parametrize("call", [lambda policy, _: policy.choose(0), lambda policy, made: policy.update(made, 1.0)])
def test_a_signal_leaves_no_call_waiting_for_ever(call: Any) -> None:
    """It may come when the lock was just taken: as if Ctrl-C were pressed there."""
    policy = AlphaFairBandit(1, 2, seed=0)
    decision, take = policy.choose(0), policy._acquire

    def interrupted() -> bool:
        take()
        raise KeyboardInterrupt

    policy._acquire = interrupted  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        call(policy, decision)
    free: list[bool] = []
    other = threading.Thread(target=lambda: free.append(policy._lock.acquire(blocking=False)))
    other.start()
    other.join()
    assert free == [True]


def test_a_decision_may_be_a_plain_tuple() -> None:
    policy = AlphaFairBandit(1, 2, seed=0)
    policy.update((0, 1, 0.5, np.array([0.5, 0.5])), 1)  # type: ignore[arg-type]
    assert policy.accounts.tolist() == [1.0, 2.0]
    independent = IndependentAlphaFair(2, 2)
    independent.update(Decision(1, 0, 0.5, np.array([0.5, 0.5])), (1, 0.5))
    assert independent.accounts.tolist() == [[1.0, 1.0], [1.5, 1.25]]


def test_certificate_is_refused_where_there_is_none() -> None:
    with pytest.raises(ValueError, match="policy must be a policy with a surrogate_regret_bound"):
        metrics.regret_certificate(AlphaFairBandit(1, 2))


@pytest.mark.parametrize("name", POLICIES)
def test_a_decision_holds_numbers_of_python(name: str) -> None:
    """Compiled or not: what takes a decision further, such as JSON, need not know NumPy."""
    for settings_ in POLICIES[name].traits.variants(2, 3).values():
        policy = POLICIES[name](2, 3, seed=0, **settings_)
        for n in range(4):
            masked = policy.choose(n % 2, available=[True, False, True])
            for arm, propensity in (policy.choose(n % 2)[1:3], masked[1:3], policy.stepper.draw_alone(n % 2, 0.25 * n)):
                assert (type(arm), type(propensity)) == (int, float), settings_
            if n == 1:
                policy.retire(1)
