"""Features: compiled and stepwise runs, logs, threads, and what is learned."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from alphafair import (
    AlphaFairAdaptive,
    AlphaFairBandit,
    DescribedDecision,
    InvalidArgument,
    Log,
    Stream,
    Uniform,
    metrics,
    preprocessing,
    run,
    simulate,
    streams,
)
from alphafair.run import simulate_against

FORMS = [(feedback, of) for feedback in ("bandit", "full") for of in ("context", "arms")]
N_FEATURES = 3


def made(feedback: str, of: str, n_contexts: int = 2, n_arms: int = 3, **options: Any) -> AlphaFairAdaptive:
    settings: Any = {"feedback": feedback, "features_of": of, "alpha": 0.7, **options}
    return AlphaFairAdaptive(n_contexts, n_arms, n_features=N_FEATURES, **settings)


def rounds(of: str, n_rounds: int = 300, n_arms: int = 4, n_contexts: int = 3, seed: int = 0) -> Stream:
    """Rewards that features tell something of; some features are 0 now and then."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n_rounds, n_arms, N_FEATURES)) * (rng.random((n_rounds, 1, N_FEATURES)) < 0.8)
    told = 1 / (1 + np.exp(-z @ [1.0, -2.0, 0.5]))
    features = z if of == "arms" else z[:, 0]
    return Stream.from_arrays(rng.integers(0, n_contexts, n_rounds), told * rng.random(told.shape), features=features)


def test_a_feature_that_was_always_zero_is_ignored() -> None:
    """And a last term that cannot be told from the first does no harm."""
    policy = AlphaFairAdaptive(1, 2, n_features=3, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(400):
        z = np.array([rng.normal(), 0.0, 1.0])
        decision = policy.choose(0, features=z)
        policy.update(decision, float(np.clip(0.5 + 0.3 * z[0] * (1 - 2 * decision.arm), 0, 1)))
    up, down = (policy.probabilities(0, features=[z, 0.0, 1.0]) for z in (1.0, -1.0))
    assert up[0] > 0.9
    assert down[1] > 0.9


def test_the_scale_of_features_does_not_matter() -> None:
    """Powers of two change no bit; the column of ones makes no difference either way."""
    stream = rounds("context", 2000)
    assert stream.features is not None
    pulls = []
    for scale in (1.0, 2.0**20, 2.0**-20):
        scaled = replace(stream, features=stream.features * [scale, 1.0, 1.0 / scale])
        log = simulate(made("bandit", "context", 3, 4), scaled, log=True).log
        assert log is not None
        pulls.append(log.arms.tobytes())
    assert pulls[0] == pulls[1] == pulls[2]


# compiled, stepwise, interpreted


def digest(of: str, feedback: str, delay: Any = None, *, compiled: bool = True) -> str:
    policy, stream = made(feedback, of, 3, 4), rounds(of)
    trace = simulate(policy, stream, seed=2, record_every=7, delay=delay, compiled=compiled, log=True)
    assert trace.log is not None
    arrays = [trace.accounts, trace.log.propensities, *policy.snapshot().arrays.values()]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


@pytest.mark.parametrize("delay", [None, 0, 11])
@pytest.mark.parametrize(("feedback", "of"), FORMS)
def test_stepwise_equals_compiled(feedback: str, of: str, delay: Any) -> None:
    assert digest(of, feedback, delay) == digest(of, feedback, delay, compiled=False)


def test_interpreted_equals_compiled() -> None:
    other = "0" if os.environ.get("NUMBA_DISABLE_JIT") == "1" else "1"
    code = "from tests.algorithms.test_features import FORMS, digest\nprint(*(digest(of, kind) for kind, of in FORMS))"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": other, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == [digest(of, feedback) for feedback, of in FORMS]


@pytest.mark.parametrize(("feedback", "of"), FORMS)
def test_arms_may_come_and_go_in_a_stream(feedback: str, of: str) -> None:
    stream = replace(rounds(of), arrivals=[0, 0, 60, 130], departures=[150, 300, 300, 220])
    states = []
    for compiled in (True, False):
        policy = made(feedback, of, 3, 2)
        trace = simulate(policy, stream, compiled=compiled, log=True)
        assert trace.log is not None
        assert all(stream.present(t)[arm] for t, arm in enumerate(trace.log.arms))
        states.append(policy.snapshot().arrays)
    assert all(np.array_equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.parametrize("of", ["context", "arms"])
def test_adversaries_may_have_features(of: str) -> None:
    adversary = streams.adversary("largest", n_rounds=200, n_contexts=3, n_arms=4)
    described = replace(adversary, stream=replace(adversary.stream, features=rounds(of, 200).features))
    finals = [
        simulate_against(made("bandit", of, 3, 4), described, compiled=c)[0].final.tobytes() for c in (True, False)
    ]
    assert finals[0] == finals[1]


# logs, copies, threads


@pytest.mark.parametrize("of", ["context", "arms"])
def test_a_log_replays_to_the_same_state(of: str) -> None:
    live, stream = made("bandit", of, 3, 4), rounds(of)
    log = simulate(live, stream, log=True).log
    assert log is not None
    assert log.features is not None
    folded, stepped = live.fresh(), live.fresh()
    run.over_log(folded, log)
    for t in range(log.n_rounds):
        entry = int(log.contexts[t]), int(log.arms[t]), float(log.propensities[t]), None
        stepped.update(DescribedDecision(*entry, log.features[t]), float(log.rewards[t]))  # type: ignore[arg-type]
    arrays = [policy.snapshot().arrays for policy in (live, folded, stepped)]
    assert all(np.array_equal(arrays[0][key], other[key]) for other in arrays[1:] for key in other)
    # some arms are gone by now: what is left is learned from
    fewer = live.fresh()
    fewer.retire(1)
    run.over_log(fewer, log)
    assert np.isfinite(fewer.accounts).all()
    with pytest.raises(InvalidArgument, match=r"log must be with features of shape .* per round; got 'none'"):
        run.over_log(folded, replace(log, features=None))
    with pytest.raises(
        InvalidArgument, match=r"features must be of shape \(300, n_features\) or \(300, 4, n_features\)"
    ):
        Log(log.contexts, log.arms, log.rewards, log.propensities, n_arms=4, features=log.features[1:])


@pytest.mark.parametrize("of", ["context", "arms"])
def test_a_full_log_replays_to_the_same_state(of: str) -> None:
    stream, one, two = rounds(of), made("full", of, 3, 4), made("full", of, 3, 4)
    used = []
    for t in range(stream.n_rounds):
        decision = one.choose(int(stream.contexts[t]), features=stream.features[t])  # type: ignore[index]
        used.append(decision.probabilities)
        one.update(decision, stream.rewards(t))
    run.over_full_log(two, stream.contexts, used, stream.reward_table, stream.features)
    first, second = one.snapshot().arrays, two.snapshot().arrays
    assert all(np.array_equal(first[key], second[key]) for key in first)
    with pytest.raises(InvalidArgument, match="features must be with features of shape"):
        run.over_full_log(two, stream.contexts, used, stream.reward_table)


def test_a_decision_with_features_is_a_decision() -> None:
    policy = made("bandit", "context")
    z = np.array([1.0, 2.0, 3.0])
    decision = policy.choose(0, features=z)
    z[0] = 9.0
    context, arm, propensity, _ = decision  # four, as ever
    assert (context, arm, propensity) == decision[:3]
    for other in (decision, copy.deepcopy(decision), pickle.loads(pickle.dumps(decision)), decision._replace(arm=arm)):
        assert other.features is not None
        assert other.features.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="read-only"):
        decision.features[0] = 4.0  # type: ignore[index]
    assert AlphaFairBandit(1, 2).choose(0).features is None
    twin = copy.deepcopy(policy)
    for each in (policy, twin):
        each.update(decision, 1.0)
    assert np.array_equal(policy.probabilities(1, features=z), twin.probabilities(1, features=z))


@pytest.mark.compiled
def test_eight_threads_keep_the_state_consistent() -> None:
    """Every thread shows its own features: what is learned from a decision is what was shown to it."""
    policy = AlphaFairAdaptive(1, 2, n_features=1, seed=0)

    def play(sign: float) -> None:
        for _ in range(2000):
            decision = policy.choose(0, features=[sign])
            policy.update(decision, float(decision.arm == (sign > 0)))

    threads = [threading.Thread(target=play, args=(sign,)) for sign in (-1.0, 1.0) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert policy.snapshot().arrays["rounds"] == 16_000
    assert policy.probabilities(0, features=[1.0])[1] > 0.95
    assert policy.probabilities(0, features=[-1.0])[0] > 0.95


# what is refused


def test_refused_calls_change_nothing() -> None:
    policy, plain = made("bandit", "context"), AlphaFairBandit(2, 3)
    own = made("bandit", "arms")
    z = np.ones(N_FEATURES)
    decision = policy.choose(0, features=z)
    before = policy.snapshot().to_bytes(), own.snapshot().to_bytes()
    for call, words in (
        (lambda: policy.choose(0), r"features must be finite numbers of shape \(3,\), of the context; got None"),
        (lambda: policy.choose(0, features=[1.0]), r"features must be .* got 'shape \(1,\)'"),
        (lambda: policy.choose(0, features=[1.0, np.nan, 0.0]), r"features\[1\] must be a finite number; got nan"),
        (lambda: policy.choose(0, features=[1.0, 2.0, 1e60]), r"features\[2\] must be a finite number"),
        (lambda: policy.choose(0, features=["a", 2, 3]), "features must be finite numbers of shape"),
        (lambda: own.choose(0, features=z), r"of shape \(3, 3\), per arm and feature; got 'shape \(3,\)'"),
        (lambda: own.choose(0, features=np.ones((4, 3))), r"got 'shape \(4, 3\)'"),
        (lambda: plain.choose(0, features=z), "features must be left out: this policy was made without"),
        (lambda: plain.probabilities(0, features=z), "Make the policy with n_features, or leave them out"),
        (lambda: policy.update(tuple(decision), 1.0), "features must be finite numbers"),
        (
            lambda: simulate(policy, streams.ratings(50, 2, 3)),
            "stream must be with features of shape .3,. per round",
        ),
        (lambda: simulate(policy, rounds("arms", n_arms=3, n_contexts=2)), r"got 'shape \(3, 3\)'"),
        (lambda: AlphaFairAdaptive(1, 2, n_features=-1), "n_features must be an integer of at least 0"),
        (lambda: AlphaFairAdaptive(1, 2, n_features=1, features_of="arm"), "Did you mean 'arms'"),
        (lambda: AlphaFairAdaptive(1, 2, regressor=object()), "n_features must be at least 1 with a regressor"),
        (
            lambda: AlphaFairAdaptive(1, 2, n_features=1, regressor=3),
            "regressor must be an object with partial_fit and",
        ),
        (lambda: rounds("arms").__class__.from_arrays([0], [[1.0]], features=[[]]), "features must be of shape"),
        (lambda: Stream.from_arrays([0], [[1.0]], features=[[np.inf]]), r"features\[0, 0\] must be a finite number"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            call()  # type: ignore[no-untyped-call]
    assert (policy.snapshot().to_bytes(), own.snapshot().to_bytes()) == before


def test_a_snapshot_belongs_to_its_features() -> None:
    state = made("bandit", "context").snapshot()
    with pytest.raises(InvalidArgument):
        AlphaFairAdaptive(2, 3, alpha=0.7).restore(state)
    with pytest.raises(InvalidArgument, match="features_of"):
        made("bandit", "arms").restore(state)
    broken = {**state.arrays, "feature_theta": np.full_like(state.arrays["feature_theta"], np.inf)}
    with pytest.raises(InvalidArgument):
        made("bandit", "context").restore(replace(state, arrays=broken))


def test_a_stream_keeps_its_features_in_its_head() -> None:
    stream = rounds("arms")
    assert stream.features is not None
    assert np.array_equal(stream.head(7).features, stream.features[:7])  # type: ignore[arg-type]


# contexts from features, and what is learned


def test_clusters_are_contexts_for_every_policy() -> None:
    plain = streams.described("clusters", n_rounds=3000, n_arms=4, n_features=6, seed=1)
    assert plain.features is not None
    stream = replace(plain, features=plain.features * [1.0, 1e6, 1e-6, 1.0, 1.0, 1.0])  # scales are found
    assert stream.features is not None
    clusters = preprocessing.cluster(stream.features[:1000], 12, seed=2)
    clustered = clusters.stream(stream)
    assert clustered.n_contexts == clusters.n_clusters == 12
    ids = clusters.of(stream.features)
    assert np.array_equal(ids, clustered.contexts)
    assert clusters.of(stream.features[7]) == clustered.contexts[7]
    # rounds of one hidden center have the same means, and the same cluster
    means = streams.described_means("clusters", n_rounds=3000, n_arms=4, n_features=6, seed=1)
    _, center = np.unique(means.round(9), axis=0, return_inverse=True)
    center = np.ravel(center)
    together = [
        np.bincount(clustered.contexts[center == k]).max() / (center == k).sum() for k in range(center.max() + 1)
    ]
    assert np.mean(together) > 0.85, together
    assert simulate(AlphaFairBandit(12, 4), clustered).final.sum() > 0.0
    for call, words in (
        (lambda: preprocessing.cluster([1.0, 2.0]), "features must be a table with a row per vector"),
        (lambda: preprocessing.cluster(np.ones((3, 2)), 4), r"n_clusters must be an integer in \[1, 3\]; got 4"),
        (lambda: preprocessing.cluster([[np.nan]], 1), r"features\[0, 0\] must be a finite number"),
        (lambda: clusters.of([1.0]), "features must be of 6 features; got 'shape .1,.'"),
        (lambda: clusters.stream(replace(stream, features=None)), "stream must be a stream with features"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            call()  # type: ignore[no-untyped-call]


def test_described_streams_have_the_documented_means() -> None:
    sizes = {"n_rounds": 4000, "n_arms": 5, "n_features": 3}
    for kind in ("linear", "changing", "quadratic", "clusters"):
        stream, means = streams.described(kind, **sizes), streams.described_means(kind, **sizes)  # type: ignore[arg-type]
        assert stream.features is not None
        noise = stream.reward_table - means
        assert np.abs(noise).max() <= 0.2
        assert np.abs(noise.mean(axis=0)).max() < 5 * 0.2 / np.sqrt(3 * 4000)
        inner = (means > 0.2) & (means < 0.8)
        z = np.column_stack([np.ones(4000), stream.features])
        residual = [
            np.std(means[rows, i] - z[rows] @ np.linalg.lstsq(z[rows], means[rows, i], rcond=None)[0])
            for i in range(5)
            for rows in [inner[:, i]]
        ]
        assert (max(residual) < 1e-12) == (kind == "linear"), (kind, residual)
    own = streams.described_means("linear", features_of="arms", **sizes)  # type: ignore[arg-type]
    features = streams.described("linear", features_of="arms", **sizes).features  # type: ignore[arg-type]
    assert features is not None
    assert features.shape == (4000, 5, 3)
    level, rows = [], (own > 0.2) & (own < 0.8)
    theta, *_ = np.linalg.lstsq(
        features[rows[:, 0], 0] - features[rows[:, 0], 0].mean(axis=0),
        own[rows[:, 0], 0] - own[rows[:, 0], 0].mean(),
        rcond=None,
    )
    level = [np.std(own[rows[:, i], i] - features[rows[:, i], i] @ theta) for i in range(5)]
    assert max(level) < 1e-12  # one theta for all arms
    with pytest.raises(InvalidArgument, match="kind must be 'linear' or 'changing' with features_of='arms'"):
        streams.described("quadratic", features_of="arms", **sizes)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="Did you mean 'linear'"):
        streams.described("lineal", **sizes)  # type: ignore[arg-type]


def test_described_clicks_are_rare_and_logistic_in_the_features() -> None:
    """Logarithms of odds are linear in the features; clicks are 1 or 0 with those rates."""
    sizes = {"n_rounds": 20_000, "n_arms": 5, "n_features": 3}
    stream, means = streams.described("clicks", **sizes), streams.described_means("clicks", **sizes)  # type: ignore[arg-type]
    assert stream.features is not None
    z = np.column_stack([np.ones(20_000), stream.features])
    odds = np.log(means / (1 - means))
    theta, *_ = np.linalg.lstsq(z, odds, rcond=None)
    np.testing.assert_allclose(z @ theta, odds, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(theta[1:], axis=0), 1.0)
    assert (np.abs(theta[0] + 4.0) <= 0.5).all()
    assert 0.02 < means.mean() < 0.04
    assert set(np.unique(stream.reward_table)) == {0.0, 1.0}
    often = means > np.quantile(means, 0.9)
    for some in (often, ~often):
        error = 5 * np.sqrt(means[some].mean() / some.sum())
        assert abs(stream.reward_table[some].mean() - means[some].mean()) < error
    with pytest.raises(InvalidArgument, match="kind must be 'linear' or 'changing' with features_of='arms'"):
        streams.described("clicks", features_of="arms", **sizes)  # type: ignore[arg-type]


def known(means: np.ndarray, rewards: np.ndarray, alpha: float) -> np.ndarray:
    """Who knows every mean plays the arm of the largest R^-alpha m."""
    earned = np.ones(means.shape[1])
    for mean, reward in zip(means, rewards, strict=True):
        arm = int(np.argmax(mean * earned**-alpha))
        earned[arm] += reward[arm]
    return earned


@pytest.mark.compiled
@pytest.mark.parametrize(("kind", "least"), [("linear", 0.94), ("changing", 0.8), ("quadratic", 0.6)])
def test_features_are_worth_more_than_clusters(kind: str, least: float) -> None:
    """Share of what knowing every mean gives, mean of two seeds fixed here, against the same on 32 clusters."""
    settings: Any = {"n_rounds": 30_000, "n_arms": 10, "n_features": 8}
    for alpha in (0.0, 0.5, 0.9):
        shares = []
        for seed in range(2):
            plain = streams.described(kind, seed=seed, **settings)
            assert plain.features is not None
            stream = preprocessing.cluster(plain.features[:3000], 32, seed=seed).stream(plain)
            best = known(streams.described_means(kind, seed=seed, **settings), stream.reward_table, alpha)
            even = 1.0 + stream.reward_table.sum(axis=0) / 10
            bottom, top = (metrics.alpha_performance(earned, alpha) for earned in (even, best))
            both = [AlphaFairAdaptive(32, 10, alpha=alpha, n_features=n_features) for n_features in (8, 0)]
            finals = [simulate(policy, stream, seed=seed).final for policy in both]
            shares.append([(metrics.alpha_performance(final, alpha) - bottom) / (top - bottom) for final in finals])
        features, clusters = np.mean(shares, axis=0)
        assert features >= least, (kind, alpha, features)
        assert features >= clusters + 0.1, (kind, alpha, features, clusters)


@pytest.mark.compiled
def test_a_new_arm_starts_with_the_prediction_of_its_features() -> None:
    """Two arms arrive after 3,000 rounds, with nothing but features that speak for the one and against the other."""
    rng = np.random.default_rng(0)
    policy, theta = AlphaFairAdaptive(1, 5, alpha=0.0, n_features=4, features_of="arms", seed=1), rng.normal(size=4)
    arms = rng.normal(size=(7, 4))
    arms[5], arms[6] = 2.0 * theta / np.linalg.norm(theta), -2.0 * theta / np.linalg.norm(theta)
    pay = np.clip(0.5 + 0.1 * arms @ theta, 0.05, 0.95)
    for _ in range(3000):
        decision = policy.choose(0, features=arms[:5])
        policy.update(decision, float(rng.random() < pay[decision.arm]))
    policy.grow(n_arms=7)
    p = policy.probabilities(0, features=arms)
    assert pay[5] > pay[:5].max()
    assert p[5] > 0.8 > 0.05 > p[6]


class Recursive:
    """A least squares of its own, with scikit-learn's two methods."""

    def __init__(self) -> None:
        self.gram, self.moment = np.eye(N_FEATURES + 1), np.zeros(N_FEATURES + 1)

    def partial_fit(self, x: np.ndarray, y: np.ndarray) -> None:
        z = np.column_stack([np.ones(len(x)), x])
        self.gram, self.moment = self.gram + z.T @ z, self.moment + z.T @ y

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.column_stack([np.ones(len(x)), x]) @ np.linalg.solve(self.gram, self.moment))


@pytest.mark.parametrize(("feedback", "of"), FORMS)
def test_a_regressor_takes_the_place_of_the_least_squares(feedback: str, of: str) -> None:
    """It is asked before every draw and taught after every reward, with arms that come and go; it learns the same."""
    regressor, stream = Recursive(), rounds(of, 900)
    policy, plain = made(feedback, of, 3, 4, regressor=regressor), made(feedback, of, 3, 4)
    finals = [simulate(each, stream).final.sum() for each in (policy, plain)]
    assert finals[0] == pytest.approx(finals[1], rel=0.05)
    assert not regressor.moment.any()  # a copy was taught
    policy.grow(n_arms=5)
    policy.retire(1)
    z = np.ones((5, N_FEATURES) if of == "arms" else N_FEATURES)
    decision = policy.choose(0, features=z)
    policy.update(decision, np.full(5, 0.5) if feedback == "full" else 0.5)
    assert policy.probabilities(0, features=z).sum() == pytest.approx(1.0)
    assert np.isfinite(policy.fresh().choose(0, features=z).probabilities).all()
    with pytest.raises(InvalidArgument, match="regressor must be None for a snapshot"):
        policy.snapshot()
    if feedback == "bandit":  # nothing is taught by what is refused
        before = [None if each is None else each.moment.copy() for each in policy._learned.regressors.fitted]  # type: ignore[union-attr]
        odd = decision._replace(propensity=1e-9, probabilities=None)
        with pytest.raises(InvalidArgument, match="propensity"):
            policy.update(odd, 1.0)
        for each, moment in zip(policy._learned.regressors.fitted, before, strict=True):  # type: ignore[union-attr]
            assert each is None or np.array_equal(each.moment, moment)


def test_a_regressor_learns_from_a_log_and_plays_where_arms_come_and_go() -> None:
    """All of it or nothing, though there is no snapshot of a regressor."""
    stream = rounds("context", 90)
    live, again = (made("bandit", "context", 3, 4, regressor=Recursive()) for _ in range(2))
    log = simulate(live, stream, log=True).log
    assert log is not None
    z = np.ones(N_FEATURES)
    broken = replace(log, propensities=np.where(np.arange(90) == 80, 1e-9, log.propensities))
    first = again.probabilities(1, features=z)
    with pytest.raises(InvalidArgument, match="propensity"):
        run.over_log(again, broken)
    assert np.array_equal(again.probabilities(1, features=z), first)
    run.over_log(again, log)
    assert np.array_equal(again.probabilities(1, features=z), live.probabilities(1, features=z))
    market = replace(stream, arrivals=np.array([0, 0, 30, 60]), departures=np.array([50, 90, 90, 90]))
    trace = simulate(made("bandit", "context", 3, 2, regressor=Recursive()), market)
    assert trace.pulls.sum() == 90
    assert (trace.pulls > 0).all()


@pytest.mark.compiled
def test_a_scikit_learn_regressor_can_be_used() -> None:
    from sklearn.linear_model import SGDRegressor

    policy = AlphaFairAdaptive(1, 2, alpha=0.0, n_features=1, regressor=SGDRegressor(random_state=0), seed=0)
    rng = np.random.default_rng(0)
    for _ in range(600):
        z = rng.choice([-1.0, 1.0])
        decision = policy.choose(0, features=[z])
        policy.update(decision, float(decision.arm == (z > 0)))
    assert policy.probabilities(0, features=[1.0])[1] > 0.8
    assert policy.probabilities(0, features=[-1.0])[0] > 0.8


def test_a_custom_policy_may_ignore_features() -> None:
    class Polite(Uniform):
        n_features = 2
        feature_shape = (2,)

    decision = Polite(1, 3, feedback="bandit").choose(0, features=[1.0, 2.0])
    assert decision.features is not None
    assert decision.features.tolist() == [1.0, 2.0]


def test_without_features_there_is_nothing_to_show() -> None:
    assert AlphaFairAdaptive(1, 2).feature_shape == ()


def test_a_late_reward_of_a_retired_arm_is_learned_with_the_features_of_its_round() -> None:
    """Also where its group earns it: what is learned of features alone does not depend on groups."""
    learned = []
    for groups in (None, ["a", "a", "b"]):
        policy = AlphaFairAdaptive(1, 3, feedback="full", n_features=2, groups=groups, seed=0)
        late = policy.choose(0, features=[0.5, -2.0])
        policy.retire(0)
        policy.update(late, [1.0, 0.5, 0.25])
        learned.append(policy.snapshot().arrays["feature_gram"])
    np.testing.assert_array_equal(*learned)
    assert learned[0][:, 0].tolist() == [1.0, 0.5, 0.25, -2.0, -1.0, 4.0]
