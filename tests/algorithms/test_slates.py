"""Slates: reference runs, the sums of every decision, one use of every reward, refusals."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from alphafair import (
    POLICIES,
    AlphaFair,
    AlphaFairAdaptive,
    AlphaFairBandit,
    FairCB,
    Groups,
    Hedge,
    IndependentAlphaFair,
    ScaleFree,
    Uniform,
)
from alphafair.algorithms.adaptive_bandit import C, K, N
from alphafair.errors import InvalidArgument
from alphafair.lab.rivals import AlphaFairAfter, AlphaFairNextVisit
from alphafair.values import Feedback, SlateDecision
from examples.epsilon_greedy import EpsilonGreedy
from tests import ROOT

GOLDEN: list[dict[str, Any]] = json.loads((ROOT / "tests/fixtures/golden_slates.json").read_text())["runs"]
KINDS: dict[str, Callable[..., Any]] = {
    "adaptive": AlphaFairAdaptive,
    "adaptive full": lambda *sizes, **more: AlphaFairAdaptive(*sizes, feedback="full", **more),
    "alpha-fair": AlphaFair,
    "bandit": AlphaFairBandit,
    "uniform": Uniform,
}


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes longer; `slates_agree_in_every_mode` of the conformance checks compares machine code."""
    monkeypatch.setenv("ALPHAFAIR_JIT", "off")


class Fixed:
    """One uniform number."""

    def __init__(self, uniform: float) -> None:
        self.uniform = uniform

    def random(self) -> float:
        return self.uniform


def reward_for(policy: Any, decision: SlateDecision, rng: np.random.Generator) -> Any:
    return rng.random(policy.n_arms if policy.feedback is Feedback.FULL else len(decision.arms))


@pytest.mark.parametrize("run", GOLDEN, ids=lambda run: f"{run['policy']}-{run['feedback']}-{run['alpha']}-{run['k']}")
def test_reference_runs(run: dict[str, Any]) -> None:
    settings = {"alpha": run["alpha"], "groups": Groups(pull_floor=run["pull_floor"]) if run["pull_floor"] else None}
    if run["policy"] == "alpha-fair-adaptive":
        settings["feedback"] = run["feedback"]
    policy: Any = POLICIES[run["policy"]](run["n_contexts"], run["n_arms"], **settings)
    for played in run["rounds"]:
        decision = policy.choose(played["context"], k=run["k"], rng=Fixed(played["uniform"]))
        assert list(decision.arms) == played["arms"]
        np.testing.assert_allclose(decision.probabilities, played["p"], rtol=1e-12, atol=1e-14)
        policy.update(decision, played["rewards"])
    np.testing.assert_allclose(policy.accounts, run["accounts"], rtol=1e-12)
    memory = policy._memory
    if run["feedback"] == "bandit":
        found = memory.scalars[[N.lead, N.spread]]
        np.testing.assert_allclose(found, [run["lead"], run["spread"]], rtol=1e-12)
        np.testing.assert_allclose(memory.contexts[:, C.losses], run["losses"], rtol=1e-12)
        np.testing.assert_allclose(memory.context_scalars[:, K.variation], run["variation"], rtol=1e-12)
        bound = run["expected_surrogate_regret_bound"]
        assert policy.expected_surrogate_regret_bound == pytest.approx(bound, rel=1e-12)
    else:
        named = policy._learned.named()
        np.testing.assert_allclose(named["x"], run["x"], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(named["squared_norms"], run["squared_norms"], rtol=1e-12)
        assert policy.surrogate_regret_bound == pytest.approx(run["surrogate_regret_bound"], rel=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0, np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_every_decision_sums_to_k(kind: str, alpha: float) -> None:
    """With floors, masks and random k; the same as `probabilities`, which changes nothing; one uniform per decision."""
    options = {} if kind == "uniform" else {"alpha": alpha, "groups": Groups(pull_floor=0.05)}
    policy, rng = KINDS[kind](2, 6, **options), np.random.default_rng(int(min(alpha, 9) * 10))
    for _ in range(25):
        k, available = int(rng.integers(1, 7)), rng.random(6) < 0.8
        available[rng.integers(6)] = True
        mask = available if rng.random() < 0.5 else None
        p = policy.probabilities(1, k=k, available=mask)
        decision = policy.choose(1, k=k, available=mask)
        shown = min(k, 6 if mask is None else int(mask.sum()))
        assert (p == decision.probabilities).all()
        assert not decision.probabilities.flags.writeable
        assert abs(p.sum() - shown) <= 1e-12
        assert shown == len(decision.arms) == len({*decision.arms})
        there = np.ones(6, dtype=bool) if mask is None else mask
        assert p.max() <= 1.0
        assert not p[~there].any()
        if options:
            assert (p[there] >= 0.05 * (1 - 1e-12)).all()
        policy.update(decision, reward_for(policy, decision, rng))


def test_one_shown_arm_is_the_same_play() -> None:
    """`choose(context, k=1)` and its update run the kernels of single arms: the same bits."""
    for kind in KINDS.values():
        one, other = kind(2, 4, seed=3), kind(2, 4, seed=3)
        rng = np.random.default_rng(4)
        for t in range(30):
            single, slate = one.choose(t % 2), other.choose(t % 2, k=1)
            assert (slate.arms, slate.propensities) == ((single.arm,), (single.propensity,))
            assert (slate.probabilities == single.probabilities).all()
            rewards = rng.random(4)
            full = one.feedback is Feedback.FULL
            one.update(single, rewards if full else float(rewards[single.arm]))
            other.update(slate, rewards if full else {single.arm: float(rewards[single.arm])})
        assert one.snapshot().to_bytes() == other.snapshot().to_bytes()


def test_rewards_of_a_slate_count_once_each() -> None:
    policy = AlphaFairAdaptive(1, 5, seed=1)
    decision = policy.choose(0, k=3)
    first, second, third = decision.arms
    policy.update(decision, {second: 0.5})
    before = policy.snapshot().to_bytes()
    with pytest.raises(InvalidArgument, match=rf"of arms without a reward yet, \[{first}, {third}\]; got {second}\."):
        policy.update(decision, {first: 0.1, second: 0.5})
    with pytest.raises(InvalidArgument, match=r"of arms without a reward yet"):
        policy.update(decision, [0.1, 0.2, 0.3])
    assert policy.snapshot().to_bytes() == before
    policy.update(decision, {np.int64(third): 1, first: 0.25})
    earned = policy.cumulative_rewards
    assert earned[[first, second, third]].tolist() == [0.25, 0.5, 1.0]
    for again in (decision, copy.copy(decision)):
        assert again.arms == decision.arms
    with pytest.raises(InvalidArgument, match=r"without a reward yet, \[\]"):
        policy.update(decision, {first: 0.1})
    with pytest.raises(InvalidArgument, match="decision that is not expected yet"):
        policy.expect(decision)
    other = policy.fresh()
    other.update(decision, [0.1, 0.2, 0.3])  # another policy has not learned from it
    rebuilt = pickle.loads(pickle.dumps(decision))
    policy.update(rebuilt, {first: 0.1})
    policy.update(SlateDecision(*decision)._replace(probabilities=None), {first: 0.1})
    assert policy.cumulative_rewards[first] == pytest.approx(0.45)


def test_expected_and_forgone_rewards() -> None:
    policy = AlphaFairAdaptive(1, 5, alpha=0.5, seed=1)
    policy.update(policy.choose(0, k=2), [1.0, 1.0])
    before = policy.probabilities(0, k=2)
    decision = policy.choose(0, k=3)
    policy.expect(decision)
    assert policy._memory.arms[policy._learned.layout.arms.pending].sum() == 3.0
    assert (policy.probabilities(0, k=2) != before).any()
    with pytest.raises(InvalidArgument, match="not expected yet"):
        policy.expect(decision)
    policy.update(decision, {decision.arms[1]: 0.5})
    assert policy._memory.arms[policy._learned.layout.arms.pending].sum() == 2.0
    policy.forgo(decision)
    assert policy._memory.arms[policy._learned.layout.arms.pending].sum() == 0.0
    with pytest.raises(InvalidArgument, match="whose reward may still come"):
        policy.forgo(decision)
    policy.update(decision, {decision.arms[0]: 0.5})  # it came after all


def test_full_information_learns_once() -> None:
    policy = AlphaFair(1, 3, seed=2)
    decision = policy.choose(0, k=2)
    policy.update(decision, [0.1, 0.2, 0.3])
    with pytest.raises(InvalidArgument, match=r"Pass each decision once.*SlateDecision\(\*decision\)"):
        policy.update(decision, [0.1, 0.2, 0.3])
    with pytest.raises(InvalidArgument):
        policy.update(policy.choose(0, k=2), {0: 0.5})


@pytest.mark.parametrize("kind", ["adaptive", "adaptive full", "alpha-fair"])
def test_no_bound_after_different_numbers(kind: str) -> None:
    policy = KINDS[kind](1, 4, alpha=0.5, seed=1)

    def bound() -> float | None:
        found: float | None = (
            policy.expected_surrogate_regret_bound if kind == "adaptive" else policy.surrogate_regret_bound
        )
        return found

    def play(k: int | None) -> None:
        rng = np.random.default_rng(1)
        for _ in range(3):
            decision = policy.choose(0, k=k)
            single = k is None and kind == "adaptive"
            policy.update(decision, 0.5 if single else rng.random(k if kind == "adaptive" else 4))

    play(3)
    assert bound() is not None
    play(None)
    assert bound() is None
    policy.new_period()
    play(2)
    assert bound() is not None
    play(3)
    assert bound() is None
    policy.new_period()
    play(None)
    assert bound() is not None
    if kind != "adaptive":  # a single arm again has the full reach
        assert (policy._learned.named()["reach"] == 1.0).all()


ONE_ARM = (
    "k must be left out: {} shows one arm per decision; got 3. Use AlphaFairAdaptive, AlphaFair, AlphaFairBandit or"
)
WHOLE = "k must be an integer of at least 1; got {}. Leave it out to show one arm."
FLOORS = Groups(["a", "a", "b", "b", "c"], pull_floor={"a": 0.2})
QUESTIONS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "k of 0": (AlphaFair(1, 5), {"k": 0}, WHOLE.format(0)),
    "k of 2.5": (AlphaFair(1, 5), {"k": 2.5}, WHOLE.format(2.5)),
    "k of True": (AlphaFair(1, 5), {"k": True}, WHOLE.format(True)),
    "k in words": (Uniform(1, 5), {"k": "3"}, WHOLE.format("'3'")),
    "a policy with a horizon": (FairCB(1, 5, pull_share=0.1, horizon=10), {"k": 3}, ONE_ARM.format("fair-cb")),
    "a policy for sums": (Hedge(1, 5), {"k": 3}, ONE_ARM.format("hedge")),
    "a policy of any scale": (ScaleFree(1, 5), {"k": 3}, ONE_ARM.format("scale-free")),
    "a policy per context": (IndependentAlphaFair(1, 5), {"k": 3}, ONE_ARM.format("independent-alpha-fair")),
    "a policy in plain Python": (EpsilonGreedy(1, 5), {"k": 3}, ONE_ARM.format("epsilon-greedy")),
    "floors of groups": (
        AlphaFair(1, 5, groups=FLOORS),
        {"k": 3},
        "k must be 1 with a pull_floor by group; got 3. Pass one pull_floor for all arms.",
    ),
    "no arm available": (AlphaFairAdaptive(1, 5), {"k": 3, "available": [False] * 5}, "available must be 5 booleans"),
    "too short a mask": (AlphaFairAdaptive(1, 5), {"k": 3, "available": [True] * 4}, "available must be 5 booleans"),
    "features it has not": (AlphaFairAdaptive(1, 5), {"k": 3, "features": [0.5]}, "features must be left out"),
    "another context": (AlphaFairAdaptive(1, 5), {"context": 1, "k": 3}, "context must be"),
}


@pytest.mark.parametrize("case", QUESTIONS)
def test_refused_decisions_change_nothing(case: str) -> None:
    """Not even the random numbers of the decisions that follow."""
    policy, asked, words = QUESTIONS[case]
    before = policy.snapshot().to_bytes()
    for call in (policy.choose, policy.probabilities):
        with pytest.raises(InvalidArgument, match=re.escape(words)):
            call(**{"context": 0, **asked})
        assert policy.snapshot().to_bytes() == before


BANDIT = AlphaFairAdaptive(1, 5)


def learn(rewards: Any, **changes: Any) -> None:
    made = {"context": 0, "arms": (2, 0, 4), "propensities": (0.6,) * 3, "probabilities": np.full(5, 0.6)}
    BANDIT.update(SlateDecision(**{**made, **changes}), rewards)


REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "one number": (
        lambda: learn(0.5),
        "rewards must be 3 numbers in [0, 1], one per shown arm, or an object from arm to reward; got 0.5. "
        "Pass them in the order of decision.arms.",
    ),
    "an arm that is not shown": (
        lambda: learn({9: 0.5}),
        "rewards must be of shown arms, [2, 0, 4]; got 9. Pass a reward per shown arm.",
    ),
    "too few numbers": (lambda: learn([0.5, 0.5]), "Pass them in the order of decision.arms."),
    "no numbers": (lambda: learn({}), "Pass them in the order of decision.arms."),
    "a string": (lambda: learn("abc"), "Pass them in the order of decision.arms."),
    "a reward above 1": (lambda: learn([0.5, 1.5, 0.5]), "reward must be a number in [0, 1]; got 1.5."),
    "NaN": (lambda: learn([0.5, np.nan, 0.5]), "reward must be a number in [0, 1]; got nan."),
    "the same arm twice": (lambda: learn([0.5] * 3, arms=(2, 2, 4)), "decision.arms must be different arms"),
    "no arm": (lambda: learn([], arms=()), "decision.arms must be different arms"),
    "an unknown arm": (lambda: learn([0.5] * 3, arms=(2, 0, 5)), "decision.arms[2] must be"),
    "fields that are no tuples": (lambda: learn([0.5] * 3, arms=3), "decision must be a SlateDecision"),
    "too few propensities": (lambda: learn([0.5] * 3, propensities=(0.5, 0.5)), "decision.propensities must be 3"),
    "a propensity of 0": (lambda: learn([0.5] * 3, propensities=(0.5, 0.0, 0.5)), "decision.propensities[1] must be"),
    "an impossible propensity": (
        lambda: learn([0.5] * 3, propensities=(0.5, 1e-9, 0.5), probabilities=None),
        "the smallest propensity of this policy in context 0 with 3 arms; got 1e-09",
    ),
    "another probability": (lambda: learn([0.5] * 3, propensities=(0.6, 0.5, 0.6)), "decision.probabilities[0], 0.6"),
    "probabilities that sum to 1": (
        lambda: learn([0.5] * 3, propensities=(0.2,) * 3, probabilities=np.full(5, 0.2)),
        "decision.probabilities must be probabilities that sum to 3, the number of shown arms",
    ),
    "another context": (lambda: learn([0.5] * 3, context=1), "context must be"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused_rewards_change_nothing(case: str) -> None:
    before = BANDIT.snapshot().to_bytes()
    call, words = REFUSALS[case]
    with pytest.raises((InvalidArgument, TypeError)) as caught:
        call()
    assert words in str(caught.value)
    assert BANDIT.snapshot().to_bytes() == before


def test_readings_of_the_lab_show_one_arm() -> None:
    for kind in (AlphaFairAfter, AlphaFairNextVisit):
        assert not kind.traits.slates
        with pytest.raises(InvalidArgument, match="k must be left out"):
            kind(1, 5).choose(0, k=2)


def test_a_damaged_memory_is_reported() -> None:
    policy = AlphaFair(1, 4)
    policy._learned.named()["x"][:] = np.nan
    with pytest.raises(InvalidArgument, match="memory of the policy is damaged"):
        policy.choose(0, k=2)


def test_a_snapshot_without_a_largest_slate_is_refused() -> None:
    policy = AlphaFairAdaptive(2, 3, alpha=0.5)
    state = policy.snapshot()
    state.arrays["most_shown"][...] = 0.0  # type: ignore[index]
    with pytest.raises(InvalidArgument, match="largest slate"):
        policy.restore(state)


def test_an_impossible_propensity_is_refused_and_changes_nothing() -> None:
    policy = AlphaFairBandit(1, 4, seed=1)
    decision, before = policy.choose(0, k=2), policy.snapshot().to_bytes()
    probabilities = np.full(4, 1.0 - 1e-12)
    probabilities[list(decision.arms)] = 1e-12
    forged = SlateDecision(0, decision.arms, (1e-12, 1e-12), probabilities)
    with pytest.raises(InvalidArgument, match="at least"):
        policy.update(forged, [1.0, 0.0])
    assert policy.snapshot().to_bytes() == before
    policy.update(decision, [1.0, 0.0])


def test_features_of_the_round() -> None:
    """Arms that features favor are shown more often; the decision keeps the features."""
    policy, rng = AlphaFairAdaptive(1, 6, alpha=0.0, n_features=2, seed=1), np.random.default_rng(2)
    worth, earned, expected = rng.random((6, 2)), 0.0, 0.0
    for t in range(150):
        z = rng.random(2)
        decision = policy.choose(0, k=2, features=z)
        assert (decision.features == z).all()
        rewards = {arm: float(worth[arm] @ z / 2) for arm in decision.arms}
        policy.update(decision, rewards)
        earned += sum(rewards.values()) if t >= 75 else 0.0
        expected += float((worth @ z / 2).mean() * 2) if t >= 75 else 0.0
    assert earned > 1.1 * expected
    assert repr(decision).startswith("SlateDecision(context=0")
    changed = decision._replace(context=1)
    assert changed.context == 1
    assert (changed.features == decision.features).all()
