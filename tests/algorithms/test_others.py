"""What adaptive policies learn from decisions of others: golden values, what it leaves alone, and what it costs."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFairAdaptive, Decision, Groups, InvalidArgument, Log, load_policy
from alphafair.policy import archive
from alphafair.policy.loops import LEARN, OBSERVE, LogSteps
from tests import ROOT
from tools import measure_others

GOLDEN: dict[str, Any] = json.loads((ROOT / "tests" / "fixtures" / "golden-adoption.json").read_text())["learning"]


class Fixed:
    """A source of one uniform number."""

    def __init__(self, uniform: float) -> None:
        self.uniform = uniform

    def random(self) -> float:
        return self.uniform


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{case['alpha']}-{case['groups']}")
def test_golden_values(case: Any) -> None:
    policy = AlphaFairAdaptive(GOLDEN["contexts"], GOLDEN["arms"], alpha=case["alpha"], groups=case["groups"])
    expected = iter(case["own_rounds"])
    names, of_others = policy._learned.layout.scratch, policy._learned.layout.others
    assert of_others is not None
    for kind, context, *rest in GOLDEN["rounds"]:
        if kind == "other":
            assert policy.observe(context, *rest)
            continue
        uniform, rewards = rest
        now = next(expected)
        decision = policy.choose(context, rng=Fixed(uniform))
        close(decision.probabilities, now["probabilities"])
        assert decision.arm == now["arm"]
        close(policy._memory.scratch[names.predicted], now["m"])
        if policy.trust is not None:
            close(policy.trust, now["w"])
            scratch = policy._memory.others.scratch
            close(scratch[of_others.scratch.alone], now["own"])
            close(scratch[of_others.scratch.predicted], now["joint"])
        policy.update(decision, rewards[decision.arm])
        if policy.trust is not None:
            close(policy._memory.others.scalars[of_others.scalars.tau], now["trust_after"])
    close(policy.accounts, case["accounts"])


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12)


def trained(n_rounds: int = 40, **settings: Any) -> AlphaFairAdaptive:
    """A policy of 3 contexts and 4 arms after own rounds, with rewards that hang on the arm."""
    policy, rng = AlphaFairAdaptive(3, 4, **{"alpha": 0.5, "seed": 0, **settings}), np.random.default_rng(0)
    play(policy, n_rounds, rng)
    return policy


def play(policy: AlphaFairAdaptive, n_rounds: int, rng: np.random.Generator) -> None:
    for _ in range(n_rounds):
        decision = policy.choose(int(rng.integers(policy.n_contexts)), **features(policy, rng))
        policy.update(decision, float(rng.random() < 0.2 + 0.2 * (decision.arm % 4)))


def observe(policy: AlphaFairAdaptive, n_rounds: int, rng: np.random.Generator) -> None:
    for _ in range(n_rounds):
        context, arm = int(rng.integers(policy.n_contexts)), int(rng.choice(policy.live_arms))
        assert policy.observe(context, arm, rng.random(), **features(policy, rng))


def features(policy: AlphaFairAdaptive, rng: np.random.Generator) -> dict[str, Any]:
    return {"features": rng.normal(size=policy.feature_shape)} if policy.n_features else {}


def arrays(policy: AlphaFairAdaptive) -> dict[str, np.ndarray]:
    return dict(policy.snapshot().arrays)


def own(policy: AlphaFairAdaptive) -> dict[str, bytes]:
    """What own decisions taught, in bytes."""
    return {name: np.asarray(cells).tobytes() for name, cells in arrays(policy).items() if "others_" not in name}


def test_a_decision_of_somebody_else_teaches_the_second_predictor_alone() -> None:
    policy = trained()
    before, bound = own(policy), policy.expected_surrogate_regret_bound
    assert policy.trust is None
    observe(policy, 30, np.random.default_rng(1))
    assert own(policy) == before
    assert policy.expected_surrogate_regret_bound == bound is not None
    assert policy.trust == pytest.approx(0.776)
    play(policy, 30, np.random.default_rng(2))
    assert policy.expected_surrogate_regret_bound is not None  # not outside the theorem


def test_the_second_predictor_begins_as_a_copy() -> None:
    policy = trained()
    before = arrays(policy)
    policy._begin_others()
    after = arrays(policy)
    for name in {*after} - {*before} - {"others_tau"}:
        np.testing.assert_array_equal(after[name], before[name.removeprefix("others_")])


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two sides": {"context_weight": 0.4},
    "two sides, alpha 2": {"context_weight": 0.4, "alpha": 2.0},
    "a promise to contexts": {"context_share": 0.4},
    "floors of groups": {"groups": Groups(["a", "b", "a", "b"], pull_floor={"a": 0.4})},
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_two_predictors_that_agree_play_as_one(settings: str) -> None:
    """Right after J began both score arms by the same prices."""
    policy = trained(**SETTINGS[settings])
    before = [policy.probabilities(context) for context in range(3)]
    policy._begin_others()
    after = [policy.probabilities(context) for context in range(3)]
    np.testing.assert_allclose(after, before, rtol=0.0, atol=1e-13)
    assert np.ptp(before) > 0.3


@pytest.mark.parametrize("retired", [False, True])
def test_a_log_at_once_is_a_decision_after_the_other(retired: bool) -> None:
    """Among own rewards too, with the step OBSERVE; and rows of retired arms teach nothing."""
    one, other, rng = trained(), trained(), np.random.default_rng(5)
    for policy in (one, other) if retired else ():
        policy.retire(2)
    contexts, arms, rewards = rng.integers(0, 3, 60), rng.integers(0, 4, 60), rng.random(60)
    kinds = np.where(rng.random(60) < 0.5, OBSERVE, LEARN).astype(np.int8)
    kinds[:5] = LEARN
    propensities = np.full(60, 0.25)
    archive.follow(one, LogSteps.learning(contexts, arms, propensities, rewards)._replace(steps=kinds))
    rows = zip(kinds.tolist(), contexts.tolist(), arms.tolist(), rewards.tolist(), strict=True)
    for kind, context, arm, reward in rows:
        if kind == OBSERVE:
            assert other.observe(context, arm, reward) is not (retired and arm == 2)
        else:
            other.update(Decision(context, arm, 0.25, None), reward)  # type: ignore[arg-type]
    assert one.snapshot().to_bytes() == other.snapshot().to_bytes()
    log = Log(contexts, arms, rewards, propensities, n_contexts=3, n_arms=4)
    assert one.observe_log(log)
    for context, arm, reward in zip(contexts.tolist(), arms.tolist(), rewards.tolist(), strict=True):
        other.observe(context, arm, reward)
    assert one.snapshot().to_bytes() == other.snapshot().to_bytes()


def test_a_refused_own_row_behind_an_observed_one_has_its_number() -> None:
    policy = trained()
    steps = LogSteps.learning(np.zeros(4, int), np.zeros(4, int), np.array([0.5, 0.5, 0.5, 1e-9]), np.full(4, 0.5))
    steps.steps[:] = [LEARN, OBSERVE, LEARN, LEARN]
    with pytest.raises(InvalidArgument, match=r"^log\.propensities\[3\]"):
        archive.follow(policy, steps)
    alone = trained()
    steps.propensities[0] = 1e-9
    with pytest.raises(InvalidArgument, match=r"^log\.propensities\[0\]"):
        archive.follow(alone, steps)
    assert alone.trust is None


@pytest.mark.parametrize("of_arms", [False, True])
def test_a_log_with_features(of_arms: bool) -> None:
    settings: dict[str, Any] = {"n_features": 2, "features_of": "arms" if of_arms else "context"}
    one, other, rng = trained(**settings), trained(**settings), np.random.default_rng(3)
    contexts, arms, rewards = rng.integers(0, 3, 20), rng.integers(0, 4, 20), rng.random(20)
    shown = rng.normal(size=(20, 4, 2) if of_arms else (20, 2))
    assert one.observe_log(Log(contexts, arms, rewards, np.ones(20), n_contexts=3, n_arms=4, features=shown))
    for context, arm, reward, z in zip(contexts.tolist(), arms.tolist(), rewards.tolist(), shown, strict=True):
        other.observe(context, arm, reward, features=z)
    assert one.snapshot().to_bytes() == other.snapshot().to_bytes()


def test_logs_that_do_not_fit_are_refused_and_change_nothing() -> None:
    policy = trained()
    before = policy.snapshot().to_bytes()
    many = Log([0, 3], [0, 1], [0.5, 0.5], [1.0, 1.0])
    with pytest.raises(InvalidArgument, match=r"log must be limited to at most 3 contexts and 4 arms"):
        policy.observe_log(many)
    with pytest.raises(InvalidArgument, match=r"log\.rewards"):
        policy.observe_log(Log([0], [1], [1.5], [1.0]))
    with pytest.raises(InvalidArgument, match="log must be a Log"):
        policy.observe_log("a log")  # type: ignore[arg-type]
    assert policy.snapshot().to_bytes() == before
    assert AlphaFairAdaptive(3, 4, feedback="full").observe_log(Log([0], [1], [0.5], [1.0])) is False
    policy.retire(1)
    assert policy.observe_log(Log([0], [1], [0.5], [1.0])) is False
    assert policy.trust is None


def test_a_regressor_of_the_user_learns_nothing_from_others() -> None:
    class Mean:
        def partial_fit(self, z: Any, y: Any) -> None: ...

        def predict(self, z: Any) -> Any:
            return np.zeros(len(z))

    policy = AlphaFairAdaptive(3, 4, n_features=2, regressor=Mean())
    assert policy.learns_from_others is False
    assert policy.observe(0, 1, 0.5, [1.0, 2.0]) is False
    assert policy.trust is None


CHANGES: dict[str, Any] = {
    "alpha": lambda policy: policy.set_alpha(0.8),
    "alpha across 1": lambda policy: policy.set_alpha(2.0),
    "period": lambda policy: policy.new_period(),
    "groups": lambda policy: policy.set_groups(["a", "b", "a", "b"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_terms_keep_what_others_taught(change: str) -> None:
    policy, rng = trained(), np.random.default_rng(1)
    observe(policy, 20, rng)
    play(policy, 20, rng)
    before = {name: cells for name, cells in arrays(policy).items() if "others_" in name}
    CHANGES[change](policy)
    after = arrays(policy)
    assert len(before) > 10
    for name, cells in before.items():
        np.testing.assert_array_equal(after[name], cells)
    play(policy, 20, rng)
    assert policy.trust != pytest.approx(0.776)


@pytest.mark.parametrize("n_features", [0, 2])
def test_copies_go_on_alike(n_features: int) -> None:
    """Also where contexts were added after the first observation, and features are shown to both predictors."""
    policy, rng = trained(n_features=n_features), np.random.default_rng(1)
    observe(policy, 10, rng)
    policy.grow(n_contexts=5)
    policy.grow(n_contexts=6)
    observe(policy, 10, rng)
    copies = [copy.deepcopy(policy), pickle.loads(pickle.dumps(policy)), load_policy(policy.snapshot())]
    for each in (policy, *copies):
        again = np.random.default_rng(7)
        play(each, 20, again)
        observe(each, 5, again)
        play(each, 20, again)
    assert {each.snapshot().to_bytes() for each in copies} == {policy.snapshot().to_bytes()}
    assert policy.fresh().trust is None


def test_a_snapshot_replaces_what_others_taught() -> None:
    policy = trained()
    without = policy.snapshot()
    observe(policy, 10, np.random.default_rng(1))
    with_others = policy.snapshot()
    policy.restore(without)
    assert policy.trust is None
    assert policy.snapshot().to_bytes() == without.to_bytes()
    policy.restore(with_others)
    assert policy.snapshot().to_bytes() == with_others.to_bytes()


DAMAGES: dict[str, tuple[Any, str]] = {
    "others_tau": (21.0, "tau in"),
    "others_visits": (-np.ones(3), "counts of at least 0"),
    "others_largest": (9.0, "the largest one is part of"),
    "others_seen": (-1.0, "counts of at least 0"),
    "others_long_sum": (np.zeros((2, 4)), "of 3 contexts"),
    "others_account": (np.ones(4), "named"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_snapshots_are_refused(name: str) -> None:
    policy = trained()
    observe(policy, 10, np.random.default_rng(1))
    value, words = DAMAGES[name]
    state = policy.snapshot()
    damaged = replace(state, arrays={**state.arrays, name: np.asarray(value)})
    with pytest.raises(InvalidArgument, match=words):
        load_policy(damaged)


def test_the_memory_of_a_context_counts_both_predictors() -> None:
    policy = trained()
    before = policy.stepper.bytes_per_context
    observe(policy, 1, np.random.default_rng(1))
    assert policy.stepper.bytes_per_context == before + 8 * (6 * 4 + 1)


def test_nothing_positive_was_earned_yet() -> None:
    """Then w plays no part, and others' rewards are still learned."""
    policy = AlphaFairAdaptive(2, 3, alpha=0.5, seed=0)
    for _ in range(5):
        policy.observe(0, 2, 1.0)
    np.testing.assert_allclose(policy.probabilities(0), 1 / 3)
    policy.update(policy.choose(0, available=[True, False, False]), 0.0)
    np.testing.assert_allclose(policy.probabilities(0), 1 / 3)
    policy.update(policy.choose(0, k=2), [0.0, 0.0])
    assert policy.trust == pytest.approx(0.776)  # zeros say nothing about who predicts better
    policy.update(policy.choose(0, available=[True, False, False]), 0.5)
    assert policy.probabilities(0).argmax() == 2


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("log", "early", "late"),
    [
        ("uniform", (8.0, 18.0), (0.5, 3.0)),
        ("popular arms, 10% explored", (6.0, 16.0), (0.5, 3.0)),
        ("liar: 1.2 - reward", (-6.0, 3.0), (-2.0, 1.0)),
        ("the best arm never pays", (-8.0, 3.0), (-2.0, 1.0)),
    ],
)
def test_what_a_log_is_worth(log: str, early: tuple[float, float], late: tuple[float, float]) -> None:
    """A small part of what tools/measure_others.py measures."""
    gained = np.zeros(2)
    for seed in range(2):
        before, own = measure_others.world("stationary", seed)
        given = measure_others.log_of(log, before, seed)
        cold, warm = (measure_others.closed(own, 0.5, seed, each) for each in (None, given))
        gained += (np.array(warm) - np.array(cold)) / 2
    assert early[0] <= gained[0] <= early[1]
    assert late[0] <= gained[1] <= late[1]
