"""Policies in plain Python: two methods and named state, and everything that other policies have."""

from __future__ import annotations

import ast
import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import (
    POLICIES,
    Decision,
    Engine,
    InvalidArgument,
    State,
    Stream,
    checks,
    load_policy,
    register,
    simulate,
)
from alphafair.extend import Accounts, Array, Feedback, Number, PlainPolicy, validate
from examples.epsilon_greedy import EpsilonGreedy
from tests import ROOT

EXAMPLE = ROOT / "examples" / "epsilon_greedy.py"
NEEDS_KERNELS = {"stepwise_equals_compiled", "interpreted_equals_compiled", "one_compiled_signature"}


class FairGreedy(PlainPolicy):
    """Mostly the arm with the largest mean x R^-alpha, R what it has earned; of everything that can be kept."""

    name = "fair-greedy"
    feedback = Feedback.BANDIT
    earned = Accounts()
    sums = Array("contexts", "arms", first="prior")
    visits = Array("contexts")
    latest = Array(3)  # rewards, the newest first
    rounds = Number()

    def __init__(
        self, n_contexts: int, n_arms: int, *, alpha: float = 0.5, prior: float = 0.5, seed: int | None = None
    ) -> None:
        self.alpha: float = validate.alpha(alpha)
        prior = validate.number("prior", prior, low=0.0, high=1.0)
        super().__init__(n_contexts, n_arms, settings={"alpha": self.alpha, "prior": prior}, seed=seed)

    def distribution(self, context: int) -> Any:
        gains = self.sums[context] / (1.0 + self.visits[context]) * self.earned**-self.alpha
        p = np.full(len(gains), 0.1 / len(gains))
        p[gains.argmax()] += 0.9
        return p

    def learn(self, context: int, arm: int, propensity: float, reward: float) -> None:
        self.earned[arm] += reward
        self.sums[context, arm] += reward / propensity
        self.visits[context] += 1.0
        self.latest = [reward, *self.latest[:-1]]
        self.rounds += 1.0

    def arms_added(self, first: int) -> None:
        self.sums[:, first:] = self.sums[:, :first].mean(axis=1, keepdims=True)


class Leader(PlainPolicy):
    """Full information: the arm that would have earned most, a little smoothed."""

    name = "leader"
    feedback = Feedback.FULL
    totals = Array("contexts", "arms")

    def __init__(self, n_contexts: int, n_arms: int, *, seed: int | None = None) -> None:
        super().__init__(n_contexts, n_arms, settings={}, seed=seed)

    def distribution(self, context: int) -> Any:
        weights = np.exp(0.1 * (self.totals[context] - self.totals[context].max()))
        return (weights / weights.sum()).tolist()  # a list will do

    def learn(self, context: int, probabilities: Any, rewards: Any) -> None:
        self.totals[context] += rewards


KINDS = (EpsilonGreedy, FairGreedy, Leader)


@pytest.fixture
def registered() -> Iterator[None]:
    for kind in KINDS:
        register(kind)
    yield
    for kind in KINDS:
        del POLICIES[kind.name]


def made_up(n_rounds: int = 300, n_contexts: int = 2, n_arms: int = 3, **presence: Any) -> Stream:
    rng = np.random.default_rng(7)
    contexts = rng.integers(n_contexts, size=n_rounds).astype(np.int32)
    return Stream.from_arrays(contexts, rng.random((n_rounds, n_arms)), n_contexts=n_contexts, **presence)


@pytest.mark.parametrize("kind", KINDS)
def test_applicable_checks_pass(kind: type[PlainPolicy]) -> None:
    results = list(checks.run_checks(kind))
    assert [result for result in results if not result.passed] == []
    skipped = {result.name for result in results if result.message.startswith(checks.NOT_APPLICABLE)}
    seen = {"unseen_rewards_do_not_matter"} if kind.feedback is Feedback.FULL else set()
    of_slates = {name for name in checks.CHECKS if name.startswith("slates_")}
    of_others = {"others_agree_in_every_mode"}
    assert skipped == NEEDS_KERNELS | {"memory_does_not_grow"} | seen | of_slates | of_others


def test_the_example_is_about_thirty_lines_and_imports_one_module_of_ours() -> None:
    tree = ast.parse(EXAMPLE.read_text())
    (kind,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert (kind.end_lineno or 0) - kind.lineno < 30
    imported = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert imported == ["alphafair.extend"]


def test_it_plays_its_formula() -> None:
    """Against a loop that shares nothing with it but the uniform numbers."""
    stream = made_up()
    trace = simulate(EpsilonGreedy(2, 3, epsilon=0.2), stream, seed=5, log=True)
    uniforms = np.random.default_rng(5).random(300)
    sums, counts = np.zeros((2, 3)), np.zeros((2, 3))
    for t, context in enumerate(stream.contexts):
        means = [sums[context, i] / counts[context, i] if counts[context, i] else 0.0 for i in range(3)]
        best = means.index(max(means))
        p = [0.2 / 3 + 0.8 * (i == best) for i in range(3)]
        arm = 0 if uniforms[t] < p[0] else 1 if uniforms[t] < p[0] + p[1] else 2
        assert trace.log is not None
        assert trace.log.arms[t] == arm
        assert trace.log.propensities[t] == pytest.approx(p[arm], rel=1e-15)
        sums[context, arm] += stream.rewards(t)[arm]
        counts[context, arm] += 1


def test_state_is_in_the_snapshot_by_name(registered: None) -> None:
    policy = FairGreedy(2, 3, alpha=0.3, seed=1)
    simulate(policy, made_up())
    state = State.from_bytes(policy.snapshot().to_bytes())
    shapes = {name: array.shape for name, array in state.arrays.items()}
    own = {"earned": (3,), "sums": (2, 3), "visits": (2,), "latest": (3,), "rounds": ()}
    assert shapes == {**own, "live": (3,), "retired_accounts": (1, 3), "entry_accounts": (1, 3)}
    assert state.settings == {"n_contexts": 2, "n_arms": 3, "alpha": 0.3, "prior": 0.5}
    assert policy.rounds == state.arrays["rounds"] == 300.0
    other = load_policy(state)
    assert type(other) is FairGreedy
    assert isinstance(other.rounds, float)
    assert other.latest.tolist() == policy.latest.tolist()
    assert [other.choose(0)[:3] for _ in range(50)] == [policy.choose(0)[:3] for _ in range(50)]
    with pytest.raises(InvalidArgument, match=r"state\.settings\['alpha'\] must be 0\.5; got 0\.3"):
        FairGreedy(2, 3).restore(state)
    damaged = State(state.policy, state.version, state.settings, state.rng, {**state.arrays, "sums": np.zeros((2, 5))})
    with pytest.raises(InvalidArgument, match=r"state\.arrays\['sums'\] must be float64 of shape \(2, 3\)"):
        load_policy(damaged)


def test_accounts_are_those_of_its_arms() -> None:
    policy = FairGreedy(1, 3)
    for arm, reward in ((0, 0.5), (1, 0.25), (2, 1.0)):
        policy.update(Decision(0, arm, 0.5, None), reward)  # type: ignore[arg-type]
    assert policy.accounts is not None
    assert policy.cumulative_rewards is not None
    assert policy.accounts.tolist() == [1.5, 1.25, 2.0]
    assert policy.cumulative_rewards.tolist() == [0.5, 0.25, 1.0]
    waiting = policy.choose(0, available=[False, False, True])
    policy.retire(2)
    policy.grow(n_arms=4)
    policy.grow(n_arms=5, account="fresh")
    policy.grow(n_arms=6, account=7.5)
    assert policy.accounts.tolist() == [1.5, 1.25, 2.0, 1.25, 1.0, 7.5]
    policy.update(waiting, 0.5)
    assert policy.accounts.tolist() == [1.5, 1.25, 2.5, 1.25, 1.0, 7.5]
    assert policy.rounds == 3.0, "what a retired arm earns late is booked, and not learned from"
    assert policy.groups is None
    with pytest.raises(InvalidArgument, match="groups must be None: fair-greedy does not support groups"):
        policy.grow(n_arms=7, groups=["a"])
    policy.set_alpha(0.9)
    assert policy.alpha == policy.snapshot().settings["alpha"] == 0.9


def test_accounts_per_context() -> None:
    class Apart(Leader):
        name = "apart"
        earned = Accounts("contexts", "arms")

        def learn(self, context: int, probabilities: Any, rewards: Any) -> None:
            super().learn(context, probabilities, rewards)
            self.earned[context] += probabilities * rewards

    policy = Apart(2, 2)
    policy.update(policy.choose(1), [0.5, 1.0])
    assert [*policy.snapshot().arrays] == ["totals", "earned", "live", "retired_accounts", "entry_accounts"]
    assert policy.accounts is not None
    assert policy.accounts.tolist() == [[1.0, 1.0], [1.25, 1.5]]
    policy.grow(3, 3)
    assert policy.accounts.tolist() == [[1.0, 1.0, 1.0], [1.25, 1.5, 1.25], [1.0, 1.0, 1.0]]
    assert Leader(2, 2).accounts is None


def test_new_arms_start_with_first_values_or_those_of_arms_added() -> None:
    policy = FairGreedy(2, 2, prior=0.25)
    assert policy.sums.tolist() == [[0.25, 0.25], [0.25, 0.25]]
    policy.sums = [[1.0, 3.0], [0.0, 4.0]]
    policy.grow(3, 4)
    assert policy.sums.tolist() == [[1.0, 3.0, 2.0, 2.0], [0.0, 4.0, 2.0, 2.0], [0.25] * 4]
    policy.retire(0)
    assert policy.sums.tolist() == [[3.0, 2.0, 2.0], [4.0, 2.0, 2.0], [0.25] * 3]
    assert policy.probabilities(0)[0] == 0.0
    assert policy.fresh().sums.tolist() == [[0.25] * 3] * 3
    plain = EpsilonGreedy(1, 2)
    plain.sums[:] = 5.0
    plain.grow(n_arms=3)
    assert plain.sums.tolist() == [[5.0, 5.0, 0.0]]


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ([0.5, 0.5, 0.0], "[0.5, 0.5, 0.0]"),
        ([0.5, 0.6], "[0.5, 0.6]"),
        ([1.5, -0.5], "[1.5, -0.5]"),
        ([float("nan"), 1.0], "[nan, 1.0]"),
        ("even", "'even'"),
        (None, "None"),
    ],
)
def test_invalid_distributions_are_refused(answer: Any, shown: str) -> None:
    class Wrong(Leader):
        def distribution(self, context: int) -> Any:
            return answer

    policy = Wrong(1, 3)
    policy.retire(1)
    for ask in (policy.choose, policy.probabilities):
        with pytest.raises(InvalidArgument) as refused:
            ask(0)
        assert str(refused.value) == (
            f"Wrong.distribution(0) must be 2 probabilities with sum 1, one per live arm; got {shown}. "
            "Return one per live arm; n_arms counts retired arms too."
        )


def test_rounding_errors_of_a_sum_are_corrected() -> None:
    class Rounded(Leader):
        def distribution(self, context: int) -> Any:
            return [0.3333333, 0.3333333, 0.3333333]

    p = Rounded(1, 3).probabilities(0)
    assert abs(p.sum() - 1.0) <= 1e-15
    assert p.tolist() == [p[0]] * 3


def test_an_error_in_learn_is_raised_and_the_update_can_be_retried() -> None:
    class Fails(EpsilonGreedy):
        failing = True

        def learn(self, context: int, arm: int, propensity: float, reward: float) -> None:
            if self.failing:
                raise RuntimeError("no luck")
            super().learn(context, arm, propensity, reward)

    policy = Fails(1, 2, seed=0)
    decision = policy.choose(0)
    with pytest.raises(RuntimeError, match="no luck"):
        policy.update(decision, 1.0)
    policy.failing = False
    policy.update(decision, 1.0)
    assert policy.counts.sum() == 1.0
    with pytest.raises(InvalidArgument, match="a decision that this policy has not learned from"):
        policy.update(decision, 1.0)


def test_methods_that_are_missing_are_named() -> None:
    class Empty(PlainPolicy):
        name = "empty"
        feedback = Feedback.BANDIT

        def __init__(self, n_contexts: int, n_arms: int, *, seed: int | None = None) -> None:
            super().__init__(n_contexts, n_arms, settings={}, seed=seed)

    with pytest.raises(NotImplementedError, match=r"Empty has no method distribution\(context\)"):
        Empty(1, 2).choose(0)
    with pytest.raises(NotImplementedError, match="Empty has no method learn"):
        Empty(1, 2).update(Decision(0, 0, 0.5, None), 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("axes", [(), ("arms", "contexts"), ("arms", 3), (3, "contexts"), (2, 3), (1,), ("users",)])
def test_axes_are_contexts_a_number_and_arms(axes: Any) -> None:
    with pytest.raises(
        InvalidArgument, match="axes must be some of 'contexts', an integer of at least 2, and 'arms', in this order"
    ):
        Array(*axes)


def test_there_is_one_set_of_accounts() -> None:
    with pytest.raises(InvalidArgument, match="Two must be a class with at most one Accounts"):

        class Two(Leader):
            first, second = Accounts(), Accounts()


def test_state_may_be_infinite() -> None:
    class Optimist(EpsilonGreedy):
        hopes = Array("contexts", "arms", first=np.inf)

    policy, other = Optimist(1, 2), Optimist(1, 2)
    policy.hopes[0, 1] = 3.0
    other.restore(State.from_bytes(policy.snapshot().to_bytes()))
    assert other.hopes.tolist() == [[np.inf, 3.0]]


def test_subclasses_inherit_state() -> None:
    class Longer(FairGreedy):
        history = Array("contexts", 4, "arms", first=2.0)

    policy = Longer(2, 3)
    kept = {"rounds", "latest", "earned", "visits", "sums", "history"}
    assert {*policy.snapshot().arrays} == {*kept, "live", "retired_accounts", "entry_accounts"}
    assert policy.history.shape == (2, 4, 3)
    policy.history[1, 2] = [5.0, 6.0, 7.0]
    policy.retire(1)
    assert policy.history[1, 2].tolist() == [5.0, 7.0]
    assert policy.sums.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert "history" not in FairGreedy(1, 2).snapshot().arrays


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_copies_are_independent(again: Any) -> None:
    policy = FairGreedy(2, 3, seed=3)
    simulate(policy, made_up(50))
    other = again(policy)
    kept = policy.sums.copy()
    other.update(other.choose(0), 1.0)
    assert np.array_equal(policy.sums, kept)
    assert other.rounds == 51.0
    other.grow(3)
    assert (other.n_contexts, policy.n_contexts) == (3, 2)


def test_runs_with_arms_that_come_and_go_and_late_rewards() -> None:
    stream = made_up(400, 2, 4, arrivals=[0, 0, 0, 150], departures=[400, 250, 400, 400])
    policy = FairGreedy(2, 3)
    trace = simulate(policy, stream, seed=1, delay=7)
    assert trace.pulls.sum() == 400
    assert policy.live_arms.tolist() == [0, 2, 3]
    assert policy.rounds <= 400.0
    assert policy.cumulative_rewards is not None
    np.testing.assert_allclose(policy.cumulative_rewards, trace.final - 1.0, rtol=1e-12)
    assert policy.accounts is not None
    assert policy.accounts[3] > trace.final[3] + 1.0, "it entered with the least account of the others"


def test_a_run_that_is_refused_on_the_way_changes_nothing() -> None:
    class NoMore(Leader):
        def arms_added(self, first: int) -> None:
            raise ValueError("no more arms, please")

    policy = NoMore(2, 3, seed=0)
    with pytest.raises(ValueError, match="no more arms"):
        simulate(policy, made_up(100, 2, 4, arrivals=[0, 0, 0, 50]))
    assert (policy.n_arms, policy.totals.tolist()) == (3, np.zeros((2, 3)).tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_makes_it_by_name_and_replays_it(kind: type[PlainPolicy], registered: None, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    full = kind.feedback is Feedback.FULL
    with Engine.open(path) as engine:
        engine.create("home", arms=["ada", "ben"], policy=kind.name, reward_range=(0, 2))
        for t in range(60):
            if t == 20:
                engine.add_arm("home", "cyd")
            if t == 40:
                engine.retire_arm("home", "ada")
            receipt = engine.decide("home", f"visitor-{t % 3}")
            live = engine.experiment("home").arms
            if full:
                engine.reward(receipt.id, {arm: 0.5 + 0.1 * k for k, arm in enumerate(live)})
            else:
                assert engine.reward(receipt.id, 1.5 if receipt.arm == "ben" else 0.5).outcome == "applied"
        assert engine.experiment("home").rewards == 60
    with Engine.open(path) as engine:
        engine.verify()
        assert engine.decide("home", "visitor-0").arm in ("ben", "cyd")
