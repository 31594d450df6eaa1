"""Policies at the edge of what is allowed: rewards, features, floors, entitlements and propensities of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from alphafair import (
    AlphaFair,
    AlphaFairAdaptive,
    AlphaFairBandit,
    Decision,
    FairCB,
    Groups,
    Hedge,
    InvalidArgument,
    Log,
    Policy,
    Stream,
    load_policy,
    simulate,
)
from alphafair.algorithms import POLICIES
from alphafair.engine import Engine
from alphafair.math.distributions import draw_arm, mask_distribution
from alphafair.math.floors import lift_groups
from alphafair.policy.base import BasePolicy
from alphafair.policy.stepper import Stepper
from alphafair.run import over_log
from alphafair.values import State
from tests import search_policies as search
from tests import searching

TINY = [5e-324, 1.2e-285, 1e-200, 1e-163, 1e-161, 1e-150, 1e-141, 1e-139]


class Zero:
    """A uniform source that says 0."""

    def random(self) -> float:
        return 0.0


def assert_valid(policy: Policy, **shown: Any) -> None:
    """Every context has a distribution, and what is saved can be loaded and says the same."""
    loaded = load_policy(State.from_bytes(policy.snapshot().to_bytes()))
    for context in range(policy.n_contexts):
        p = policy.probabilities(context, **shown)
        assert ((p >= 0.0) & (p <= 1.0)).all(), p
        assert abs(p.sum() - 1.0) <= 1e-9, p
        assert np.array_equal(loaded.probabilities(context, **shown), p)


def learn(policy: Policy, rewards: Any, context: int = 0, **shown: Any) -> Decision:
    """One round, in which every arm pays as `rewards` say."""
    decision = policy.choose(context, **shown)
    table = np.broadcast_to(np.asarray(rewards, dtype=float), policy.n_arms)
    policy.update(decision, table if policy.feedback == "full" else float(table[decision.arm]))
    return decision


# rewards of any size


@pytest.mark.parametrize("feedback", ["bandit", "full"])
@pytest.mark.parametrize("tiny", TINY)
@pytest.mark.parametrize("n_zeros", [0, 50])
def test_the_first_reward_may_be_of_any_size(feedback: Any, tiny: float, n_zeros: int) -> None:
    """Its square underflows below 1e-162, and sooner after zeros: the policy divided by 0."""
    policy = AlphaFairAdaptive(2, 3, alpha=0.0, feedback=feedback, seed=0)
    for _ in range(n_zeros):
        learn(policy, 0.0)
    for reward in [tiny] * 3 + [0.0, 1.0, tiny, 1.0]:
        learn(policy, reward)
        assert_valid(policy)
    for _ in range(100):
        learn(policy, [1.0, 0.1, 0.1])
    assert policy.probabilities(0).argmax() == 0  # and it has learned


@pytest.mark.parametrize("tiny", TINY)
@pytest.mark.parametrize("rewards", [[1.0, 0.0], [0.5, 1.0]])
def test_the_first_rewards_may_be_of_any_size_under_floors(tiny: float, rewards: list[float]) -> None:
    policy = AlphaFairAdaptive(1, 2, feedback="full", groups=Groups(pull_floor=[0.5, 0.0]), seed=0)
    for scale in (tiny, tiny, 1.0, tiny):
        learn(policy, scale * np.array(rewards))
        assert_valid(policy)
        assert policy.probabilities(0)[0] >= 0.5


@pytest.mark.parametrize("feedback", ["bandit", "full"])
def test_rewards_that_are_too_small_to_be_squared_count_as_zeros(feedback: Any) -> None:
    tiny, zero = (AlphaFairAdaptive(1, 3, feedback=feedback, seed=0) for _ in range(2))
    for _ in range(20):
        learn(tiny, [1e-200, 1e-300, 5e-324])
        learn(zero, 0.0)
        np.testing.assert_array_equal(tiny.probabilities(0), zero.probabilities(0))
    assert tiny.accounts.tolist() == zero.accounts.tolist()


@pytest.mark.parametrize("feedback", ["bandit", "full"])
def test_rewards_that_can_be_squared_have_any_scale(feedback: Any) -> None:
    one, other = (AlphaFairAdaptive(1, 3, alpha=0.0, feedback=feedback, seed=0) for _ in range(2))
    for _ in range(50):
        learn(one, [0.5, 0.25, 0.125])
        learn(other, np.array([0.5, 0.25, 0.125]) * 2.0**-460)  # about 1e-139
    assert np.array_equal(one.probabilities(0), other.probabilities(0))


VARIANTS = {
    f"{name}{':' if label else ''}{label}": (made, settings)
    for name, made in POLICIES.items()
    for label, settings in made.traits.variants(2, 3).items()
}


@pytest.mark.parametrize("name", VARIANTS)
def test_rewards_of_mixed_sizes_leave_every_policy_a_distribution(name: str) -> None:
    made, settings = VARIANTS[name]
    rng = np.random.default_rng(0)
    policy: Any = made(2, 3, seed=0, **settings)
    for t in range(60):
        rewards = rng.choice([0.0, 1.0, *TINY, 1e-100, 1e-20], 3)
        learn(policy, rewards if t != 40 else 1.0, context=t % 2)
        if t % 10 == 0:
            assert_valid(policy)
    assert_valid(policy)


@pytest.mark.parametrize("tiny", TINY)
def test_an_engine_continues_after_a_tiny_reward(tmp_path: Any, tiny: float) -> None:
    """Every later decision was refused, through restarts."""
    path = tmp_path / "shop.db"
    with Engine.open(path) as engine:
        engine.create("home", arms=["ada", "ben"], policy="alpha-fair-adaptive")
        for reward in (tiny, 0.0, tiny):
            engine.reward(engine.decide("home", "visitor").id, reward)
    with Engine.open(path) as engine:
        assert engine.verify() is not None
        assert 0.0 < engine.decide("home", "visitor").propensity < 1.0
        assert engine.experiment("home").unhealthy is None


# features of any size


def round_of(z: float) -> list[float]:
    return [1.0, 0.0] if z > 0 else [0.0, 1.0]


@pytest.mark.parametrize("feedback", ["bandit", "full"])
@pytest.mark.parametrize("outlier", [1e9, 1e10, 1e12, 1e30, 1e50])
def test_features_may_have_outliers(feedback: Any, outlier: float) -> None:
    """What least squares made of one ended as a matrix that was not positive, and an arm numbered -3."""
    policy = AlphaFairAdaptive(1, 2, n_features=1, feedback=feedback, seed=0)
    for z in [1.0, -1.0] * 10 + [outlier] * 3 + [-outlier, 1.0, -1.0] * 3:
        learn(policy, round_of(z), features=[z])
        assert_valid(policy, features=[outlier])


@pytest.mark.parametrize("feedback", ["bandit", "full"])
@pytest.mark.parametrize("of", ["context", "arms"])
@pytest.mark.parametrize("size", [5e-324, 1e-200, 1e-163, 1e-161, 1e-150, 1e-145, 1e-100, 1e50])
def test_features_may_have_any_size(feedback: Any, of: Any, size: float) -> None:
    policy = AlphaFairAdaptive(1, 2, n_features=2, features_of=of, feedback=feedback, seed=0)
    rng = np.random.default_rng(1)
    for t in range(30):
        features = rng.uniform(-1.0, 1.0, 2 if of == "context" else (2, 2)) * (size if t != 20 else 1.0)
        learn(policy, [0.2, 0.7], features=features)
        if t % 4 == 0:
            assert_valid(policy, features=features)


@pytest.mark.parametrize("seed", range(20))
def test_features_of_mixed_sizes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    policy = AlphaFairAdaptive(1, 3, n_features=2, feedback="bandit" if seed % 2 else "full", seed=seed)
    for _ in range(30):
        features = rng.choice([-1.0, 1.0], 2) * 10.0 ** rng.uniform(-170, 50, 2)
        learn(policy, rng.random(3), features=features)
    assert_valid(policy, features=features)


def test_whole_runs_with_outliers_equal_single_steps() -> None:
    """A run that met NaN drew the last arm for ever and said nothing."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(300, 2))
    features[150] *= 1e12
    stream = Stream.from_arrays(np.zeros(300, int), rng.random((300, 3)), features=features)
    for feedback in ("bandit", "full"):
        whole, steps = (AlphaFairAdaptive(1, 3, n_features=2, feedback=feedback) for _ in range(2))  # type: ignore[arg-type]
        one, other = simulate(whole, stream), simulate(steps, stream, compiled=False)
        assert np.array_equal(one.accounts, other.accounts)
        assert_valid(whole, features=[1.0, 1.0])


class Extreme:
    """A regressor whose predictions are as large as they may be, whatever the rewards are."""

    def partial_fit(self, features: Any, targets: Any) -> None:
        pass

    def predict(self, features: Any) -> Any:
        return np.sign(features[:, 0])


def test_a_regressor_may_be_wrong_by_orders_of_magnitude() -> None:
    policy = AlphaFairAdaptive(1, 2, n_features=1, regressor=Extreme(), seed=0)
    for z in [1.0, -1.0] * 20:
        learn(policy, 1e-12 * np.array(round_of(z)), features=[z])
        p = policy.probabilities(0, features=[z])
        assert abs(p.sum() - 1.0) <= 1e-9


@pytest.mark.parametrize("last", [3.0, 1e10])
def test_an_expected_reward_counts_as_three_at_most(last: float) -> None:
    """What features said was added to it without a bound, and the snapshot was refused."""
    policy = AlphaFairAdaptive(1, 1, n_features=1, seed=0)
    for z, reward in [(0.0, 1.0)] + [(0.01, 0.0)] * 4 + [(last, 1.0)]:
        policy.update(policy.choose(0, features=[z]), reward)
    policy.expect(policy.choose(0, features=[0.0]))
    assert_valid(policy, features=[0.0])


# entitlements and floors


@pytest.mark.parametrize("made", [AlphaFair, AlphaFairBandit, AlphaFairAdaptive])
@pytest.mark.parametrize("entitlement", [49, 98, 103, 1e-6 / 3 * 4, 0.3])
def test_a_group_may_retire_before_it_earns(made: Any, entitlement: float) -> None:
    """(1/49) 49 is less than 1."""
    policy = made(1, 2, groups=Groups(entitlements=[1, entitlement]))
    assert policy.accounts.min() == 1.0
    policy.retire(1)
    assert policy.accounts.min() == 1.0
    assert_valid(policy)
    older = policy.snapshot()
    older.arrays["group_accounts"][1] = 1.0 - 2.0**-53  # as it was kept before
    assert load_policy(older).accounts[1] == 1.0 - 2.0**-53


def test_an_engine_may_be_opened_again_after_such_a_group_retired(tmp_path: Any) -> None:
    engine = Engine.open(tmp_path / "shop.db")
    engine.create(
        "home",
        arms=["ada", "ben", "cyd"],
        policy="alpha-fair-adaptive",
        groups=Groups(["ada", "ben", "cyd"], {"ben": 49}),
    )
    engine.retire_arm("home", "ben")
    good = engine.position
    engine.reward(engine.decide("home", "visitor").id, 1.0)
    engine.rollback("home", good)
    engine.close()
    again = Engine.open(tmp_path / "shop.db")
    again.verify()
    again.decide("home", "visitor")
    again.close()


FLOORED = [
    (AlphaFair, {}),
    (AlphaFairBandit, {}),
    (AlphaFairAdaptive, {"feedback": "full"}),
    (AlphaFairAdaptive, {"feedback": "bandit"}),
]


@pytest.mark.parametrize(("made", "settings"), FLOORED)
@pytest.mark.parametrize("floors", [[1.0, 0.0], [np.nextafter(1.0, 0.0), 0.0], [0.7, 0.3 + 1e-13], [0.0, 1.0]])
def test_floors_may_promise_everything(made: Any, settings: Any, floors: list[float]) -> None:
    """Rounding raised a probability above 1, and the policy refused its own decision."""
    rng = np.random.default_rng(0)
    policy = made(1, 8, groups=Groups([0] * 3 + [1] * 5, pull_floor=floors), seed=0, **settings)
    for t in range(60):
        mask = rng.random(8) < 0.6
        mask[rng.integers(8)] = True
        decision = policy.choose(0, available=mask if t % 3 == 0 else None)
        assert ((decision.probabilities >= 0.0) & (decision.probabilities <= 1.0)).all()
        assert abs(decision.probabilities.sum() - 1.0) <= 1e-9
        rewards = np.eye(8)[2] if t < 20 else rng.random(8)
        policy.update(decision, rewards if policy.feedback == "full" else float(rewards[decision.arm]))
        if t % 10 < 2:
            assert_valid(policy)


def test_a_probability_is_not_raised_above_1() -> None:
    policy = AlphaFairBandit(1, 3, groups=Groups([0, 0, 1], pull_floor=[1.0, 0.0]))
    rng = np.random.default_rng(0)
    for _ in range(2000):
        y = rng.dirichlet([1.0, 1e-3, 1.0]) + 1e-20
        lift_groups(policy._memory.groups, y)
        assert y.max() <= 1.0


def test_steps_and_whole_runs_are_the_same_under_a_floor_of_1() -> None:
    rewards = np.zeros((400, 8))
    rewards[::2, 2] = 1.0
    stream = Stream.from_arrays(np.zeros(400, int), rewards)
    for made, settings in FLOORED:
        whole, steps = (
            made(1, 8, groups=Groups([0] * 3 + [1] * 5, pull_floor=[1.0, 0.0]), **settings) for _ in range(2)
        )
        simulate(whole, stream)
        simulate(steps, stream, compiled=False)
        for name, array in whole.snapshot().arrays.items():
            assert np.array_equal(array, steps.snapshot().arrays[name]), name


@pytest.mark.parametrize("made", [AlphaFair, AlphaFairBandit, AlphaFairAdaptive])
@pytest.mark.parametrize("floor", [1e-13, [1e-160, 1.0], [0.5, 5e-324]])
def test_floors_too_small_to_have_an_effect_are_refused(made: Any, floor: Any) -> None:
    """A draw with a probability of 1e-160 has a loss whose square is infinite."""
    with pytest.raises(InvalidArgument, match="pull_floor must be 0 or at least 1e-12; got"):
        made(1, 2, groups=Groups(pull_floor=floor))
    assert_valid(made(1, 2, groups=Groups(pull_floor=1e-12)))


# propensities of any size


def kept(policy: Any) -> bytes:
    return bytes(policy.snapshot().to_bytes())


@pytest.mark.parametrize("propensity", [1e-10, 1e-20, 1e-100, 1e-200, 1e-310, 5e-324])
@pytest.mark.parametrize("weights", [[1.0], None])
def test_fair_cb_refuses_propensities_that_would_break_its_floor(propensity: float, weights: Any) -> None:
    policy = FairCB(1, 3, horizon=1000, context_weights=weights)
    learn(policy, 0.5)
    before = kept(policy)
    with pytest.raises(InvalidArgument, match=r"decision.propensity must be at least 1e-09"):
        policy.update(Decision(0, 0, propensity, None), 0.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"log.propensities\[1\] must be at least 1e-09"):
        over_log(policy, Log([0, 0], [0, 1], [0.5, 0.5], [0.5, propensity], n_arms=3))
    assert kept(policy) == before


def test_fair_cb_keeps_its_floor_with_the_least_propensity() -> None:
    policy = FairCB(1, 3, horizon=1000, context_weights=[1.0])
    for arm in (0, 0, 1, 0):
        policy.update(Decision(0, arm, 1e-9, None), 0.0)  # type: ignore[arg-type]
        assert policy.marginals.min() >= 1.0 / 6.0 - 1e-9


def test_fair_cb_takes_its_own_decision_whatever_its_propensity() -> None:
    policy = FairCB(2, 2, horizon=20, context_weights=[0.999, 0.001], pull_share=1e-6, feedback="bandit")
    propensity = 1.0
    while propensity >= 1e-9:
        decision = policy.choose(1, rng=Zero())  # type: ignore[arg-type]
        assert decision.arm == 0
        propensity = decision.propensity
        policy.update(decision, 0.0)
    assert_valid(policy)


@pytest.mark.parametrize("made", [AlphaFairBandit, AlphaFairAdaptive])
def test_a_tiny_propensity_under_a_floor_of_1_is_refused(made: Any) -> None:
    policy = made(1, 2, groups=Groups(pull_floor=[0.0, 1.0]))
    before = kept(policy)
    with pytest.raises(InvalidArgument, match=r"decision\.propensity must be at least"):
        policy.update(Decision(0, 0, 5e-324, None), 1.0)
    assert kept(policy) == before
    for _ in range(5):  # it is drawn where it alone is available
        policy.update(policy.choose(0, available=[True, False]), 1.0)
        assert_valid(policy)


@pytest.mark.parametrize("total", [1 - 9e-7, 1 + 9e-7])
def test_fair_cb_keeps_its_floor_with_weights_that_almost_sum_to_1(total: float) -> None:
    floor = float(np.nextafter(1.0 / 3.0, 0.0))
    policy = FairCB(2, 3, horizon=100, context_weights=[0.5 * total, 0.5 * total], pull_share=floor)
    for t in range(30):
        learn(policy, [1.0, 0.2, 0.0], context=t % 2)
    assert policy.marginals.min() >= floor - 1e-9
    assert_valid(policy)
    older = policy.snapshot()
    older.arrays["weight"][:] = 0.5 * total  # as they were kept before
    load_policy(older)


@pytest.mark.parametrize("made", [Hedge, FairCB])
def test_a_horizon_that_no_float_can_hold_is_refused(made: Any) -> None:
    for horizon in (10**301, 10**309, 10**5000):
        with pytest.raises(InvalidArgument, match=r"horizon must be at most 1e\+300; got"):
            made(1, 2, horizon=horizon)
    learn(made(1, 2, horizon=10**300), 0.5)


# nothing to draw from: no kernel reads beyond its arrays, and nobody is handed such a decision

NOTHING = [[0.0, 0.0, 0.0], [np.nan, 0.5, 0.5], [np.nan] * 3, [0.0, np.nan, 0.5]]


@pytest.mark.parametrize("p", NOTHING)
@pytest.mark.parametrize("uniform", [0.0, 0.5, np.nextafter(1.0, 0.0)])
def test_draws_stay_inside_the_array(p: list[float], uniform: float) -> None:
    assert 0 <= draw_arm(np.array(p), uniform) < 3
    block = np.array([7.0, 8.0, 9.0, *p])
    assert 0 <= draw_arm(block[3:], uniform) < 3


def test_masks_do_not_hide_nan() -> None:
    p = np.array([np.nan, 0.5, 0.5])
    mask_distribution(p, np.array([True, True, False]))
    assert np.isnan(p[0])


@pytest.mark.parametrize("broken", NOTHING)
def test_a_damaged_memory_is_not_drawn_from(broken: list[float]) -> None:
    policy = AlphaFair(1, 3, seed=0)
    policy._learned.named()["x"][0] = broken
    asked: list[Callable[[], object]] = [
        lambda: policy.choose(0),
        lambda: policy.stepper.draw_alone(0, 0.5),
        lambda: policy.probabilities(0),
        lambda: policy.choose(0, available=[True, True, False]) if np.isnan(broken[0]) else policy.choose(0),
    ]
    for ask in asked:
        with pytest.raises(InvalidArgument, match="the distribution of context 0 must be one that sums to 1"):
            ask()
    stream = Stream.from_arrays(np.zeros(5, int), np.full((5, 3), 0.5))
    with pytest.raises(ArithmeticError, match="not a distribution"):
        simulate(policy, stream)


# the search: see tests/search_policies.py


@pytest.mark.parametrize("kind", search.KINDS)
def test_a_short_search_finds_nothing(kind: str) -> None:
    for number in range(8):
        search.Case(number, kind, size=0.4).run()


def planted(kind: str) -> str:
    """What the search finds in its first cases."""
    for number in range(20):
        try:
            search.Case(number, kind, size=0.4).run()
        except searching.Failure as failure:
            return str(failure)
    return ""


def test_the_search_finds_what_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum beside 1, a refusal that changes something, a snapshot that forgets."""
    assert planted("uniform") == ""
    with monkeypatch.context() as patch:
        asked = BasePolicy.probabilities
        patch.setattr(BasePolicy, "probabilities", lambda policy, *args, **said: asked(policy, *args, **said) * 1.00001)
        assert "not a distribution" in planted("uniform")
    with monkeypatch.context() as patch:

        def refuse(stepper: Any, *args: Any) -> InvalidArgument:
            stepper.learned.memory.contexts[...] += 1.0
            return InvalidArgument("decision.propensity", "another", 0.5, "")

        patch.setattr(Stepper, "impossible", refuse)
        assert "something has changed" in planted("alpha-fair-bandit")
    with monkeypatch.context() as patch:
        patch.setattr("alphafair.policy.archive.read", lambda learned, state: None)
        assert "saves otherwise" in planted("hedge")
